// Which objects a user or team reaches, and why, as `postern access` finds it: one review for each object and verb.
import { splitReason } from './access';
import { MANAGEMENT, METADATA_LIST_TYPE, get, json, review, withQuery } from './api';
import { forEach } from './at-once';
import { CLUSTERS, SPACES, VIRTUAL_CLUSTERS, collectionPath, type Kind } from './kinds';
import type { AccessPreview, ObjectMeta, PreviewRequest } from './types';

/** The objects that are asked about at most. */
export const OBJECTS = 200;
const VERBS = ['get', 'update', 'delete'];
const AT_ONCE = 8;
/** The questions of one preview. */
const PREVIEWED = 150;

export interface Reached {
  namespace: string;
  name: string;
  verbs: string[];
  /** The reason of the server for the first verb. */
  why: string;
}

export interface Reach {
  reached: Reached[];
  asked: number;
  /** Whether every object was asked about. */
  isAll: boolean;
}

interface Decision {
  allowed?: boolean;
  reason?: string;
}

/** Asks about one request of another user. */
export async function askAbout(user: string, resourceAttributes: PreviewRequest, signal?: AbortSignal): Promise<Decision> {
  const path = `${MANAGEMENT}/apis/authorization.k8s.io/v1/subjectaccessreviews`;
  const body = { apiVersion: 'authorization.k8s.io/v1', kind: 'SubjectAccessReview', spec: { user, resourceAttributes } };
  return (await json<{ status?: Decision }>('POST', path, { body, signal })).status ?? {};
}

async function askMyself(requests: PreviewRequest[]): Promise<Decision[]> {
  const decisions: Decision[] = [];
  for (let at = 0; at < requests.length; at += PREVIEWED) {
    const part = requests.slice(at, at + PREVIEWED);
    const { status } = await review<AccessPreview>('accesspreviews', 'AccessPreview', { requests: part });
    decisions.push(...part.map((_, index) => status?.results?.[index] ?? {}));
  }
  return decisions;
}

/** What the user of this name in access decisions reaches of a kind; the caller if it is empty. */
export async function reachOf(user: string, kind: Kind, report: (done: number, all: number) => void, stop: AbortController): Promise<Reach> {
  const { signal } = stop;
  const path = withQuery(collectionPath(kind), { limit: OBJECTS });
  const list = await get<{ metadata?: { continue?: string }; items?: { metadata?: ObjectMeta }[] }>(path, { accept: METADATA_LIST_TYPE, signal });
  const objects = (list.items ?? []).map(({ metadata }) => ({ namespace: metadata?.namespace ?? '', name: metadata?.name ?? '' }));
  const verbs = [CLUSTERS, SPACES, VIRTUAL_CLUSTERS].includes(kind) ? [...VERBS, 'use'] : VERBS;
  const requestOf = ({ namespace, name }: (typeof objects)[number], verb: string): PreviewRequest => ({ verb, group: kind.group, resource: kind.plural, name, ...(namespace ? { namespace } : {}) });
  const found: (Reached | undefined)[] = [];
  const note = (at: number, decisions: Decision[]): void => {
    const allowed = verbs.filter((_, index) => decisions[index]?.allowed);
    const why = decisions.find((each) => each.allowed)?.reason ?? '';
    found[at] = allowed.length > 0 ? { ...(objects[at] as (typeof objects)[number]), verbs: allowed, why: splitReason(why).text } : undefined;
  };
  if (!user) {
    const decisions = await askMyself(objects.flatMap((object) => verbs.map((verb) => requestOf(object, verb))));
    objects.forEach((_, at) => note(at, decisions.slice(at * verbs.length, (at + 1) * verbs.length)));
  } else {
    let done = 0;
    try {
      await forEach(objects, AT_ONCE, signal, async (object, at) => {
        note(at, await Promise.all(verbs.map((verb) => askAbout(user, requestOf(object, verb), signal))));
        if (!signal.aborted) report(++done, objects.length);
      });
    } catch (cause) {
      // The other questions are of no use any more.
      stop.abort();
      throw cause;
    }
  }
  return { reached: found.flatMap((each) => each ?? []), asked: objects.length, isAll: !list.metadata?.continue };
}
