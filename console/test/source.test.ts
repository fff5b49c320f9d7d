import { expect, it } from 'vitest';
import { sourceOf } from '../src/lib/source';

it.each([
  ['RBAC: allowed by ownership of the object', { by: 'owner', rule: undefined, to: '' }],
  [
    'RBAC: allowed by RoleBinding "platform:access:sharedsecrets:db:12/default" of Role "platform:access:sharedsecrets:db:12" to Group "platform:team:shop", rule 0',
    { by: 'rule', rule: 12, to: 'team/shop' },
  ],
  ['ClusterRoleBinding "platform:access:projects:web:0" of ClusterRole "platform:access:projects:web:0" to Group "platform:user:*", rule 0', { by: 'rule', rule: 0, to: 'user/*' }],
  [
    'RBAC: allowed by member of the project: RoleBinding "platform:members:web/p-web" of ClusterRole "platform-project-user" to Group "platform:user:ada", rule 1',
    { by: 'member', rule: undefined, to: 'user/ada' },
  ],
  ['ClusterRoleBinding "a" of ClusterRole "platform-admin" to Group "corp:ops", rule 0', { by: 'role', rule: undefined, to: 'group/corp:ops' }],
  ['RBAC: allowed by membership in system:masters', { by: 'role', rule: undefined, to: '' }],
])('%s', (text, source) => expect(sourceOf(text)).toEqual(source));
