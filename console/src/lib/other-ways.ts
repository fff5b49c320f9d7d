// Who has verbs on an object by something else than its access rules.
import { review } from './api';
import type { Kind } from './kinds';
import { EVERYONE } from './roles';
import { VERBS, hasOtherSource } from './rules';
import type { ResourceAccessReview } from './types';

/** Who has one verb by a role, by ownership, or by a membership. */
export interface Ways {
  /** `user/NAME`, `team/NAME`, `group/NAME`, or `clusterwide/*` for roles in the whole server. */
  rows: string[];
  /** Whether there may be others. */
  isPartial: boolean;
}

/** Asks for each verb. `rules` is the number of the access rules that are no other way. */
export async function otherWays(kind: Kind, name: string, namespace: string, verbs: string[], rules: number): Promise<Map<string, Ways>> {
  const asked = verbs.includes('*') ? VERBS : [...new Set(verbs)];
  const ways = asked.map(async (verb): Promise<[string, Ways]> => {
    const spec = { verb, group: kind.group, resource: kind.plural, name, ...(namespace ? { namespace } : {}) };
    try {
      const { status } = await review<ResourceAccessReview>('resourceaccessreviews', 'ResourceAccessReview', spec, { background: true });
      const rows = (status?.subjects ?? []).filter((subject) => hasOtherSource(subject, rules)).map((subject) => `${subject.kind?.toLowerCase()}/${subject.name}`);
      return [verb, { rows, isPartial: status?.complete !== true }];
    } catch {
      // Those who may change an object by patch alone may not ask.
      return [verb, { rows: [], isPartial: true }];
    }
  });
  return new Map(await Promise.all(ways));
}

/** Whether a user or team has the verb by another way. `members` are the users of the teams that are known. */
export function hasBy(ways: Ways | undefined, subject: string, members: Map<string, string[]>): 'yes' | 'maybe' | 'no' {
  const rows = ways?.rows ?? [];
  if (rows.some((row) => row === subject || EVERYONE.some((group) => row === `group/${group}`) || members.get(row)?.includes(subject))) return 'yes';
  const mayInclude = (row: string): boolean => /^(group|clusterwide)\//.test(row) || (row.startsWith('team/') && subject.startsWith('user/') && !members.has(row));
  return !ways || ways.isPartial || rows.some(mayInclude) ? 'maybe' : 'no';
}
