// An object's access rules as shares: one user or team with some verbs. `postern share` makes the same rules, so that
// either can undo what the other did.
import type { Failure } from './failure';
import { VERBS, rightOf } from './rules';
import type { Access, Ownership } from './types';

/** The name of the rules that a share makes. */
const RULE_NAME = 'shared';

export interface Share {
  /** The same for the same share, whatever happens to other rules. */
  id: string;
  /** `user/NAME` or `team/NAME`; `user/*` is every user. */
  subject: string;
  verbs: string[];
  subresources: string[];
  /** The name of the rule; empty if it has none. */
  rule: string;
}

/** What a person changes before it is saved. */
export interface Changes {
  /** The new verbs by the id of the share; no verbs take the share back. */
  edits: Map<string, string[]>;
  /** Users and teams that get something new. */
  added: string[];
  verbs: string[];
}

function subjectsOf({ users = [], teams = [] }: Access): string[] {
  // A rule can name one twice.
  return [...new Set([...users.map((user) => `user/${user}`), ...teams.map((team) => `team/${team}`)])];
}

function shareOf(rule: Access, subject: string): Share {
  const { verbs, subresources = [], name = '' } = rule;
  return { id: JSON.stringify([subject, name, verbs, subresources]), subject, verbs, subresources, rule: name };
}

/** The shares of access rules, in their order, and equal ones once. */
export function sharesOf(rules: Access[]): Share[] {
  const shares = rules.flatMap((rule) => subjectsOf(rule).map((subject) => shareOf(rule, subject)));
  return [...new Map(shares.map((share) => [share.id, share])).values()];
}

/** The field with rules in another form, which a share does not change. */
export const EXTRA = 'extraAccessRules';

/** The rules of this field as access rules. */
export function extraRulesOf({ extraAccessRules = [] }: Ownership): Access[] {
  return extraAccessRules.map(({ users = [], teams = [] }) => ({ name: EXTRA, verbs: ['get', 'use'], users, teams }));
}

/** The shares by rules of this field. */
export function extraSharesOf(spec: Ownership): Share[] {
  return sharesOf(extraRulesOf(spec)).map((share) => ({ ...share, id: `${EXTRA} ${share.id}` }));
}

/** A user or team by its parts. */
export function partsOf(subject: string): { kind: 'user' | 'team'; name: string } {
  const [kind, ...rest] = subject.split('/');
  return { kind: kind === 'team' ? 'team' : 'user', name: rest.join('/') };
}

function withSubject(rule: Access, subject: string): Access {
  const { kind, name } = partsOf(subject);
  return kind === 'team' ? { ...rule, teams: [...(rule.teams ?? []), name] } : { ...rule, users: [...(rule.users ?? []), name] };
}

/** The rule without some subjects; undefined if none is left. */
function withoutSubjects(rule: Access, gone: string[]): Access | undefined {
  const { users = [], teams = [], ...rest } = rule;
  const [leftUsers, leftTeams] = [users.filter((user) => !gone.includes(`user/${user}`)), teams.filter((team) => !gone.includes(`team/${team}`))];
  if (leftUsers.length + leftTeams.length === 0) return undefined;
  return { ...rest, ...(leftUsers.length ? { users: leftUsers } : {}), ...(leftTeams.length ? { teams: leftTeams } : {}) };
}

const isSame = (a: string[], b: string[]): boolean => a.length === b.length && a.every((each) => b.includes(each));
const has = (all: string[], wanted: string[]): boolean => all.includes('*') || wanted.every((each) => all.includes(each));

/** The rules with a grant to subjects that do not have it by one rule. */
function grant(rules: Access[], subjects: string[], verbs: string[], subresources: string[] = []): Access[] {
  const fresh = subjects.filter((subject) => !rules.some((rule) => subjectsOf(rule).includes(subject) && has(rule.verbs, verbs) && has(rule.subresources ?? [], subresources)));
  if (fresh.length === 0) return rules;
  const at = rules.findIndex((rule) => rule.name === RULE_NAME && isSame(rule.verbs, verbs) && isSame(rule.subresources ?? [], subresources));
  const rule = fresh.reduce(withSubject, rules[at] ?? { name: RULE_NAME, verbs, ...(subresources.length > 0 ? { subresources } : {}) });
  return at < 0 ? [...rules, rule] : rules.with(at, rule);
}

/** The rules after the changes. Rules that they do not touch stay as they are. */
export function changed(rules: Access[], { edits, added, verbs }: Changes): Access[] {
  const moved: { subject: string; verbs: string[]; subresources: string[] | undefined }[] = [];
  const left = rules.flatMap((rule) => {
    const shares = subjectsOf(rule).map((subject) => ({ subject, verbs: edits.get(shareOf(rule, subject).id) }));
    const edited = shares.filter((share) => share.verbs !== undefined);
    if (edited.length === 0) return [rule];
    const first = edited[0]?.verbs ?? [];
    // A rule for one alone keeps its name.
    if (shares.length === 1 && first.length > 0) return [{ ...rule, verbs: first }];
    for (const share of edited) if (share.verbs && share.verbs.length > 0) moved.push({ subject: share.subject, verbs: share.verbs, subresources: rule.subresources });
    return withoutSubjects(rule, edited.map(({ subject }) => subject)) ?? [];
  });
  const next = moved.reduce((all, share) => grant(all, [share.subject], share.verbs, share.subresources), left);
  return grant(next, added, verbs);
}

/** The verbs that a user has by a rule for a team or for every user. `members` are the users of the teams that are known. */
export function byTeams(rules: Access[], subject: string, members: Map<string, string[]>): Set<string> {
  const isUser = subject.startsWith('user/') && subject !== 'user/*';
  const given = rules.filter((rule) => isUser && subjectsOf(rule).some((each) => each === 'user/*' || members.get(each)?.includes(subject)));
  return new Set(given.flatMap(({ verbs }) => (verbs.includes('*') ? VERBS : verbs)));
}

/** What verbs permit, as the parts of a sentence: `read`, `change` and so on, and the verbs that are none of these. */
export function meaningOf(verbs: string[]): { parts: string[]; others: string[] } {
  if (rightOf(verbs) === 'all') return { parts: ['all'], others: [] };
  const groups: [string, string[]][] = [
    ['read', ['get', 'list', 'watch']],
    ['change', ['update', 'patch']],
    ['delete', ['delete', 'deletecollection']],
    ['use', ['use']],
  ];
  const parts = groups.filter(([, each]) => each.some((verb) => verbs.includes(verb))).map(([part]) => part);
  return { parts, others: verbs.filter((verb) => !groups.some(([, each]) => each.includes(verb))) };
}

/** Why the server refused a share: a known reason, and the user, team or verb that it is about. */
export interface Refusal {
  why: 'unnamed' | 'everyone' | 'not-held' | 'changed' | 'unknown-name';
  what: string;
}

/** The reason of a refusal; undefined for one that has only the server's text. */
export function refusalOf({ code, message, causes }: Failure): Refusal | undefined {
  if (code === 409) return { why: 'changed', what: '' };
  if (code === 422) {
    const cause = causes.find(({ field, reason }) => reason === 'FieldValueNotFound' && /^spec\.access/.test(field ?? ''));
    return cause && { why: 'unknown-name', what: /"([^"]*)"/.exec(cause.message ?? '')?.[1] ?? '' };
  }
  if (code !== 403) return undefined;
  if (/requires the verb bind on all users/.test(message)) return { why: 'everyone', what: '' };
  const whom = /access for the (user|team) "([^"]*)" requires/.exec(message);
  if (whom) return { why: 'unnamed', what: `${whom[1]} ${whom[2]}` };
  const verb = /cannot (\S+) resource/.exec(message)?.[1];
  return verb === undefined ? undefined : { why: 'not-held', what: verb };
}
