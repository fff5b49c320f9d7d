// Login links for other users, and a new user with teams, roles and a link. `postern create user` makes the same objects.
import { get, json } from './api';
import { externalUrl } from './external-url';
import { TEAMS, USERS, objectPath } from './kinds';
import { JSON_PATCH, RBAC_GROUP, bindingOf, giveRole } from './roles';
import type { ConsoleLoginCode, PreviewRequest, Team } from './types';
import { createOf, perform, type ApiRequest } from './writes';

export interface Invitation {
  link: string;
  /** The access key that is deleted to withdraw the link. */
  accessKey: string;
  /** How long the link is valid, in seconds. */
  validFor: number;
}

/** How long a login link is valid if the request does not say it, in seconds. */
export const USUAL_VALIDITY = 86_400;

/** The request that makes a login link for another user. */
export function invitationOf(name: string, validFor = USUAL_VALIDITY): ApiRequest {
  const spec = validFor === USUAL_VALIDITY ? {} : { spec: { ttl: validFor } };
  return { method: 'POST', path: `${objectPath(USERS, name)}/logincode`, body: { apiVersion: `${USERS.group}/v1`, kind: 'ConsoleLoginCode', ...spec } };
}

/** Makes a login link for another user. The server returns its code once. */
export async function invite(name: string, validFor = USUAL_VALIDITY): Promise<Invitation> {
  const { method, path, body } = invitationOf(name, validFor);
  const { status } = await json<ConsoleLoginCode>(method, path, { body });
  return { link: `${await externalUrl()}/ui/login#code=${status?.code ?? ''}`, accessKey: status?.accessKey ?? '', validFor };
}

export interface NewUser {
  name: string;
  displayName: string;
  email: string;
  teams: string[];
  /** The names of ClusterRoles that the user gets everywhere. */
  roles: string[];
  /** How long a login link is valid, in seconds; 0 for no link. */
  validFor: number;
}

/** The request that creates the user. */
export function userOf({ name, displayName, email }: NewUser): ApiRequest {
  return createOf(USERS, { metadata: { name }, spec: { ...(displayName ? { displayName } : {}), ...(email ? { email } : {}) } });
}

/** The request that adds a user to a team; undefined if the user is in it. */
export function joinOf({ metadata, spec }: Team, user: string): ApiRequest | undefined {
  const users = spec?.users ?? [];
  if (users.includes(user)) return undefined;
  const step = users.length > 0 ? { op: 'add', path: '/spec/users/-', value: user } : { op: 'add', path: '/spec/users', value: [user] };
  // With the version, no user whom another writer added meanwhile is lost.
  const body = [{ op: 'test', path: '/metadata/resourceVersion', value: metadata?.resourceVersion }, step];
  return { method: 'PATCH', path: objectPath(TEAMS, metadata?.name ?? ''), body, contentType: JSON_PATCH };
}

export const roleOf = (name: string, role: string): ApiRequest => bindingOf({ kind: 'ClusterRole', name: role }, `user/${name}`, '');

/** All requests of a new user, for the command that does the same. The form reads each team before it sends its change. */
export function requestsOf(user: NewUser): ApiRequest[] {
  const { name, teams, roles, validFor } = user;
  const joins = teams.flatMap((team) => joinOf({ metadata: { name: team } }, name) ?? []);
  return [userOf(user), ...joins, ...roles.map((role) => roleOf(name, role)), ...(validFor ? [invitationOf(name, validFor)] : [])];
}

/** What the caller needs for the form. */
export function needsOf({ teams, roles, validFor }: NewUser): PreviewRequest[] {
  const of = (kind: typeof USERS, verb: string, name?: string): PreviewRequest => ({ verb, group: kind.group, resource: kind.plural, ...(name ? { name } : {}) });
  return [
    of(USERS, 'create'),
    ...teams.flatMap((team) => [of(TEAMS, 'patch', team), of(TEAMS, 'bind', team)]),
    ...(roles.length > 0 ? [{ verb: 'create', group: RBAC_GROUP, resource: 'clusterrolebindings' }] : []),
    ...(validFor ? [of(USERS, 'createkey')] : []),
  ];
}

/** One step after the user exists. */
export interface Step {
  what: 'team' | 'role' | 'link';
  /** The team or the role. */
  name: string;
  send: () => Promise<Invitation | void>;
}

/** The steps after the user exists. Each can be sent again. */
export function stepsOf({ name, teams, roles, validFor }: NewUser): Step[] {
  const join = async (team: string): Promise<void> => {
    const request = joinOf(await get<Team>(objectPath(TEAMS, team), { background: true }), name);
    // A user who comes into a team takes no way in from anyone.
    if (request) await perform(request, false, 'asked');
  };
  return [
    ...teams.map((team): Step => ({ what: 'team', name: team, send: () => join(team) })),
    ...roles.map((role): Step => ({ what: 'role', name: role, send: async () => void (await giveRole(roleOf(name, role), false)) })),
    ...(validFor ? [{ what: 'link', name, send: () => invite(name, validFor) } as const] : []),
  ];
}

/** Checks on the server that the caller may give the roles and knows the teams, before anything is created. */
export async function check({ name, teams, roles }: NewUser): Promise<void> {
  for (const team of teams) await get(objectPath(TEAMS, team), { background: true });
  for (const role of roles) await giveRole(roleOf(name, role), true);
}
