import { describe, expect, it } from 'vitest';
import { splitReason } from '../src/lib/access';
import type { Failure } from '../src/lib/failure';
import { refusalIn } from '../src/lib/refusal';

const failure = (code: number, message: string): Failure => ({ code, message, reason: '', causes: [], auditId: '', retryAfter: undefined });
const denied = (of: string, verb: string, resource: string, place = 'at the cluster scope', group = 'management.platform.sh') =>
  failure(403, `${of} is forbidden: User "ada" cannot ${verb} resource "${resource}" in API group "${group}" ${place}`);

const OWNER = 'Ask its owner, or an administrator for a role that allows it.';
const ADMIN = 'Ask an administrator for a role that allows it.';

describe('a refusal in words', () => {
  it.each([
    ['an object', denied('projectsecrets.management.platform.sh "tls"', 'get', 'projectsecrets', 'in the namespace "p-web"'), `You may not read the project secret tls in the namespace p-web. ${OWNER}`],
    ['a kind with another plural', denied('workloadidentities.management.platform.sh "ci"', 'update', 'workloadidentities'), `You may not change the workload identity ci. ${OWNER}`],
    ['all objects of a kind', denied('users.management.platform.sh', 'list', 'users'), `You may not list users. ${ADMIN}`],
    ['a resource without a page', denied('events', 'list', 'events', 'in the namespace "platform"', ''), `You may not list events in the namespace platform. ${ADMIN}`],
    ['a part of an object', denied('sharedsecrets.management.platform.sh "db"', 'get', 'sharedsecrets/readers', 'in the namespace "shop"'), `You may not read readers of the shared secret db in the namespace shop. ${OWNER}`],
    ['the keys of a team', denied('teams.management.platform.sh "shop"', 'getkey', 'teams'), `You may not see the access keys of the team shop. ${ADMIN}`],
    ['who can', denied('resourceaccessreviews.management.platform.sh', 'create', 'resourceaccessreviews'), `You may not see who has access to an object that you may not change. ${OWNER}`],
    ['a key with a scope', denied('teams.management.platform.sh', 'list', 'teams', 'at the cluster scope: the scope of the access key does not allow it, or its owner may not do it'), 'You may not list teams. The access key of this session has a scope. The scope does not allow it, or the owner of the key may not do it.'],
    ['an object that is not there', failure(404, 'sharedsecrets.management.platform.sh "db" not found'), 'There is no shared secret db that you may read. Check the name, or ask its owner for access.'],
    ['a namespace that is not there', failure(404, 'namespaces "p-web" not found'), 'There is no namespace p-web that you may read. Check the name, or ask an administrator for access.'],
  ])('says what is refused about %s', (_, of, text) => expect(refusalIn(of)?.text).toBe(text));

  it('leads to the same question about a kind that has a page', () => {
    const of = denied('sharedsecrets.management.platform.sh "db"', 'delete', 'sharedsecrets', 'in the namespace "shop"');
    expect(refusalIn(of)?.question).toEqual({ verb: 'delete', kind: 'sharedsecrets', place: 'shop', name: 'db' });
    expect(refusalIn(denied('events', 'list', 'events', 'at the cluster scope', ''))?.question).toBeUndefined();
    expect(refusalIn(denied('users.management.platform.sh "a"', 'get', 'users/x'))?.question).toBeUndefined();
  });

  it.each([
    ['another reason', failure(403, 'users "ada" is forbidden: the last administrator')],
    ['another failure', failure(409, 'sharedsecrets "db" already exists')],
    ['a missing path', failure(404, 'the server could not find the requested resource')],
  ])('keeps the words of the server for %s', (_, of) => expect(refusalIn(of)).toBeUndefined());
});

it.each([
  ['no role of ada allows it; this rule everywhere would allow it:', 'No role of ada allows this. Ask an administrator for a role that allows it.'],
  ['no role of ada allows it; this rule in the namespace shop would allow it:', 'No role of ada allows this in the namespace shop. Ask an administrator for a role that allows it.'],
  ['the scope of the access key does not allow it; this entry would allow it:', 'The scope of the access key does not allow this.'],
])('the reason of a decision is in words: %s', (first, text) => {
  expect(splitReason(`${first}\n- verbs: [get]\n`)).toEqual({ text, rule: '- verbs: [get]' });
});
