// What stops when an access key, its owner or its maker is disabled or deleted.
import { get, review, withQuery } from './api';
import { endOf, isInvitation, isSession, stateOf } from './keys';
import { ACCESS_KEYS, CONNECTORS, TEAMS, USERS, collectionPath, objectPath, type Kind } from './kinds';
import type { Connector, OwnedAccessKey, ResourceAccessReview, ReviewedSubject, TeamMembers, User } from './types';

/** An object that is disabled or deleted. */
export interface Target {
  name: string;
  uid: string | undefined;
}

/** The part that the console knows about the keys of the server. */
export interface KnownKeys {
  keys: OwnedAccessKey[];
  /** Whether `keys` has every key. */
  isWhole: boolean;
}

/** Who has every permission, as the server tells it. */
export interface Administrators {
  subjects: ReviewedSubject[];
  /** The names of the keys that are no way in: sessions, keys with a scope, and keys that end soon. */
  weak: Set<string>;
  /** The users of the teams with every permission. */
  members: Map<string, string[]>;
  /** The logins with single sign-on through which they come back without a key. */
  logins: Login[];
}

/** A user with every permission, and an enabled provider at which the user has an identity. */
export interface Login {
  user: string;
  connector: string;
  /** The teams that give every permission. Empty if the user has it without a team. */
  teams: string[];
}

export interface Stops {
  /** The keys that stop with the targets, without the targets. */
  keys: number;
  sessions: number;
  /** Login links that were not used yet. */
  invitations: number;
  /** Whether there may be more of them. */
  isAtLeast: boolean;
  /** Whether the session of this page is one of them. */
  endsSession: boolean;
  /** Whether no key with every permission is left; undefined if that is not known. */
  isLastWay: boolean | undefined;
}

const PAGE = 500;
/** The keys that are read at most, to count those that stop. */
const MOST_KEYS = 2000;
/** The users and teams with every permission whose logins are looked for. */
const MOST_ADMINISTRATORS = 20;

/** A key that ends earlier is no way in. */
const LASTING_MS = 86_400_000;

/** Whether a key leads in, also tomorrow, with all that its owner may do. */
export function isWayIn(key: OwnedAccessKey, now: number): boolean {
  const end = endOf(key);
  return !isSession(key) && !key.spec?.scope && stateOf(key, now) === 'Active' && (end === undefined || end >= now + LASTING_MS);
}

export const nameOf = (key: OwnedAccessKey): string => key.metadata?.name ?? '';

/** Whether a key belongs to a target by itself, and not by another key. */
function belongsTo(kind: Kind, key: OwnedAccessKey, { name, uid }: Target): boolean {
  switch (kind.kind) {
    case 'OwnedAccessKey':
      return nameOf(key) === name;
    case 'User':
      return key.spec?.user === name;
    case 'Team':
      return key.spec?.team === name;
    case 'Connector':
      return key.status?.login?.connector === name;
    default:
      return key.status?.workload !== undefined && (uid ? key.status.workload.uid === uid : key.status.workload.identity === name);
  }
}

/** The keys that stop with the targets: those that belong to one, and those that they made, and so on. */
export function stoppingKeys(kind: Kind, targets: Target[], keys: OwnedAccessKey[]): OwnedAccessKey[] {
  const found = new Map<string, OwnedAccessKey>();
  let added = keys.filter((key) => targets.some((target) => belongsTo(kind, key, target)));
  while (added.length > 0) {
    for (const key of added) found.set(nameOf(key), key);
    const uids = new Set(added.map((key) => key.metadata?.uid ?? ''));
    added = keys.filter((key) => !found.has(nameOf(key)) && [key.status?.maker?.uid, key.status?.parentUid].some((uid) => uid && uids.has(uid)));
  }
  return [...found.values()];
}

/** Whether a login with single sign-on goes on to work, and gives every permission. */
function isLeft(kind: Kind, targets: Target[], { user, connector, teams }: Login): boolean {
  const isTarget = (name: string): boolean => targets.some((target) => target.name === name);
  if (kind.kind === 'User') return !isTarget(user);
  if (kind.kind === 'Connector') return !isTarget(connector);
  return kind.kind !== 'Team' || teams.length === 0 || !teams.every(isTarget);
}

/** Whether the keys that stop are all that have every permission, and no login is left that gives it. */
export function isLastWay(kind: Kind, targets: Target[], stopping: Set<string>, { subjects, weak, logins }: Administrators): boolean {
  if (logins.some((login) => isLeft(kind, targets, login))) return false;
  const named = (type: string) => subjects.filter((subject) => subject.kind === type).map((subject) => subject.name ?? '');
  const keys = named('AccessKey').filter((name) => !weak.has(name));
  const lost = (name: string): boolean => stopping.has(name);
  if (kind.kind === 'Team' && targets.some(({ name }) => named('Team').includes(name))) {
    // Its members lose the permission, and the server alone knows who keeps it by another role.
    const others = subjects.filter((subject) => subject.kind !== 'AccessKey' && !(subject.kind === 'Team' && targets.some(({ name }) => name === subject.name)));
    if (others.length === 0) return true;
  }
  // No login is left, so those that there were are lost.
  const isAffected = logins.length > 0 || named('AccessKey').some(lost);
  return isAffected && keys.every(lost);
}

interface List<T> {
  metadata?: { continue?: string };
  items?: T[];
}

export async function readKeys(): Promise<KnownKeys> {
  const keys: OwnedAccessKey[] = [];
  let next: string | undefined;
  do {
    const path = withQuery(collectionPath(ACCESS_KEYS), { limit: PAGE, continue: next });
    const list: List<OwnedAccessKey> = await get(path, { background: true });
    keys.push(...(list.items ?? []));
    next = list.metadata?.continue;
  } while (next && keys.length < MOST_KEYS);
  return { keys, isWhole: !next };
}

/** The keys of owners, which the server lists apart; none if the caller may not read them. */
async function keysOf(kind: Kind, targets: Target[]): Promise<OwnedAccessKey[] | undefined> {
  if (kind.kind !== 'User' && kind.kind !== 'Team') return [];
  const lists = await Promise.all(targets.map(({ name }) => get<List<OwnedAccessKey>>(`${objectPath(kind, name)}/accesskeys`, { background: true }).catch(() => undefined)));
  return lists.includes(undefined) ? undefined : lists.flatMap((list) => list?.items ?? []);
}

const quiet = { background: true };
const none = (): undefined => undefined;
const namedIn = (subjects: ReviewedSubject[], kind: string): string[] => subjects.filter((subject) => subject.kind === kind).map(({ name = '' }) => name);

/** The users of the teams that have every permission; none of those that the caller may not read. */
async function readMembers(subjects: ReviewedSubject[]): Promise<Map<string, string[]>> {
  const teams = namedIn(subjects, 'Team').slice(0, MOST_ADMINISTRATORS);
  const lists = await Promise.all(teams.map((team) => get<TeamMembers>(`${objectPath(TEAMS, team)}/members`, quiet).catch(none)));
  return new Map(teams.map((team, at) => [team, (lists[at]?.users ?? []).map(({ name = '' }) => name)]));
}

/** The logins with single sign-on of users that have every permission; none that the caller may not know. */
async function readLogins(subjects: ReviewedSubject[], members: Map<string, string[]>): Promise<Login[]> {
  const list = await get<List<Connector>>(collectionPath(CONNECTORS), quiet).catch(none);
  const enabled = new Set((list?.items ?? []).filter(({ spec }) => !spec?.disabled).map(({ metadata }) => metadata?.name ?? ''));
  if (enabled.size === 0) return [];
  const byTeam = new Map<string, string[]>();
  for (const [team, users] of members) for (const user of users) byTeam.set(user, [...(byTeam.get(user) ?? []), team]);
  const direct = namedIn(subjects, 'User');
  const users = [...new Set([...direct, ...byTeam.keys()])].slice(0, MOST_ADMINISTRATORS);
  const found = await Promise.all(users.map((user) => get<User>(objectPath(USERS, user), quiet).catch(none)));
  return found.flatMap((user) => {
    const name = user?.metadata?.name ?? '';
    if (!name || user?.spec?.disabled) return [];
    const connectors = (user?.spec?.identities ?? []).flatMap(({ connector = '' }) => (enabled.has(connector) ? [connector] : []));
    return connectors.map((connector) => ({ user: name, connector, teams: direct.includes(name) ? [] : (byTeam.get(name) ?? []) }));
  });
}

/** Who has every permission; undefined if the caller may not ask. */
export async function readAdministrators(keys: Promise<KnownKeys> = readKeys()): Promise<Administrators | undefined> {
  try {
    const every = { verb: '*', group: '*', resource: '*' };
    const [answer, known] = await Promise.all([review<ResourceAccessReview>('resourceaccessreviews', 'ResourceAccessReview', every, quiet), keys]);
    if (answer.status?.complete === false) return undefined;
    const subjects = answer.status?.subjects ?? [];
    const now = Date.now();
    const ways = new Set(known.keys.filter((key) => isWayIn(key, now)).map(nameOf));
    const members = await readMembers(subjects);
    return { subjects, weak: new Set(namedIn(subjects, 'AccessKey').filter((name) => !ways.has(name))), members, logins: await readLogins(subjects, members) };
  } catch {
    // The caller may not ask who is an administrator.
    return undefined;
  }
}

/** Puts together what is known. `session` is the name of the key of this page. */
export function stopsOf(kind: Kind, targets: Target[], known: KnownKeys, administrators: Administrators | undefined, session: string, now: number): Stops {
  const stopping = stoppingKeys(kind, targets, known.keys);
  const names = new Set(stopping.map(nameOf));
  // A key that was not read stops, too.
  if (kind.kind === 'OwnedAccessKey') for (const { name } of targets) names.add(name);
  const alive = stopping.filter((key) => stateOf(key, now) === 'Active');
  const others = kind.kind === 'OwnedAccessKey' ? alive.filter((key) => !targets.some(({ name }) => name === nameOf(key))) : alive;
  const sessions = others.filter(isSession).length;
  const lastWay = administrators && isLastWay(kind, targets, names, administrators);
  return {
    keys: others.length - sessions,
    sessions,
    invitations: stopping.filter((key) => isInvitation(key, now)).length,
    isAtLeast: !known.isWhole,
    endsSession: names.has(session),
    isLastWay: lastWay || known.isWhole ? lastWay : undefined,
  };
}

/** Asks the server what stops with the targets. */
export async function askStops(kind: Kind, targets: Target[], session: string): Promise<Stops> {
  const keys = readKeys();
  const [all, owned, administrators] = await Promise.all([keys, keysOf(kind, targets), readAdministrators(keys)]);
  const known = new Map([...all.keys, ...(owned ?? [])].map((key) => [nameOf(key), key]));
  const isWhole = all.isWhole && owned !== undefined;
  return stopsOf(kind, targets, { keys: [...known.values()], isWhole }, administrators, session, Date.now());
}
