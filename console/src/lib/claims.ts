// The claims that a workload identity matches.
import type { WorkloadIdentity } from './types';

export type Match = NonNullable<NonNullable<WorkloadIdentity['spec']>['match']>[number];

/** A claim of a form: the values are lines. */
export interface ClaimRow {
  claim: string;
  values: string;
}

const MANDATORY: Record<string, string[]> = {
  GitHubActions: ['repository_id', 'ref'],
  GitLab: ['project_id', 'ref', 'ref_protected'],
  Kubernetes: ['namespace', 'serviceaccount'],
  Generic: ['sub'],
};

/** The claims that are often matched, for suggestions. */
export const KNOWN_CLAIMS: Record<string, string[]> = {
  GitHubActions: ['repository_id', 'ref', 'environment', 'job_workflow_ref', 'event_name'],
  GitLab: ['project_id', 'ref', 'ref_protected', 'ref_type', 'environment'],
  Kubernetes: ['namespace', 'serviceaccount', 'serviceaccount_uid', 'pod', 'node'],
  Generic: ['sub'],
};

/** The rows that a new workload identity of a type begins with. Those that have a value stay. */
export function rowsFor(type: string, before: ClaimRow[] = []): ClaimRow[] {
  const kept = before.filter((row) => row.values.trim() !== '');
  const missing = (MANDATORY[type] ?? ['']).filter((claim) => !kept.some((row) => row.claim === claim));
  return [...kept, ...missing.map((claim) => ({ claim, values: '' }))];
}

/** The rows as `spec.match`. Rows without a claim and values are left out. */
export function matchOf(rows: ClaimRow[]): Match[] {
  return rows
    .map(({ claim, values }) => ({ claim: claim.trim(), values: values.split('\n').map((value) => value.trim()).filter(Boolean) }))
    .filter(({ claim, values }) => claim !== '' || values.length > 0);
}
