//! Access rules: who owns an object, and who else gets which verbs on it (specification 2.2,
//! decision 2). The same fields on every kind that has them.
//!
//! Only the fields and their limits. The rules grant nothing yet: they are validated and stored.

use postern_meta::field::{FieldError, FieldErrors};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::Caller;

/// Maximum number of entries in `spec.access`: each is to become a Role and a RoleBinding, and a
/// transaction has a limit.
pub const MAX_ACCESS_ENTRIES: usize = 30;

/// The owner of an object: a user or a team, not both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.UserOrTeam")]
pub struct UserOrTeam {
    /// Name of a User.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// Name of a Team.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub team: String,
}

impl UserOrTeam {
    /// Returns the caller as an owner; `None` when the caller is no user or team.
    pub fn caller(caller: &Caller) -> Option<Self> {
        match (&caller.user, &caller.team) {
            (Some(user), _) => Some(Self { user: user.clone(), team: String::new() }),
            (None, Some(team)) => Some(Self { user: String::new(), team: team.clone() }),
            (None, None) => None,
        }
    }

    /// Returns `user/NAME` or `team/NAME`, for a column; empty when neither is set.
    pub fn display_name(&self) -> String {
        match (self.user.as_str(), self.team.as_str()) {
            ("", "") => String::new(),
            ("", team) => format!("team/{team}"),
            (user, _) => format!("user/{user}"),
        }
    }
}

/// One access rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.Access")]
pub struct Access {
    /// Optional name of the rule.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Verbs that the rule gives; `*` is all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub verbs: Vec<String>,
    /// Subresources that the verbs extend to; `*` is all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub subresources: Vec<String>,
    /// Users who get the verbs; `*` is every user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub users: Vec<String>,
    /// Teams who get the verbs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub teams: Vec<String>,
}

/// Adds to `errors` what is invalid in the owner and the access rules of an object.
pub fn validate(owner: Option<&UserOrTeam>, access: &[Access], errors: &mut FieldErrors) {
    if owner.is_some_and(|owner| !owner.user.is_empty() && !owner.team.is_empty()) {
        errors.push(FieldError::forbidden("spec.owner", "may name a user or a team, not both"));
    }
    if access.len() > MAX_ACCESS_ENTRIES {
        errors.push(FieldError::too_many("spec.access", access.len(), MAX_ACCESS_ENTRIES));
    }
}
