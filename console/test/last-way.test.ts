import { afterEach, describe, expect, it, vi } from 'vitest';
import { forgetDecisions } from '../src/lib/access';
import { MERGE_PATCH } from '../src/lib/api';
import { ACCESS_KEYS, CONNECTORS, TEAMS, USERS, WORKLOAD_IDENTITIES, objectPath, type Kind } from '../src/lib/kinds';
import { takesLastWay, type Ways } from '../src/lib/last-way';
import { checkSave, type Doubt } from '../src/lib/save-check';
import { session } from '../src/lib/session.svelte';
import { isWayIn, nameOf, type Login } from '../src/lib/stops';
import type { AnyObject, OwnedAccessKey } from '../src/lib/types';

const NOW = Date.parse('2026-03-01T00:00:00Z');
const DAY = 86_400;

function key(name: string, spec: Record<string, unknown>, status: object = {}): OwnedAccessKey & AnyObject {
  return { metadata: { name, uid: `uid-${name}`, creationTimestamp: '2026-03-01T00:00:00Z' }, spec, status } as OwnedAccessKey & AnyObject;
}

const ADMIN = key('admin', { user: 'admin' });
const TAB = key('tab', { user: 'admin', ttl: 28_800 }, { session: {} });

/** Administrators by the group `system:masters`, as the server of a new installation has them. */
function ways(keys: OwnedAccessKey[], more: { subjects?: Record<string, string[]>; members?: Record<string, string[]>; logins?: Login[]; groups?: Record<string, string[]> } = {}): Ways {
  const subjects = { AccessKey: keys.map(nameOf), Group: ['system:masters'], ...more.subjects };
  return {
    known: { keys, isWhole: true },
    administrators: {
      subjects: Object.entries(subjects).flatMap(([kind, names]) => names.map((name) => ({ kind, name }))),
      weak: new Set(keys.filter((each) => !isWayIn(each, NOW)).map(nameOf)),
      members: new Map(Object.entries(more.members ?? {})),
      logins: more.logins ?? [],
    },
    groups: new Map(Object.entries(more.groups ?? {})),
  };
}

/** Whether a save of an object's spec takes the last way in. */
function takes(kind: Kind, name: string, before: object, after: object, known: Ways): boolean | undefined {
  const object = (spec: object): AnyObject => ({ metadata: { name, uid: `uid-${name}`, creationTimestamp: '2026-03-01T00:00:00Z' }, spec: spec as Record<string, unknown> });
  return takesLastWay({ kind, before: object(before), after: object(after) }, known, NOW);
}

describe('a way in', () => {
  it.each([
    [{}, true],
    [{ ttl: DAY }, true],
    [{ ttl: DAY - 1 }, false],
    [{ disabled: true }, false],
    [{ scope: { rules: [{ verbs: ['*'] }] } }, false],
  ])('is a key with %j: %s', (spec, isOne) => expect(isWayIn(key('a', spec), NOW)).toBe(isOne));

  it('is no session', () => expect(isWayIn(TAB, NOW)).toBe(false));
});

describe('a save takes the last way in', () => {
  const only = ways([ADMIN, TAB]);
  const masters = { groups: ['system:masters'] };

  it('if the only administrator loses the group, the name or the right to log in', () => {
    expect(takes(USERS, 'admin', masters, {}, only)).toBe(true);
    expect(takes(USERS, 'admin', masters, { ...masters, disabled: true }, only)).toBe(true);
    expect(takes(USERS, 'admin', masters, { ...masters, subject: 'other' }, only)).toBe(true);
  });

  it('not if the power stays, or is of another user', () => {
    expect(takes(USERS, 'admin', masters, { ...masters, displayName: 'A' }, only)).toBe(false);
    expect(takes(USERS, 'admin', { groups: ['system:masters', 'x'] }, masters, only)).toBe(false);
    expect(takes(USERS, 'admin', {}, masters, only)).toBe(false);
    expect(takes(USERS, 'bob', { groups: ['x'] }, {}, only)).toBe(false);
    expect(takes(USERS, 'admin', masters, {}, ways([ADMIN], { subjects: { User: ['admin'] } }))).toBe(false);
  });

  it('if the last key gets a scope or an early end, or is disabled', () => {
    for (const after of [{ scope: {} }, { ttl: 3600 }, { disabled: true }, { user: 'bob' }]) {
      expect(takes(ACCESS_KEYS, 'admin', { user: 'admin' }, { user: 'admin', ...after }, only), JSON.stringify(after)).toBe(true);
    }
    expect(takes(ACCESS_KEYS, 'admin', { user: 'admin' }, { user: 'admin', ttl: 90 * DAY }, only)).toBe(false);
    expect(takes(ACCESS_KEYS, 'other', { user: 'bob' }, { user: 'bob', scope: {} }, only)).toBe(false);
  });

  it('if the other keys have a scope, or end soon', () => {
    const scope = (others: OwnedAccessKey[]) => takes(ACCESS_KEYS, 'admin', {}, { scope: {} }, ways([ADMIN, TAB, ...others]));
    expect(scope([key('scoped', { user: 'admin', scope: { rules: [{ verbs: ['*'] }] } })])).toBe(true);
    expect(scope([key('short', { user: 'admin', ttl: 3600 })])).toBe(true);
    expect(scope([key('long', { user: 'admin', ttl: 30 * DAY })])).toBe(false);
  });

  it('if a member leaves the only team with every permission', () => {
    const tom = key('tom', { user: 'tom' });
    const known = (more: Parameters<typeof ways>[1] = {}) => ways([tom], { ...more, subjects: { Group: [], Team: ['ops', 'more'], ...more.subjects } });
    const leaves = (more?: Parameters<typeof ways>[1]) => takes(TEAMS, 'ops', { users: ['tom'] }, { users: [] }, known(more));
    expect(leaves()).toBe(true);
    expect(leaves({ members: { ops: ['tom'], more: ['tom'] } })).toBe(false);
    expect(leaves({ subjects: { User: ['tom'] } })).toBe(false);
    expect(leaves({ subjects: { Group: ['system:masters'] }, groups: { tom: ['system:masters'] } })).toBe(false);
    expect(takes(TEAMS, 'shop', { users: ['tom'] }, { users: [] }, known())).toBe(false);
    const byProvider = takes(TEAMS, 'ops', { ssoGroups: ['corp:ops'] }, {}, known({ members: { ops: ['tom'] } }));
    expect(byProvider).toBe(true);
  });

  it('if a team loses the group by which it has every permission', () => {
    const known = ways([key('ci', { team: 'ops' })], { members: {} });
    expect(takes(TEAMS, 'ops', masters, {}, known)).toBe(true);
  });

  it('if administrators log in through a connector alone, or with an identity', () => {
    const login = { user: 'grace', connector: 'corp', teams: [] };
    const known = ways([TAB], { subjects: { User: ['grace'] }, logins: [login] });
    expect(takes(CONNECTORS, 'corp', {}, { disabled: true }, known)).toBe(true);
    expect(takes(CONNECTORS, 'corp', { clientID: 'a' }, { clientID: 'b' }, known)).toBe(true);
    expect(takes(CONNECTORS, 'corp', { displayName: 'a' }, { displayName: 'b' }, known)).toBe(false);
    expect(takes(CONNECTORS, 'other', {}, { disabled: true }, known)).toBe(false);
    expect(takes(USERS, 'grace', { identities: [{ connector: 'corp' }] }, {}, known)).toBe(true);
  });

  it('if the only key is that of a workload', () => {
    const known = ways([key('ci', { user: 'admin' }, { workload: { identity: 'deploy', uid: 'uid-deploy' } })]);
    expect(takes(WORKLOAD_IDENTITIES, 'deploy', {}, { disabled: true }, known)).toBe(true);
    expect(takes(WORKLOAD_IDENTITIES, 'other', {}, { disabled: true }, known)).toBe(false);
  });

  it('is not known without the administrators', () => {
    expect(takes(USERS, 'admin', masters, {}, { ...only, administrators: undefined })).toBeUndefined();
  });
});

describe('checkSave', () => {
  afterEach(() => vi.unstubAllGlobals());

  const path = objectPath(USERS, 'admin');
  const remove = { method: 'PATCH' as const, path, body: { spec: { groups: null } }, contentType: MERGE_PATCH };
  const user = (groups: string[]) => ({ metadata: { name: 'admin', uid: 'u' }, spec: { groups } });

  /** A server with one administrator, whose review has this status. */
  function serve(review: number, mayAll = true) {
    const sent: string[] = [];
    vi.stubGlobal('fetch', (target: string, { method = 'GET' }: RequestInit = {}) => {
      sent.push(`${method} ${target.split('/v1/')[1]}`);
      const answers: [string, number, object][] = [
        ['ownedaccesskeys/own?dryRun', 200, key('own', { user: 'ada', ttl: 60 })],
        ['ownedaccesskeys/own', 200, key('own', { user: 'ada' })],
        ['accesspreviews', 200, { status: { results: [{ allowed: mayAll }] } }],
        ['dryRun', 200, user([])],
        ['resourceaccessreviews', review, { status: { complete: true, subjects: [{ kind: 'Group', name: 'system:masters' }, { kind: 'AccessKey', name: 'admin' }] } }],
        ['ownedaccesskeys', 200, { items: [ADMIN] }],
        ['connectors', 200, { items: [] }],
        ['users/admin', 200, user(['system:masters'])],
      ];
      const [, status, body] = answers.find(([part]) => target.includes(part)) ?? ['', 404, {}];
      return Promise.resolve(new Response(JSON.stringify(body), { status }));
    });
    return sent;
  }

  it('asks before the last way in is taken, and refuses without an answer', async () => {
    serve(200);
    const asked: Doubt[] = [];
    const answer = (isConfirmed: boolean) => (doubt: Doubt) => (asked.push(doubt), Promise.resolve(isConfirmed));
    await expect(checkSave(remove, answer(false))).rejects.toThrow('Nothing was saved');
    await checkSave(remove, answer(true));
    expect(asked).toEqual([{ name: 'admin', unknown: '' }, { name: 'admin', unknown: '' }]);
  });

  it('asks if the caller may not ask the server', async () => {
    serve(403);
    const ask = vi.fn((_: Doubt) => Promise.resolve(true));
    await checkSave(remove, ask);
    expect(ask.mock.calls[0]?.[0].unknown).not.toBe('');
  });

  it('does not ask a caller without every permission about an own key', async () => {
    const shorter = { ...remove, path: objectPath(ACCESS_KEYS, 'own'), body: { spec: { ttl: 60 } } };
    const ask = vi.fn((_: Doubt) => Promise.resolve(true));
    for (const [user, mayAll, asked] of [['ada', false, 0], ['ada', true, 1], ['bob', false, 2]] as const) {
      forgetDecisions();
      serve(403, mayAll);
      session.self = { user: { name: user } } as typeof session.self;
      await checkSave(shorter, ask);
      expect(ask, `${user} ${mayAll}`).toHaveBeenCalledTimes(asked);
    }
  });

  it('asks and sends nothing for a change from which no power follows', async () => {
    const sent = serve(403);
    const ask = vi.fn((_: Doubt) => Promise.resolve(false));
    await checkSave({ ...remove, body: { spec: { displayName: 'A' } } }, ask);
    await checkSave({ ...remove, body: { spec: { disabled: false } } }, ask);
    expect([sent, ask.mock.calls]).toEqual([[], []]);
  });
});
