// Loads a list page by page, follows its changes, and shows one window of it. It runs in the page for short lists and
// in a worker for long ones, so that no list of any length stops the page.
import { TABLE_TYPE, get, withQuery } from './api';
import { failureOf, type Failure } from './failure';
import { withKeyColumns } from './key-columns';
import { RowStore, columnsOf, rowsOf, type Column, type Row, type Table, type View } from './row-store';
import { watch, type WatchState } from './watch';

/** The rows of the first page, which are painted at once. */
export const FIRST_PAGE = 200;
const NEXT_PAGE = 2000;
/** While pages are loading, in milliseconds. */
const LOADING_INTERVAL = 250;
/** With more events than this in a second, the list is painted this often: a change is visible within a tenth. */
const BUSY_EVENTS = 50;
const BUSY_INTERVAL = 80;

export interface Source {
  path: string;
  query: Record<string, string | undefined>;
}

/** Where a list goes on that another engine began. */
export interface Start {
  /** The columns of the server. */
  columns: Column[];
  rows: Row[];
  next: string;
  version: string;
}

/** The rows from `from` to `to` are on the screen. */
export interface Window {
  from: number;
  to: number;
}

export interface Snapshot {
  columns: Column[];
  rows: Row[];
  from: number;
  /** The rows of the view. */
  found: number;
  /** All rows that are loaded. */
  loaded: number;
  /** Whether more rows will come. */
  more: boolean;
  state: WatchState;
}

export interface EngineEvents {
  onSnapshot: (snapshot: Snapshot) => void;
  onFailure: (failure: Failure) => void;
  onUnauthorized: (message: string) => void;
}

export class TableEngine {
  readonly #store = new RowStore();
  readonly #source: Source;
  readonly #events: EngineEvents;
  readonly #stop = new AbortController();
  #adapt: (row: Row) => Row = (row) => row;
  #endWatch: () => void = () => {};
  #window: Window = { from: 0, to: 60 };
  #more = true;
  #state: WatchState = 'connecting';
  #timer: ReturnType<typeof setTimeout> | undefined;
  #recent: number[] = [];

  constructor(source: Source, events: EngineEvents) {
    this.#source = source;
    this.#events = events;
  }

  /** Loads the first page; returns where another engine goes on, if there is more. */
  async first(): Promise<Start | undefined> {
    const table = await this.#page(FIRST_PAGE, undefined, false);
    const version = table.metadata?.resourceVersion ?? '';
    const next = table.metadata?.continue ?? '';
    const [columns, rows] = [columnsOf(table), rowsOf(table)];
    this.#begin(columns, rows);
    this.#more = next !== '';
    if (next) {
      this.#paint();
      return { columns, rows, next, version };
    }
    this.#finish(version);
    return undefined;
  }

  /** Goes on where another engine stopped. */
  async resume(start: Start): Promise<void> {
    this.#begin(start.columns, start.rows);
    this.#follow(start.version);
    try {
      await this.#rest(start.next);
    } catch (cause) {
      this.#report(cause);
    }
  }

  show(view: View): void {
    this.#store.show(view);
    this.#paint();
  }

  move(window: Window): void {
    this.#window = window;
    this.#paint();
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#stop.abort();
    this.#endWatch();
  }

  #begin(columns: Column[], rows: Row[]): void {
    const { columns: shown, adapt } = withKeyColumns(columns);
    this.#store.columns = shown;
    this.#adapt = adapt;
    this.#store.addPage(rows.map(adapt));
  }

  #page(limit: number, next: string | undefined, background: boolean): Promise<Table> {
    const path = withQuery(this.#source.path, { ...this.#source.query, limit, continue: next });
    return get<Table>(path, { accept: TABLE_TYPE, signal: this.#stop.signal, background });
  }

  async #rest(first: string): Promise<void> {
    let next = first;
    while (next) {
      const table = await this.#page(NEXT_PAGE, next, true);
      this.#store.addPage(rowsOf(table).map(this.#adapt));
      next = table.metadata?.continue ?? '';
      this.#soon(LOADING_INTERVAL);
    }
    this.#more = false;
    this.#store.finish();
    this.#paint();
  }

  #finish(version: string): void {
    this.#more = false;
    this.#store.finish();
    this.#paint();
    this.#follow(version);
  }

  #follow(version: string): void {
    this.#endWatch = watch({
      path: this.#source.path,
      query: this.#source.query,
      accept: TABLE_TYPE,
      from: version,
      onEvent: (type, object) => this.#hear(type, object as Table),
      onState: (state) => {
        this.#state = state;
        this.#soon(0);
      },
      onExpired: () => void this.#again(),
      onUnauthorized: this.#events.onUnauthorized,
    });
  }

  #hear(type: string, table: Table): void {
    for (const row of rowsOf(table)) this.#store.apply(type, this.#adapt(row));
    const now = Date.now();
    this.#recent = this.#recent.filter((at) => now - at < 1000);
    this.#recent.push(now);
    if (this.#recent.length > BUSY_EVENTS) this.#soon(BUSY_INTERVAL);
    else this.#paint();
  }

  /** Lists again after a 410. The rows on the screen stay until the new list is complete. */
  async #again(): Promise<void> {
    this.#state = 'connecting';
    this.#paint();
    try {
      const rows: Row[] = [];
      let version = '';
      let next = '';
      do {
        const table = await this.#page(NEXT_PAGE, next || undefined, true);
        version ||= table.metadata?.resourceVersion ?? '';
        for (const row of rowsOf(table)) rows.push(this.#adapt(row));
        next = table.metadata?.continue ?? '';
      } while (next);
      this.#store.replace(rows);
      this.#finish(version);
    } catch (cause) {
      this.#report(cause);
    }
  }

  #report(cause: unknown): void {
    if ((cause as Error).name !== 'AbortError') this.#events.onFailure(failureOf(cause));
  }

  #soon(delay: number): void {
    this.#timer ??= setTimeout(() => this.#paint(), delay);
  }

  #paint(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#stop.signal.aborted) return;
    const found = this.#store.found();
    const from = Math.max(0, Math.min(this.#window.from, found.length - 1));
    this.#events.onSnapshot({
      columns: this.#store.columns,
      rows: found.slice(from, this.#window.to),
      from,
      found: found.length,
      loaded: this.#store.size,
      more: this.#more,
      state: this.#state,
    });
  }
}
