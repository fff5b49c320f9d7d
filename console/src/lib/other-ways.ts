// Who has verbs on an object by something else than its access rules.
import { review } from './api';
import type { Kind } from './kinds';
import { hasOtherSource } from './rules';
import type { ResourceAccessReview } from './types';

/** The verbs that are asked about at most. */
const MOST_VERBS = 8;

/** `SUBJECT VERB` for each user and team with one of the verbs by a role, by ownership, or by a membership. */
export async function otherWays(kind: Kind, name: string, namespace: string, verbs: string[]): Promise<Set<string>> {
  const asked = [...new Set(verbs.flatMap((verb) => (verb === '*' ? ['get', 'update', 'delete', 'use'] : [verb])))].slice(0, MOST_VERBS);
  const lists = await Promise.all(
    asked.map(async (verb) => {
      const spec = { verb, group: kind.group, resource: kind.plural, name, ...(namespace ? { namespace } : {}) };
      const answer = await review<ResourceAccessReview>('resourceaccessreviews', 'ResourceAccessReview', spec, { background: true });
      return (answer.status?.subjects ?? []).filter(hasOtherSource).map((subject) => `${subject.kind?.toLowerCase()}/${subject.name} ${verb}`);
    }),
  );
  return new Set(lists.flat());
}
