// Asks the server whether the caller may do something. Questions of the same moment travel in one AccessPreview.
import { review } from './api';
import { decisions } from './decisions.svelte';
import type { Kind } from './kinds';
import type { AccessPreview, PreviewRequest, PreviewResult } from './types';
import { texts } from '../texts';

const AT_ONCE = 200;
const FRESH = 10_000;

interface Question {
  request: PreviewRequest;
  resolve: (result: PreviewResult) => void;
  reject: (cause: unknown) => void;
}

let waiting: Question[] = [];
let known = new Map<string, { at: number; answer: Promise<PreviewResult> }>();

async function flush(): Promise<void> {
  const questions = waiting.splice(0, AT_ONCE);
  if (waiting.length > 0) queueMicrotask(() => void flush());
  try {
    const requests = questions.map((question) => question.request);
    const preview = await review<AccessPreview>('accesspreviews', 'AccessPreview', { requests }, { background: true });
    questions.forEach((question, index) => {
      const result = preview.status?.results?.[index];
      if (result) question.resolve(result);
      else question.reject(new Error('the server did not answer every question'));
    });
  } catch (cause) {
    for (const question of questions) question.reject(cause);
  }
}

/** The server's decision about one request of the caller. Decisions are asked anew after ten seconds. */
export function decide(request: PreviewRequest): Promise<PreviewResult> {
  const key = JSON.stringify(request);
  const earlier = known.get(key);
  if (earlier && Date.now() - earlier.at < FRESH) return earlier.answer;
  const answer = new Promise<PreviewResult>((resolve, reject) => {
    if (waiting.length === 0) queueMicrotask(() => void flush());
    waiting.push({ request, resolve, reject });
  });
  known.set(key, { at: Date.now(), answer });
  answer.catch(() => known.delete(key));
  return answer;
}

/** The permissions to write an identity provider: impersonation of all users and groups, because it says who its users are. */
export function toImpersonateAll(kind: Kind): PreviewRequest[] {
  const isProvider = kind.kind === 'Connector' || kind.kind === 'TrustedIssuer';
  return isProvider ? ['users', 'groups'].map((resource) => ({ verb: 'impersonate', group: '', resource })) : [];
}

/** Forgets all decisions, because a write may have changed them. Buttons ask again. */
export function forgetDecisions(): void {
  known = new Map();
  decisions.turn += 1;
}

/** The request that moves a virtual cluster to a project. */
export function moveInto(project: string): PreviewRequest {
  return { verb: 'create', group: 'management.platform.sh', resource: 'projects', subresource: 'migratevirtualclusterinstance', name: project };
}

/** The first decision that denies, or the last one. */
export async function decideAll(requests: PreviewRequest[]): Promise<PreviewResult> {
  const results = await Promise.all(requests.map(decide));
  return results.find((result) => !result.allowed) ?? results.at(-1) ?? { allowed: true };
}

/** The first decision that allows, or else the first one. The first request is asked alone: it is the one that most callers have. */
export async function decideAny(requests: PreviewRequest[]): Promise<PreviewResult> {
  const [first, ...others] = requests;
  if (!first) return { allowed: true };
  const answer = await decide(first);
  if (answer.allowed) return answer;
  return (await Promise.all(others.map(decide))).find((result) => result.allowed) ?? answer;
}

/** What an action needs. */
export interface Needs {
  /** All of these; `nothing` for what every caller may do. */
  needs: PreviewRequest[] | 'nothing';
  /** And one of these; undefined if there is no choice. */
  oneOf?: PreviewRequest[] | undefined;
}

/** Whether the caller may do an action. One that asks for no permission, or has no place, is denied. */
export async function decideAction({ needs, oneOf }: Needs): Promise<PreviewResult> {
  if (needs === 'nothing') return { allowed: true };
  if (oneOf ? oneOf.length === 0 : needs.length === 0) return { allowed: false, reason: texts.action.nowhere };
  const results = await Promise.all([decideAll(needs), decideAny(oneOf ?? [])]);
  return results.find((result) => !result.allowed) ?? (results[0] as PreviewResult);
}

const NO_ROLE = /^no role of (.+) allows it; this rule (?:everywhere|(.+)) would allow it:$/;
const NOT_IN_SCOPE = /^the scope of (.+) does not allow it; this entry would allow it:$/;

/** The first line of a reason in words, and the rule or scope entry below it. */
export function splitReason(reason: string): { text: string; rule: string } {
  const end = reason.indexOf('\n');
  if (end < 0) return { text: reason, rule: '' };
  const first = reason.slice(0, end);
  const [role, scope] = [NO_ROLE.exec(first), NOT_IN_SCOPE.exec(first)];
  const text = role ? texts.refusal.noRole(role[1] ?? '', role[2] ?? '') : scope ? texts.refusal.notInScope(scope[1] ?? '') : first.replace(/:$/, '');
  return { text, rule: reason.slice(end + 1).trimEnd() };
}
