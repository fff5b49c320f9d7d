//! The kinds of instances, and where an instance is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A kind of instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum InstanceKind {
    /// A `SpaceInstance`.
    Space,
    /// A `VirtualClusterInstance`.
    VirtualCluster,
}

impl InstanceKind {
    /// Both kinds, in the order of an offer.
    pub const ALL: [Self; 2] = [Self::Space, Self::VirtualCluster];

    /// The name of the kind.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Space => "SpaceInstance",
            Self::VirtualCluster => "VirtualClusterInstance",
        }
    }

    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Space => "spaceinstances",
            Self::VirtualCluster => "virtualclusterinstances",
        }
    }

    /// The field of an offer with the names.
    pub(crate) fn field(self) -> &'static str {
        match self {
            Self::Space => "spaces",
            Self::VirtualCluster => "virtualClusters",
        }
    }
}

/// An instance, and where it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.InstanceLocation")]
pub struct InstanceLocation {
    /// The uid of the instance.
    pub uid: String,
    /// The name of its Cluster.
    pub cluster: String,
    /// The uid of its Cluster.
    pub cluster_uid: String,
    /// Its namespace in the connected cluster.
    pub namespace: String,
    /// The name of the virtual cluster in this namespace; empty for a space.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub virtual_cluster: String,
}
