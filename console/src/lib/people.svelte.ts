// The names of users and teams that the caller may see, for suggestions.
import { ApiError, METADATA_LIST_TYPE, get, withQuery } from './api';
import { TEAMS, USERS, collectionPath, type Kind } from './kinds';
import type { ObjectMeta } from './types';

/** The most names that are read. */
export const MOST = 500;

/** The names of the first objects of a kind; none if the caller may not list them. */
export async function namesOf(kind: Kind, namespace?: string): Promise<string[]> {
  try {
    const path = withQuery(collectionPath(kind, namespace), { limit: MOST });
    const list = await get<{ items?: { metadata?: ObjectMeta }[] }>(path, { accept: METADATA_LIST_TYPE, background: true });
    return (list.items ?? []).flatMap((item) => (item.metadata?.name ? [item.metadata.name] : []));
  } catch {
    return [];
  }
}

/** How many objects of a kind there are, as far as the caller may see them; undefined if the caller may not list them. */
export async function countOf(kind: Kind, namespace: string): Promise<number | undefined> {
  try {
    return await counted(kind, namespace);
  } catch {
    return undefined;
  }
}

async function counted(kind: Kind, namespace: string): Promise<number> {
  const path = withQuery(collectionPath(kind, namespace), { limit: 1 });
  const list = await get<{ metadata?: { remainingItemCount?: number }; items?: unknown[] }>(path, { accept: METADATA_LIST_TYPE, background: true });
  return (list.items ?? []).length + (list.metadata?.remainingItemCount ?? 0);
}

/** Whether there are objects of a kind that the caller may see. After a failure of the server, there may be some. */
export async function mayHaveSome(kind: Kind): Promise<boolean> {
  try {
    return (await counted(kind, '')) > 0;
  } catch (cause) {
    return !(cause instanceof ApiError && cause.code === 403);
  }
}

class People {
  users: string[] = $state.raw([]);
  teams: string[] = $state.raw([]);

  /** Whether there are more than those that are known. */
  get isPartial(): boolean {
    return this.users.length >= MOST || this.teams.length >= MOST;
  }

  async load(): Promise<void> {
    [this.users, this.teams] = await Promise.all([namesOf(USERS), namesOf(TEAMS)]);
  }
}

export const people = new People();
