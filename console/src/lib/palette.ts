// What the command palette finds.
import { ApiError, TABLE_TYPE, get, withQuery } from './api';
import {
  ACCESS_KEYS,
  CLUSTERS,
  CONNECTORS,
  PROJECTS,
  PROJECT_SECRETS,
  SHARED_SECRETS,
  SPACES,
  TEAMS,
  TRUSTED_ISSUERS,
  USERS,
  VIRTUAL_CLUSTERS,
  WORKLOAD_IDENTITIES,
  collectionPath,
  pagePath,
  type Kind,
} from './kinds';
import { rowsOf, type Table } from './row-store';

export interface PaletteItem {
  title: string;
  hint: string;
  /** Where it leads, or else what it does. */
  path?: string;
  query?: Record<string, string>;
  run?: () => void;
}

const SEARCHED: Kind[] = [
  SHARED_SECRETS,
  PROJECTS,
  CLUSTERS,
  VIRTUAL_CLUSTERS,
  ACCESS_KEYS,
  PROJECT_SECRETS,
  SPACES,
  USERS,
  TEAMS,
  CONNECTORS,
  TRUSTED_ISSUERS,
  WORKLOAD_IDENTITIES,
];
/** The objects of each kind that the palette knows. The page of the list searches all of them. */
export const EACH = 200;

/** What the palette has read of one kind. */
export interface Found {
  kind: Kind;
  items: PaletteItem[];
  state: 'loading' | 'whole' | 'first' | 'failed';
}

async function read(kind: Kind): Promise<Found> {
  try {
    // The list of keys has no sessions, either.
    const labelSelector = kind === ACCESS_KEYS ? '!platform.sh/session' : undefined;
    const path = withQuery(collectionPath(kind), { limit: EACH, labelSelector });
    const table = await get<Table>(path, { accept: TABLE_TYPE, background: true });
    const items = rowsOf(table).map((row) => ({ title: row.key, hint: kind.kind, path: pagePath(kind, row.name, row.namespace) }));
    return { kind, items, state: table.metadata?.continue ? 'first' : 'whole' };
  } catch (cause) {
    // A caller who may not list a kind has no objects of it.
    const isDenied = cause instanceof ApiError && (cause.code === 403 || cause.code === 404);
    return { kind, items: [], state: isDenied ? 'whole' : 'failed' };
  }
}

/** Finds the first objects of each kind, and reports after each answer. */
export async function loadObjects(report: (found: Found[]) => void): Promise<void> {
  let found: Found[] = SEARCHED.map((kind) => ({ kind, items: [], state: 'loading' }));
  await Promise.all(
    SEARCHED.map(async (kind) => {
      const answer = await read(kind);
      found = found.map((each) => (each.kind === kind ? answer : each));
      report(found);
    }),
  );
}

/** The lists that search what the palette has not read. */
export function listsFor(found: Found[], typed: string, title: (kind: Kind, typed: string) => string, hint: string): PaletteItem[] {
  const wanted = typed.trim();
  if (!wanted) return [];
  return found
    .filter(({ state }) => state === 'first' || state === 'failed')
    .map(({ kind }) => ({ title: title(kind, wanted), hint, path: kind.route, query: { q: wanted, ...(kind === ACCESS_KEYS ? { of: 'all' } : {}) } }));
}

/** How well a text fits: lower is better, undefined not at all. Letters match in their order. */
export function score(title: string, typed: string): number | undefined {
  const text = title.toLowerCase();
  const at = text.indexOf(typed);
  if (at === 0) return 0;
  if (at > 0) return /[^a-z0-9]/.test(text[at - 1] ?? '') ? 1 : 2;
  let from = 0;
  for (const letter of typed) {
    const found = text.indexOf(letter, from);
    if (found < 0) return undefined;
    from = found + 1;
  }
  return 3 + from / 1000;
}

/** The best matches, in their order. */
export function matching(items: PaletteItem[], typed: string, limit: number): PaletteItem[] {
  const wanted = typed.trim().toLowerCase();
  if (!wanted) return items.slice(0, limit);
  return items
    .flatMap((item) => {
      const points = score(item.title, wanted) ?? (item.hint.toLowerCase().startsWith(wanted) ? 4 : undefined);
      return points === undefined ? [] : [{ item, points }];
    })
    .sort((a, b) => a.points - b.points)
    .slice(0, limit)
    .map(({ item }) => item);
}
