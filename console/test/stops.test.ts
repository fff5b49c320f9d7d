import { afterEach, describe, expect, it, vi } from 'vitest';
import { stateOf } from '../src/lib/keys';
import { ACCESS_KEYS, CONNECTORS, TEAMS, USERS, type Kind } from '../src/lib/kinds';
import { askStops, isLastWay, stoppingKeys, stopsOf, type Administrators } from '../src/lib/stops';
import type { OwnedAccessKey } from '../src/lib/types';
import { stopTexts } from '../src/texts-stops';

const NOW = Date.parse('2026-03-01T00:00:00Z');

function key(name: string, spec: OwnedAccessKey['spec'], status: OwnedAccessKey['status'] = {}): OwnedAccessKey {
  return { metadata: { name, uid: `uid-${name}`, creationTimestamp: '2026-02-28T00:00:00Z' }, spec: spec ?? {}, status };
}

const made = (by: string) => ({ maker: { name: by, uid: `uid-${by}` } });
const KEYS = [
  key('laptop', { user: 'ada' }),
  key('session', { user: 'ada' }, { ...made('laptop'), session: {} }),
  key('made', { user: 'ada' }, made('session')),
  key('ci', { team: 'shop' }, { login: { connector: 'corp' } }),
  key('old', { user: 'ada', ttl: 60 }),
  key('off', { user: 'ada', disabled: true }),
  key('other', { user: 'grace' }, { parentUid: 'uid-laptop' }),
];
const whole = { keys: KEYS, isWhole: true };
const target = (name: string) => [{ name, uid: `uid-${name}` }];
const administrators = (subjects: Record<string, string[]>, sessions: string[] = []): Administrators => ({
  subjects: Object.entries(subjects).flatMap(([kind, names]) => names.map((name) => ({ kind, name }))),
  weak: new Set(sessions),
  members: new Map(),
  logins: [],
});

describe('stoppingKeys', () => {
  const names = (...args: Parameters<typeof stoppingKeys>) => stoppingKeys(...args).map((each) => each.metadata?.name).sort();

  it('follows the keys that a key made, and those that have it as a parent', () => {
    expect(names(ACCESS_KEYS, target('laptop'), KEYS)).toEqual(['laptop', 'made', 'other', 'session']);
    expect(names(ACCESS_KEYS, target('made'), KEYS)).toEqual(['made']);
  });

  it('knows the keys of owners and of connectors', () => {
    expect(names(TEAMS, target('shop'), KEYS)).toEqual(['ci']);
    expect(names(CONNECTORS, target('corp'), KEYS)).toEqual(['ci']);
    expect(names(USERS, target('ada'), KEYS)).toEqual(['laptop', 'made', 'off', 'old', 'other', 'session']);
  });
});

describe('stopsOf', () => {
  it('counts the keys that give access now, without the key itself', () => {
    expect(stopsOf(ACCESS_KEYS, target('laptop'), whole, undefined, '', NOW)).toMatchObject({ keys: 2, sessions: 1, isAtLeast: false });
    expect(stopsOf(USERS, target('ada'), whole, undefined, '', NOW)).toMatchObject({ keys: 3, sessions: 1 });
    expect(stopsOf(USERS, target('ada'), { keys: KEYS, isWhole: false }, undefined, '', NOW).isAtLeast).toBe(true);
  });

  it('counts a login link as an invitation until it is used or expires', () => {
    const link = key('link', { user: 'ada', ttl: 172_800 }, { session: { loginCode: true } });
    const keys = [...KEYS, link, key('late', { user: 'ada', ttl: 60 }, { session: { loginCode: true } })];
    const stops = stopsOf(USERS, target('ada'), { keys, isWhole: true }, undefined, '', NOW);
    expect(stops).toMatchObject({ keys: 3, sessions: 1, invitations: 1 });
    expect(stopTexts.stops(stops, false)).toBe('3 access keys, 1 session and 1 invitation stop at once.');
    expect([link, ...KEYS.slice(0, 2)].map((each) => stateOf(each, NOW))).toEqual(['Invitation', 'Active', 'Active']);
  });

  it('sees that the session of the page ends with the key that began it', () => {
    expect(stopsOf(ACCESS_KEYS, target('laptop'), whole, undefined, 'session', NOW).endsSession).toBe(true);
    expect(stopsOf(ACCESS_KEYS, target('ci'), whole, undefined, 'session', NOW).endsSession).toBe(false);
  });
});

describe('isLastWay', () => {
  const last = (keys: string[], stopping: string[], sessions: string[] = []) =>
    isLastWay(ACCESS_KEYS, [], new Set(stopping), administrators({ AccessKey: keys }, sessions));

  it('is so if every key with every permission stops', () => {
    expect(last(['laptop'], ['laptop'])).toBe(true);
    expect(last(['laptop', 'spare'], ['laptop'])).toBe(false);
    expect(last(['laptop'], ['ci'])).toBe(false);
  });

  it('takes no session for a way in', () => {
    expect(last(['laptop', 'session'], ['laptop'], ['session'])).toBe(true);
  });

  it('is so for a team by which alone its members have every permission', () => {
    const by = (subjects: Record<string, string[]>) => isLastWay(TEAMS, target('ops'), new Set(), administrators({ AccessKey: ['laptop'], ...subjects }));
    expect(by({ Team: ['ops'] })).toBe(true);
    expect(by({ Team: ['ops'], User: ['ada'] })).toBe(false);
    expect(by({ User: ['ada'] })).toBe(false);
  });

  it('is not so while an administrator can log in with single sign-on', () => {
    const only = (kind: Kind, name: string, teams: string[] = []) =>
      isLastWay(kind, target(name), new Set(['session']), { ...administrators({ AccessKey: ['session'], User: ['grace'] }, ['session']), logins: [{ user: 'grace', connector: 'corp', teams }] });
    expect(isLastWay(ACCESS_KEYS, target('session'), new Set(['session']), administrators({ AccessKey: ['session'] }, ['session']))).toBe(true);
    expect(only(ACCESS_KEYS, 'session')).toBe(false);
    expect(only(USERS, 'ada')).toBe(false);
    expect(only(CONNECTORS, 'other')).toBe(false);
    expect(only(TEAMS, 'ops')).toBe(false);
    expect(only(USERS, 'grace')).toBe(true);
    expect(only(CONNECTORS, 'corp')).toBe(true);
    expect(only(TEAMS, 'ops', ['ops', 'shop'])).toBe(false);
  });

  it('is not known without the administrators', () => {
    expect(stopsOf(ACCESS_KEYS, target('laptop'), whole, undefined, '', NOW).isLastWay).toBeUndefined();
  });
});

describe('askStops', () => {
  afterEach(() => vi.unstubAllGlobals());

  /** A server where grace, by herself, and eve, by the team ops, are administrators who log in at providers. */
  function serve(disabled: { connector?: boolean; grace?: boolean } = {}) {
    const user = (name: string, connector: string, off = false) => ({ metadata: { name }, spec: { disabled: off, identities: [{ connector, subject: 's' }] } });
    const session = { metadata: { name: 'session' } };
    const answers: Record<string, unknown> = {
      ownedaccesskeys: { items: [{ ...session, spec: { user: 'grace' }, status: { session: {} } }] },
      resourceaccessreviews: { status: { complete: true, subjects: [{ kind: 'AccessKey', name: 'session' }, { kind: 'User', name: 'grace' }, { kind: 'Team', name: 'ops' }] } },
      connectors: { items: [{ metadata: { name: 'corp' }, spec: { disabled: disabled.connector } }] },
      'teams/ops/members': { users: [{ name: 'eve' }] },
      'users/grace': user('grace', 'corp', disabled.grace),
      'users/eve': user('eve', 'gone'),
      'users/grace/accesskeys': { items: [] },
    };
    const fetched = (path: string) => {
      const found = answers[path.replace(/^.*\/v1\//, '').replace(/\?.*$/, '')];
      return Promise.resolve(new Response(JSON.stringify(found ?? { message: 'not found' }), { status: found ? 200 : 404 }));
    };
    vi.stubGlobal('fetch', fetched);
  }

  it('counts an administrator who can log in at an enabled provider as a way in', async () => {
    serve();
    expect((await askStops(ACCESS_KEYS, target('session'), '')).isLastWay).toBe(false);
    expect((await askStops(USERS, target('grace'), '')).isLastWay).toBe(true);
    serve({ connector: true });
    expect((await askStops(ACCESS_KEYS, target('session'), '')).isLastWay).toBe(true);
    serve({ grace: true });
    expect((await askStops(ACCESS_KEYS, target('session'), '')).isLastWay).toBe(true);
  });
});
