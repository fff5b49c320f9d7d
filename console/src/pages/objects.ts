// The pages about one object. They are one file of the build, because they share most of their parts: apart, they are larger by
// a fifth.
export { default as SharedSecret } from './SecretPage.svelte';
export { default as ProjectSecret } from './SecretPage.svelte';
export { default as OwnedAccessKey } from './KeyPage.svelte';
export { default as Project } from './ProjectPage.svelte';
export { default as Cluster } from './ClusterPage.svelte';
export { default as VirtualClusterInstance } from './InstancePage.svelte';
export { default as SpaceInstance } from './InstancePage.svelte';
export { default as User } from './PersonPage.svelte';
export { default as Team } from './PersonPage.svelte';
export { default as Connector } from './ProviderPage.svelte';
export { default as TrustedIssuer } from './ProviderPage.svelte';
export { default as WorkloadIdentity } from './WorkloadPage.svelte';
