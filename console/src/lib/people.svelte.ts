// Names and numbers of the objects that the caller may see.
import { ApiError, METADATA_LIST_TYPE, get, withQuery } from './api';
import { collectionPath, type Kind } from './kinds';
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

/** A number of objects that the caller may see. */
export interface Counted {
  number: number;
  /** Whether there are more than those that were read. */
  isAtLeast: boolean;
}

/** How many objects of a kind there are, as far as the caller may see them; undefined if the caller may not list them. */
export async function countOf(kind: Kind, namespace: string): Promise<Counted | undefined> {
  try {
    const first = await read(kind, namespace, 1);
    // The server counts the rest only for a caller who may see all of it.
    return first.isAtLeast ? await read(kind, namespace, MOST) : first;
  } catch {
    return undefined;
  }
}

async function read(kind: Kind, namespace: string, limit: number): Promise<Counted> {
  const path = withQuery(collectionPath(kind, namespace), { limit });
  const list = await get<{ metadata?: { continue?: string; remainingItemCount?: number }; items?: unknown[] }>(path, { accept: METADATA_LIST_TYPE, background: true });
  const { continue: next, remainingItemCount: rest } = list.metadata ?? {};
  return { number: (list.items ?? []).length + (rest ?? 0), isAtLeast: !!next && rest === undefined };
}

/** Whether there are objects of a kind that the caller may see. After a failure of the server, there may be some. */
export async function mayHaveSome(kind: Kind): Promise<boolean> {
  try {
    return (await read(kind, '', 1)).number > 0;
  } catch (cause) {
    return !(cause instanceof ApiError && cause.code === 403);
  }
}
