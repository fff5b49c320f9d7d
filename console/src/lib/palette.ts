// What the command palette finds.
import { ApiError, TABLE_TYPE, get, withQuery } from './api';
import { forEach } from './at-once';
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
import { texts } from '../texts';

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
/** The objects of each kind that the palette reads first. It finds them by any part of the name. */
export const EACH = 200;
/** The objects of each other kind that it finds by the beginning of the name. */
export const BY_NAME = 10;
/** The requests that it sends at once. */
const AT_ONCE = 4;
/** A name, or the beginning of one, perhaps after a namespace. */
const TYPED = /^(?:([a-z0-9-]+)\/)?([a-z0-9][a-z0-9.-]*)$/;

/** What the palette has read of one kind. */
export interface Found {
  kind: Kind;
  items: PaletteItem[];
  state: 'loading' | 'whole' | 'first' | 'failed';
}

/** Reads the first objects of a kind, or the first of those that a field selector selects. */
async function read(kind: Kind, limit: number, signal: AbortSignal, of: { namespace?: string | undefined; fieldSelector?: string } = {}): Promise<Found> {
  try {
    // The list of keys has no sessions, either.
    const labelSelector = kind === ACCESS_KEYS ? '!platform.sh/session' : undefined;
    const path = withQuery(collectionPath(kind, of.namespace), { limit, labelSelector, fieldSelector: of.fieldSelector });
    const table = await get<Table>(path, { accept: TABLE_TYPE, background: true, signal });
    const items = rowsOf(table).map((row) => ({ title: row.key, hint: texts.nav[kind.route as '/secrets'], path: pagePath(kind, row.name, row.namespace) }));
    return { kind, items, state: table.metadata?.continue ? 'first' : 'whole' };
  } catch (cause) {
    // A caller who may not list a kind has no objects of it.
    const isDenied = cause instanceof ApiError && (cause.code === 403 || cause.code === 404);
    return { kind, items: [], state: isDenied ? 'whole' : 'failed' };
  }
}

/** Reads each kind, a few at once, and reports after each answer until the signal is aborted. */
async function readEach(kinds: Kind[], signal: AbortSignal, report: (found: Found[]) => void, one: (kind: Kind) => Promise<Found>): Promise<void> {
  let found: Found[] = kinds.map((kind) => ({ kind, items: [], state: 'loading' }));
  report(found);
  await forEach(kinds, AT_ONCE, signal, async (kind) => {
    const answer = await one(kind);
    if (signal.aborted) return;
    found = found.map((each) => (each.kind === kind ? answer : each));
    report(found);
  });
}

/** Finds the first objects of each kind. */
export function loadObjects(signal: AbortSignal, report: (found: Found[]) => void): Promise<void> {
  return readEach(SEARCHED, signal, report, (kind) => read(kind, EACH, signal));
}

/** Whether a typed text can be the beginning of a name. */
export const isName = (typed: string): boolean => TYPED.test(typed.trim().toLowerCase());

/** Finds the objects of these kinds whose names begin with a typed text: the server searches all of them. */
export async function findByName(kinds: Kind[], typed: string, signal: AbortSignal, report: (found: Found[]) => void): Promise<void> {
  const [, namespace, name] = TYPED.exec(typed.trim().toLowerCase()) ?? [];
  if (!name) return report([]);
  const of = { namespace, fieldSelector: `metadata.name^=${name}` };
  // A name without a namespace does not begin with one.
  const searched = namespace ? kinds.filter(({ namespaced }) => namespaced) : kinds;
  await readEach(searched, signal, report, (kind) => read(kind, BY_NAME, signal, of));
}

/** The items of both, each once. */
export function joined(known: Found[], byName: Found[]): PaletteItem[] {
  const items = [...known, ...byName].flatMap((each) => each.items);
  return [...new Map(items.map((item) => [item.path, item])).values()];
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
