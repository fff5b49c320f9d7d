import { afterEach, expect, it, vi } from 'vitest';
import { SPACES, TEAMS } from '../src/lib/kinds';
import { countOf, mayHaveSome } from '../src/lib/people.svelte';
import { FakeServer } from './fake-server';

afterEach(() => vi.unstubAllGlobals());

it.each([
  [200, [{}], true],
  [200, [], false],
  [403, [], false],
  [429, [], true],
  [503, [], true],
])('after %i with %j, a page may have objects: %s', async (status, items, answer) => {
  new FakeServer().list({ items }, status);
  expect(await mayHaveSome(TEAMS)).toBe(answer);
});

it.each([
  ['counts what the server counts', [{ items: [{}], metadata: { continue: 'c', remainingItemCount: 6 } }], { number: 7, isAtLeast: false }],
  ['reads the objects if the server does not count', [{ items: [{}], metadata: { continue: 'c' } }, { items: [{}, {}, {}] }], { number: 3, isAtLeast: false }],
  ['says that there are more', [{ items: [{}], metadata: { continue: 'c' } }, { items: [{}, {}], metadata: { continue: 'c' } }], { number: 2, isAtLeast: true }],
  ['counts none', [{}], { number: 0, isAtLeast: false }],
])('%s', async (_, lists, answer) => {
  const server = new FakeServer();
  for (const list of lists) server.list(list);
  expect(await countOf(SPACES, 'p-web')).toEqual(answer);
});
