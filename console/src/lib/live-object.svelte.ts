// One object on the screen. A watch of its metadata says when to read it again, so that no value of a secret travels.
import { ApiError, METADATA_TYPE, get, reportUnauthorized } from './api';
import { failureOf, type Failure } from './table-engine';
import type { ObjectMeta } from './types';
import { watch, type WatchState } from './watch';

interface Target {
  /** The path that is read. */
  read: string;
  /** The collection that is watched, and the name in it. */
  collection: string;
  name: string;
}

export class LiveObject<T extends { metadata?: ObjectMeta }> {
  value: T | undefined = $state.raw(undefined);
  failure: Failure | undefined = $state.raw(undefined);
  state: WatchState = $state('connecting');
  /** Whether the object was deleted while it was on the screen. */
  isGone = $state(false);

  #target: Target | undefined;
  #endWatch: () => void = () => {};
  #stop = new AbortController();

  open(target: Target): void {
    this.close();
    this.#target = target;
    this.value = undefined;
    this.failure = undefined;
    this.isGone = false;
    this.#stop = new AbortController();
    void this.#load(false).then((loaded) => loaded && this.#follow());
  }

  close(): void {
    this.#endWatch();
    this.#endWatch = () => {};
    this.#stop.abort();
  }

  /** Reads the object again. */
  async refresh(): Promise<void> {
    await this.#load(true);
  }

  async #load(background: boolean): Promise<boolean> {
    const { signal } = this.#stop;
    if (!this.#target) return false;
    try {
      this.value = await get<T>(this.#target.read, { signal, background });
      this.failure = undefined;
      return true;
    } catch (cause) {
      if (signal.aborted) return false;
      if (this.value && (cause as ApiError).code === 404) this.isGone = true;
      else if (!this.value || (cause as ApiError).code === 403) this.failure = failureOf(cause);
      return false;
    }
  }

  #follow(): void {
    const target = this.#target;
    if (!target || this.#stop.signal.aborted) return;
    this.#endWatch = watch({
      path: target.collection,
      query: { fieldSelector: `metadata.name=${target.name}` },
      accept: METADATA_TYPE,
      from: this.value?.metadata?.resourceVersion ?? '',
      onEvent: (type) => {
        if (type === 'DELETED') this.isGone = true;
        else {
          this.isGone = false;
          void this.#load(true);
        }
      },
      onState: (state) => (this.state = state),
      onExpired: () => void this.#load(true).then((loaded) => loaded && this.#follow()),
      onUnauthorized: reportUnauthorized,
    });
  }
}
