// Where the console creates a new object, and what that needs.
import type { Kind } from './kinds';
import { namespaces } from './namespaces.svelte';
import type { PreviewRequest } from './types';

/** The namespace of a new object; empty if the form asks for it, or if the kind has none. */
export function placeOfNew(kind: Kind, namespace: string): string {
  if (!kind.namespaced) return '';
  return namespace || (kind.kind === 'SharedSecret' ? namespaces.forSecrets : '');
}

/** The permissions to create an object there; none if the namespace is not known yet. */
export function needsOfNew(kind: Kind, place: string): PreviewRequest[] {
  if (kind.namespaced && !place) return [];
  return [{ verb: 'create', group: kind.group, resource: kind.plural, ...(place ? { namespace: place } : {}) }];
}
