// Questions about permissions: what is wrong with one, and the request that asks it.
import { MANAGEMENT } from './api';
import type { Kind } from './kinds';
import type { PreviewRequest } from './types';
import { reviewOf, type ApiRequest } from './writes';

export interface Question {
  /** `user/NAME`, `team/NAME` or `key/NAME`; empty for the caller. */
  who: string;
  verb: string;
  kind: Kind;
  /** Empty for all namespaces. */
  namespace: string;
  /** Empty for all objects. */
  name: string;
}

export type Problem = 'plain-name' | 'no-namespace';

const TYPES = ['user', 'team', 'key'];
/** How the reason of the server begins if the verb or the resource does not exist. */
const NONE_SUCH = 'there is no ';

/** Whom a question is about: the type and the name. */
export function subjectOf(who: string): { type: string; name: string } {
  const [type = '', ...rest] = who.split('/');
  return { type, name: rest.join('/') };
}

/** What keeps a question from having one meaning. */
export function problemOf({ who, kind, namespace, name }: Question): Problem | undefined {
  const subject = subjectOf(who);
  if (who && (!TYPES.includes(subject.type) || !subject.name)) return 'plain-name';
  // An object is in one namespace. Without it, the question would be about all objects of that name, and its owner would be denied.
  return kind.namespaced && name && !namespace ? 'no-namespace' : undefined;
}

/** The request about the caller, or about the subject that is named. */
export function requestOf({ who, verb, kind, namespace, name }: Question): ApiRequest {
  const asked: PreviewRequest = { verb, group: kind.group, resource: kind.plural, ...(kind.namespaced && namespace ? { namespace } : {}), ...(name ? { name } : {}) };
  if (!who) return reviewOf('accesspreviews', 'AccessPreview', { requests: [asked] });
  const { type, name: subject } = subjectOf(who);
  const spec = type === 'key' ? { extra: { 'platform.sh/access-key': [subject] } } : { user: type === 'team' ? `platform:team:${subject}` : subject };
  const body = { apiVersion: 'authorization.k8s.io/v1', kind: 'SubjectAccessReview', spec: { ...spec, resourceAttributes: asked } };
  return { method: 'POST', path: `${MANAGEMENT}/apis/authorization.k8s.io/v1/subjectaccessreviews`, body };
}

/** Whether the server answers that the verb or the resource does not exist, which is neither yes nor no. */
export function isNoSuch(reason: string): boolean {
  return reason.startsWith(NONE_SUCH);
}
