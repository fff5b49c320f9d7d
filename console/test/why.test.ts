import { expect, it } from 'vitest';
import { SHARED_SECRETS, TEAMS } from '../src/lib/kinds';
import { commandOf, problemOf, type Question } from '../src/lib/why';

const ask = (more: Partial<Question>): Question => ({ who: '', verb: 'get', kind: SHARED_SECRETS, namespace: '', name: '', ...more });

it.each([
  [ask({}), undefined, 'postern can-i get sharedsecrets -A --why'],
  [ask({ namespace: 'platform', name: 'db' }), undefined, 'postern can-i get sharedsecrets/db -n platform --why'],
  [ask({ name: 'db' }), 'no-namespace', 'postern can-i get sharedsecrets/db -A --why'],
  [ask({ kind: TEAMS, name: 'shop' }), undefined, 'postern can-i get teams/shop --why'],
  [ask({ who: 'user/ada' }), undefined, 'postern can-i get sharedsecrets -A --as ada --why'],
  [ask({ who: 'team/shop', namespace: 'p-web' }), undefined, 'postern can-i get sharedsecrets -n p-web --as-team shop --why'],
  [ask({ who: 'key/a b' }), undefined, "postern can-i get sharedsecrets -A --with-key 'a b' --why"],
  [ask({ who: 'ada' }), 'plain-name', 'postern can-i get sharedsecrets -A --why'],
  [ask({ who: 'user/' }), 'plain-name', 'postern can-i get sharedsecrets -A --why'],
  [ask({ who: 'group/x' }), 'plain-name', 'postern can-i get sharedsecrets -A --why'],
])('question %#', (question, problem, command) => {
  expect(problemOf(question)).toBe(problem);
  expect(commandOf(question)).toBe(command);
});
