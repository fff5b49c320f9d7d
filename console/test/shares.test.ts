import { describe, expect, it } from 'vitest';
import { byTeams, changed, extraSharesOf, meaningOf, refusalOf, sharesOf } from '../src/lib/shares';
import type { Access } from '../src/lib/types';

const READ = ['get', 'list', 'watch'];
const none = { edits: new Map<string, string[]>(), added: [], verbs: READ };
const idOf = (rules: Access[], subject: string): string => sharesOf(rules).find((share) => share.subject === subject)?.id ?? '';
const edit = (rules: Access[], subject: string, verbs: string[]) => changed(rules, { ...none, edits: new Map([[idOf(rules, subject), verbs]]) });
const add = (rules: Access[], ...added: string[]) => changed(rules, { ...none, added });

describe('sharesOf', () => {
  it('has a row for each user and team', () => {
    const rules: Access[] = [{ name: 'readers', verbs: ['get'], users: ['ada', '*'], teams: ['shop'] }, { verbs: ['*'], users: ['bob'], subresources: ['status'] }];
    expect(sharesOf(rules).map(({ subject, rule, verbs, subresources }) => [subject, rule, verbs, subresources])).toEqual([
      ['user/ada', 'readers', ['get'], []],
      ['user/*', 'readers', ['get'], []],
      ['team/shop', 'readers', ['get'], []],
      ['user/bob', '', ['*'], ['status']],
    ]);
  });
});

it('shows the rules of extraAccessRules, which give get and use', () => {
  const shares = extraSharesOf({ extraAccessRules: [{ users: ['*'] }, { users: ['*'], teams: ['shop'], clusterRole: 'loft-cluster-space-admin' }] });
  expect(shares.map(({ subject, verbs, rule }) => [subject, verbs, rule])).toEqual(['user/*', 'team/shop'].map((subject) => [subject, ['get', 'use'], 'extraAccessRules']));
  expect(shares.map(({ id }) => id)).not.toContain(sharesOf([{ name: 'extraAccessRules', verbs: ['get', 'use'], users: ['*'] }])[0]?.id);
});

it('has a user once whom a rule names twice', () => {
  const twice: Access = { name: 'ops', verbs: READ, users: ['bob', 'bob'] };
  expect(sharesOf([twice, twice]).map(({ subject }) => subject)).toEqual(['user/bob']);
  expect(edit([twice], 'user/bob', ['get'])).toEqual([{ ...twice, verbs: ['get'] }]);
});

describe('changed', () => {
  const own: Access = { name: 'shared', verbs: ['watch', 'get', 'list'], users: ['ada'] };
  const named: Access = { name: 'ops', verbs: READ, users: ['ada'] };
  const wide: Access = { name: 'shared', verbs: READ, subresources: ['*'], users: ['ada'] };
  const fresh: Access = { name: 'shared', verbs: READ, users: ['bob'] };

  it('adds to the rule that a share made, or makes one, as the command line does', () => {
    expect(add([], 'user/bob')).toEqual([fresh]);
    expect(add([own], 'user/bob')).toEqual([{ ...own, users: ['ada', 'bob'] }]);
    expect(add([own], 'team/red', 'user/ada')).toEqual([{ ...own, teams: ['red'] }]);
    expect(add([named], 'user/bob')).toEqual([named, fresh]);
    expect(add([wide], 'user/bob')).toEqual([wide, fresh]);
  });

  it('adds nothing that a rule gives already', () => {
    const all: Access = { verbs: ['*'], teams: ['red'] };
    expect(add([own, all], 'user/ada', 'team/red')).toEqual([own, all]);
  });

  it('takes one share back, and a rule without subjects with it', () => {
    const both: Access = { name: 'readers', verbs: ['get'], users: ['ada', 'bob'], subresources: ['status'] };
    expect(edit([both, own], 'user/bob', [])).toEqual([{ ...both, users: ['ada'] }, own]);
    expect(edit([own, both], 'user/ada', [])).toEqual([both]);
  });

  it('changes a rule for one user in its place, and moves one of several users out of a shared rule', () => {
    expect(edit([named], 'user/ada', ['get'])).toEqual([{ ...named, verbs: ['get'] }]);
    const both: Access = { name: 'readers', verbs: READ, users: ['ada'], teams: ['shop'] };
    expect(edit([both], 'user/ada', ['*'])).toEqual([
      { name: 'readers', verbs: READ, teams: ['shop'] },
      { name: 'shared', verbs: ['*'], users: ['ada'] },
    ]);
  });

  it('keeps the subresources of one of several', () => {
    const both: Access = { name: 'readers', verbs: READ, users: ['ada', 'bob'], subresources: ['status'] };
    expect(edit([both], 'user/ada', ['get'])).toEqual([
      { ...both, users: ['bob'] },
      { name: 'shared', verbs: ['get'], subresources: ['status'], users: ['ada'] },
    ]);
  });

  it('forgets an edit of a share that another writer has taken back', () => {
    const edits = new Map([[idOf([named], 'user/ada'), ['*']]]);
    expect(changed([own], { ...none, edits })).toEqual([own]);
  });
});

it('knows what a user has by a team or with everyone', () => {
  const rules: Access[] = [{ verbs: ['get'], teams: ['shop'] }, { verbs: ['patch'], users: ['*'] }, { verbs: ['delete'], users: ['ada'], teams: ['ops'] }];
  const members = new Map([['team/shop', ['user/ada', 'user/bob']]]);
  expect([...byTeams(rules, 'user/ada', members)]).toEqual(['get', 'patch']);
  expect([...byTeams(rules, 'user/eve', members)]).toEqual(['patch']);
  expect([...byTeams(rules, 'team/shop', members)]).toEqual([]);
  expect(byTeams([{ verbs: ['*'], users: ['*'] }], 'user/ada', members)).toContain('delete');
});

it('says what verbs mean', () => {
  expect(meaningOf(['get', 'patch'])).toEqual({ parts: ['read', 'change'], others: [] });
  expect(meaningOf(['*'])).toEqual({ parts: ['all'], others: [] });
  expect(meaningOf(['deletecollection', 'bind'])).toEqual({ parts: ['delete'], others: ['bind'] });
});

describe('refusalOf', () => {
  const failure = (code: number, message: string, causes: object[] = []) => ({ code, message, reason: '', causes, auditId: '', retryAfter: undefined });

  it.each([
    [403, 'sharedsecrets "db" is forbidden: User "ada" cannot bind resource "users": access for the user "eve" requires a common team, or the verb bind on this user', { why: 'unnamed', what: 'user eve' }],
    [403, 'x: access for all users (`*`) requires the verb bind on all users', { why: 'everyone', what: '' }],
    [403, 'sharedsecrets "db" is forbidden: User "ada" cannot delete resource "sharedsecrets" in API group', { why: 'not-held', what: 'delete' }],
    [403, 'sharedsecrets "db" is forbidden: User "ada" cannot * resource "sharedsecrets" in API group', { why: 'not-held', what: '*' }],
    [409, 'the object has been modified', { why: 'changed', what: '' }],
    [403, 'something else', undefined],
    [500, 'cannot get resource', undefined],
  ])('%i %s', (code, message, refusal) => expect(refusalOf(failure(code, message))).toEqual(refusal));

  it('names a user that does not exist', () => {
    const causes = [{ field: 'spec.access[0].users[1]', reason: 'FieldValueNotFound', message: 'Not found: "eve"' }];
    expect(refusalOf(failure(422, 'invalid', causes))).toEqual({ why: 'unknown-name', what: 'eve' });
  });
});
