import { expect, it } from 'vitest';
import { SHARED_SECRETS, TEAMS } from '../src/lib/kinds';
import { isNoSuch, problemOf, type Question } from '../src/lib/why';

const ask = (more: Partial<Question>): Question => ({ who: '', verb: 'get', kind: SHARED_SECRETS, namespace: '', name: '', ...more });

it.each([
  [ask({}), undefined],
  [ask({ namespace: 'platform', name: 'db' }), undefined],
  [ask({ name: 'db' }), 'no-namespace'],
  [ask({ kind: TEAMS, name: 'shop' }), undefined],
  [ask({ who: 'user/ada' }), undefined],
  [ask({ who: 'key/a b' }), undefined],
  [ask({ who: 'ada' }), 'plain-name'],
  [ask({ who: 'user/' }), 'plain-name'],
  [ask({ who: 'group/x' }), 'plain-name'],
])('question %#', (question, problem) => expect(problemOf(question)).toBe(problem));

it('tells a denial from a question about nothing', () => {
  expect(isNoSuch('there is no verb gte')).toBe(true);
  expect(isNoSuch('no role allows it')).toBe(false);
});
