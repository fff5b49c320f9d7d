import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Failure } from '../src/lib/failure';
import { TableEngine, type Snapshot } from '../src/lib/table-engine';
import { FakeServer } from './fake-server';

let server: FakeServer;
let engine: TableEngine;
let shown: Snapshot | undefined;
let paints = 0;
let failures: Failure[];

const columnDefinitions = [{ name: 'Name', type: 'string', description: '' }];
const row = (name: string, version: number) => ({
  cells: [name],
  object: { metadata: { name, namespace: 'ns', uid: name, resourceVersion: String(version) } },
});
const page = (names: string[], version: number, next = '') => ({
  columnDefinitions,
  metadata: { resourceVersion: String(version), continue: next },
  rows: names.map((name) => row(name, 1)),
});
const event = (type: string, name: string, version: number) => ({ type, object: { columnDefinitions, rows: [row(name, version)] } });
const names = () => shown?.rows.map((each) => each.name).join(' ');

function make(): TableEngine {
  return new TableEngine(
    { path: '/things', query: {} },
    {
      onSnapshot: (snapshot) => {
        shown = snapshot;
        paints++;
      },
      onFailure: (failure) => failures.push(failure),
      onUnauthorized: () => {},
    },
  );
}

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'] });
  server = new FakeServer();
  shown = undefined;
  paints = 0;
  failures = [];
  engine = make();
});

afterEach(() => {
  engine.end();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

describe('TableEngine', () => {
  it('shows a short list, and follows it', async () => {
    server.list(page(['b', 'a'], 10));
    const stream = server.watch([]);
    expect(await engine.first()).toBeUndefined();
    expect(names()).toBe('a b');
    expect(shown).toMatchObject({ found: 2, loaded: 2, more: false });
    stream.push(event('ADDED', 'c', 11));
    stream.push(event('DELETED', 'a', 12));
    await vi.waitFor(() => expect(names()).toBe('b c'));
    expect(server.watches[0]?.url.searchParams.get('resourceVersion')).toBe('10');
  });

  it('hands a long list over, which another engine completes', async () => {
    server.list(page(['a', 'b'], 10, 'next'));
    const start = await engine.first();
    expect(start).toMatchObject({ next: 'next', version: '10' });
    expect(shown).toMatchObject({ loaded: 2, more: true });
    engine.end();
    engine = make();
    server.list(page(['c'], 10, 'last'));
    server.list(page(['d'], 10));
    server.watch([event('DELETED', 'd', 11)]);
    if (start) await engine.resume(start);
    await vi.waitFor(() => expect(shown).toMatchObject({ loaded: 3, more: false }));
    expect(names()).toBe('a b c');
    expect(server.sent.filter(({ url }) => url.searchParams.has('continue')).map(({ headers }) => headers.get('X-Postern-Background'))).toEqual(['1', '1']);
  });

  it('lists again after a 410, and keeps its rows until then', async () => {
    server.list(page(['a', 'b'], 10));
    server.watch([{ type: 'ERROR', object: { code: 410 } }]);
    await engine.first();
    server.list(page(['b', 'c'], 20));
    server.watch([]);
    await vi.advanceTimersByTimeAsync(900);
    expect(names()).toBe('a b');
    await vi.advanceTimersByTimeAsync(300);
    await vi.waitFor(() => expect(names()).toBe('b c'));
    expect(server.watches.at(-1)?.url.searchParams.get('resourceVersion')).toBe('20');
  });

  it('shows the rows of its window alone', async () => {
    server.list(page(['a', 'b', 'c', 'd'], 10));
    server.watch([]);
    engine.move({ from: 1, to: 3 });
    await engine.first();
    expect(names()).toBe('b c');
    expect(shown).toMatchObject({ from: 1, found: 4 });
  });

  it('gathers the events of a busy list', async () => {
    server.list(page([], 10));
    const stream = server.watch([]);
    await engine.first();
    await vi.waitFor(() => expect(shown?.state).toBe('live'));
    paints = 0;
    for (let number = 0; number < 500; number++) stream.push(event('ADDED', `n${number}`, 11 + number));
    await vi.waitFor(() => expect(paints).toBeGreaterThan(0));
    await vi.advanceTimersByTimeAsync(130);
    expect(shown?.found).toBe(500);
    // The first 50 are painted one by one.
    expect(paints).toBeLessThan(55);
  });

  it('reports the Status of a list that fails', async () => {
    const status = { message: 'slow down', reason: 'TooManyRequests', details: { causes: [] } };
    server.list(status, 429, { 'Retry-After': '7', 'Audit-Id': 'x-1' });
    await expect(engine.first()).rejects.toMatchObject({ code: 429, message: 'slow down', retryAfter: 7, auditId: 'x-1' });
  });
});
