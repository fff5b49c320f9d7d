// Access rules, and who gains or loses what when they change.
import { sourceOf } from './source';
import type { Access, ReviewedSubject } from './types';

/** The verbs of one right on an object. */
export const RIGHTS: { id: string; verbs: string[] }[] = [
  { id: 'read', verbs: ['get', 'list', 'watch'] },
  { id: 'change', verbs: ['get', 'list', 'watch', 'update', 'patch'] },
  { id: 'use', verbs: ['get', 'list', 'watch', 'use'] },
  { id: 'all', verbs: ['*'] },
];

/** All verbs that a rule can name, in the order of the reference. */
export const VERBS = [
  'get',
  'list',
  'watch',
  'create',
  'update',
  'patch',
  'delete',
  'deletecollection',
  'use',
  'bind',
  'escalate',
  'impersonate',
  'makeowner',
  'createkey',
  'getkey',
  'updatekey',
  'deletekey',
];

/** The right whose verbs a rule has, or `custom`. */
export function rightOf(verbs: string[]): string {
  const set = new Set(verbs);
  return RIGHTS.find((right) => right.verbs.length === set.size && right.verbs.every((verb) => set.has(verb)))?.id ?? 'custom';
}

export interface Change {
  /** `user/NAME` or `team/NAME`; `user/*` is every user. */
  subject: string;
  verbs: string[];
  /** The subresources that it is about besides the object; `*` is all. None is the object alone. */
  subresources?: string[];
  /** Whether it is about the subresources alone. */
  isInner?: boolean;
}

/** The object itself, where a subresource can stand. */
const ITSELF = '';

/** The verbs of each subject, by the subresource. */
type Granted = Map<string, Map<string, Set<string>>>;

function grants(rules: Access[]): Granted {
  const granted: Granted = new Map();
  for (const rule of rules) {
    const subjects = [...(rule.users ?? []).map((user) => `user/${user}`), ...(rule.teams ?? []).map((team) => `team/${team}`)];
    const verbs = rule.verbs.includes('*') ? VERBS : rule.verbs;
    for (const subject of subjects) {
      const known = granted.get(subject) ?? new Map<string, Set<string>>();
      for (const part of [ITSELF, ...(rule.subresources ?? [])]) known.set(part, new Set([...(known.get(part) ?? []), ...verbs]));
      granted.set(subject, known);
    }
  }
  return granted;
}

function missing(from: Granted, without: Granted): Change[] {
  return [...from].flatMap(([subject, parts]) => {
    const other = without.get(subject);
    const byVerbs = new Map<string, { verbs: string[]; parts: string[] }>();
    for (const [part, verbs] of parts) {
      const has = (verb: string): boolean => other?.get(part)?.has(verb) === true || (part !== ITSELF && other?.get('*')?.has(verb) === true);
      const gone = [...verbs].filter((verb) => !has(verb)).sort((a, b) => VERBS.indexOf(a) - VERBS.indexOf(b));
      const known = byVerbs.get(gone.join()) ?? { verbs: gone, parts: [] };
      byVerbs.set(gone.join(), { ...known, parts: [...known.parts, part] });
    }
    return [...byVerbs.values()].flatMap(({ verbs, parts: all }): Change[] => {
      if (verbs.length === 0) return [];
      const subresources = all.filter((part) => part !== ITSELF);
      const more = subresources.length > 0 ? { subresources, isInner: !all.includes(ITSELF) } : {};
      return [{ subject, verbs: verbs.length === VERBS.length ? ['*'] : verbs, ...more }];
    });
  });
}

/** What subjects gain and lose by the rules alone. */
export function effectOfRules(before: Access[], after: Access[]): { gains: Change[]; loses: Change[] } {
  const [old, now] = [grants(before), grants(after)];
  return { gains: missing(now, old), loses: missing(old, now) };
}

/** The rules as the server gets them: without empty lists, and without rules for no subject. */
export function cleaned(rules: Access[]): Access[] {
  return rules.flatMap((rule) => {
    const { users = [], teams = [], subresources = [], name, verbs } = rule;
    if (users.length + teams.length === 0 || verbs.length === 0) return [];
    return [
      {
        ...(name ? { name } : {}),
        verbs,
        ...(users.length ? { users } : {}),
        ...(teams.length ? { teams } : {}),
        ...(subresources.length ? { subresources } : {}),
      },
    ];
  });
}

const BY_RULE = /platform:access:/;
const BY_OWNERSHIP = /ownership of the object/;

/** Whether a permission moves with the object: its owner and its access rules do, roles of the project do not. */
export function movesWithObject(subject: ReviewedSubject): boolean {
  return (subject.via ?? []).some((via) => BY_RULE.test(via) || BY_OWNERSHIP.test(via));
}

/** Every caller may list, and gets the objects that it may get. That is no permission on one of them. */
const BY_OPEN_LIST = /^a list contains/;

/** Whether a subject has a permission by something else than the first rules, which are those of `access`. Those of `extraAccessRules` follow. */
export function hasOtherSource(subject: ReviewedSubject, rules: number): boolean {
  return (subject.via ?? []).some((via) => !BY_OPEN_LIST.test(via) && (sourceOf(via).rule ?? rules) >= rules);
}

const label = (subject: ReviewedSubject): string => `${subject.kind}/${subject.name}`;

/** The subjects that are no keys: a key follows its owner. */
function holders(subjects: ReviewedSubject[]): ReviewedSubject[] {
  return subjects.filter((subject) => subject.kind !== 'AccessKey');
}

/** Who gains and who loses when an object moves to another namespace. */
export function effectOfMove(here: ReviewedSubject[], there: ReviewedSubject[]): { gains: string[]; loses: string[] } {
  const before = new Set(holders(here).map(label));
  const after = new Set([...holders(there), ...holders(here).filter(movesWithObject)].map(label));
  return {
    gains: [...after].filter((each) => !before.has(each)).sort(),
    loses: [...before].filter((each) => !after.has(each)).sort(),
  };
}
