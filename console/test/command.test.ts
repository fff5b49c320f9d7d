// The table of requests and commands. A test of the whole system runs each command, and compares the results
// (tests/tests/console/commands.rs).
import { describe, expect, it } from 'vitest';
import { bindingOfAgent, createCluster, keyOfAgent } from '../src/lib/agents';
import { commandOf, commandsOf } from '../src/lib/command';
import { ACCESS_KEYS, SHARED_SECRETS, TEAMS, TRUSTED_ISSUERS, VIRTUAL_CLUSTERS } from '../src/lib/kinds';
import { invitationOf, joinOf, requestsOf, roleOf, userOf } from '../src/lib/new-user';
import { bindingOf, memberOf, noMemberOf, unboundOf } from '../src/lib/roles';
import type { Binding } from '../src/lib/roles';
import type { Project } from '../src/lib/types';
import { requestOf } from '../src/lib/why';
import { createOf, patchOf, type ApiRequest } from '../src/lib/writes';
import table from './commands.json';

const APIS = '/kubernetes/management/apis';
const GROUPS: Record<string, string> = { rbac: 'rbac.authorization.k8s.io', authorization: 'authorization.k8s.io' };

/** A request of the table with its whole path. */
function whole(request: { method: string; path: string; body?: unknown; contentType?: string }): ApiRequest {
  const [, prefix = '', path = ''] = /^(?:(rbac|authorization):)?(.*)$/.exec(request.path) ?? [];
  return { ...request, path: `${APIS}/${GROUPS[prefix] ?? 'management.platform.sh'}/v1/${path}` } as ApiRequest;
}

const row = (name: string): ApiRequest[] => (table.find((each) => each.name === name)?.requests ?? []).map(whole);

it.each(table)('$name', ({ requests, commands }) => expect(commandsOf(requests.map(whole))).toEqual(commands));

describe('the requests of the pages are those of the table', () => {
  const named = (body: object) => expect.objectContaining({ body: expect.objectContaining(body) });

  it('for roles', () => {
    const role = { kind: 'ClusterRole', name: 'platform-viewer' };
    expect([bindingOf(role, 'user/ada', '')]).toEqual(row('a role everywhere'));
    expect([bindingOf({ kind: 'Role', name: 'makers' }, 'team/shop', 'default')]).toEqual(row('a role in a namespace'));
    const project = (members: unknown[]): Project => ({ metadata: { name: 'web', resourceVersion: 'VERSION' }, spec: { members } }) as Project;
    expect([memberOf(project([]), 'platform-project-admin', 'user/ada')]).toEqual(row('the first member of a project'));
    const ada = { kind: 'User', name: 'ada', clusterRole: 'platform-project-admin' };
    expect([memberOf(project([ada]), 'platform-viewer', 'team/shop')]).toEqual(row('another member of a project'));
    expect(memberOf(project([ada]), 'platform-project-admin', 'user/ada')).toBeUndefined();
    expect([noMemberOf(project([ada]), 'platform-project-admin', 'user/ada')]).toEqual(row('a member who leaves'));
    expect(noMemberOf(project([]), 'platform-project-admin', 'user/ada')).toBeUndefined();
    const imported = { ...ada, clusterRole: 'loft-management-project-admin' };
    expect(memberOf(project([imported]), 'platform-project-admin', 'user/ada')).toBeUndefined();
    expect(noMemberOf(project([imported]), 'platform-project-admin', 'user/ada')?.body).toEqual(expect.arrayContaining([{ op: 'remove', path: '/spec/members/0' }]));
    // The command line reads these names as the roles of every project.
    for (const name of ['admin', 'user', 'viewer']) {
      const change = memberOf(project([]), name, 'user/ada') as ApiRequest;
      expect(commandOf(change)).toBeUndefined();
    }
    const subjects = ['platform:user:ada', 'platform:team:shop'].map((name) => ({ kind: 'Group', apiGroup: GROUPS.rbac, name }));
    const binding = { name: 'viewers', namespace: '', metadata: { uid: 'u' }, role: { apiGroup: GROUPS.rbac, ...role }, subjects } as Binding;
    expect([unboundOf(binding, subjects[1] ?? {})]).toEqual(row('a subject of a binding'));
    expect(unboundOf({ ...binding, subjects: subjects.slice(0, 1) }, subjects[0] ?? {})).toMatchObject(row('a binding of another name')[0] as object);
  });

  it('for a binding whose name tells of another role or subject', () => {
    const role = { kind: 'ClusterRole', name: 'platform-viewer' };
    const bob = { kind: 'Group', name: 'platform:user:bob' };
    const binding: Binding = { name: 'grant:platform-viewer:user:bob', namespace: '', metadata: {}, role, subjects: [bob] };
    const command = (changes: Partial<Binding>) => commandOf(unboundOf({ ...binding, ...changes }, changes.subjects?.[0] ?? bob));
    expect(command({})).toBe('postern revoke platform-viewer --user bob');
    expect(command({ role: { kind: 'ClusterRole', name: 'platform-admin' } })).toBe('postern delete clusterrolebinding/grant:platform-viewer:user:bob');
    expect(command({ subjects: [{ kind: 'Group', name: 'platform:user:eve' }] })).toBe('postern delete clusterrolebinding/grant:platform-viewer:user:bob');
    expect(command({ namespace: 'web', name: 'viewers' })).toBe('postern delete rolebinding/viewers -n web');
  });

  it('for a new user', () => {
    const grace = { name: 'grace', displayName: 'Grace H.', email: 'grace@example.com', teams: ['shop'], roles: ['platform-viewer'], validFor: 28_800 };
    const shop = { metadata: { name: 'shop', resourceVersion: 'VERSION' }, spec: { users: ['ada'] } };
    expect([userOf(grace), joinOf(shop, 'grace'), roleOf('grace', 'platform-viewer'), invitationOf('grace', 28_800)]).toEqual(row('a new user with everything'));
    expect(joinOf(shop, 'ada')).toBeUndefined();
    expect([invitationOf('ada')]).toEqual(row('a login link'));
    expect([invitationOf('ada', 259_200)]).toEqual(row('a login link for three days'));
    // The form shows the command before it has read the teams.
    expect(commandsOf(requestsOf(grace))).toEqual(table.find(({ name }) => name === 'a new user with everything')?.commands);
    expect(commandsOf(requestsOf({ ...grace, displayName: '', email: '', teams: ['red', 'shop'], roles: [], validFor: 0 }))).toEqual(['postern create user grace --team red,shop']);
    expect(commandsOf(requestsOf({ ...grace, teams: [], roles: ['a', 'b'], validFor: 86_400 }))).toEqual([
      "postern create user grace --display-name 'Grace H.' --email grace@example.com --role a --role b --invite",
    ]);
    // What is about another user is another command.
    expect(commandsOf([userOf(grace), roleOf('ada', 'platform-viewer')])).toHaveLength(2);
  });

  it('for clusters', () => {
    expect([createCluster('east', 'East')]).toEqual([named({ metadata: { name: 'east' }, spec: { displayName: 'East' } })]);
    const cluster = { name: 'east', uid: 'UID' };
    expect([bindingOfAgent(cluster), createOf(ACCESS_KEYS, keyOfAgent(cluster) as object)]).toEqual(row('the agent of a cluster'));
  });

  it('for questions', () => {
    const question = { verb: 'get', kind: SHARED_SECRETS, namespace: '', name: '' };
    expect([requestOf({ ...question, who: '', namespace: 'default', name: 'db' })]).toEqual(row('a question about the caller'));
    expect([requestOf({ ...question, who: 'user/ada' })]).toEqual(row('a question about a user'));
    const virtual = { ...question, who: 'team/shop', kind: VIRTUAL_CLUSTERS, namespace: 'p-web' };
    expect([requestOf(virtual)]).toEqual(row('a question about a team'));
    expect([requestOf({ ...question, who: 'key/deploy', kind: TEAMS, name: 'shop' })]).toEqual(row('a question about a key'));
  });
});

it('has no command for what postern cannot say', () => {
  const key = (spec: object) => createOf(ACCESS_KEYS, { metadata: {}, spec: { ...spec } });
  for (const request of [
    patchOf(TEAMS, 'shop', undefined, { spec: { users: ['ada'] } }),
    patchOf(ACCESS_KEYS, 'ci', undefined, { spec: { disabled: true, ttl: 60 } }),
    patchOf(TRUSTED_ISSUERS, 'github', undefined, { spec: { disabled: true } }),
    key({ ttl: 60, ttlAfterLastActivity: true }),
    key({ scope: {} }),
    key({ scope: { rules: [{ verbs: ['get', 'list', 'watch'] }], projects: [{ project: 'web' }] } }),
    key({ scope: { rules: [{ verbs: ['delete'] }] } }),
    { method: 'GET', path: '/auth/methods' } as const,
  ])
    expect(commandOf(request)).toBeUndefined();
});
