// Where a role counts, in words.
import { namespaces } from './namespaces.svelte';
import { roleTexts as words } from '../texts-roles';

/** The project of a namespace; empty if it is of none. The server decides by the prefix alone. */
export function projectOf(namespace: string): string {
  return namespace.startsWith(namespaces.prefix) ? namespace.slice(namespaces.prefix.length) : '';
}

/** `everywhere`, `in the project web`, or `in the namespace shop`. */
export function placeText(namespace: string): string {
  if (!namespace) return words.everywhere;
  const project = projectOf(namespace);
  return project ? words.inProject(project) : words.inPlace(namespace);
}
