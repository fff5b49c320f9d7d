//! `ProjectSecretUsage`: the Secrets of connected clusters that have the data of a project secret. It is the response to
//! `projectsecrets/<s>/usage`, and is never stored. See `docs/reference/shared-secrets.md#usage`.

use crate::prelude::*;
use crate::secret_subscription::InstanceRef;

/// The most Secrets of a response.
pub const MAX_USES: usize = 1000;

/// Reads where the data of the secret is used.
pub(crate) const GET_USAGE: Action = Action {
    subresource: "usage",
    verb: Verb::Get,
    right: ActionRight::OnSubresource,
    handler: Handler::Registry(RegistryAction::SecretUsage),
    request: None,
    response: Response::Object(&ProjectSecretUsage),
    description: "The Secrets of connected clusters that have the data of the secret, as this server knows them.",
};

/// The kind.
pub struct ProjectSecretUsage;

/// The Secrets that have the data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.ProjectSecretUsageFields")]
pub struct Spec {
    /// Whether there are other servers on the same store, which may know other Secrets. Each server knows those of the
    /// agents that are subscribed to it now.
    pub partial: bool,
    /// Whether Secrets are missing: at most 1,000 are listed.
    pub truncated: bool,
    /// The Secrets, sorted by cluster, virtual cluster, namespace and name.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub uses: Vec<SecretUse>,
}

/// A Secret of a connected cluster.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.SecretUse")]
pub struct SecretUse {
    /// The name of the Cluster.
    pub cluster: String,
    /// The virtual cluster that has the Secret. Absent for a Secret of a space.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_cluster: Option<InstanceRef>,
    /// The namespace of the Secret.
    pub namespace: String,
    /// The name of the Secret.
    pub name: String,
    /// The version of the data that the agent was sent last, or that it said it had.
    pub version: String,
    /// When this server learned that the Secret has this version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

impl Kind for ProjectSecretUsage {
    type Spec = Spec;
    type Status = NoStatus;

    const INFO: Info = Info {
        kind: "ProjectSecretUsage",
        plural: "projectsecretusages",
        singular: "projectsecretusage",
        description: "ProjectSecretUsage lists the Secrets of connected clusters that have the data of a project secret.",
        ..Info::RESPONSE
    };
}
