import type { components } from './api-types';

type Schemas = components['schemas'];

export type Status = Schemas['io.k8s.apimachinery.pkg.apis.meta.v1.Status'];
export type StatusCause = Schemas['io.k8s.apimachinery.pkg.apis.meta.v1.StatusCause'];
export type ObjectMeta = Schemas['io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta'];
export type Condition = Schemas['io.k8s.apimachinery.pkg.apis.meta.v1.Condition'];
export type PolicyRule = Schemas['io.k8s.api.rbac.v1.PolicyRule'];
/** Verbs are any text here: a form may hold one that the server then rejects. */
export type Access = Omit<Schemas['sh.platform.management.v1.Access'], 'verbs'> & { verbs: string[] };
export type Cluster = Schemas['sh.platform.management.v1.Cluster'];
export type Project = Schemas['sh.platform.management.v1.Project'];
export type Member = Schemas['sh.platform.management.v1.Member'];
export type ConsoleLoginCode = Schemas['sh.platform.management.v1.ConsoleLoginCode'];
export type OwnedAccessKey = Omit<Schemas['sh.platform.management.v1.OwnedAccessKey'], 'spec'> & {
  spec?: Partial<Schemas['sh.platform.management.v1.OwnedAccessKeySpec']>;
};
export type Scope = Schemas['sh.platform.management.v1.Scope'];
export type AccessPreview = Schemas['sh.platform.management.v1.AccessPreview'];
export type PreviewRequest = NonNullable<NonNullable<AccessPreview['spec']>['requests']>[number];
export type PreviewResult = NonNullable<NonNullable<AccessPreview['status']>['results']>[number];
export type PreviewedScope = Schemas['sh.platform.management.v1.PreviewedScope'];
export type SecretReaders = Schemas['sh.platform.management.v1.SharedSecretReaders'];
export type SecretEntries = Schemas['sh.platform.management.v1.SecretEntries'];
export type SecretEntry = Schemas['sh.platform.management.v1.SecretEntry'];
export type ResourceAccessReview = Schemas['sh.platform.management.v1.ResourceAccessReview'];
export type ReviewedSubject = NonNullable<NonNullable<ResourceAccessReview['status']>['subjects']>[number];
export type Self = Schemas['sh.platform.management.v1.Self'];
export type VirtualCluster = Schemas['sh.platform.management.v1.VirtualClusterInstance'];
export type TeamMembers = Schemas['sh.platform.management.v1.TeamMembers'];
export type ProjectMembers = Schemas['sh.platform.management.v1.ProjectMembers'];
export type Team = Schemas['sh.platform.management.v1.Team'];
export type User = Schemas['sh.platform.management.v1.User'];
export type Connector = Schemas['sh.platform.management.v1.Connector'];
export type TrustedIssuer = Schemas['sh.platform.management.v1.TrustedIssuer'];
export type WorkloadIdentity = Schemas['sh.platform.management.v1.WorkloadIdentity'];
export type UserIdentity = Schemas['sh.platform.management.v1.UserIdentity'];
export type UserSSO = Schemas['sh.platform.management.v1.UserSSOStatus'];
export type EndpointToken = Schemas['sh.platform.management.v1.DirectClusterEndpointToken'];

/** The owner and the access rules of an object, as its spec has them. */
export interface Ownership {
  access?: Access[];
  /** Spaces and virtual clusters have these rules, too. */
  extraAccessRules?: Schemas['sh.platform.management.v1.ExtraAccess'][];
  owner?: { user?: string; team?: string };
}

/** Any object with metadata. */
export interface AnyObject {
  apiVersion?: string;
  kind?: string;
  metadata?: ObjectMeta;
  spec?: Record<string, unknown>;
  status?: Record<string, unknown>;
}

/** The answer to the paths of sessions. */
export interface ConsoleSession {
  status: {
    accessKey: string;
    userName: string;
    endsAt: string;
    expiresAt: string;
    idleSeconds: number;
  };
}

/** An event of `core/v1`, as far as the console shows it. */
export interface CoreEvent {
  metadata: ObjectMeta;
  involvedObject?: { kind?: string; namespace?: string; name?: string };
  reason?: string;
  message?: string;
  type?: string;
  count?: number;
  lastTimestamp?: string | null;
  eventTime?: string | null;
}
