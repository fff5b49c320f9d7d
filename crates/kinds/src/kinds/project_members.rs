//! `ProjectMembers`: the members of a project, with the names that people know them by. It is the response to
//! `projects/<p>/members`, and is never stored. See `docs/reference/projects.md#subresources`.

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
    /// The user or team.
    pub info: MemberInfo,
    /// The `ClusterRole` that they have in the namespace of the project.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster_role: String,
}

/// The names of a user or a team. If the member is gone, also if another user or team has its name since, only the name
/// is set.
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
        confidential: false,
        description: "ProjectMembers lists the users and teams of a project.",
        ..Info::RESPONSE
    };
}
