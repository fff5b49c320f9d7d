// Whether a save takes every permission from the last way in, by the object before and after it.
import { get } from './api';
import { ACCESS_KEYS, CONNECTORS, TEAMS, USERS, objectPath, type Kind } from './kinds';
import { isEqual } from './merge';
import { isWayIn, nameOf, readAdministrators, readKeys, stoppingKeys, type Administrators, type KnownKeys, type Login, type Target } from './stops';
import type { AnyObject, OwnedAccessKey, User } from './types';

type Spec = Record<string, unknown>;

/** An object before and after a save. */
export interface Change {
  kind: Kind;
  before: AnyObject;
  after: AnyObject;
}

/** What is known about the ways in. */
export interface Ways {
  known: KnownKeys;
  /** Undefined if the caller may not ask. */
  administrators: Administrators | undefined;
  /** The groups of users that a save takes out of a team. */
  groups: Map<string, string[]>;
}

/** The fields from which power follows. Each other kind has power by all of its fields, without these of `HARMLESS`. */
const FIELDS: Record<string, string[]> = {
  OwnedAccessKey: ['disabled', 'scope', 'ttl', 'ttlAfterLastActivity', 'groups', 'user', 'team', 'subject'],
  User: ['disabled', 'subject', 'groups', 'identities'],
  Team: ['users', 'ssoGroups', 'groups'],
};
const HARMLESS = ['displayName', 'description', 'owner', 'access'];
const LISTS = ['groups', 'identities', 'users', 'ssoGroups'];

const specOf = (object: AnyObject): Spec => object.spec ?? {};
const listOf = <T>(object: AnyObject, field: string): T[] => (specOf(object)[field] as T[] | undefined) ?? [];

/** The entries of a list that a save takes away. */
function lostOf<T>({ before, after }: Change, field: string): T[] {
  return listOf<T>(before, field).filter((each) => !listOf<T>(after, field).some((other) => isEqual(each, other)));
}

function isLess(change: Change, field: string): boolean {
  const [before, after] = [specOf(change.before)[field], specOf(change.after)[field]];
  if (LISTS.includes(field)) return lostOf(change, field).length > 0;
  if (field === 'disabled') return after === true && before !== true;
  // Without a scope, a key has all rights of its owner. Without a lifetime, it has no end.
  if (field === 'scope') return after !== undefined && !isEqual(before, after);
  if (field === 'ttl') return Number(after ?? 0) > 0 && !(Number(before ?? 0) > 0 && Number(after) >= Number(before));
  return !isEqual(before ?? '', after ?? '') && !(field === 'ttlAfterLastActivity' && after === true);
}

/** Whether a merge patch has fields from which power follows. */
export function mayTakePower(kind: Kind, patch: AnyObject): boolean {
  const names = Object.keys(specOf(patch));
  const isEnable = names.join() === 'disabled' && specOf(patch).disabled === false;
  return !isEnable && names.some((name) => (FIELDS[kind.kind] ?? [name]).includes(name) && !HARMLESS.includes(name));
}

/** Whether a save takes anything away from which power follows. */
export function takesPower(change: Change): boolean {
  const names = FIELDS[change.kind.kind] ?? Object.keys({ ...specOf(change.before), ...specOf(change.after) }).filter((name) => !HARMLESS.includes(name));
  return names.some((field) => isLess(change, field));
}

/** The users whom a save takes out of a team. The server alone knows who is in it by groups of single sign-on. */
function leavers(change: Change, members: string[]): string[] {
  const stay = listOf<string>(change.after, 'users');
  const gone = lostOf<string>(change, 'ssoGroups').length > 0 ? [...members, ...listOf<string>(change.before, 'users')] : lostOf<string>(change, 'users');
  return [...new Set(gone)].filter((user) => !stay.includes(user));
}

/** The keys that end with a save, or are no way in any more, and the logins that do. */
function lossOf(change: Change, { known, administrators, groups }: Ways, now: number): { keys: OwnedAccessKey[]; isLoginLost: (login: Login) => boolean } {
  const { kind, before, after } = change;
  const name = before.metadata?.name ?? '';
  const target: Target[] = [{ name, uid: before.metadata?.uid }];
  const stopping = (of: Kind, names: string[]): OwnedAccessKey[] => stoppingKeys(of, names.map((each) => ({ name: each, uid: undefined })), known.keys);
  const none = { keys: [], isLoginLost: () => false };
  const { subjects = [], members = new Map<string, string[]>() } = administrators ?? {};
  const holds = (type: string, holder: string): boolean => subjects.some((subject) => subject.kind === type && subject.name === holder);
  const isByGroup = (list: string[]): boolean => [...list, 'system:authenticated'].some((group) => holds('Group', group));

  if (kind.kind === 'OwnedAccessKey') {
    const { spec, metadata, status } = after as OwnedAccessKey;
    // What the server said about the state and the end was about the key before.
    const later = { spec, metadata, status: { ...status, state: undefined, expirationTimestamp: undefined } } as OwnedAccessKey;
    const isOther = ['groups', 'user', 'team', 'subject'].some((field) => isLess(change, field));
    return isWayIn(later, now) && !isOther ? none : { ...none, keys: stoppingKeys(ACCESS_KEYS, target, known.keys) };
  }
  if (kind.kind === 'User') {
    const sso = (before as User).status?.sso?.flatMap((each) => each.groups ?? []) ?? [];
    const isKept = holds('User', name) || [...members].some(([, users]) => users.includes(name)) || isByGroup([...listOf<string>(after, 'groups'), ...sso]);
    const isLost = isLess(change, 'disabled') || isLess(change, 'subject') || !isKept;
    const gone = lostOf<{ connector?: string }>(change, 'identities').map(({ connector }) => connector);
    return { keys: isLost ? stopping(USERS, [name]) : [], isLoginLost: (login) => login.user === name && (isLost || gone.includes(login.connector)) };
  }
  if (kind.kind === 'Team') {
    const has = (team: AnyObject): boolean => holds('Team', name) || listOf<string>(team, 'groups').some((group) => holds('Group', group));
    if (!has(before)) return none;
    const everyone = [...(members.get(name) ?? []), ...listOf<string>(before, 'users')];
    const leaving = has(after) ? leavers(change, members.get(name) ?? []) : everyone;
    const isKept = (user: string): boolean =>
      holds('User', user) || [...members].some(([team, users]) => team !== name && users.includes(user)) || isByGroup(groups.get(user) ?? []);
    const lost = leaving.filter((user) => !isKept(user));
    return { keys: [...stopping(USERS, lost), ...(has(after) ? [] : stopping(TEAMS, [name]))], isLoginLost: ({ user }) => lost.includes(user) };
  }
  return { keys: stoppingKeys(kind, target, known.keys), isLoginLost: ({ connector }) => kind.kind === CONNECTORS.kind && connector === name };
}

/** Whether a save takes the last way in; undefined if that is not known. */
export function takesLastWay(change: Change, ways: Ways, now: number): boolean | undefined {
  if (!takesPower(change)) return false;
  const { administrators, known } = ways;
  if (!administrators) return undefined;
  const { keys, isLoginLost } = lossOf(change, ways, now);
  const lost = new Set(keys.map(nameOf));
  // A key that was not read ends, too.
  if (change.kind.kind === 'OwnedAccessKey' && keys.length === 0 && !known.isWhole) return undefined;
  const holders = administrators.subjects.filter(({ kind }) => kind === 'AccessKey').map(({ name = '' }) => name);
  const isLeft = holders.some((name) => !lost.has(name) && !administrators.weak.has(name)) || administrators.logins.some((login) => !isLoginLost(login));
  if (isLeft) return false;
  const isAffected = holders.some((name) => lost.has(name)) || administrators.logins.length > 0;
  return isAffected || (known.isWhole ? false : undefined);
}

/** Asks the server whether a save takes the last way in. */
export async function askLastWay(change: Change): Promise<boolean | undefined> {
  if (!takesPower(change)) return false;
  const keys = readKeys();
  const administrators = await readAdministrators(keys);
  const ways = { known: await keys.catch(() => ({ keys: [], isWhole: false })), administrators, groups: new Map<string, string[]>() };
  const name = change.before.metadata?.name ?? '';
  const users = change.kind.kind === 'Team' ? leavers(change, administrators?.members.get(name) ?? []) : [];
  for (const user of users.slice(0, MOST_LEAVERS)) {
    const read = await get<User>(objectPath(USERS, user), { background: true }).catch(() => undefined);
    if (read) ways.groups.set(user, [...(read.spec?.groups ?? []), ...(read.status?.sso ?? []).flatMap((each) => each.groups ?? [])]);
  }
  return takesLastWay(change, ways, Date.now());
}

/** The users whose groups are read. The others count as those who lose what the team gives. */
const MOST_LEAVERS = 20;
