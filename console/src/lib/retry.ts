// When something that failed is tried again: after a pause that grows, and as soon as the machine or the person is back.
import type { Failure } from './failure';

/** The longest pause in seconds. */
const LONGEST = 30;
/** The reason of a request without a response. */
export const UNREACHABLE = 'Unreachable';

/** Whether the server is away, or a proxy in front of it has no server. */
export function isAway({ code, reason }: Pick<Failure, 'code' | 'reason'>): boolean {
  return (code === 0 && reason === UNREACHABLE) || code === 502 || code === 503 || code === 504;
}

/** Whether the same request may succeed later. */
export function isTemporary(failure: Pick<Failure, 'code' | 'reason'>): boolean {
  return isAway(failure) || failure.code === 408 || failure.code === 429 || failure.code >= 500;
}

/** The seconds before attempt `attempt`, counted from 0, with a random part: many pages must not come back at once. */
export function pauseOf(attempt: number, random: number): number {
  return Math.min(LONGEST, 2 ** attempt) * (0.75 + 0.25 * random);
}

/** Calls a function when the machine is online again, and when the person comes back to the page. */
export function onReturn(back: () => void): () => void {
  const isBack = (): void => {
    if (!document.hidden) back();
  };
  addEventListener('online', isBack);
  addEventListener('focus', isBack);
  document.addEventListener('visibilitychange', isBack);
  return () => {
    removeEventListener('online', isBack);
    removeEventListener('focus', isBack);
    document.removeEventListener('visibilitychange', isBack);
  };
}

/** Waits for the pause before an attempt, or until the machine or the person is back, or until the signal ends it. */
export function waitFor(attempt: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      forget();
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, pauseOf(attempt, Math.random()) * 1000);
    const forget = onReturn(done);
    signal?.addEventListener('abort', done);
  });
}
