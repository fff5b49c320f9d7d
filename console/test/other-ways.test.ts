import { afterEach, expect, it, vi } from 'vitest';
import { SHARED_SECRETS } from '../src/lib/kinds';
import { hasBy, otherWays } from '../src/lib/other-ways';
import { VERBS } from '../src/lib/rules';
import { FakeServer } from './fake-server';

afterEach(() => vi.unstubAllGlobals());

const members = new Map([['team/shop', ['user/bob']]]);
const role = ['ClusterRoleBinding "viewers" of ClusterRole "platform-viewer"'];
const row = (kind: string, name: string, via = role) => ({ kind, name, via });

/** Whether bob has the verb `get` by another way, after an answer. */
async function bobAfter(subjects: object[], complete = true, status = 200): Promise<string> {
  new FakeServer().list({ status: { subjects, complete } }, status);
  const ways = await otherWays(SHARED_SECRETS, 'db', 'default', ['get'], 1);
  return hasBy(ways.get('get'), 'user/bob', members);
}

it.each([
  ['by a role of the user', [row('User', 'bob')], 'yes'],
  ['by a team', [row('Team', 'shop')], 'yes'],
  ['by a team whose users are not known', [row('Team', 'red')], 'maybe'],
  ['with everyone', [row('Group', 'system:authenticated')], 'yes'],
  ['with every user', [row('Group', 'platform:user:*')], 'yes'],
  ['by a group', [row('Group', 'ops')], 'maybe'],
  ['by a role in the whole server', [row('ClusterWide', '*')], 'maybe'],
  ['by the rule that is changed', [row('User', 'bob', ['RoleBinding "platform:access:sharedsecrets:db:0"'])], 'no'],
  ['by nothing', [row('User', 'eve'), row('AccessKey', 'bob')], 'no'],
])('%s', async (_, subjects, answer) => expect(await bobAfter(subjects)).toBe(answer));

it('does not know without a whole answer', async () => {
  expect(await bobAfter([], false)).toBe('maybe');
  expect(await bobAfter([], true, 403)).toBe('maybe');
  expect(hasBy(undefined, 'user/bob', members)).toBe('maybe');
});

it('asks about every verb', async () => {
  expect([...(await otherWays(SHARED_SECRETS, 'db', 'default', VERBS.slice(0, 12), 1)).keys()]).toEqual(VERBS.slice(0, 12));
  expect([...(await otherWays(SHARED_SECRETS, 'db', 'default', ['*'], 1)).keys()]).toEqual(VERBS);
});
