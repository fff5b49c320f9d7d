// The rows of one list: pages and watch events merged, sorted and filtered. It runs in a page or in a worker.
import { parseDuration } from './format';
import { timeOf } from './key-columns';

/** One row of a server-side Table, without what the console does not show. */
export interface Row {
  /** NAMESPACE/NAME, or NAME. Unique in a list. */
  key: string;
  name: string;
  namespace: string;
  uid: string;
  version: number;
  created: string;
  /** When a manager of fields last changed the object; the creation if the server does not say. */
  changed: string;
  /** Whether the object waits for its deletion. */
  ending: boolean;
  cells: Cell[];
}

export type Cell = string | number | boolean | null;

export interface Column {
  name: string;
  type: string;
  description: string;
}

/** A Table of `meta.k8s.io/v1`, as far as the console reads it. */
export interface Table {
  columnDefinitions?: { name: string; type: string; description: string }[];
  metadata?: { continue?: string; resourceVersion?: string; remainingItemCount?: number };
  rows?: { cells: Cell[]; object?: { metadata?: RowMetadata } }[] | null;
}

interface RowMetadata {
  name?: string;
  uid?: string;
  namespace?: string;
  resourceVersion?: string;
  creationTimestamp?: string;
  deletionTimestamp?: string;
  managedFields?: { time?: string }[];
}

export interface View {
  /** The name of the column to sort by, or `Changed` for the last write; empty for the server's order. */
  sort: string;
  descending: boolean;
  /** Each word must occur in a cell, in upper or lower case. */
  search: string;
  /** A cell that must have exactly one of these texts. */
  only?: Choice | undefined;
  /** A cell that must have none of these texts. */
  except?: Choice | undefined;
  /** A cell whose time must be in this range, in milliseconds. */
  within?: { column: string; from: number; to: number } | undefined;
}

export interface Choice {
  column: string;
  values: string[];
}

export const keyOf = (name: string, namespace: string): string => (namespace ? `${namespace}/${name}` : name);

/** The rows of a Table. */
export function rowsOf(table: Table): Row[] {
  return (table.rows ?? []).flatMap(({ cells, object }) => {
    const metadata = object?.metadata ?? {};
    if (!metadata.name) return [];
    const namespace = metadata.namespace ?? '';
    return [
      {
        key: keyOf(metadata.name, namespace),
        name: metadata.name,
        namespace,
        uid: metadata.uid ?? '',
        version: Number(metadata.resourceVersion ?? 0),
        created: metadata.creationTimestamp ?? '',
        changed: lastChange(metadata),
        ending: metadata.deletionTimestamp !== undefined,
        cells,
      },
    ];
  });
}

/** The times of the server have one form, so that they are ordered as texts. */
function lastChange({ managedFields = [], creationTimestamp = '' }: RowMetadata): string {
  return managedFields.reduce((latest, { time = '' }) => (time > latest ? time : latest), creationTimestamp);
}

export function columnsOf(table: Table): Column[] {
  return (table.columnDefinitions ?? []).map(({ name, type, description }) => ({ name, type, description }));
}

const byKey = (a: Row, b: Row): number => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0);
const collator = new Intl.Collator('en', { numeric: true, sensitivity: 'base' });

export class RowStore {
  columns: Column[] = [];
  #rows = new Map<string, Row>();
  /** Deletions while pages are still loading: a page is older than the events. */
  #deleted = new Map<string, number>();
  #loading = true;
  /** The rows of the current view; undefined if they have to be found again. */
  #found: Row[] | undefined;
  #view: View = { sort: '', descending: false, search: '' };

  get size(): number {
    return this.#rows.size;
  }

  /** Forgets all rows, before a new list. */
  clear(): void {
    this.#rows.clear();
    this.#deleted.clear();
    this.#loading = true;
    this.#found = undefined;
  }

  /** Adds a page of the list. Rows that an event has changed since stay as the event left them. */
  addPage(rows: Row[]): void {
    for (const row of rows) {
      const known = this.#rows.get(row.key);
      if (known && known.version >= row.version) continue;
      if ((this.#deleted.get(row.key) ?? -1) >= row.version) continue;
      this.#rows.set(row.key, row);
    }
    this.#found = undefined;
  }

  /** Ends the loading of pages. */
  finish(): void {
    this.#loading = false;
    this.#deleted.clear();
  }

  /** Takes over the rows of a complete list, and drops the others. */
  replace(rows: Row[]): void {
    this.clear();
    this.addPage(rows);
    this.finish();
  }

  /** Applies an event of the watch. */
  apply(type: string, row: Row): void {
    if (type === 'DELETED') {
      this.#rows.delete(row.key);
      if (this.#loading) this.#deleted.set(row.key, row.version);
    } else {
      const known = this.#rows.get(row.key);
      if (known && known.version > row.version) return;
      this.#rows.set(row.key, row);
      this.#deleted.delete(row.key);
    }
    this.#found = undefined;
  }

  show(view: View): void {
    this.#view = view;
    this.#found = undefined;
  }

  /** The rows of the view in their order. */
  found(): Row[] {
    this.#found ??= this.#find();
    return this.#found;
  }

  #find(): Row[] {
    const rows = this.#filter([...this.#rows.values()]).sort(byKey);
    const { sort, descending } = this.#view;
    if (sort) rows.sort(this.#comparison(sort));
    return descending ? rows.reverse() : rows;
  }

  #filter(rows: Row[]): Row[] {
    const { search, only, except, within } = this.#view;
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length === 0 && !only && !except && !within) return rows;
    const cellOf = ({ column }: { column: string }): ((row: Row) => Cell) => {
      const at = this.columns.findIndex(({ name }) => name === column);
      return (row) => row.cells[at] ?? '';
    };
    const [chosen, excepted, timed] = [only && cellOf(only), except && cellOf(except), within && cellOf(within)];
    return rows.filter((row) => {
      if (only && chosen && !only.values.includes(String(chosen(row)))) return false;
      if (except && excepted && except.values.includes(String(excepted(row)))) return false;
      const time = timed && timeOf(timed(row));
      if (within && (time === undefined || time < within.from || time >= within.to)) return false;
      if (words.length === 0) return true;
      const text = `${row.key} ${row.cells.join(' ')}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
  }

  #comparison(sort: string): (a: Row, b: Row) => number {
    if (sort === 'Age') return (a, b) => (a.created < b.created ? 1 : a.created > b.created ? -1 : 0);
    // A later write of any object has a greater version.
    if (sort === 'Changed') return (a, b) => a.version - b.version;
    if (sort === 'Namespace') return (a, b) => collator.compare(a.namespace, b.namespace);
    const at = this.columns.findIndex((column) => column.name === sort);
    // As an age: the latest use comes first, whether the server sends times or durations.
    const direction = sort === 'Last Used' ? -1 : 1;
    return (a, b) => compareTimes(a.cells[at], b.cells[at], direction) ?? compareCells(a.cells[at], b.cells[at]);
  }
}

/** Orders times; a cell without one comes last. Undefined if neither has one. */
export function compareTimes(a: Cell | undefined, b: Cell | undefined, direction: 1 | -1): number | undefined {
  const [left, right] = [timeOf(a), timeOf(b)];
  if (left === undefined && right === undefined) return undefined;
  if (left === undefined || right === undefined) return left === undefined ? 1 : -1;
  return (left - right) * direction;
}

/** Orders numbers by value, durations by length and everything else as text; empty cells come last. */
export function compareCells(a: Cell | undefined, b: Cell | undefined): number {
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  const left = String(a ?? '');
  const right = String(b ?? '');
  if (!left || !right) return left ? -1 : right ? 1 : 0;
  const [short, long] = [parseDuration(left), parseDuration(right)];
  if (short !== undefined && long !== undefined) return short - long;
  if (short !== undefined || long !== undefined) return short !== undefined ? -1 : 1;
  return collator.compare(left, right);
}
