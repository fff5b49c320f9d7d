// The namespace of a project, whose prefix the server tells at the login.
let prefix = 'p-';

/** The prefix of the namespaces of projects. */
export const projectPrefix = (): string => prefix;

/** Notes the prefix that the server tells; an older one does not. */
export function noteProjectPrefix(told: string | undefined): void {
  prefix = told ?? 'p-';
}
