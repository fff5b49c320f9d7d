import { afterEach, describe, expect, it, vi } from 'vitest';
import { lackingRules } from '../src/lib/lacking';
import { gapsOf } from '../src/lib/role-gaps';
import { bindingOf, grantsOf, identifier, includes, isDirect, isOfRole, lossOf, rebindOf, unboundOf, whoOf, type Binding, type Grant, type Identity } from '../src/lib/roles';
import { describePolicy } from '../src/lib/rule-words';
import type { Administrators } from '../src/lib/stops';
import { FakeServer } from './fake-server';

afterEach(() => vi.unstubAllGlobals());

const group = (name: string) => ({ kind: 'Group', name });
const binding = (name: string, namespace: string, ...subjects: { kind: string; name: string }[]): Binding => ({
  name,
  namespace,
  metadata: {},
  role: { kind: 'ClusterRole', name: 'platform-admin' },
  subjects,
});

it.each([
  [group('platform:user:ada'), 'user/ada'],
  [group('platform:team:red'), 'team/red'],
  [group('platform:user:*'), ''],
  [group('system:authenticated'), ''],
  [group('ops'), 'group/ops'],
  [{ kind: 'User', name: 'ada' }, 'subject/ada'],
  [{ kind: 'ServiceAccount', namespace: 'web', name: 'ci' }, 'serviceaccount/web/ci'],
])('%j is %s', (subject, who) => expect(whoOf(subject)).toBe(who));

describe('grantsOf', () => {
  it('puts the bindings of one subject and place together', () => {
    const ada = group('platform:user:ada');
    const grants = grantsOf([binding('a', '', ada, group('ops')), binding('b', '', ada), binding('a', 'p-web', ada)]);
    expect(grants.map(({ who, namespace, bindings }) => [who, namespace, bindings.map(({ name }) => name)])).toEqual([
      ['user/ada', '', ['a', 'b']],
      ['group/ops', '', ['a']],
      ['user/ada', 'p-web', ['a']],
    ]);
  });

  it('has a binding once that names a subject twice, and takes both entries out', () => {
    const [ada, ops] = [group('platform:user:ada'), group('ops')];
    expect(grantsOf([binding('a', '', ada, ada)]).map(({ bindings }) => bindings.length)).toEqual([1]);
    expect(unboundOf(binding('a', '', ada, ada), ada).method).toBe('DELETE');
    const steps = unboundOf(binding('a', '', ada, ops, ada), ada).body as { op: string; path: string }[];
    expect(steps.filter(({ op }) => op === 'remove').map(({ path }) => path)).toEqual(['/subjects/2', '/subjects/0']);
  });

  it('does not take a Role of another namespace for the same', () => {
    const grant = { role: { kind: 'Role', name: 'makers' }, namespace: 'shop' } as Grant;
    const role = { kind: 'Role', name: 'makers', namespace: 'shop', rules: [] };
    expect([isOfRole(grant, role), isOfRole(grant, { ...role, namespace: 'web' }), isOfRole(grant, { ...role, kind: 'ClusterRole', namespace: '' })]).toEqual([true, false, false]);
  });
});

it('says which roles are not known', () => {
  const known = { roles: [], grants: [] };
  expect(gapsOf({ ...known, denied: [], partial: [] })).toEqual([]);
  expect(gapsOf({ ...known, denied: ['rolebindings'], partial: ['roles'] })).toEqual([expect.stringContaining('who has a role in a project'), expect.stringContaining('more roles of namespaces')]);
});

describe('rebindOf', () => {
  const request = bindingOf({ kind: 'ClusterRole', name: 'platform-viewer' }, 'user/ada', '');
  const after = (subjects: object[] | undefined, name = 'platform-viewer') => {
    new FakeServer().list({ metadata: { resourceVersion: '7' }, roleRef: { kind: 'ClusterRole', name }, subjects });
    return rebindOf(request);
  };

  it('adds a subject that the binding of this version does not have', async () => {
    const ada = { kind: 'Group', apiGroup: 'rbac.authorization.k8s.io', name: 'platform:user:ada' };
    const version = { op: 'test', path: '/metadata/resourceVersion', value: '7' };
    expect((await after([group('ops')]))?.body).toEqual(expect.arrayContaining([version, { op: 'add', path: '/subjects/-', value: ada }]));
    expect((await after(undefined))?.body).toEqual(expect.arrayContaining([version, { op: 'add', path: '/subjects', value: [ada] }]));
    expect(await after([group('platform:user:ada')])).toBeUndefined();
    // The server refuses the test of the role.
    expect(await after([group('platform:user:ada')], 'another')).toBeDefined();
  });
});

it('tells a user from the groups of the user', () => {
  const ada: Identity = { user: 'a@example.com', own: 'platform:user:ada', groups: ['platform:team:red'], teams: ['red'], isPartial: false };
  for (const [subject, direct, included] of [
    [{ kind: 'User', name: 'a@example.com' }, true, true],
    [group('platform:user:ada'), true, true],
    [group('platform:team:red'), false, true],
    [{ kind: 'User', name: 'ada' }, false, false],
    [{ kind: 'ServiceAccount', name: 'platform:team:red' }, false, false],
  ] as const)
    expect([isDirect(ada, subject), includes(ada, subject)]).toEqual([direct, included]);
});

describe('identifier', () => {
  const user = (server: FakeServer, name: string) => server.list({ metadata: { name }, spec: {} });
  const teams = { items: [{ metadata: { name: 'red' }, spec: { users: ['ada'] } }] };

  it('reads the teams once, and each user once', async () => {
    const server = new FakeServer();
    user(server, 'ada');
    server.list(teams);
    const identify = identifier();
    expect(await identify('user/ada')).toMatchObject({ teams: ['red'], isPartial: false });
    user(server, 'bob');
    expect(await identify('user/bob')).toMatchObject({ teams: [], isPartial: false });
    expect(await identify('user/ada')).toMatchObject({ teams: ['red'] });
    expect(server.sent.map(({ url }) => url.pathname.split('/').slice(-2).join('/'))).toEqual(['users/ada', 'v1/teams', 'users/bob']);
    expect(server.sent[1]?.url.searchParams.get('limit')).not.toBeNull();
  });

  it('says that teams may be missing, and fails with the server', async () => {
    const denied = new FakeServer();
    user(denied, 'ada');
    denied.list({}, 403);
    expect(await identifier()('user/ada')).toMatchObject({ teams: [], isPartial: true });
    const broken = new FakeServer();
    broken.list({}, 503);
    broken.list(teams);
    await expect(identifier()('user/ada')).rejects.toThrow('503');
  });
});

describe('lossOf', () => {
  const GROUPS: Record<string, string[]> = { 'user/ada': ['platform:team:red'], 'user/bob': ['system:masters'], 'user/eve': [] };
  const identify = (who: string): Promise<Identity> => Promise.resolve({ user: who, own: '', groups: GROUPS[who] ?? [], teams: [], isPartial: false });
  const by = (name: string, subject: string) => `ClusterRoleBinding "${name}" of ClusterRole "platform-admin" to Group "${subject}", rule 0`;
  const ada = { kind: 'User', name: 'ada', via: [by('grant', 'platform:user:ada')] };
  const key = (name: string, owner: string) => ({ kind: 'AccessKey', name, via: [`an access key of User "${owner}"`] });
  const masters = { kind: 'Group', name: 'system:masters', via: ['membership in system:masters'] };
  const [grant] = grantsOf([binding('grant', '', group('platform:user:ada'))]) as [Grant];
  const loss = (subjects: Administrators['subjects'], sessions: string[] = [], session = 'tab', logins: Administrators['logins'] = []) =>
    lossOf(grant, { subjects, weak: new Set(sessions), members: new Map(), logins }, session, identify);

  it('is the last one if no other key keeps every permission', async () => {
    expect(await loss([ada, masters, key('laptop', 'ada')])).toEqual({ isOwn: false, isLast: true });
    expect(await loss([ada, masters, key('laptop', 'ada'), key('spare', 'bob')])).toEqual({ isOwn: false, isLast: false });
  });

  it('takes no session for a way in, and knows the one of the page', async () => {
    expect(await loss([ada, masters, key('tab', 'ada'), key('other', 'bob')], ['tab', 'other'])).toEqual({ isOwn: true, isLast: true });
  });

  it('takes the single sign-on of another administrator for a way in', async () => {
    const login = (user: string) => ({ user, connector: 'corp', teams: [] });
    expect(await loss([ada, masters, key('laptop', 'ada')], [], 'tab', [login('bob')])).toEqual({ isOwn: false, isLast: false });
    expect(await loss([ada, masters, key('laptop', 'ada')], [], 'tab', [login('ada'), login('eve')])).toEqual({ isOwn: false, isLast: true });
  });

  it('is none if the user keeps the role by a team or another binding', async () => {
    const team = { kind: 'Team', name: 'red', via: [by('reds', 'platform:team:red')] };
    expect(await loss([ada, team, key('laptop', 'ada')])).toEqual({ isOwn: false, isLast: false });
    const twice = { ...ada, via: [...ada.via, by('viewers', 'platform:user:ada')] };
    expect(await loss([twice, key('laptop', 'ada')])).toEqual({ isOwn: false, isLast: false });
  });
});

describe('rules in words', () => {
  it.each([
    [{ verbs: ['*'], apiGroups: ['*'], resources: ['*'] }, 'Everything on every kind of every API group'],
    [{ verbs: ['get', 'list', 'watch'], apiGroups: ['', 'events.k8s.io'], resources: ['events'] }, 'Read on events of the API group core and events of the API group events.k8s.io'],
    [{ verbs: ['get'], apiGroups: ['management.platform.sh'], resources: ['teams'], resourceNames: ['red'] }, 'Get on teams named red'],
    [{ verbs: ['get'], nonResourceURLs: ['/metrics'] }, 'Get on the paths /metrics'],
  ])('%j', (rule, text) => expect(describePolicy(rule)).toBe(text));

  it('finds the rules in the refusal of a grant', () => {
    const refusal =
      'clusterrolebindings.rbac.authorization.k8s.io "b" is forbidden: user "ada" is attempting to grant RBAC permissions not currently held:\n' +
      '- apiGroups: ["*"]\n  resources: ["*"]\n  verbs: ["*"]\n- nonResourceURLs: ["*"]\n  verbs: ["*"]\n';
    expect(lackingRules(refusal)?.map(describePolicy)).toEqual(['Everything on every kind of every API group', 'Everything on the paths *']);
    expect(lackingRules('users "ada" is forbidden')).toBeUndefined();
    expect(lackingRules('attempting to grant RBAC permissions not currently held:\n&x')).toBeUndefined();
  });
});
