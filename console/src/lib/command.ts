// The command that does the same as a request of the console. There is one for each request that `postern` can send, and
// test/commands.json has a table of them, which a test runs against a server.
import { MANAGEMENT } from './api';
import { shellWord } from './format';
import { KINDS } from './kinds';
import { grantName, type RoleRef, type TakenRole } from './roles';
import { fromScope, type ScopeEntry } from './scope';
import type { PreviewRequest, Scope } from './types';
import type { ApiRequest } from './writes';

/** The part of a path behind the base. */
interface Target {
  query: URLSearchParams;
  group: string;
  plural: string;
  namespace: string;
  name: string;
  subresource: string;
}

/** A step of a JSON patch. */
interface Step {
  op: string;
  path: string;
  value?: unknown;
}

type Json = Record<string, any>;
type Word = string | undefined;

/** A flag with its value; nothing without one. */
const flag = (name: string, value: unknown): string[] => (value === undefined || value === '' ? [] : [name, shellWord(String(value))]);

const line = (...words: (Word | Word[])[]): string => words.flat().filter((word) => word !== undefined && word !== '').join(' ');

function targetOf(path: string): Target | undefined {
  if (!path.startsWith(`${MANAGEMENT}/`)) return undefined;
  const [inner = '', query = ''] = path.slice(MANAGEMENT.length + 1).split('?');
  const rest = inner.split('/').map((part) => decodeURIComponent(part));
  const group = rest[0] === 'api' ? '' : (rest[1] ?? '');
  const parts = rest.slice(rest[0] === 'api' ? 2 : 3);
  const namespace = parts[0] === 'namespaces' && parts.length > 2 ? (parts[1] ?? '') : '';
  const [plural = '', name = '', subresource = ''] = namespace ? parts.slice(2) : parts;
  return { query: new URLSearchParams(query), group, plural, namespace, name, subresource };
}

/** The name of a kind on the command line. Kinds without a page have the singular. */
function cliName(plural: string): string {
  return KINDS.find((each) => each.plural === plural)?.cli ?? plural.replace(/s$/, '');
}

/** A time-to-live in the greatest unit that fits. */
function ttl(seconds: number | undefined): string | undefined {
  if (!seconds) return undefined;
  const [size, unit] = ([[86_400, 'd'], [3600, 'h'], [60, 'm']] as const).find(([each]) => seconds % each === 0) ?? [1, 's'];
  return `${seconds / size}${unit}`;
}

/** `--user NAME` or `--team NAME` of a subject of a binding, which is the group of one user or team. */
function whoFlag(subject: Json | undefined): string[] | undefined {
  const found = subject?.kind === 'Group' && /^platform:(user|team):([^*]+)$/.exec(subject.name as string);
  return found ? flag(`--${found[1]}`, found[2]) : undefined;
}

/** The role as `postern grant` names it: in a namespace, a Role and a ClusterRole can have one name. */
const roleWord = (kind: string, name: string, namespace: string): string => shellWord(namespace ? `${kind.toLowerCase()}/${name}` : name);

/** The name of a role of a member: the roles of every project have a short one. Another role of such a name has no command. */
function memberRole(role: string): string | undefined {
  return ['admin', 'user', 'viewer'].includes(role) ? undefined : shellWord(role.replace(/^platform-project-(admin|user|viewer)$/, '$1'));
}

function memberCommand(verb: string, project: string, member: Json): string | undefined {
  const who = flag(member.kind === 'Team' ? '--team' : '--user', member.name);
  const role = memberRole((member.clusterRole as string) || 'platform-project-user');
  return role && line('postern', verb, role, who, flag('--project', project));
}

/** The flags of a scope; undefined if there is none for a part of it. */
function scopeFlags(scope: Scope | undefined): string[] | undefined {
  if (!scope) return [];
  const flags: string[] = [];
  const entries = fromScope(scope);
  // On the command line, the switch is for all parts, and some parts do not go with it.
  const isReadOnly = entries.some((entry) => 'isReadOnly' in entry && entry.isReadOnly);
  const isSwitched = (entry: ScopeEntry): boolean => ('isReadOnly' in entry ? entry.isReadOnly : entry.type === 'cli');
  if (isReadOnly && !entries.every(isSwitched)) return undefined;
  for (const entry of entries) {
    if (entry.type === 'project') flags.push(...flag('--project', entry.project));
    else if (entry.type === 'space') flags.push(...flag('--space', `${entry.project}/${entry.space}`));
    else if (entry.type === 'virtualCluster') flags.push(...flag('--virtual-cluster', `${entry.project}/${entry.virtualCluster}`));
    else if (entry.type === 'cluster') flags.push(...flag('--cluster', entry.cluster));
    else if (entry.type === 'cli') flags.push('--allow-cli');
    // Elsewhere, the flag would narrow the other parts.
    else if (entry.type === 'read' && entries.length === 1) flags.push('--read-only');
    else return undefined;
  }
  if (isReadOnly) flags.push('--read-only');
  return entries.length > 0 ? flags : undefined;
}

/** Commands of creates, by the plural. */
const CREATES: Record<string, (object: Json, target: Target) => string | undefined> = {
  users: ({ metadata, spec = {} }) => line('postern create user', shellWord(metadata.name), flag('--display-name', spec.displayName), flag('--email', spec.email)),
  teams: ({ metadata, spec = {} }) => line('postern create team', shellWord(metadata.name), flag('--display-name', spec.displayName), flag('--users', (spec.users ?? []).join(','))),
  projects: ({ metadata, spec = {} }) => line('postern create project', shellWord(metadata.name), flag('--display-name', spec.displayName), flag('--description', spec.description)),
  clusters: ({ metadata, spec = {} }) => line('postern create cluster', shellWord(metadata.name), flag('--display-name', spec.displayName)),
  ownedaccesskeys: ({ metadata, spec = {} }) => {
    const agent = /^agent:(.+)$/.exec(spec.subject ?? '');
    if (agent) return metadata.name === `agent-${agent[1]}` ? line('postern create agent-key', shellWord(agent[1] ?? '')) : undefined;
    const scope = scopeFlags(spec.scope);
    if (!scope || spec.subject || spec.ttlAfterLastActivity) return undefined;
    const owner = [...flag('--user', spec.user), ...flag('--team', spec.team)];
    const name = metadata?.name ? shellWord(metadata.name) : '';
    return line('postern create accesskey', name, owner, flag('--ttl', ttl(spec.ttl)), flag('--display-name', spec.displayName), scope);
  },
  clusterrolebindings: grant,
  rolebindings: grant,
  directclusterendpointtokens: ({ spec = {} }) => (spec.scope ? undefined : line('postern token', flag('--ttl', ttl(spec.ttl)))),
  accesspreviews: ({ spec = {} }) => (spec.requests?.length === 1 && !spec.scope ? question('can-i', spec.requests[0], [], ['--why']) : undefined),
  subjectaccessreviews: ({ spec = {} }) => {
    // The access keys of a team have this user name.
    const team = /^platform:team:(.+)$/.exec(spec.user ?? '')?.[1];
    const who = team ? flag('--as-team', team) : flag('--as', spec.user);
    const about = [...who, ...flag('--with-key', spec.extra?.['platform.sh/access-key']?.[0])];
    return spec.resourceAttributes ? question('can-i', spec.resourceAttributes, about, ['--why']) : undefined;
  },
  resourceaccessreviews: ({ spec = {} }) => (spec.resource ? question('who-can', spec, [], []) : undefined),
};

/** A binding with the name that `postern grant` gives it. */
function grant({ metadata, roleRef, subjects }: Json, { namespace }: Target): string | undefined {
  const who = subjects?.length === 1 ? whoFlag(subjects[0]) : undefined;
  return who && metadata.name.startsWith('grant:') ? line('postern grant', roleWord(roleRef.kind, roleRef.name, namespace), who, flag('-n', namespace)) : undefined;
}

/** A question about a permission. */
function question(command: string, { verb, resource = '', namespace = '', name }: PreviewRequest, about: string[], options: string[]): string {
  return line(`postern ${command}`, shellWord(verb), shellWord(name ? `${resource}/${name}` : resource), placeFlag(resource, namespace), about, options);
}

/** The flag of a namespace. Without one, a command means the default namespace, so all of them need one. */
function placeFlag(plural: string, namespace: string): string[] {
  if (namespace) return flag('-n', namespace);
  return KINDS.find((each) => each.plural === plural)?.namespaced ? ['-A'] : [];
}

function read({ query, plural, namespace, name, subresource }: Target): string | undefined {
  if (!name) return line('postern get', plural, placeFlag(plural, namespace), flag('-l', query.get('labelSelector') ?? ''));
  if (subresource && subresource !== 'entries') return undefined;
  // A secret can have a dot in its name.
  const whole = subresource ? '--whole' : '';
  return line('postern get', subresource ? 'secret' : cliName(plural), shellWord(name), whole, flag('-n', namespace));
}

function act({ plural, name, subresource }: Target, body: Json): string | undefined {
  if (plural === 'users' && subresource === 'logincode') return line('postern invite', shellWord(name), flag('--valid-for', ttl(body.spec?.ttl)));
  return undefined;
}

function change({ plural, namespace, name }: Target, body: unknown): string | undefined {
  if (Array.isArray(body)) return changeList(plural, namespace, name, body as Step[]);
  const { spec = {}, ...others } = body as Json;
  const isSwitch = Object.keys(others).length === 0 && Object.keys(spec).join() === 'disabled' && ['users', 'ownedaccesskeys'].includes(plural);
  return isSwitch ? line('postern', spec.disabled ? 'disable' : 'enable', cliName(plural), shellWord(name)) : undefined;
}

/** A change of one entry of a list, as a JSON patch says it. */
function changeList(plural: string, namespace: string, name: string, steps: Step[]): string | undefined {
  const last = steps.at(-1);
  const tested = (path: string): Json | undefined => steps.find((step) => step.op === 'test' && step.path === path)?.value as Json | undefined;
  if (!last) return undefined;
  if (plural === 'projects') {
    const member = last.op === 'add' ? ((Array.isArray(last.value) ? last.value[0] : last.value) as Json | undefined) : tested(last.path);
    return member?.clusterRole ? memberCommand(last.op === 'add' ? 'grant' : 'revoke', name, member) : undefined;
  }
  const role = tested('/roleRef');
  const subject = last.op === 'add' ? (last.value as Json) : tested(last.path);
  const who = whoFlag(subject);
  return role && who ? line('postern', last.op === 'add' ? 'grant' : 'revoke', roleWord(role.kind, role.name, namespace), who, flag('-n', namespace)) : undefined;
}

function remove({ plural, namespace, name }: Target, takes: TakenRole | undefined): string {
  // `postern grant` made it, and `postern revoke` says what is left of the role. The name alone can tell of another role.
  const who = takes && whoFlag(takes.subject);
  if (takes && who && name === grantName(takes.role, takes.who)) return line('postern revoke', roleWord(takes.role.kind, takes.role.name, namespace), who, flag('-n', namespace));
  return line('postern delete', shellWord(`${cliName(plural)}/${name}`), flag('-n', namespace));
}

/** The command that does the same as a request; undefined if there is none. */
export function commandOf({ method, path, body, takes }: ApiRequest & { takes?: TakenRole }): string | undefined {
  const target = targetOf(path);
  if (!target) return undefined;
  if (method === 'GET') return read(target);
  if (method === 'DELETE') return remove(target, takes);
  if (method === 'PATCH') return change(target, body);
  if (target.name) return act(target, body as Json);
  return CREATES[target.plural]?.(body as Json, target);
}

/** The flags with which the command of a new user sends another request, too. */
function newUserFlags({ method, path, body }: ApiRequest, name: string): { team?: string; flags?: string[] } | undefined {
  const target = targetOf(path);
  if (target?.plural === 'teams' && method === 'PATCH' && Array.isArray(body)) {
    const { op, path: field = '', value } = (body as Step[]).at(-1) ?? {};
    return op === 'add' && /^\/spec\/users(\/-)?$/.test(field) && [value].flat().join() === name ? { team: target.name } : undefined;
  }
  if (target?.plural === 'users' && target.name === name && target.subresource === 'logincode') {
    return { flags: ['--invite', ...flag('--valid-for', ttl((body as Json).spec?.ttl))] };
  }
  if (target?.plural !== 'clusterrolebindings' || method !== 'POST') return undefined;
  const { metadata, roleRef } = body as Json;
  return roleRef.kind === 'ClusterRole' && metadata.name === grantName(roleRef as RoleRef, `user/${name}`) ? { flags: flag('--role', roleRef.name) } : undefined;
}

/** The one command of a new user with teams, roles and a login link; undefined for other requests. */
function newUserCommand([first, ...others]: ApiRequest[]): string | undefined {
  const target = first && targetOf(first.path);
  if (!first || first.method !== 'POST' || target?.plural !== 'users' || target.name) return undefined;
  const rest = others.map((request) => newUserFlags(request, (first.body as Json).metadata.name));
  if (rest.includes(undefined)) return undefined;
  const teams = rest.flatMap((each) => each?.team ?? []);
  return line(commandOf(first), flag('--team', teams.join(',')), rest.flatMap((each) => each?.flags ?? []));
}

/** The commands of several requests, each once. A cluster is created with the binding and the key of its agent. */
export function commandsOf(requests: ApiRequest[]): string[] {
  const together = newUserCommand(requests);
  if (together) return [together];
  return [...new Set(requests.flatMap((request) => commandOf(request) ?? []))];
}
