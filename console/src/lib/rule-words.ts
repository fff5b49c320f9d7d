// Rules of scopes, and sources of permissions, in words.
import { parseRule, type ScopeEntry } from './scope';
import { sourceOf } from './source';
import type { PolicyRule, Scope } from './types';
import { pageTexts } from '../texts-pages';

type Rule = NonNullable<Scope['rules']>[number];

const words = pageTexts.rule;
const GROUP = 'management.platform.sh';
const READ = ['get', 'list', 'watch'];

function isSame(a: string[], b: string[]): boolean {
  return a.length === b.length && a.every((each) => b.includes(each));
}

function verbsOf(verbs: string[]): string {
  if (verbs.length === 0 || verbs.includes('*')) return words.everything;
  if (isSame(verbs, READ)) return words.read;
  const text = words.all(verbs);
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

function kindsOf(rule: Rule): string {
  const names = (list: string[] | undefined): string => (list?.length ? words.named(list) : '');
  const kinds = (rule.resources ?? []).map(({ group = '', resources = [], resourceNames }) => {
    const isEvery = resources.length === 0 || resources.includes('*');
    const place = group === GROUP ? '' : group === '*' ? words.everyGroup : words.group(group);
    return `${isEvery ? words.everyKind : words.all(resources)}${place}${names(resourceNames)}`;
  });
  if (kinds.length === 0 && (rule.nonResourceURLs ?? []).length > 0) return '';
  return `${kinds.length === 0 ? words.everyKind : words.all(kinds)}${names(rule.resourceNames)}`;
}

/** A rule of a scope as one sentence. */
export function describeRule(rule: Rule): string {
  const parts = [`${verbsOf(rule.verbs ?? [])} ${words.on(kindsOf(rule), rule.nonResourceURLs ?? [])}`];
  const namespaces = rule.namespaces ?? [];
  if (namespaces.length > 0) parts.push(words.namespaces(namespaces.map((each) => each || words.noNamespace)));
  if (rule.cluster) parts.push(words.cluster(rule.cluster));
  const virtual = (rule.virtualClusters ?? []).map(({ namespace, name }) => `${namespace || '*'}/${name || '*'}`);
  if (virtual.length > 0) parts.push(words.virtualClusters(virtual));
  const targets = (rule.requestTargets ?? []).map((target) => words.targets[target] ?? target);
  if (targets.length > 0) parts.push(words.all(targets));
  return parts.join(', ');
}

/** An entry of a scope as one sentence. */
export function describeEntry(entry: ScopeEntry): string {
  const of = pageTexts.scope;
  switch (entry.type) {
    case 'project':
      return entry.isReadOnly ? of.readProject(entry.project) : of.project(entry.project);
    case 'space':
      return of.space(entry.project, entry.space);
    case 'virtualCluster':
      return of.virtualCluster(entry.project, entry.virtualCluster);
    case 'cluster':
      return entry.isReadOnly ? of.readCluster(entry.cluster) : of.cluster(entry.cluster);
    case 'secret':
      return of.secret(entry.namespace, entry.name, entry.canWrite);
    case 'rule': {
      const rule = parseRule(entry.text);
      return typeof rule === 'string' ? rule : describeRule(rule);
    }
    default:
      return of[entry.type];
  }
}

/** A rule of a role as one sentence. */
export function describePolicy({ verbs, apiGroups = [], resources = [], resourceNames = [], nonResourceURLs = [] }: PolicyRule): string {
  return describeRule({ verbs, nonResourceURLs, resources: apiGroups.map((group) => ({ group, resources, resourceNames })) });
}

/** A user, team or group as `sourceOf` names it, in words. */
function subjectInWords(subject: string): string {
  const [kind, ...rest] = subject.split('/');
  const name = rest.join('/');
  if (subject === 'user/*') return words.everyUser;
  return kind === 'group' ? name : `${kind} ${name}`;
}

/**
 * The source of a permission in words; the text of the server if it is of an unknown form. `rules` are the names of the
 * object's access rules, which the caller owns or not.
 */
export function describeSource(via: string, rules: string[], isOwn = false): string {
  const source = sourceOf(via);
  if (source.by === 'owner') return words.owner;
  if (source.rule !== undefined) return words.accessRule(rules[source.rule] || String(source.rule + 1), isOwn);
  const group = /^membership in (\S+)$/.exec(via)?.[1];
  if (group) return words.member(`group ${group}`);
  const role = /Binding "[^"]*" of (?:Cluster)?Role "([^"]*)"/.exec(via)?.[1];
  if (!role) return via;
  if (source.by === 'member') return source.to.startsWith('team/') ? words.member(subjectInWords(source.to)) : words.member('project');
  return words.role(role, subjectInWords(source.to));
}

