import { describe, expect, it } from 'vitest';
import { cleaned, effectOfRules, effectOfMove, hasOtherSource, rightOf } from '../src/lib/rules';

describe('effectOfRules', () => {
  it('says which verbs subjects gain and lose', () => {
    const before = [{ verbs: ['get', 'list'], teams: ['shop'], users: ['ada'] }];
    const after = [{ verbs: ['get'], teams: ['shop'] }, { verbs: ['use'], users: ['bob'] }];
    expect(effectOfRules(before, after)).toEqual({
      gains: [{ subject: 'user/bob', verbs: ['use'] }],
      loses: [
        { subject: 'user/ada', verbs: ['get', 'list'] },
        { subject: 'team/shop', verbs: ['list'] },
      ],
    });
  });

  it('adds up the rules of one subject', () => {
    const one = [{ verbs: ['get', 'list'], users: ['ada'] }];
    const two = [{ verbs: ['get'], users: ['ada'] }, { verbs: ['list'], users: ['ada'] }];
    expect(effectOfRules(one, two)).toEqual({ gains: [], loses: [] });
  });

  it('compares subresources, too', () => {
    const rule = { verbs: ['get'], users: ['ada'], subresources: ['status'] };
    const whole = { verbs: ['get'], users: ['ada'] };
    const inner = { subject: 'user/ada', verbs: ['get'], subresources: ['status'], isInner: true };
    expect(effectOfRules([rule], [whole])).toEqual({ gains: [], loses: [inner] });
    expect(effectOfRules([rule], [{ ...whole, subresources: ['*'] }]).loses).toEqual([]);
    expect(effectOfRules([], [rule]).gains).toEqual([{ ...inner, isInner: false }]);
  });

  it('reads * as every verb', () => {
    const some = [{ verbs: ['get'], users: ['ada'] }];
    const all = [{ verbs: ['*'], users: ['ada'] }];
    expect(effectOfRules([], all).gains).toEqual([{ subject: 'user/ada', verbs: ['*'] }]);
    expect(effectOfRules(some, all).gains[0]?.verbs).not.toContain('get');
    expect(effectOfRules(some, all).loses).toEqual([]);
  });
});

it('sends no rule without a subject or a verb, and no empty list', () => {
  const rules = [
    { verbs: ['get'], users: [], teams: ['shop'], name: '' },
    { verbs: ['get'], users: [] },
    { verbs: [], users: ['ada'] },
  ];
  expect(cleaned(rules)).toEqual([{ verbs: ['get'], teams: ['shop'] }]);
});

it('names a right by its verbs, in any order', () => {
  expect(rightOf(['watch', 'get', 'list'])).toBe('read');
  expect(rightOf(['get'])).toBe('custom');
});

describe('effectOfMove', () => {
  const byRole = { kind: 'Team', name: 'shop', via: ['RoleBinding "members" of ClusterRole "platform-project-user"'] };
  const byRule = { kind: 'User', name: 'bob', via: ['RoleBinding "platform:access:virtualclusterinstances:dev:0/p-web"'] };
  const owner = { kind: 'User', name: 'ada', via: ['ownership of the object'] };
  const key = { kind: 'AccessKey', name: 'k', via: ['an access key of User "ada"'] };

  it('moves the owner and the access rules, and not the roles of the project', () => {
    const there = [{ kind: 'Team', name: 'data', via: ['RoleBinding "members"'] }];
    expect(effectOfMove([byRole, byRule, owner, key], there)).toEqual({ gains: ['Team/data'], loses: ['Team/shop'] });
  });

  it('knows a subject that keeps a permission by another source', () => {
    expect(hasOtherSource(byRule, 1)).toBe(false);
    expect(hasOtherSource({ ...byRule, via: [...byRule.via, ...byRole.via] }, 1)).toBe(true);
    // The rules of extraAccessRules have the numbers behind those of access.
    expect(hasOtherSource(byRule, 0)).toBe(true);
    expect(hasOtherSource({ kind: 'Group', name: 'system:authenticated', via: ['a list contains the objects that the caller may get'] }, 0)).toBe(false);
  });
});
