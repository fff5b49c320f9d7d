// A list on the screen: the window that an engine shows, in the page or in a worker.
import { reportUnauthorized } from './api';
import type { Row, View } from './row-store';
import { failureOf, type Failure } from './failure';
import { TableEngine, type Snapshot, type Source, type Start, type Window } from './table-engine';
import workerUrl from './table.worker?worker&url';
import type { FromWorker, ToWorker } from './table.worker';

interface ScriptUrlPolicy {
  createScriptURL(url: string): string;
}

const factory = (globalThis as { trustedTypes?: { createPolicy(name: string, rules: object): ScriptUrlPolicy } }).trustedTypes;
// The policy accepts the one URL that the build wrote, and nothing else.
const policy = factory?.createPolicy('postern-worker', {
  createScriptURL: (url: string) => {
    if (url !== workerUrl) throw new TypeError('not the worker of the console');
    return url;
  },
});

const EMPTY: Snapshot = { columns: [], rows: [], from: 0, found: 0, loaded: 0, more: true, state: 'connecting' };

export class LiveTable {
  snapshot: Snapshot = $state.raw(EMPTY);
  failure: Failure | undefined = $state.raw(undefined);
  /** Whether the first page has arrived. */
  ready = $state(false);

  #opened = '';
  #engine: TableEngine | undefined;
  #worker: Worker | undefined;
  #view: View = { sort: '', descending: false, search: '' };
  #window: Window = { from: 0, to: 60 };

  /** Loads a list, instead of the one before. If it is the same one again, its rows stay until the answer. */
  open(source: Source): void {
    this.close();
    const asked = JSON.stringify(source);
    if (asked !== this.#opened) {
      this.snapshot = EMPTY;
      this.failure = undefined;
      this.ready = false;
    }
    this.#opened = asked;
    const engine = new TableEngine(source, {
      onSnapshot: (snapshot) => this.#take(engine, snapshot),
      onFailure: (failure) => (this.failure = failure),
      onUnauthorized: reportUnauthorized,
    });
    this.#engine = engine;
    engine.show(this.#view);
    engine.move(this.#window);
    engine.first().then(
      (start) => start && this.#engine === engine && this.#handOver(engine, source, start),
      (cause: unknown) => {
        if (this.#engine === engine && (cause as Error).name !== 'AbortError') this.failure = failureOf(cause);
      },
    );
  }

  show(view: View): void {
    this.#view = view;
    this.#engine?.show(view);
    this.#post({ type: 'show', view });
  }

  move(window: Window): void {
    if (window.from === this.#window.from && window.to === this.#window.to) return;
    this.#window = window;
    this.#engine?.move(window);
    this.#post({ type: 'move', window });
  }

  /** The row at a place of the view, if it is in the window. */
  rowAt(index: number): Row | undefined {
    return this.snapshot.rows[index - this.snapshot.from];
  }

  close(): void {
    this.#engine?.end();
    this.#engine = undefined;
    this.#worker?.terminate();
    this.#worker = undefined;
  }

  #take(engine: TableEngine, snapshot: Snapshot): void {
    if (this.#engine !== engine || snapshot.columns.length === 0) return;
    this.snapshot = snapshot;
    this.failure = undefined;
    this.ready = true;
  }

  #handOver(engine: TableEngine, source: Source, start: Start): void {
    const url = policy ? policy.createScriptURL(workerUrl) : workerUrl;
    const worker = new Worker(url, { type: 'module' });
    worker.addEventListener('message', ({ data }: MessageEvent<FromWorker>) => {
      if (this.#worker !== worker) return;
      // The worker paints before it has the first rows: those on the screen stay until then.
      if (data.type === 'snapshot') this.snapshot = data.snapshot.columns.length > 0 ? data.snapshot : this.snapshot;
      else if (data.type === 'failure') this.failure = data.failure;
      else reportUnauthorized(data.message);
    });
    engine.end();
    this.#engine = undefined;
    this.#worker = worker;
    this.#post({ type: 'start', source, start, view: $state.snapshot(this.#view), window: this.#window });
  }

  #post(message: ToWorker): void {
    this.#worker?.postMessage(message);
  }
}
