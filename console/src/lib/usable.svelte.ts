// Which pages of the navigation the caller may use: those with an object that the caller may read, and those where the
// caller may create one.
import { decide } from './access';
import { ACCESS_KEYS, CLUSTERS, KINDS, PROJECT_SECRETS, SHARED_SECRETS, SPACES, VIRTUAL_CLUSTERS, type Kind } from './kinds';
import { mayHaveSome } from './people.svelte';
import { namespaces } from './namespaces.svelte';
import { session } from './session.svelte';
import type { PreviewRequest } from './types';

/** The answer is asked for again at most once in this time, in milliseconds. */
const FRESH = 60_000;
/** The projects that are asked about at most: whether the caller may create something in one. */
const MOST_PROJECTS = 20;
const IN_PROJECTS = [PROJECT_SECRETS, VIRTUAL_CLUSTERS, SPACES];

/** Pages that are no kind: the question whether the caller may use them. The others are for everyone. */
const QUESTIONS: Record<string, PreviewRequest> = {
  '/roles': { verb: 'list', group: 'rbac.authorization.k8s.io', resource: 'clusterroles' },
};
/** The pages that are shown before the server has answered. */
const ALWAYS = ['/', '/secrets', '/keys', '/why', '/sessions'];
/** Tokens for endpoints are of use where there is something to connect to. */
const CONNECTED = [CLUSTERS, VIRTUAL_CLUSTERS, SPACES];

async function isAllowed(request: PreviewRequest): Promise<boolean> {
  return (await decide(request)).allowed === true;
}

const some = async (answers: Promise<boolean>[]): Promise<boolean> => (await Promise.all(answers)).includes(true);

/** Whether the caller may create an object of a kind somewhere. */
function mayCreate(kind: Kind): Promise<boolean> {
  if (kind === SHARED_SECRETS) return Promise.resolve((session.self?.secretNamespaces ?? []).length > 0);
  const create = { verb: 'create', group: kind.group, resource: kind.plural };
  const places = IN_PROJECTS.includes(kind) ? namespaces.projects.slice(0, MOST_PROJECTS).map((project) => ({ ...create, namespace: namespaces.prefix + project })) : [create];
  return some(places.map(isAllowed));
}

async function isUsable(kind: Kind): Promise<boolean> {
  // Everyone has access keys.
  if (kind === ACCESS_KEYS) return true;
  const all = { verb: 'get', group: kind.group, resource: kind.plural };
  if (await some([isAllowed(all), mayCreate(kind)])) return true;
  return mayHaveSome(kind);
}

class Usable {
  /** The paths that the caller may not use; undefined until the server has answered. */
  hidden: Set<string> | undefined = $state.raw();
  #loadedAt = 0;

  /** Forgets the answers, because another user may use other pages. */
  forget(): void {
    this.hidden = undefined;
    this.#loadedAt = 0;
  }

  /** Whether the navigation shows a page. */
  shows(path: string): boolean {
    return this.hidden ? !this.hidden.has(path) : ALWAYS.includes(path);
  }

  /** Asks the server, unless its answer is fresh. Without an answer, nothing is hidden. */
  async load(): Promise<void> {
    if (Date.now() - this.#loadedAt < FRESH) return;
    this.#loadedAt = Date.now();
    try {
      const pages = await Promise.all([
        ...KINDS.map(async (kind) => ({ path: kind.route, isUsable: await isUsable(kind) })),
        ...Object.entries(QUESTIONS).map(async ([path, request]) => ({ path, isUsable: await isAllowed(request) })),
      ]);
      const hidden = new Set(pages.filter(({ isUsable }) => !isUsable).map(({ path }) => path));
      if (CONNECTED.every(({ route }) => hidden.has(route))) hidden.add('/endpoint-tokens');
      this.hidden = hidden;
    } catch {
      this.#loadedAt = 0;
      this.hidden ??= new Set();
    }
  }
}

export const usable = new Usable();
