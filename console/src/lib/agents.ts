// The agent of a cluster: its binding, its access key, and the line that installs it. `postern create cluster` makes the
// same objects.
import { ApiError, get } from './api';
import { shellWord } from './format';
import { newKeyValue } from './key-value';
import { ACCESS_KEYS, CLUSTERS, objectPath } from './kinds';
import { RBAC, RBAC_GROUP } from './roles';
import type { ObjectMeta, OwnedAccessKey } from './types';
import { create, createOf, patchOf, perform, type ApiRequest } from './writes';
import { clusterTexts as words } from '../texts-clusters';

const GROUP = 'management.platform.sh';

/** Where the name and uid of the cluster are written. */
function metadataOf({ name = '', uid = '' }: ObjectMeta): ObjectMeta {
  return { name: `agent-${name}`, ownerReferences: [{ apiVersion: `${GROUP}/v1`, kind: 'Cluster', name, uid }] };
}

/** The request that binds the role of agents. The role is for all clusters, and the scope of the key leaves this one. */
export function bindingOfAgent(cluster: ObjectMeta): ApiRequest {
  const body = {
    apiVersion: `${RBAC_GROUP}/v1`,
    kind: 'ClusterRoleBinding',
    metadata: metadataOf(cluster),
    roleRef: { apiGroup: RBAC_GROUP, kind: 'ClusterRole', name: 'platform-agent' },
    subjects: [{ apiGroup: RBAC_GROUP, kind: 'User', name: `agent:${cluster.name}` }],
  };
  return { method: 'POST', path: `${RBAC}/clusterrolebindings`, body };
}

/** The access key of the agent, without its value. */
export function keyOfAgent(cluster: ObjectMeta): OwnedAccessKey {
  const name = cluster.name ?? '';
  const rule = (verbs: string[], resources: string[]) => ({
    verbs,
    resources: [{ group: GROUP, resources, resourceNames: [name] }],
    requestTargets: ['Management' as const],
  });
  const rules = [
    rule(['get', 'patch'], ['clusters', 'clusters/agentconfig', 'clusters/status']),
    rule(['watch'], ['clusters/agentconfig']),
    rule(['create'], ['clusters/auditevents', 'clusters/endpoint', 'clusters/secretsubscriptions']),
    rule(['connect'], ['clusters/tunnel']),
  ];
  return { metadata: metadataOf(cluster), spec: { displayName: `The agent of the cluster ${name}`, subject: `agent:${name}`, scope: { rules } } };
}

const isCode = (cause: unknown, code: number): boolean => cause instanceof ApiError && cause.code === code;

/** The request that gives the key of this name a new value, if it is the one of the agent of this cluster. */
export function renewalOf({ metadata = {}, spec }: OwnedAccessKey, cluster: ObjectMeta, value: string): ApiRequest {
  const name = `agent-${cluster.name}`;
  const isOwn = spec?.subject === `agent:${cluster.name}` && metadata.ownerReferences?.some(({ kind, uid }) => kind === 'Cluster' && !!uid && uid === cluster.uid);
  if (!isOwn) throw new ApiError(409, words.otherKey(name), { reason: 'AlreadyExists' });
  // Between the reading and the change, another key can have got the name.
  return patchOf(ACCESS_KEYS, name, undefined, { metadata: { uid: metadata.uid, resourceVersion: metadata.resourceVersion }, spec: { key: value } });
}

/**
 * Gives the agent an access key, and returns its value. With `replace`, the value of an earlier key of the agent stops at
 * once. The first key of a new cluster replaces none.
 */
export async function newAgentKey(cluster: ObjectMeta, earlier: 'refuse' | 'replace'): Promise<string> {
  try {
    await perform(bindingOfAgent(cluster));
  } catch (cause) {
    if (!isCode(cause, 409)) throw cause;
  }
  try {
    const made = await create<OwnedAccessKey & { spec?: Record<string, unknown> }>(ACCESS_KEYS, keyOfAgent(cluster) as OwnedAccessKey & { spec?: Record<string, unknown> });
    return String(made.spec?.key ?? '');
  } catch (cause) {
    if (!isCode(cause, 409)) throw cause;
    if (earlier === 'refuse') throw new ApiError(409, words.keyExists(`agent-${cluster.name}`), { reason: 'AlreadyExists' });
  }
  // The key exists, and its value cannot be read, so it gets a new one.
  const value = newKeyValue();
  const present = await get<OwnedAccessKey>(objectPath(ACCESS_KEYS, `agent-${cluster.name}`), { background: true });
  await perform(renewalOf(present, cluster, value));
  return value;
}

/** The request that creates a cluster with an agent. */
export function createCluster(name: string, displayName: string): ApiRequest {
  return createOf(CLUSTERS, { metadata: { name }, spec: displayName ? { displayName } : {} });
}

/** The line that installs the chart of the agent. */
export function helmLine(cluster: string, url: string, key: string): string {
  return [
    'helm upgrade --install postern-agent deploy/charts/postern-agent --namespace postern-agent --create-namespace',
    `--set ${shellWord(`cluster=${cluster},server.url=${url}`)} --set-file server.caBundle=CA.pem`,
    `--set key.value=${key}`,
  ].join(' ');
}
