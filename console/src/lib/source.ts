// Where a permission comes from, as the server tells it in a reason or in a review.

/** `role` is every other way, such as a role for all objects. */
export type By = 'owner' | 'rule' | 'member' | 'role';

export interface Source {
  by: By;
  /** The place of the access rule in the object; undefined if it is none. */
  rule: number | undefined;
  /** Whom the permission was given to: `user/NAME`, `team/NAME` or `group/NAME`. Empty if the server does not name it. */
  to: string;
}

const RULE = /"platform:access:[^"]*:(\d+)(?:\/[^"]*)?"/;
const MEMBER = /member of the project/;
const SUBJECT = / to (?:User|Group|ServiceAccount) "([^"]*)"/;

/** A group of the server as a person knows it. */
export function subjectOfGroup(group: string): string {
  const [, kind, name] = /^platform:(user|team):(.+)$/.exec(group) ?? [];
  return kind ? `${kind}/${name}` : `group/${group}`;
}

/** Reads a source of a permission. */
export function sourceOf(text: string): Source {
  const group = SUBJECT.exec(text)?.[1];
  const to = group === undefined ? '' : subjectOfGroup(group);
  const rule = RULE.exec(text)?.[1];
  if (/ownership of the object/.test(text)) return { by: 'owner', rule: undefined, to };
  if (rule !== undefined) return { by: 'rule', rule: Number(rule), to };
  return { by: MEMBER.test(text) ? 'member' : 'role', rule: undefined, to };
}
