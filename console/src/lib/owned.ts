// How many objects users own, as the column Owner of the lists says. Values of secrets do not travel for this.
import { TABLE_TYPE, get, withQuery } from './api';
import { KINDS, collectionPath } from './kinds';

export interface Owned {
  objects: number;
  /** Whether there may be more: the caller may not list all kinds, or there are too many objects. */
  isAtLeast: boolean;
}

interface Table {
  metadata?: { continue?: string };
  columnDefinitions?: { name: string }[];
  rows?: { cells: unknown[] }[];
}

const PAGE = 500;
/** The objects of a kind that are read at most. */
const MOST = 2000;

async function ownedOf(path: string, owners: Set<string>): Promise<Owned> {
  let [objects, seen] = [0, 0];
  let next: string | undefined;
  do {
    const table: Table = await get(withQuery(path, { limit: PAGE, continue: next }), { accept: TABLE_TYPE, background: true });
    const at = (table.columnDefinitions ?? []).findIndex(({ name }) => name === 'Owner');
    const rows = table.rows ?? [];
    objects += rows.filter(({ cells }) => owners.has(String(cells[at]))).length;
    seen += rows.length;
    next = table.metadata?.continue;
  } while (next && seen < MOST);
  return { objects, isAtLeast: !!next };
}

/** How many objects these users own. */
export async function askOwned(users: string[]): Promise<Owned> {
  const owners = new Set(users.map((name) => `user/${name}`));
  const unseen: Owned = { objects: 0, isAtLeast: true };
  const all = await Promise.all(KINDS.filter(({ hasOwner }) => hasOwner).map((kind) => ownedOf(collectionPath(kind), owners).catch(() => unseen)));
  return { objects: all.reduce((sum, each) => sum + each.objects, 0), isAtLeast: all.some(({ isAtLeast }) => isAtLeast) };
}
