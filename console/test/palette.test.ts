import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { ACCESS_KEYS, SHARED_SECRETS } from '../src/lib/kinds';
import { listsFor, loadObjects, type Found } from '../src/lib/palette';
import { FakeServer } from './fake-server';

let server: FakeServer;
beforeEach(() => (server = new FakeServer()));
afterEach(() => vi.unstubAllGlobals());

const table = (next: string) => ({ metadata: { continue: next }, rows: [{ cells: ['db'], object: { metadata: { name: 'db', namespace: 'platform' } } }] });

it('knows of which kinds it has read the first objects only, and which did not answer', async () => {
  server.list(table('next'));
  server.list(table(''));
  server.list({ message: 'no' }, 403);
  server.list({ message: 'away' }, 503);
  let found: Found[] = [];
  await loadObjects((answers) => (found = answers));
  expect(found.slice(0, 4).map(({ state }) => state)).toEqual(['first', 'whole', 'whole', 'failed']);
  expect(found[0]?.items).toEqual([{ title: 'platform/db', hint: 'SharedSecret', path: '/secrets/platform/db' }]);
  expect(found.every(({ state }) => state !== 'loading')).toBe(true);
});

it('offers the lists that search the rest', () => {
  const found: Found[] = [
    { kind: SHARED_SECRETS, items: [], state: 'first' },
    { kind: ACCESS_KEYS, items: [], state: 'failed' },
  ];
  const title = (_: unknown, typed: string) => `all for ${typed}`;
  expect(listsFor(found, ' db ', title, 'List')).toEqual([
    { title: 'all for db', hint: 'List', path: '/secrets', query: { q: 'db' } },
    { title: 'all for db', hint: 'List', path: '/keys', query: { q: 'db', of: 'all' } },
  ]);
  expect(listsFor(found, ' ', title, 'List')).toEqual([]);
  expect(listsFor([{ kind: SHARED_SECRETS, items: [], state: 'whole' }], 'db', title, 'List')).toEqual([]);
});
