import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { ACCESS_KEYS, SHARED_SECRETS, USERS } from '../src/lib/kinds';
import { findByName, isName, joined, listsFor, loadObjects, type Found } from '../src/lib/palette';
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
  await loadObjects(new AbortController().signal, (answers) => (found = answers));
  expect(found.slice(0, 4).map(({ state }) => state)).toEqual(['first', 'whole', 'whole', 'failed']);
  expect(found[0]?.items).toEqual([{ title: 'platform/db', hint: 'Shared secrets', path: '/secrets/platform/db' }]);
  expect(found.every(({ state }) => state !== 'loading')).toBe(true);
});

it('asks the server for the names that begin with a text, a few kinds at once', async () => {
  server.list(table('next'));
  server.list(table(''));
  server.list({ message: 'away' }, 503);
  let found: Found[] = [];
  const report = (answers: Found[]) => (found = answers);
  await findByName([SHARED_SECRETS, ACCESS_KEYS, USERS], ' DB-e ', new AbortController().signal, report);
  expect(found.map(({ state }) => state)).toEqual(['first', 'whole', 'failed']);
  expect(server.sent.map(({ url }) => url.searchParams.get('fieldSelector'))).toEqual(Array(3).fill('metadata.name^=db-e'));
  expect(server.sent.map(({ url }) => url.searchParams.get('limit'))).toEqual(['10', '10', '10']);
  // A text with a namespace is about the objects of that namespace.
  server.list(table(''));
  await findByName([SHARED_SECRETS, USERS], 'shop/d', new AbortController().signal, report);
  expect(found).toHaveLength(1);
  expect(server.sent[3]?.url.pathname).toContain('/namespaces/shop/sharedsecrets');
  // No object has a name like this, so there is nothing to ask for.
  await findByName([SHARED_SECRETS], 'new secret', new AbortController().signal, report);
  expect([found, server.sent.length]).toEqual([[], 4]);
  expect(['db', 'shop/d', 'a.b', '', 'shop/', 'a b', '-a', 'a,b=c', 'a/b/c'].map(isName)).toEqual([true, true, true, ...Array(6).fill(false)]);
});

it('reports nothing for a text that has changed', async () => {
  const stop = new AbortController();
  vi.stubGlobal('fetch', () => {
    stop.abort();
    return Promise.reject(new DOMException('aborted', 'AbortError'));
  });
  const states: string[][] = [];
  await findByName([SHARED_SECRETS, USERS], 'db', stop.signal, (found) => states.push(found.map(({ state }) => state)));
  expect(states).toEqual([['loading', 'loading']]);
});

it('shows an object once that is found in both ways', () => {
  const item = { title: 'platform/db', hint: 'SharedSecret', path: '/secrets/platform/db' };
  const other = { ...item, title: 'platform/dc', path: '/secrets/platform/dc' };
  const of = (items: (typeof item)[]): Found => ({ kind: SHARED_SECRETS, items, state: 'first' });
  expect(joined([of([item])], [of([item, other])])).toEqual([item, other]);
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
