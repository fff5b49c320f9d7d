// One object on the screen. A watch of its metadata says when to read it again, so that no value of a secret travels.
import { forgetDecisions } from './access';
import { METADATA_LIST_TYPE, METADATA_TYPE, get, reportUnauthorized, withQuery } from './api';
import { failureOf, type Failure } from './failure';
import { isTemporary, waitFor } from './retry';
import type { ObjectMeta } from './types';
import { watch, type WatchState } from './watch';

interface Target {
  /** The path that is read. */
  read: string;
  /** The collection that is watched, and the name in it. */
  collection: string;
  name: string;
}

/** The part of an object that gives permissions on it, as a text to compare. */
function rulesOf(object: { metadata?: ObjectMeta; spec?: unknown }): string {
  const { access, owner, members } = (object.spec ?? {}) as Record<string, unknown>;
  return JSON.stringify([access, owner, members]);
}

/** `later`: the object on the screen is an old one, and reading it may succeed later. */
type Outcome = 'loaded' | 'failed' | 'later';

export class LiveObject<T extends { metadata?: ObjectMeta }> {
  value: T | undefined = $state.raw(undefined);
  /** The metadata with the managers of fields, which a subresource does not return. */
  managed: ObjectMeta | undefined = $state.raw(undefined);
  failure: Failure | undefined = $state.raw(undefined);
  state: WatchState = $state('connecting');
  /** Whether the object was deleted while it was on the screen. */
  isGone = $state(false);
  /** The path that is read. */
  path = $state('');

  #target: Target | undefined;
  #endWatch: () => void = () => {};
  #stop = new AbortController();

  /** Shows an object. If it is the same one again, what is on the screen stays until the answer. */
  open(target: Target): void {
    this.close();
    if (JSON.stringify(target) !== JSON.stringify(this.#target)) {
      this.value = undefined;
      this.managed = undefined;
      this.failure = undefined;
    }
    this.#target = target;
    this.path = target.read;
    this.isGone = false;
    this.#stop = new AbortController();
    void this.#start(false);
  }

  close(): void {
    this.#endWatch();
    this.#endWatch = () => {};
    this.#stop.abort();
  }

  /** Reads the object again after a change. A server that is away must not leave the old object on the screen. */
  async #reload(): Promise<void> {
    const { signal } = this.#stop;
    for (let attempt = 0; (await this.#load(true)) === 'later' && !signal.aborted; attempt++) await waitFor(attempt, signal);
  }

  async #load(background: boolean): Promise<Outcome> {
    const { signal } = this.#stop;
    if (!this.#target) return 'failed';
    try {
      const value = await get<T>(this.#target.read, { signal, background });
      // Another writer may have given or taken permissions.
      if (this.value && rulesOf(this.value) !== rulesOf(value)) forgetDecisions();
      this.value = value;
      this.failure = undefined;
      return 'loaded';
    } catch (cause) {
      if (signal.aborted) return 'failed';
      const failure = failureOf(cause);
      if (this.value && failure.code === 404) this.isGone = true;
      else if (!this.value || failure.code === 403) this.failure = failure;
      return this.value && isTemporary(failure) ? 'later' : 'failed';
    }
  }

  /**
   * Reads the object and the version to watch from. The object's own version is too old for that, if the object has
   * not changed for long: the history would no longer have it.
   */
  async #start(background: boolean, attempt = 0): Promise<void> {
    const { signal } = this.#stop;
    const [outcome, list] = await Promise.all([this.#load(background), this.#version()]);
    if (signal.aborted) return;
    if (outcome === 'failed') this.state = 'ended';
    if (outcome === 'later' || (outcome === 'loaded' && list === 'later')) {
      this.state = 'connecting';
      await waitFor(attempt, signal);
      return this.#start(true, attempt + 1);
    }
    if (outcome !== 'loaded' || !list || list === 'later') return;
    if (Number(list.changed) > Number(this.value?.metadata?.resourceVersion)) await this.#reload();
    this.#follow(list.version);
  }

  async #version(): Promise<{ version: string; changed: string } | 'later' | undefined> {
    const target = this.#target;
    if (!target) return undefined;
    try {
      const path = withQuery(target.collection, { fieldSelector: `metadata.name=${target.name}` });
      const list = await get<{ metadata?: ObjectMeta; items?: { metadata?: ObjectMeta }[] }>(path, {
        accept: METADATA_LIST_TYPE,
        background: true,
        signal: this.#stop.signal,
      });
      this.managed = list.items?.[0]?.metadata;
      return { version: list.metadata?.resourceVersion ?? '', changed: this.managed?.resourceVersion ?? '0' };
    } catch (cause) {
      if (isTemporary(failureOf(cause))) return 'later';
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
      onEvent: (type, object) => {
        if (type === 'DELETED') this.isGone = true;
        else {
          this.isGone = false;
          this.managed = (object as { metadata?: ObjectMeta }).metadata;
          void this.#reload();
        }
      },
      onState: (state) => (this.state = state),
      onExpired: () => void this.#start(true),
      onUnauthorized: reportUnauthorized,
    });
  }
}
