// A watch over a stream of JSON lines, which resumes by itself.
import { ApiError, errorOf, withQuery } from './api';

export type WatchState = 'live' | 'connecting' | 'ended';

export interface WatchOptions {
  path: string;
  query?: Record<string, string | undefined>;
  accept: string;
  /** The resourceVersion after which events are wanted. */
  from: string;
  onEvent: (type: string, object: unknown) => void;
  onState: (state: WatchState) => void;
  /** The history no longer has the version: the caller lists again. */
  onExpired: () => void;
  onUnauthorized: (message: string) => void;
}

interface WatchEvent {
  type: string;
  object: {
    metadata?: { resourceVersion?: string };
    rows?: { object?: { metadata?: { resourceVersion?: string } } }[];
    code?: number;
    message?: string;
  };
}

/** The complete lines of a stream of text; the rest waits for more. */
export class LineSplitter {
  #rest = '';

  push(text: string): string[] {
    const lines = (this.#rest + text).split('\n');
    this.#rest = lines.pop() ?? '';
    return lines.filter((line) => line !== '');
  }
}

/** The version that a watch resumes from after an event. */
export function versionOf(event: WatchEvent): string | undefined {
  return event.object.metadata?.resourceVersion ?? event.object.rows?.[0]?.object?.metadata?.resourceVersion;
}

/** The pause before attempt `attempt`, in milliseconds: from 0.3 to 3 seconds, with a random part. */
export function backoff(attempt: number, random: number): number {
  return Math.min(3000, 300 * 2 ** attempt) * (0.7 + 0.3 * random);
}

/** A connection that ends within this time, in milliseconds, is repeated with a pause. */
const SHORT = 1000;

type Outcome = 'again' | 'stop';

class Watch {
  #version: string;
  #attempt = 0;
  #connectedAt = 0;
  /** Whether the caller ended it. */
  #isEnded = false;
  readonly #stop = new AbortController();
  readonly #options: WatchOptions;

  constructor(options: WatchOptions) {
    this.#options = options;
    this.#version = options.from;
  }

  end(): void {
    this.#isEnded = true;
    this.#stop.abort();
  }

  async run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      let outcome: Outcome = 'again';
      try {
        outcome = await this.#connect();
      } catch {
        // The connection broke: the loop connects again.
      }
      if (outcome === 'stop' || signal.aborted) return;
      if (Date.now() - this.#connectedAt > SHORT) this.#attempt = 0;
      this.#options.onState('connecting');
      await new Promise((resolve) => setTimeout(resolve, backoff(this.#attempt++, Math.random())));
    }
  }

  async #connect(): Promise<Outcome> {
    this.#connectedAt = Date.now();
    const { path, query, accept, onState } = this.#options;
    const url = withQuery(path, { ...query, watch: true, allowWatchBookmarks: true, resourceVersion: this.#version });
    const headers = { Accept: accept, 'X-Postern-Console': '1', 'X-Postern-Background': '1' };
    const response = await fetch(url, { headers, signal: this.#stop.signal, cache: 'no-store', redirect: 'error' });
    if (!response.ok || !response.body) return this.#fail(await errorOf(response));
    onState('live');
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const lines = new LineSplitter();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return 'again';
      for (const line of lines.push(value)) {
        if (this.#hear(JSON.parse(line) as WatchEvent) === 'stop') {
          this.#stop.abort();
          return 'stop';
        }
      }
    }
  }

  #hear(event: WatchEvent): Outcome {
    if (event.type === 'ERROR') {
      return this.#fail(new ApiError(event.object.code ?? 0, event.object.message ?? ''));
    }
    this.#version = versionOf(event) ?? this.#version;
    if (event.type !== 'BOOKMARK') this.#options.onEvent(event.type, event.object);
    return 'again';
  }

  /** A watch that expires at once must not list again without a pause. */
  #expire(onExpired: () => void): void {
    if (Date.now() - this.#connectedAt > SHORT) onExpired();
    else setTimeout(() => !this.#isEnded && onExpired(), SHORT);
  }

  #fail(error: ApiError): Outcome {
    const { onExpired, onUnauthorized, onState } = this.#options;
    if (this.#isEnded) return 'stop';
    if (error.code === 401) onUnauthorized(error.message);
    else if (error.code === 410) this.#expire(onExpired);
    else if (error.code === 403 || error.code === 404) onState('ended');
    else return 'again';
    return 'stop';
  }
}

/** Starts a watch, and returns the function that ends it. */
export function watch(options: WatchOptions): () => void {
  const started = new Watch(options);
  options.onState('connecting');
  void started.run();
  return () => started.end();
}
