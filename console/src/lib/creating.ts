// Where the console creates a new object, and what that needs.
import type { Kind } from './kinds';
import { namespaces } from './namespaces.svelte';
import type { PreviewRequest } from './types';

/** The namespace of a new object; empty if the form asks for it, or if the kind has none. */
export function placeOfNew(kind: Kind, namespace: string): string {
  if (!kind.namespaced) return '';
  return namespace || (kind.kind === 'SharedSecret' ? namespaces.forSecrets : '');
}

/** The projects that are asked about at most. */
export const MOST_PLACES = 50;

/** The permissions to create an object there, of which one is enough. Without a namespace, it is one of the projects. */
export function needsOfNew(kind: Kind, place: string): PreviewRequest[] {
  const create = { verb: 'create', group: kind.group, resource: kind.plural };
  if (!kind.namespaced) return [create];
  const places = place ? [place] : namespaces.projects.slice(0, MOST_PLACES).map((project) => namespaces.prefix + project);
  return places.map((namespace) => ({ ...create, namespace }));
}
