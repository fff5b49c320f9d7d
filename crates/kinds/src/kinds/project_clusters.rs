//! `ProjectClusters`: the clusters that a project may use, as far as the caller may know of them. It is the response to
//! `projects/<p>/clusters`, and is never stored. See `docs/reference/projects.md#subresources`.

use std::collections::BTreeMap;

use crate::cluster;
use crate::prelude::*;

/// The kind.
pub struct ProjectClusters;

/// The clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.ProjectClustersFields")]
pub struct Spec {
    /// The clusters, by their names.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub clusters: Vec<ProjectCluster>,
}

/// A Cluster, without its kubeconfig and its access rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.ProjectCluster")]
pub struct ProjectCluster {
    /// `management.platform.sh/v1`.
    pub api_version: String,
    /// `Cluster`.
    pub kind: String,
    /// The name and the uid of the cluster, and its direct endpoint.
    pub metadata: ClusterMetadata,
    /// The display name and the purpose of the cluster.
    pub spec: ClusterSummary,
    /// The observed state of the cluster. Callers that may not get it see the phase alone.
    pub status: cluster::Status,
}

/// The name and the uid of a Cluster, and its direct endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.ClusterMetadata")]
pub struct ClusterMetadata {
    /// The name of the Cluster.
    pub name: String,
    /// The uid of the Cluster, for callers that may get it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The annotations of the direct endpoint, if there is one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// The name for people, and the purpose of a Cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.ClusterSummary")]
pub struct ClusterSummary {
    /// Name shown to people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// The purpose of the cluster, for callers that may get it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
}

impl Kind for ProjectClusters {
    type Spec = Spec;
    type Status = NoStatus;

    const INFO: Info = Info {
        kind: "ProjectClusters",
        plural: "projectclusters",
        singular: "projectclusters",
        confidential: false,
        description: "ProjectClusters is the clusters that a project may use.",
        ..Info::RESPONSE
    };
}
