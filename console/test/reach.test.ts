import { afterEach, expect, it, vi } from 'vitest';
import { SHARED_SECRETS } from '../src/lib/kinds';
import { reachOf } from '../src/lib/reach';

afterEach(() => vi.unstubAllGlobals());

const json = (body: object, status = 200) => new Response(JSON.stringify(body), { status });

it('stops all questions after one that failed, and reports no more', async () => {
  const items = Array.from({ length: 30 }, (_, at) => ({ metadata: { namespace: 'default', name: `s${at}` } }));
  const open: (() => void)[] = [];
  let sent = 0;
  vi.stubGlobal('fetch', (path: string, { signal }: RequestInit) => {
    if (!path.includes('subjectaccessreviews')) return Promise.resolve(json({ items }));
    sent += 1;
    if (sent === 1) return Promise.resolve(json({}, 503));
    return new Promise((resolve, reject) => {
      signal?.addEventListener('abort', () => reject(new DOMException('aborted', 'AbortError')));
      open.push(() => resolve(json({ status: { allowed: true } })));
    });
  });
  const [stop, report] = [new AbortController(), vi.fn()];
  await expect(reachOf('ada', SHARED_SECRETS, report, stop)).rejects.toThrow('503');
  expect(stop.signal.aborted).toBe(true);
  const before = sent;
  for (const answer of open) answer();
  await new Promise((resolve) => setTimeout(resolve));
  expect(sent).toBe(before);
  expect(report).not.toHaveBeenCalled();
});
