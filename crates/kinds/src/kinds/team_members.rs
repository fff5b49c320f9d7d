//! `TeamMembers`: the members of a team, with the names that people know them by. It is the response to `teams/<t>/members`,
//! and is never stored. See `docs/reference/authentication.md#users-and-teams`.

use crate::prelude::*;

/// The kind.
pub struct TeamMembers;

/// The maximum number of members in a response.
pub const MAX_LISTED_MEMBERS: usize = 1000;

/// The users that are members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.TeamMembersFields")]
pub struct Spec {
    /// The users in the order of their names, also those that single sign-on puts in the team; at most 1000.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub users: Vec<TeamMember>,
    /// Whether the team has more members than the list.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// One member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.TeamMember")]
pub struct TeamMember {
    /// The name of the User.
    pub name: String,
    /// Name shown to people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
}

impl Kind for TeamMembers {
    type Spec = Spec;
    type Status = NoStatus;

    const INFO: Info = Info {
        kind: "TeamMembers",
        plural: "teammembers",
        singular: "teammembers",
        confidential: false,
        description: "TeamMembers lists the users of a team.",
        ..Info::RESPONSE
    };
}
