// A stand-in for `fetch`: each request takes the next answer whose path matches, and is recorded.
import { vi } from 'vitest';

export interface Sent {
  url: URL;
  headers: Headers;
}

type Answer = (sent: Sent, signal: AbortSignal | null) => Response;

export class FakeServer {
  readonly sent: Sent[] = [];
  #answers: { matches: (url: URL) => boolean; answer: Answer }[] = [];

  constructor() {
    vi.stubGlobal('fetch', (path: string, init: RequestInit = {}) => {
      const sent = { url: new URL(path, 'https://localhost'), headers: new Headers(init.headers) };
      this.sent.push(sent);
      const at = this.#answers.findIndex(({ matches }) => matches(sent.url));
      if (at < 0) return Promise.reject(new TypeError(`no answer for ${path}`));
      const [taken] = this.#answers.splice(at, 1);
      return Promise.resolve((taken as { answer: Answer }).answer(sent, init.signal ?? null));
    });
  }

  /** The next request that is no watch gets this answer. */
  list(body: unknown, status = 200, headers: Record<string, string> = {}): void {
    this.#on((url) => !isWatch(url), () => new Response(JSON.stringify(body), { status, headers }));
  }

  /** The next watch gets these lines, and then stays open or ends. */
  watch(events: unknown[], end: 'stays' | 'ends' = 'stays'): Stream {
    const stream = new Stream();
    this.#on(isWatch, (_, signal) => {
      signal?.addEventListener('abort', () => stream.fail());
      for (const event of events) stream.push(event);
      if (end === 'ends') stream.close();
      return new Response(stream.body);
    });
    return stream;
  }

  /** The next watch is refused. */
  refuseWatch(status: number): void {
    this.#on(isWatch, () => new Response(JSON.stringify({ message: `status ${status}` }), { status }));
  }

  get watches(): Sent[] {
    return this.sent.filter(({ url }) => isWatch(url));
  }

  #on(matches: (url: URL) => boolean, answer: Answer): void {
    this.#answers.push({ matches, answer });
  }
}

const isWatch = (url: URL): boolean => url.searchParams.get('watch') === 'true';

/** The body of a watch. */
export class Stream {
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  readonly body = new ReadableStream<Uint8Array>({ start: (controller) => void (this.#controller = controller) });

  push(event: unknown): void {
    this.#controller?.enqueue(new TextEncoder().encode(`${JSON.stringify(event)}\n`));
  }

  close(): void {
    this.#controller?.close();
  }

  fail(): void {
    try {
      this.#controller?.error(new DOMException('aborted', 'AbortError'));
    } catch {
      // It has ended already.
    }
  }
}
