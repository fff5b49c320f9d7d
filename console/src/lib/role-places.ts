// Where a role counts, in words.
import { MOST_PLACES } from './creating';
import { PROJECTS } from './kinds';
import { namespaces } from './namespaces.svelte';
import { RBAC_GROUP } from './roles';
import type { PreviewRequest } from './types';
import { roleTexts as words } from '../texts-roles';

/** The project of a namespace; empty if it is of none. The server decides by the prefix alone. */
export function projectOf(namespace: string): string {
  return namespace.startsWith(namespaces.prefix) ? namespace.slice(namespaces.prefix.length) : '';
}

/** What granting a role somewhere needs: one of these. In a project, the role is that of a member. */
export function toGrant(): PreviewRequest[] {
  const bind = (resource: string, namespace?: string): PreviewRequest => ({ verb: 'create', group: RBAC_GROUP, resource, ...(namespace ? { namespace } : {}) });
  const projects = namespaces.projects.slice(0, MOST_PLACES);
  return [
    bind('clusterrolebindings'),
    bind('rolebindings'),
    ...projects.map((name) => ({ verb: 'patch', group: PROJECTS.group, resource: PROJECTS.plural, name })),
    ...[namespaces.shared, ...projects.map((name) => namespaces.prefix + name)].map((namespace) => bind('rolebindings', namespace)),
  ];
}

/** `everywhere`, `in the project web`, or `in the namespace shop`. */
export function placeText(namespace: string): string {
  if (!namespace) return words.everywhere;
  const project = projectOf(namespace);
  return project ? words.inProject(project) : words.inPlace(namespace);
}
