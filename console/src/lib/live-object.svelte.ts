// One object on the screen. A watch of its metadata says when to read it again, so that no value of a secret travels.
import { ApiError, METADATA_LIST_TYPE, METADATA_TYPE, get, reportUnauthorized, withQuery } from './api';
import { failureOf, type Failure } from './failure';
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
    void this.#start(false);
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

  /**
   * Reads the object and the version to watch from. The object's own version is too old for that, if the object has
   * not changed for long: the history would no longer have it.
   */
  async #start(background: boolean): Promise<void> {
    const [loaded, list] = await Promise.all([this.#load(background), this.#version()]);
    if (!loaded) this.state = 'ended';
    if (!loaded || !list) return;
    if (Number(list.changed) > Number(this.value?.metadata?.resourceVersion)) await this.#load(true);
    this.#follow(list.version);
  }

  async #version(): Promise<{ version: string; changed: string } | undefined> {
    const target = this.#target;
    if (!target) return undefined;
    try {
      const path = withQuery(target.collection, { fieldSelector: `metadata.name=${target.name}` });
      const list = await get<{ metadata?: ObjectMeta; items?: { metadata?: ObjectMeta }[] }>(path, {
        accept: METADATA_LIST_TYPE,
        background: true,
        signal: this.#stop.signal,
      });
      return { version: list.metadata?.resourceVersion ?? '', changed: list.items?.[0]?.metadata?.resourceVersion ?? '0' };
    } catch {
      this.state = 'ended';
      return undefined;
    }
  }

  #follow(version: string): void {
    const target = this.#target;
    if (!target || this.#stop.signal.aborted) return;
    this.#endWatch = watch({
      path: target.collection,
      query: { fieldSelector: `metadata.name=${target.name}` },
      accept: METADATA_TYPE,
      from: version,
      onEvent: (type) => {
        if (type === 'DELETED') this.isGone = true;
        else {
          this.isGone = false;
          void this.#load(true);
        }
      },
      onState: (state) => (this.state = state),
      onExpired: () => void this.#start(true),
      onUnauthorized: reportUnauthorized,
    });
  }
}
