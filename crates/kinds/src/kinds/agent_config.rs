//! `AgentConfig`: the data from which the agent of a connected cluster decides. The server makes it for each request to
//! `clusters/NAME/agentconfig`, and never stores it. The agent keeps the last one it got. See
//! `docs/reference/clusters.md#agent-configuration`.
//!
//! It has two parts, which an agent can get separately. The first has the keys and revocations that
//! verify tokens: it depends on nothing else and reaches an agent at once. The second has the
//! subjects that may use each instance, which takes longer if it is large.
//!
//! It has public keys and names, and no credential.

use crate::prelude::*;

/// The kind.
pub struct AgentConfig;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec, NoStatus>;

/// A part of the data from which an agent decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The data that verifies tokens: the issuer, audiences, keys and revocations, and the other
    /// decisions of the central server about tokens.
    Tokens,
    /// The virtual clusters and spaces on the cluster, and the subjects that may use them.
    Places,
}

impl Part {
    /// The parameter that asks for one part.
    pub const PARAMETER: &str = "part";

    /// All parts.
    pub const ALL: [Self; 2] = [Self::Tokens, Self::Places];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::Places => "places",
        }
    }
}

/// Everything that an agent needs to decide without asking.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.AgentConfigSpec")]
pub struct Spec {
    /// The agent's own cluster.
    pub cluster: ClusterId,
    /// The issuer of tokens.
    pub issuer: String,
    /// The audiences of tokens for this cluster.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub audiences: Vec<String>,
    /// For how many seconds an agent accepts tokens while it hears nothing from the central server.
    pub max_offline_seconds: i64,
    /// The public keys of tokens, each a JSON Web Key (RFC 7517).
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub keys: Vec<PublicKey>,
    /// The revocations: tokens that are older are rejected.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub revocations: Vec<Revocation>,
    /// The virtual clusters and spaces that are on this cluster.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub instances: Vec<Instance>,
    /// The subjects that hold `use` on the cluster and on each of the instances.
    #[serde(rename = "use")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub uses: Vec<Use>,
    /// Groups of callers that are forwarded to the cluster, in addition to the platform's own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub forward_groups: Vec<String>,
    /// The names of the servers, if there are several. The agent opens tunnels to each of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub servers: Vec<String>,
    /// The part of the configuration: `tokens` or `places`; empty for the whole.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub part: String,
}

/// A cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.AgentClusterId")]
pub struct ClusterId {
    /// The name of the Cluster.
    pub name: String,
    /// The uid of the Cluster.
    pub uid: String,
}

/// A public key: a point on P-256 (RFC 7518 section 6.2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.AgentPublicKey")]
pub struct PublicKey {
    /// The type of key.
    pub kty: String,
    /// The curve.
    pub crv: String,
    /// One coordinate.
    pub x: String,
    /// The other coordinate.
    pub y: String,
    /// The id of the key.
    pub kid: String,
    /// The algorithm.
    pub alg: String,
    /// The use of the key (RFC 7517 section 4.2).
    #[serde(rename = "use")]
    pub purpose: String,
}

/// The revocation of the older tokens of a key, a user or a team.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.AgentRevocation")]
pub struct Revocation {
    /// The uid of a key, a user or a team.
    pub uid: String,
    /// The revocation revision from which on tokens are accepted.
    #[serde(rename = "generation")]
    pub revocation_revision: u64,
}

/// A virtual cluster or a space.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.AgentInstance")]
pub struct Instance {
    /// `VirtualClusterInstance` or `SpaceInstance`.
    pub kind: String,
    /// The project.
    pub project: String,
    /// The namespace of the project.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The uid.
    pub uid: String,
    /// Where it is in the cluster.
    pub cluster_ref: ClusterLocation,
}

/// Where an instance is in its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.AgentPlaceInCluster")]
pub struct ClusterLocation {
    /// The namespace in the cluster.
    pub namespace: String,
    /// The name of the virtual cluster in there.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub virtual_cluster: String,
}

/// The subjects that hold `use` on one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.AgentUse")]
pub struct Use {
    /// `clusters`, `virtualclusterinstances` or `spaceinstances`.
    pub resource: String,
    /// The namespace of the object; empty for the cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The subjects that hold `use`.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub subjects: Vec<UseSubject>,
}

/// A user name, a group, or the user or team of a uid. With a uid, the group names the user or team, if it is known.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.AgentUseSubject")]
pub struct UseSubject {
    /// A user name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// A group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The uid of the user or team. A caller in the group must have this uid, or be in the team with it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

impl Kind for AgentConfig {
    type Spec = Spec;
    type Status = NoStatus;

    const INFO: Info = Info {
        kind: "AgentConfig",
        plural: "agentconfigs",
        singular: "agentconfig",
        verbs: &[],
        on_command_line: false,
        confidential: false,
        description: "AgentConfig is the configuration of the agent of a connected cluster.",
        ..Info::DEFAULT
    };
}
