// The scope of an access key as a list of entries that a person can read and change.
import { projectPrefix } from './project-namespace';
import type { Scope } from './types';
import { pageTexts } from '../texts-pages';

const GROUP = 'management.platform.sh';
const THIS_SERVER = 'Management' as const;
export const READ_VERBS = ['get', 'list', 'watch'];

type Rule = NonNullable<Scope['rules']>[number];

export type ScopeEntry =
  | { type: 'project'; project: string; isReadOnly: boolean }
  | { type: 'space'; project: string; space: string }
  | { type: 'virtualCluster'; project: string; virtualCluster: string }
  | { type: 'cluster'; cluster: string; isReadOnly: boolean }
  | { type: 'secret'; namespace: string; name: string; canWrite: boolean }
  | { type: 'read' }
  | { type: 'cli' }
  | { type: 'rule'; text: string };

export type EntryType = ScopeEntry['type'];

/** An empty entry of a type. */
export function emptyEntry(type: EntryType): ScopeEntry {
  switch (type) {
    case 'project':
      return { type, project: '', isReadOnly: false };
    case 'space':
      return { type, project: '', space: '*' };
    case 'virtualCluster':
      return { type, project: '', virtualCluster: '*' };
    case 'cluster':
      return { type, cluster: '', isReadOnly: false };
    case 'secret':
      return { type, namespace: '', name: '', canWrite: false };
    case 'rule':
      return { type, text: '{\n  "verbs": ["get"]\n}' };
    default:
      return { type };
  }
}

/** The fields of an entry that have no value yet. Such an entry must not reach the server: empty can mean all. */
export function missingFields(entry: ScopeEntry): string[] {
  return Object.entries(entry)
    .filter(([name, value]) => name !== 'type' && value === '')
    .map(([name]) => name);
}

/** The rule that a text has, or what is wrong with it. */
export function parseRule(text: string): Rule | string {
  try {
    const rule: unknown = JSON.parse(text);
    return typeof rule === 'object' && rule !== null && !Array.isArray(rule) ? (rule as Rule) : 'a rule is a JSON object';
  } catch (cause) {
    return (cause as Error).message;
  }
}

/** What is wrong with an entry that has every field; empty for nothing. */
export function problemOf(entry: ScopeEntry): string {
  if (entry.type === 'rule') {
    const rule = parseRule(entry.text);
    return typeof rule === 'string' ? rule : '';
  }
  // Rules name namespaces, and new projects have new ones.
  return entry.type === 'project' && entry.isReadOnly && entry.project === '*' ? pageTexts.scope.noReadOfAll : '';
}

/** Whether the entries make a scope that means what they say. */
export function isComplete(entries: ScopeEntry[]): boolean {
  return entries.every((entry) => missingFields(entry).length === 0 && !problemOf(entry));
}

/** The rules that allow the reads of projects: of the projects themselves, and of what is in their namespaces. */
function readRules(projects: string[]): Rule[] {
  const rule = { verbs: READ_VERBS, requestTargets: [THIS_SERVER] };
  const themselves = { group: GROUP, resources: ['projects', 'projects/*'], resourceNames: projects };
  return [
    { ...rule, resources: [themselves], namespaces: [''] },
    { ...rule, namespaces: projects.map((project) => projectPrefix() + project) },
  ];
}

function secretRule(entry: Extract<ScopeEntry, { type: 'secret' }>): Rule {
  const writes = entry.canWrite ? ['update', 'patch'] : [];
  const resources = ['sharedsecrets', 'projectsecrets'];
  return {
    verbs: [...READ_VERBS, ...writes],
    requestTargets: [THIS_SERVER],
    resources: [{ group: GROUP, resources, resourceNames: [entry.name] }],
    namespaces: [entry.namespace],
  };
}

/** The scope of the entries; the empty scope for none. */
export function toScope(entries: ScopeEntry[]): Scope {
  const scope: Scope = {};
  // Entries are a union. A project that is read alone must not be among the projects, and `postern create accesskey
  // --read-only` makes the same rules.
  const read = entries.flatMap((entry) => (entry.type === 'project' && entry.isReadOnly ? [entry.project] : []));
  const rules: Rule[] = read.length > 0 ? readRules(read) : [];
  for (const entry of entries) {
    if (entry.type === 'project' && entry.isReadOnly) continue;
    if (entry.type === 'project') (scope.projects ??= []).push({ project: entry.project });
    else if (entry.type === 'space') (scope.spaces ??= []).push({ project: entry.project, space: entry.space });
    else if (entry.type === 'virtualCluster') {
      (scope.virtualClusters ??= []).push({ project: entry.project, virtualCluster: entry.virtualCluster });
    } else if (entry.type === 'cluster') rules.push({ cluster: entry.cluster, ...(entry.isReadOnly ? { verbs: READ_VERBS } : {}) });
    else if (entry.type === 'secret') rules.push(secretRule(entry));
    else if (entry.type === 'read') rules.push({ verbs: READ_VERBS });
    else if (entry.type === 'cli') scope.allowPlatformCli = true;
    else {
      const rule = parseRule(entry.text);
      if (typeof rule !== 'string') rules.push(rule);
    }
  }
  if (rules.length > 0) scope.rules = rules;
  return scope;
}

function entryOfRule(rule: Rule): ScopeEntry {
  if (rule.cluster) {
    for (const isReadOnly of [false, true]) {
      const entry = { type: 'cluster', cluster: rule.cluster, isReadOnly } as const;
      if (isSameRule(rule, toScope([entry]).rules?.[0] ?? {})) return entry;
    }
  }
  if (isSameRule(rule, { verbs: READ_VERBS })) return { type: 'read' };
  const name = rule.resources?.[0]?.resourceNames?.[0];
  const namespace = rule.namespaces?.[0];
  if (name && namespace) {
    for (const canWrite of [false, true]) {
      const entry = { type: 'secret', namespace, name, canWrite } as const;
      if (isSameRule(rule, secretRule(entry))) return entry;
    }
  }
  return { type: 'rule', text: JSON.stringify(rule, undefined, 2) };
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, each]) => [name, sorted(each)]));
}

function isSameRule(a: Rule, b: Rule): boolean {
  return JSON.stringify(sorted(a)) === JSON.stringify(sorted(b));
}

/** The projects that the rules at a place allow to read, as `readRules` makes them; none if they are other rules. */
function readProjectsAt(rules: Rule[], at: number): string[] {
  const projects = rules[at]?.resources?.[0]?.resourceNames ?? [];
  const [first = {}, second = {}] = readRules(projects);
  return projects.length > 0 && isSameRule(rules[at] ?? {}, first) && isSameRule(rules[at + 1] ?? {}, second) ? projects : [];
}

function entriesOfRules(rules: Rule[]): ScopeEntry[] {
  const entries: ScopeEntry[] = [];
  for (let at = 0; at < rules.length; at++) {
    const projects = readProjectsAt(rules, at);
    if (projects.length === 0) entries.push(entryOfRule(rules[at] ?? {}));
    else at++;
    entries.push(...projects.map((project): ScopeEntry => ({ type: 'project', project, isReadOnly: true })));
  }
  return entries;
}

/** The entries of a scope. `toScope` of them means the same. */
export function fromScope(scope: Scope): ScopeEntry[] {
  return [
    ...(scope.projects ?? []).map(({ project }): ScopeEntry => ({ type: 'project', project, isReadOnly: false })),
    ...(scope.virtualClusters ?? []).map(
      ({ project, virtualCluster }): ScopeEntry => ({ type: 'virtualCluster', project, virtualCluster }),
    ),
    ...(scope.spaces ?? []).map(({ project, space }): ScopeEntry => ({ type: 'space', project, space })),
    ...entriesOfRules(scope.rules ?? []),
    ...(scope.allowPlatformCli ? [{ type: 'cli' } as const] : []),
  ];
}
