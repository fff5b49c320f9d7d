// What the server refuses to a person, in words: what the caller may not do, what does not exist, and what to do about it.
import type { Failure } from './failure';
import { KINDS, type Kind } from './kinds';
import { texts } from '../texts';

/** The message of kube-apiserver: the object, the verb, the resource with its subresource, and the namespace. */
const DENIED = /^\S+(?: "([^"]*)")? is forbidden: User "[^"]*" cannot (\S+) resource "([^"/]*)\/?([^"]*)" in API group "[^"]*"(?: in the namespace "([^"]*)")?/;
const MISSING = /^([a-z]+)\S* "([^"]*)" not found$/;
const SCOPE = /the scope of the access key/;
/** Reviews are about the objects of others. */
const ABOUT_OTHERS = 'resourceaccessreviews';

const words = texts.refusal;

export interface Refusal {
  text: string;
  /** The question about the same, as the page “Why can’t I?” has it. */
  question?: Record<string, string>;
}

const kindOf = (resource: string): Kind | undefined => KINDS.find(({ plural }) => plural === resource);

/** A resource in words; one object of it, if there is a name. */
function nounOf(resource: string, name: string | undefined): string {
  const kind = kindOf(resource);
  const all = kind ? texts.nav[kind.route as '/secrets'].toLowerCase() : resource;
  return name ? `${all.replace(/ies$/, 'y').replace(/s$/, '')} ${name}` : all;
}

/** The refusal in words; undefined if the server has words of its own. */
export function refusalIn({ code, message }: Failure): Refusal | undefined {
  const missing = code === 404 && MISSING.exec(message);
  if (missing) {
    const [, resource = '', name] = missing;
    return { text: `${words.missing(nounOf(resource, name))} ${kindOf(resource)?.hasOwner ? words.checkOwner : words.checkAdmin}` };
  }
  const denied = code === 403 && DENIED.exec(message);
  if (!denied) return undefined;
  const [, name, verb = '', resource = '', part = '', namespace = ''] = denied;
  const what = words.reviews[resource] ?? words.what(words.verbs[verb] ?? verb, part, name ? `the ${nounOf(resource, name)}` : nounOf(resource, name), namespace);
  const kind = kindOf(resource);
  const hasOwner = (name && kind?.hasOwner) || resource === ABOUT_OTHERS;
  const advice = SCOPE.test(message) ? words.scope : hasOwner ? words.askOwner : words.askAdmin;
  return { text: `${words.mayNot(what)} ${advice}`, ...(kind && !part ? { question: { verb, kind: resource, place: namespace, name: name ?? '' } } : {}) };
}
