//! `ProjectMigrateVirtualClusterInstance`: the request to move a virtual cluster instance into a project. The server
//! carries it out and returns it, and never stores it. See `docs/reference/projects.md#migration`.

use crate::prelude::*;

/// The kind.
pub struct ProjectMigrateVirtualClusterInstance;

/// The annotation of an instance that was moved: `NAMESPACE/NAME`, where it was before.
pub const MIGRATED_FROM: &str = "platform.sh/migrated-from";

/// The request: which instance is moved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.ProjectMigrateVirtualClusterInstanceFields")]
pub struct Spec {
    /// The instance to move into the project that the path names.
    pub source_virtual_cluster_instance: Source,
}

/// The instance to move.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(
    rename = "sh.platform.management.v1.SourceVirtualClusterInstance",
    extend("required" = ["name", "namespace"])
)]
pub struct Source {
    /// The name of the instance.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The namespace of the project that has the instance now.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

impl Kind for ProjectMigrateVirtualClusterInstance {
    type Spec = Spec;
    type Status = NoStatus;

    const INFO: Info = Info {
        kind: "ProjectMigrateVirtualClusterInstance",
        plural: "projectmigratevirtualclusterinstances",
        singular: "projectmigratevirtualclusterinstance",
        verbs: &[Verb::Create],
        on_command_line: false,
        confidential: false,
        description: "ProjectMigrateVirtualClusterInstance moves a virtual cluster instance into a project.",
        layout: Layout::TopLevel,
        ..Info::DEFAULT
    };
}
