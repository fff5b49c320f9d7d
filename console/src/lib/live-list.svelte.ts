// A short list of whole objects that follows its changes.
import { get, reportUnauthorized, withQuery, JSON_TYPE } from './api';
import { failureOf, type Failure } from './failure';
import type { ObjectMeta } from './types';
import { watch, type WatchState } from './watch';

interface List<T> {
  metadata?: { resourceVersion?: string };
  items?: T[];
}

export class LiveList<T extends { metadata?: ObjectMeta }> {
  items: T[] = $state.raw([]);
  state: WatchState = $state('connecting');
  failure: Failure | undefined = $state.raw(undefined);
  ready = $state(false);

  #endWatch: () => void = () => {};
  #stop = new AbortController();
  #known = new Map<string, T>();
  #opened = '';

  /** Loads a list. If it is the same one again, what is on the screen stays until the answer. */
  open(path: string, query: Record<string, string | undefined> = {}): void {
    this.close();
    const asked = withQuery(path, query);
    if (asked !== this.#opened) {
      this.failure = undefined;
      this.ready = false;
    }
    this.#opened = asked;
    this.#stop = new AbortController();
    void this.#load(path, query);
  }

  close(): void {
    this.#endWatch();
    this.#stop.abort();
  }

  async #load(path: string, query: Record<string, string | undefined>): Promise<void> {
    const { signal } = this.#stop;
    try {
      const list = await get<List<T>>(withQuery(path, query), { signal, background: true });
      this.#known = new Map((list.items ?? []).map((item) => [item.metadata?.uid ?? '', item]));
      this.#show();
      this.failure = undefined;
      this.ready = true;
      this.#endWatch = watch({
        path,
        query,
        accept: JSON_TYPE,
        from: list.metadata?.resourceVersion ?? '',
        onEvent: (type, object) => this.#hear(type, object as T),
        onState: (state) => (this.state = state),
        onExpired: () => void this.#load(path, query),
        onUnauthorized: reportUnauthorized,
      });
    } catch (cause) {
      if (!signal.aborted) this.failure = failureOf(cause);
    }
  }

  #hear(type: string, object: T): void {
    const uid = object.metadata?.uid ?? '';
    if (type === 'DELETED') this.#known.delete(uid);
    else this.#known.set(uid, object);
    this.#show();
  }

  #show(): void {
    this.items = [...this.#known.values()];
  }
}
