// The sections of the navigation.
import type { IconName } from '../components/Icon.svelte';
import { texts } from '../texts';

export type Path = Exclude<keyof typeof texts.nav, 'label' | 'menu' | 'groups' | 'rest'>;

/** A page and its icon. */
export type Link = [Path, IconName];

interface Group {
  title: string;
  links: Link[];
}

const { secrets, work, access, people, identity } = texts.nav.groups;

export const GROUPS: Group[] = [
  { title: '', links: [['/', 'overview']] },
  { title: secrets, links: [['/secrets', 'secret'], ['/projectsecrets', 'lock']] },
  { title: work, links: [['/projects', 'project'], ['/virtualclusters', 'vcluster'], ['/spaces', 'space'], ['/clusters', 'cluster']] },
  { title: access, links: [['/keys', 'key'], ['/endpoint-tokens', 'token'], ['/why', 'why'], ['/sessions', 'session']] },
  { title: people, links: [['/users', 'user'], ['/teams', 'team'], ['/roles', 'role']] },
  { title: identity, links: [['/connectors', 'connector'], ['/trustedissuers', 'issuer'], ['/workloadidentities', 'workload']] },
];

/** The title of the section that a page is in; the name of the product for pages outside of every section. */
export function sectionTitle(path: string): string {
  if (path === '/') return texts.nav[path];
  return GROUPS.find(({ links }) => links.some(([each]) => each === path))?.title ?? texts.product;
}
