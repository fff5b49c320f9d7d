//! `ProjectMembers`: who works in a project, with the names that people know them by (decision 1). It is
//! answered at `projects/<p>/members` and never stored.

use crate::prelude::*;

/// The kind.
pub struct ProjectMembers;

/// The users and teams that are members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.ProjectMembersFields")]
pub struct Spec {
    /// The users, in the order of the project.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub users: Vec<ProjectMember>,
    /// The teams, in the order of the project.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub teams: Vec<ProjectMember>,
}

/// One member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.ProjectMember")]
pub struct ProjectMember {
    /// Who it is.
    pub info: MemberInfo,
    /// The `ClusterRole` that they have in the namespace of the project.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster_role: String,
}

/// What a user or a team is called. Of one that is gone, and whoever has the name since, there is the name
/// alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.MemberInfo")]
pub struct MemberInfo {
    /// The name of the User or Team.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Name shown to people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// Name for logging in.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username: String,
}

impl Kind for ProjectMembers {
    type Spec = Spec;
    type Status = NoStatus;

    const INFO: Info = Info {
        kind: "ProjectMembers",
        plural: "projectmembers",
        singular: "projectmembers",
        verbs: &[Verb::Get],
        on_command_line: false,
        confidential: false,
        description: "ProjectMembers is who works in a project.",
        ..Info::DEFAULT
    };

    const LAYOUT: Layout = Layout::TopLevel;
}
