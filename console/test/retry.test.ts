import { expect, it } from 'vitest';
import { isAway, isTemporary, pauseOf } from '../src/lib/retry';

it.each([
  [0, 'Unreachable', true, true],
  [503, '', true, true],
  [502, '', true, true],
  [500, '', false, true],
  [429, '', false, true],
  [403, '', false, false],
  [404, '', false, false],
  [0, '', false, false],
])('a failure with code %i and reason "%s"', (code, reason, away, temporary) => {
  expect([isAway({ code, reason }), isTemporary({ code, reason })]).toEqual([away, temporary]);
});

it('waits longer after each attempt, up to 30 seconds', () => {
  expect([0, 1, 2, 4, 5, 40].map((attempt) => pauseOf(attempt, 1))).toEqual([1, 2, 4, 16, 30, 30]);
  expect(pauseOf(5, 0)).toBe(22.5);
});
