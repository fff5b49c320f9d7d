import { describe, expect, it } from 'vitest';
import { describeRule, describeSource } from '../src/lib/rule-words';

const GROUP = 'management.platform.sh';

it.each([
  [{}, 'Everything on every kind'],
  [{ verbs: ['get', 'list', 'watch'] }, 'Read on every kind'],
  [
    { verbs: ['get', 'delete'], resources: [{ group: GROUP, resources: ['sharedsecrets', 'projectsecrets'], resourceNames: ['db', 'tls'] }], namespaces: ['platform', 'p-web'] },
    'Get and delete on sharedsecrets and projectsecrets named db and tls, in the namespaces platform and p-web',
  ],
  [{ verbs: ['*'], resources: [{ group: 'apps', resources: ['*'] }], cluster: 'east' }, 'Everything on every kind of the API group apps, in the cluster east'],
  [{ verbs: ['get'], resources: [{ resources: ['events'] }], resourceNames: ['a'] }, 'Get on events of the API group core named a'],
  [{ verbs: ['get'], nonResourceURLs: ['/metrics'] }, 'Get on the paths /metrics'],
  [{ verbs: ['get'], namespaces: [''], requestTargets: ['Management' as const] }, 'Get on every kind, in the namespace (none), in this server'],
  [{ verbs: ['get'], virtualClusters: [{ namespace: 'p-web', name: '' }] }, 'Get on every kind, in the virtual cluster p-web/*'],
])('%j in words', (rule, text) => expect(describeRule(rule)).toBe(text));

describe('describeSource', () => {
  const rule = (index: number) => `RoleBinding "platform:access:sharedsecrets:db:${index}/platform" of Role "platform:access:sharedsecrets:db:${index}" to Group "platform:user:ada", rule 0`;

  it.each([
    [rule(0), 'rule shared'],
    [rule(1), 'rule 2'],
    ['ownership of the object', 'owner'],
    ['member of the project: RoleBinding "platform:members:web:0/p-web" of ClusterRole "platform-project-user" to Group "platform:team:shop", rule 0', 'member of the team shop'],
    ['RoleBinding "makers/platform" of Role "makers" to Group "platform:user:ada", rule 0', 'role makers, for user ada'],
    ['membership in system:masters', 'member of the group system:masters'],
    ['ClusterRoleBinding "platform-admin" of ClusterRole "platform-admin" to Group "system:masters", rule 0', 'role platform-admin, for system:masters'],
    ['something new', 'something new'],
  ])('%s', (via, text) => expect(describeSource(via, ['shared', ''])).toBe(text));

  it('calls the rules of the own object so', () => expect(describeSource(rule(0), ['shared'], true)).toBe('your rule shared'));
});
