// The kinds that the console shows: their paths in the API and in the console, and the columns of their lists.
import { GROUP_PATH, MANAGEMENT } from './api';

export interface ColumnShown {
  /** The name of the column in the server's Table. */
  name: string;
  /** How the cell is drawn. */
  as?: 'status' | 'enabled' | 'condition' | 'owner' | 'number' | 'muted' | 'state' | 'end' | 'use' | 'namespace';
  /** 1 stays on every screen, 2 needs a medium one, 3 a wide one. */
  room?: 1 | 2 | 3;
}

export interface Kind {
  plural: string;
  kind: string;
  group: string;
  namespaced: boolean;
  /** The path of its list in the console. */
  route: string;
  /** The name that `postern` uses. */
  cli: string;
  hasOwner: boolean;
  columns: ColumnShown[];
}

const MANAGEMENT_GROUP = 'management.platform.sh';
const NAMESPACE: ColumnShown = { name: 'Namespace', as: 'namespace', room: 2 };
const OWNER: ColumnShown = { name: 'Owner', as: 'owner', room: 2 };
const AGE: ColumnShown = { name: 'Age', as: 'muted', room: 2 };
const TITLE: ColumnShown = { name: 'Display Name', as: 'muted', room: 3 };

function kind(plural: string, name: string, more: Partial<Kind> & Pick<Kind, 'route' | 'columns'>): Kind {
  return { plural, kind: name, group: MANAGEMENT_GROUP, namespaced: false, cli: plural, hasOwner: true, ...more };
}

const INSTANCE_COLUMNS: ColumnShown[] = [
  { name: 'Name' },
  { name: 'Status', as: 'status', room: 1 },
  NAMESPACE,
  { name: 'Cluster', room: 2 },
  OWNER,
  TITLE,
  AGE,
];

export const SHARED_SECRETS = kind('sharedsecrets', 'SharedSecret', {
  route: '/secrets',
  cli: 'secret',
  namespaced: true,
  columns: [{ name: 'Name' }, TITLE, NAMESPACE, { name: 'Keys', as: 'number', room: 1 }, OWNER, AGE],
});

export const PROJECT_SECRETS = kind('projectsecrets', 'ProjectSecret', {
  route: '/projectsecrets',
  cli: 'projectsecret',
  namespaced: true,
  columns: [
    { name: 'Name' },
    TITLE,
    NAMESPACE,
    { name: 'Keys', as: 'number', room: 1 },
    { name: 'Synced', as: 'condition', room: 2 },
    { name: 'Mirrored', as: 'condition', room: 3 },
    OWNER,
    AGE,
  ],
});

export const ACCESS_KEYS = kind('ownedaccesskeys', 'OwnedAccessKey', {
  route: '/keys',
  cli: 'accesskey',
  hasOwner: false,
  columns: [
    { name: 'Name' },
    { name: 'Status', as: 'state', room: 1 },
    { name: 'Expires', as: 'end', room: 1 },
    { name: 'Last Used', as: 'use', room: 2 },
    OWNER,
    TITLE,
    { name: 'Age', as: 'muted', room: 3 },
  ],
});

export const PROJECTS = kind('projects', 'Project', {
  route: '/projects',
  cli: 'project',
  columns: [{ name: 'Name' }, { ...TITLE, room: 2 }, { name: 'Members', as: 'number', room: 1 }, OWNER, AGE],
});

export const VIRTUAL_CLUSTERS = kind('virtualclusterinstances', 'VirtualClusterInstance', {
  route: '/virtualclusters',
  cli: 'virtualcluster',
  namespaced: true,
  columns: INSTANCE_COLUMNS,
});

export const SPACES = kind('spaceinstances', 'SpaceInstance', {
  route: '/spaces',
  cli: 'space',
  namespaced: true,
  columns: INSTANCE_COLUMNS,
});

export const CLUSTERS = kind('clusters', 'Cluster', {
  route: '/clusters',
  cli: 'cluster',
  columns: [
    { name: 'Name' },
    { name: 'Status', as: 'status', room: 1 },
    { ...TITLE, room: 2 },
    { name: 'Connection', room: 3 },
    { name: 'Agents', as: 'number', room: 3 },
    OWNER,
    AGE,
  ],
});

export const USERS = kind('users', 'User', {
  route: '/users',
  cli: 'user',
  hasOwner: false,
  columns: [
    { name: 'Name' },
    { ...TITLE, room: 2 },
    { name: 'Enabled', as: 'enabled', room: 1 },
    { name: 'Email', as: 'muted', room: 3 },
    AGE,
  ],
});

export const TEAMS = kind('teams', 'Team', {
  route: '/teams',
  cli: 'team',
  hasOwner: false,
  columns: [{ name: 'Name' }, { ...TITLE, room: 2 }, { name: 'Users', as: 'number', room: 1 }, AGE],
});

export const CONNECTORS = kind('connectors', 'Connector', {
  route: '/connectors',
  cli: 'connector',
  hasOwner: false,
  columns: [{ name: 'Name' }, { ...TITLE, room: 2 }, { name: 'Enabled', as: 'enabled', room: 1 }, { name: 'Issuer', as: 'muted', room: 2 }, AGE],
});

export const TRUSTED_ISSUERS = kind('trustedissuers', 'TrustedIssuer', {
  route: '/trustedissuers',
  cli: 'trustedissuer',
  hasOwner: false,
  columns: [{ name: 'Name' }, { name: 'Type', room: 2 }, { name: 'Enabled', as: 'enabled', room: 1 }, { name: 'Issuer', as: 'muted', room: 2 }, AGE],
});

export const WORKLOAD_IDENTITIES = kind('workloadidentities', 'WorkloadIdentity', {
  route: '/workloadidentities',
  cli: 'workloadidentity',
  columns: [{ name: 'Name' }, { name: 'Enabled', as: 'enabled', room: 1 }, { name: 'Issuer', room: 2 }, OWNER, AGE],
});

export const KINDS: Kind[] = [
  SHARED_SECRETS,
  PROJECT_SECRETS,
  ACCESS_KEYS,
  PROJECTS,
  VIRTUAL_CLUSTERS,
  SPACES,
  CLUSTERS,
  USERS,
  TEAMS,
  CONNECTORS,
  TRUSTED_ISSUERS,
  WORKLOAD_IDENTITIES,
];

/** The path of all objects of a kind, or of those in one namespace. */
export function collectionPath(of: Kind, namespace?: string): string {
  return of.namespaced && namespace
    ? `${GROUP_PATH}/namespaces/${encodeURIComponent(namespace)}/${of.plural}`
    : `${GROUP_PATH}/${of.plural}`;
}

/** The path of one object. */
export function objectPath(of: Kind, name: string, namespace?: string): string {
  return `${collectionPath(of, namespace)}/${encodeURIComponent(name)}`;
}

/** The path of one object's page in the console. */
export function pagePath(of: Kind, name: string, namespace?: string): string {
  const last = encodeURIComponent(name);
  return of.namespaced ? `${of.route}/${encodeURIComponent(namespace ?? '')}/${last}` : `${of.route}/${last}`;
}

/** The path of the events of a namespace. */
export function eventsPath(namespace?: string): string {
  return namespace
    ? `${MANAGEMENT}/api/v1/namespaces/${encodeURIComponent(namespace)}/events`
    : `${MANAGEMENT}/api/v1/events`;
}

export function kindOfRoute(route: string): Kind | undefined {
  return KINDS.find((each) => each.route === route);
}

export function kindNamed(name: string): Kind | undefined {
  return KINDS.find((each) => each.kind === name);
}
