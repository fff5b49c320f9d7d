// States, lifetimes and successors of access keys.
import type { OwnedAccessKey } from './types';

/** What a key is worth, in the words of the server. Only an active key gives access. */
export type KeyState = 'Active' | 'Expired' | 'Disabled' | 'OwnerDisabled' | 'MakerEnded';

/** The text of the column `Expires` for a key without an end. */
export const NEVER = 'never';

/** A state that was true when it was told: a key expires without a change of its object. */
export function stateAt(told: string, end: number | undefined, now: number): string {
  return told === 'Active' && end !== undefined && end <= now ? 'Expired' : told;
}

/** The state of a key, and `Invitation` for a login link. A server that does not tell it leaves it to the fields of the key itself. */
export function stateOf(key: OwnedAccessKey, now: number): string {
  const told = key.status?.state;
  const state = stateAt(told || (key.spec?.disabled ? 'Disabled' : 'Active'), endOf(key), now);
  // The code of a login link gives no access before it is used.
  return state === 'Active' && key.status?.session?.loginCode ? 'Invitation' : state;
}

/** Whether a key is the code of a login link that can still be used. */
export function isInvitation(key: OwnedAccessKey, now: number): boolean {
  return stateOf(key, now) === 'Invitation';
}

/** Whether a key is a session of the console or of the command line. */
export function isSession(key: OwnedAccessKey): boolean {
  return key.status?.session !== undefined || key.metadata?.labels?.['platform.sh/session'] !== undefined;
}

/** When a key ends by its time-to-live, in milliseconds; undefined if it does not. */
export function endOf(key: OwnedAccessKey): number | undefined {
  // A session that was the code of a login link counts from its beginning, and a key ends with the one that made it.
  const told = key.status?.expirationTimestamp;
  if (told) return Date.parse(told);
  const { ttl, ttlAfterLastActivity } = key.spec ?? {};
  if (!ttl) return undefined;
  const from = (ttlAfterLastActivity && key.status?.lastActivity) || key.metadata?.creationTimestamp;
  return from ? Date.parse(from) + ttl * 1000 : undefined;
}

/** A key that takes the place of another: the same in all that decides what it gives access to. */
export function successorOf(old: OwnedAccessKey): OwnedAccessKey {
  const { displayName, description, user, team, subject, groups, ttl, ttlAfterLastActivity, scope, type } = old.spec ?? {};
  const prefix = old.metadata?.generateName || `${old.metadata?.name}-`;
  // A key that ends with another object must have no successor that goes on. The owner of a key is in its spec.
  const parents = (old.metadata?.ownerReferences ?? [])
    .filter((reference) => reference.kind !== 'User' && reference.kind !== 'Team')
    .map(({ apiVersion, kind, name, uid }) => ({ apiVersion, kind, name, uid }));
  const maker = old.status?.maker;
  if (maker?.name && maker.uid && !parents.some(({ uid }) => uid === maker.uid))
    parents.push({ apiVersion: 'management.platform.sh/v1', kind: 'OwnedAccessKey', name: maker.name, uid: maker.uid });
  const spec = { displayName, description, user, team, subject, groups, ttl, ttlAfterLastActivity, scope, type };
  return {
    apiVersion: 'management.platform.sh/v1',
    kind: 'OwnedAccessKey',
    metadata: { generateName: prefix, ...(parents.length ? { ownerReferences: parents } : {}) },
    spec: JSON.parse(JSON.stringify(spec)) as NonNullable<OwnedAccessKey['spec']>,
  };
}

/** The `ttl` that ends a key after an overlap; undefined if it ends before by itself. `now` is the server's time. */
export function ttlForOverlap(old: OwnedAccessKey, now: number, overlapSeconds: number): number | undefined {
  const created = Date.parse(old.metadata?.creationTimestamp ?? '');
  const wanted = now + overlapSeconds * 1000;
  const own = endOf(old);
  if (own !== undefined && own <= now) return undefined;
  if (own !== undefined && own <= wanted && !old.spec?.ttlAfterLastActivity) return undefined;
  return Math.max(1, Math.floor((wanted - created) / 1000));
}

/** `user/ada`, `team/shop`, or the subject. */
export function ownerText(spec: OwnedAccessKey['spec'] | undefined): string {
  if (spec?.user) return `user/${spec.user}`;
  if (spec?.team) return `team/${spec.team}`;
  return spec?.subject ?? '';
}
