import { afterEach, expect, it, vi } from 'vitest';
import { TEAMS } from '../src/lib/kinds';
import { mayHaveSome } from '../src/lib/people.svelte';
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
