// Roles, who has them and by which bindings, and the requests that give and take them. `postern grant` and
// `postern revoke` make the same objects.
import { ApiError, MANAGEMENT, get, withQuery } from './api';
import { PROJECTS, TEAMS, USERS, collectionPath, objectPath } from './kinds';
import type { Administrators } from './stops';
import type { ObjectMeta, PolicyRule, Project, Team, User } from './types';
import { perform, type ApiRequest } from './writes';

export const RBAC = `${MANAGEMENT}/apis/rbac.authorization.k8s.io/v1`;
export const RBAC_GROUP = 'rbac.authorization.k8s.io';
export const JSON_PATCH = 'application/json-patch+json';
const PAGE = 500;
/** The objects of each kind that are read at most. */
export const MOST = 2000;
/** The groups of every caller with an access key. */
export const EVERYONE = ['platform:user:*', 'platform:authenticated', 'system:authenticated'];
/** The names of roles that the server makes from access rules and members begin so. Each is about one object. */
const OF_OBJECTS = /^platform:(access|members):/;
/** The names of bindings that only the server changes begin so. */
const OF_SERVER = 'platform:';
/** All but the objects of access rules: there can be a pair of them for each shared object. */
const NOT_OF_RULES = 'platform.sh/managed-by!=access-rules';

export interface RoleRef {
  kind: string;
  name: string;
}

export interface Role extends RoleRef {
  /** Empty for a ClusterRole. */
  namespace: string;
  rules: PolicyRule[];
}

export interface Subject {
  kind?: string;
  name?: string;
  namespace?: string;
}

export interface Binding {
  name: string;
  /** Empty for one that counts everywhere. */
  namespace: string;
  metadata: ObjectMeta;
  role: RoleRef;
  subjects: Subject[];
}

/** One role of one subject in one place. */
export interface Grant {
  role: RoleRef;
  subject: Subject;
  /** `user/ada`, `team/shop`, or another subject. */
  who: string;
  namespace: string;
  bindings: Binding[];
}

/** What was read, and the kinds of which the caller may not read all. */
export interface Roles {
  roles: Role[];
  grants: Grant[];
  /** The plural names of kinds that the caller may not list. */
  denied: string[];
  /** The plural names of kinds with more objects than were read. */
  partial: string[];
}

interface Item {
  metadata?: ObjectMeta;
  rules?: PolicyRule[];
  roleRef?: RoleRef;
  subjects?: Subject[];
}

/** A subject as `postern roles` names it; empty for every user. */
export function whoOf({ kind, name = '', namespace = '' }: Subject): string {
  if (kind === 'User') return `subject/${name}`;
  if (kind !== 'Group') return `serviceaccount/${namespace}/${name}`;
  if (EVERYONE.includes(name)) return '';
  const own = /^platform:(user|team):(.+)$/.exec(name);
  return own ? `${own[1]}/${own[2]}` : `group/${name}`;
}

export const isMembership = ({ name }: Binding): boolean => name.startsWith('platform:members:');
export const isOfServer = ({ name }: Binding): boolean => name.startsWith(OF_SERVER);

interface All<T> {
  items: T[];
  isWhole: boolean;
}

/** The objects of a list, up to the limit; undefined if the caller may not list them. */
async function readAll<T>(list: string, labelSelector = ''): Promise<All<T> | undefined> {
  const items: T[] = [];
  let next: string | undefined;
  try {
    do {
      const page: { metadata?: { continue?: string }; items?: T[] } = await get(withQuery(list, { limit: PAGE, labelSelector, continue: next }), { background: true });
      items.push(...(page.items ?? []));
      next = page.metadata?.continue;
    } while (next && items.length < MOST);
  } catch (cause) {
    if (cause instanceof ApiError && cause.code === 403) return undefined;
    throw cause;
  }
  return { items, isWhole: !next };
}

/** The roles that a list of bindings gives, each subject and place once. */
export function grantsOf(bindings: Binding[]): Grant[] {
  const grants = new Map<string, Grant>();
  for (const binding of bindings) {
    for (const subject of binding.subjects) {
      const { role, namespace } = binding;
      const key = JSON.stringify([role.kind, role.name, namespace, subject.kind, subject.name, subject.namespace]);
      const known = grants.get(key) ?? { role: { kind: role.kind, name: role.name }, subject, who: whoOf(subject), namespace, bindings: [] };
      // A binding can name a subject twice.
      if (!known.bindings.includes(binding)) known.bindings.push(binding);
      grants.set(key, known);
    }
  }
  return [...grants.values()];
}

/** All roles and bindings that the caller may read. */
export async function readRoles(): Promise<Roles> {
  const kinds = ['clusterroles', 'roles', 'clusterrolebindings', 'rolebindings'];
  const lists = await Promise.all(kinds.map((plural) => readAll<Item>(`${RBAC}/${plural}`, NOT_OF_RULES)));
  const of = (at: number): Item[] => (lists[at]?.items ?? []).filter((item) => !OF_OBJECTS.test(item.roleRef?.name ?? (item.metadata?.name ?? '')));
  const roles = [0, 1].flatMap((at) =>
    of(at).map(({ metadata = {}, rules = [] }) => ({ kind: at ? 'Role' : 'ClusterRole', name: metadata.name ?? '', namespace: metadata.namespace ?? '', rules })),
  );
  const bindings = [2, 3].flatMap(of).flatMap(({ metadata = {}, roleRef, subjects = [] }) =>
    roleRef ? [{ name: metadata.name ?? '', namespace: metadata.namespace ?? '', metadata, role: roleRef, subjects }] : [],
  );
  const named = (holds: (list: (typeof lists)[number]) => boolean): string[] => kinds.filter((_, at) => holds(lists[at]));
  return { roles, grants: grantsOf(bindings), denied: named((list) => !list), partial: named((list) => list?.isWhole === false) };
}

/** Whether a grant is of a role. A RoleBinding can name a ClusterRole, and then a Role of its namespace can have the same name. */
export function isOfRole({ role, namespace }: Grant, { kind, name, namespace: place }: Role): boolean {
  return role.kind === kind && role.name === name && (kind === 'ClusterRole' || namespace === place);
}

/** The groups of a user or team in access decisions, with those of teams. */
export interface Identity {
  /** The name in access decisions. */
  user: string;
  own: string;
  groups: string[];
  teams: string[];
  /** Whether the user may be in other teams, which the caller may not list or which were not read. */
  isPartial: boolean;
}

/** What the caller may not read, or what does not exist, is not known. Another failure is one. */
async function ifReadable<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer;
  } catch (cause) {
    if (cause instanceof ApiError && (cause.code === 403 || cause.code === 404)) return undefined;
    throw cause;
  }
}

const readTeams = (): Promise<All<Team> | undefined> => readAll<Team>(collectionPath(TEAMS));

/** Finds identities, the teams read once and each identity once. */
export function identifier(): (who: string) => Promise<Identity> {
  let teams: ReturnType<typeof readTeams> | undefined;
  const known = new Map<string, Promise<Identity>>();
  return (who) => {
    const found = known.get(who) ?? identityOf(who, () => (teams ??= readTeams()));
    known.set(who, found);
    return found;
  };
}

/** The groups of `user/NAME` or `team/NAME`, as far as the caller may read them. */
export async function identityOf(who: string, teamsOf = readTeams): Promise<Identity> {
  const [type, ...rest] = who.split('/');
  const name = rest.join('/');
  const own = `platform:${type}:${name}`;
  const quiet = { background: true };
  if (type === 'team') {
    const team = await ifReadable(get<Team>(objectPath(TEAMS, name), quiet));
    return { user: own, own, groups: [...EVERYONE, ...(team?.spec?.groups ?? [])], teams: [], isPartial: !team };
  }
  const [user, teams] = await Promise.all([
    ifReadable(get<User>(objectPath(USERS, name), quiet)),
    teamsOf(),
  ]);
  const sso = (user?.status?.sso ?? []).flatMap((each) => each.groups ?? []);
  const mine = (teams?.items ?? []).filter(({ spec }) => spec?.users?.includes(name) || spec?.ssoGroups?.some((group) => sso.includes(group)));
  return {
    user: user?.spec?.subject || name,
    own,
    groups: [...EVERYONE, ...mine.flatMap(({ metadata, spec }) => [`platform:team:${metadata?.name}`, ...(spec?.groups ?? [])]), ...(user?.spec?.groups ?? []), ...sso],
    teams: mine.map(({ metadata }) => metadata?.name ?? ''),
    isPartial: !user || !teams?.isWhole,
  };
}

export function isDirect({ user, own }: Identity, { kind, name = '' }: Subject): boolean {
  return kind === 'User' ? name === user : kind === 'Group' && name === own;
}

/** Whether a subject of a binding includes a user or team. */
export function includes(identity: Identity, subject: Subject): boolean {
  return isDirect(identity, subject) || (subject.kind === 'Group' && identity.groups.includes(subject.name ?? ''));
}

/** The name of the binding that gives one role to one user or team. */
export function grantName({ kind, name }: RoleRef, who: string): string {
  const [type = '', ...rest] = who.split('/');
  return `grant:${kind === 'Role' ? 'role:' : ''}${name}:${type}:${rest.join('/')}`;
}

/** The request that gives a role everywhere or in a namespace. */
export function bindingOf(role: RoleRef, who: string, namespace: string): ApiRequest {
  const [type = '', ...rest] = who.split('/');
  const body = {
    apiVersion: `${RBAC_GROUP}/v1`,
    kind: namespace ? 'RoleBinding' : 'ClusterRoleBinding',
    metadata: { name: grantName(role, who) },
    roleRef: { apiGroup: RBAC_GROUP, kind: role.kind, name: role.name },
    subjects: [{ kind: 'Group', apiGroup: RBAC_GROUP, name: `platform:${type}:${rest.join('/')}` }],
  };
  return { method: 'POST', path: bindingsPath(namespace), body };
}

function bindingsPath(namespace: string): string {
  return namespace ? `${RBAC}/namespaces/${encodeURIComponent(namespace)}/rolebindings` : `${RBAC}/clusterrolebindings`;
}

type Member = NonNullable<NonNullable<Project['spec']>['members']>[number];

function projectPatch(project: string, body: unknown): ApiRequest {
  return { method: 'PATCH', path: objectPath(PROJECTS, project), body, contentType: JSON_PATCH };
}

/** The request that gives a role to a new member of a project; undefined if the member has it. */
export function memberOf({ metadata, spec }: Project, role: string, who: string): ApiRequest | undefined {
  const [type = '', ...rest] = who.split('/');
  const member: Member = { kind: type === 'team' ? 'Team' : 'User', name: rest.join('/'), clusterRole: role };
  const members = spec?.members ?? [];
  if (members.some((each) => isSame(each, member))) return undefined;
  const step = members.length > 0 ? { op: 'add', path: '/spec/members/-', value: member } : { op: 'add', path: '/spec/members', value: [member] };
  const unchanged = { op: 'test', path: '/metadata/resourceVersion', value: metadata?.resourceVersion };
  return projectPatch(metadata?.name ?? '', [unchanged, step]);
}

type MemberName = Pick<Member, 'name' | 'clusterRole'> & { kind: string };

const isSame = (a: MemberName, b: MemberName): boolean => a.kind === b.kind && a.name === b.name && roleOf(a) === roleOf(b);

/** The name of the role of a member: the default, and three imported names, stand for roles of the server. */
function roleOf({ clusterRole }: MemberName): string {
  return (clusterRole || 'platform-project-user').replace(/^loft-management-(project-(admin|user|viewer))$/, 'platform-$1');
}

/** The request that takes a role from a member of a project; undefined if there is no such member. */
export function noMemberOf({ metadata, spec }: Project, role: string, who: string): ApiRequest | undefined {
  const [type = '', ...rest] = who.split('/');
  const at = (spec?.members ?? []).findIndex((each) => isSame(each, { kind: type === 'team' ? 'Team' : 'User', name: rest.join('/'), clusterRole: role }));
  if (at < 0) return undefined;
  const path = `/spec/members/${at}`;
  return projectPatch(metadata?.name ?? '', [{ op: 'test', path, value: spec?.members?.[at] }, { op: 'remove', path }]);
}

const isSubject = (a: Subject, b: Subject): boolean => a.kind === b.kind && a.name === b.name && a.namespace === b.namespace;

/** The subjects of a binding besides one. */
export const othersOf = ({ subjects }: Binding, subject: Subject): Subject[] => subjects.filter((each) => !isSubject(each, subject));

/** What the deletion of a binding takes from whom. */
export interface TakenRole {
  role: RoleRef;
  subject: Subject;
  who: string;
}

/** The request that takes a subject out of a binding, or deletes a binding that has no other. */
export function unboundOf(binding: Binding, subject: Subject): ApiRequest & { takes?: TakenRole } {
  const { name, namespace, metadata, role, subjects } = binding;
  const path = `${bindingsPath(namespace)}/${encodeURIComponent(name)}`;
  if (othersOf(binding, subject).length === 0) {
    const preconditions = { uid: metadata.uid, resourceVersion: metadata.resourceVersion };
    return { method: 'DELETE', path, body: { preconditions }, takes: { role, subject, who: whoOf(subject) } };
  }
  // From the end, so that the other indexes stay.
  const steps = subjects.flatMap((each, at) => (isSubject(each, subject) ? [[{ op: 'test', path: `/subjects/${at}`, value: each }, { op: 'remove', path: `/subjects/${at}` }]] : []));
  const body = [{ op: 'test', path: '/roleRef', value: role }, ...steps.reverse().flat()];
  return { method: 'PATCH', path, body, contentType: JSON_PATCH };
}

/** Reads the binding that has the name of a new one. The request adds the user or team to it; undefined if the binding has the role and them. */
export async function rebindOf(request: ApiRequest): Promise<ApiRequest | undefined> {
  const { metadata, roleRef, subjects } = request.body as { metadata: { name: string }; roleRef: RoleRef; subjects: [Subject] };
  const path = `${request.path}/${encodeURIComponent(metadata.name)}`;
  const present = await get<Item>(path, { background: true });
  const { kind, name } = present.roleRef ?? {};
  if (kind === roleRef.kind && name === roleRef.name && present.subjects?.some((each) => isSubject(each, subjects[0]))) return undefined;
  const unchanged = { op: 'test', path: '/metadata/resourceVersion', value: present.metadata?.resourceVersion };
  const step = present.subjects?.length ? { op: 'add', path: '/subjects/-', value: subjects[0] } : { op: 'add', path: '/subjects', value: subjects };
  return { method: 'PATCH', path, body: [{ op: 'test', path: '/roleRef', value: roleRef }, unchanged, step], contentType: JSON_PATCH };
}

/** Gives a role. A binding of the name can have lost this subject, and then gets it again. The answer is whether there was something to do. */
export async function giveRole(request: ApiRequest, dryRun: boolean): Promise<boolean> {
  try {
    await perform(request, dryRun);
    return true;
  } catch (cause) {
    if (!(cause instanceof ApiError) || cause.code !== 409 || request.method !== 'POST') throw cause;
  }
  const change = await rebindOf(request);
  if (change) await perform(change, dryRun);
  return change !== undefined;
}

/** The names of the roles of the whole server that the caller may list, without those of one object. */
export async function readRoleNames(): Promise<string[]> {
  const list = await readAll<Item>(`${RBAC}/clusterroles`, NOT_OF_RULES);
  return (list?.items ?? []).flatMap(({ metadata }) => (metadata?.name && !OF_OBJECTS.test(metadata.name) ? [metadata.name] : []));
}

/** What a user or team loses of the permission to do everything. */
export interface Loss {
  /** Whether the session of this page loses it. */
  isOwn: boolean;
  /** Whether no access key keeps it. */
  isLast: boolean;
}

/** The owner in the words of the server, such as `an access key of User "ada"`. */
const ownerIn = (via: string): string => via.replace(/^an access key of (\w+) "(.*)"$/, (_, kind: string, name: string) => `${kind.toLowerCase()}/${name}`);

/** What the bindings of one subject give of every permission, which ends with them. `session` is the name of the key of this page. */
export async function lossOf(
  grant: Grant,
  { subjects, weak, logins }: Administrators,
  session: string,
  identify: (who: string) => Promise<Identity> = identifier(),
): Promise<Loss> {
  const to = ` to ${grant.subject.kind} "${grant.subject.name}"`;
  const isBy = (via: string): boolean => via.includes(to) && grant.bindings.some(({ name, namespace }) => !namespace && via.startsWith(`ClusterRoleBinding "${name}" `));
  const left = subjects.filter(({ via = [] }) => via.length === 0 || !via.every(isBy));
  if (left.length === subjects.length) return { isOwn: false, isLast: false };
  let [isOwn, isAnyLost, isAnyKept] = [false, false, false];
  for (const { name = '', via = [] } of subjects.filter((one) => one.kind === 'AccessKey')) {
    const isKept = await keeps(ownerIn(via[0] ?? ''), left, identify);
    if (!isKept && name === session) isOwn = true;
    isAnyLost ||= !isKept;
    // A session is no way in of its own.
    isAnyKept ||= isKept && !weak.has(name);
  }
  for (const { user } of isAnyKept ? [] : logins) isAnyKept ||= await keeps(`user/${user}`, left, identify);
  return { isOwn, isLast: isAnyLost && !isAnyKept };
}

async function keeps(owner: string, left: Administrators['subjects'], identify: (who: string) => Promise<Identity>): Promise<boolean> {
  if (!/^(user|team)\//.test(owner)) return true;
  const { groups } = await identify(owner);
  return left.some(({ kind, name = '' }) => {
    if (kind === 'Group') return groups.includes(name);
    if (kind === 'Team') return owner === `team/${name}` || groups.includes(`platform:team:${name}`);
    return kind === 'User' && owner === `user/${name}`;
  });
}
