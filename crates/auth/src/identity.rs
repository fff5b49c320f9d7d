//! The identity that a request was authenticated as, or impersonates, and the groups that have a
//! meaning here. How an identity is found is in [`crate::principal_index`].

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use postern_kinds::rbac::BoundSubject;

use crate::scope::{Holder, ScopeRules};

/// Members of this group may do everything.
pub const MASTERS_GROUP: &str = "system:masters";

/// Every authenticated identity is in it, as in Kubernetes.
pub const AUTHENTICATED_GROUP: &str = "system:authenticated";

/// The group of callers without a credential. Only an impersonation can request it here.
pub const UNAUTHENTICATED_GROUP: &str = "system:unauthenticated";

/// Every authenticated identity is in it; the platform's name for it.
pub const PLATFORM_AUTHENTICATED_GROUP: &str = "platform:authenticated";

/// Every user is in it.
pub const ALL_USERS_GROUP: &str = "platform:user:*";

/// The prefix of a team's name where users and groups are named, too.
pub(crate) const TEAM_PREFIX: &str = "platform:team:";

/// The group of the members of a team.
pub fn team_group(name: &str) -> String {
    format!("{TEAM_PREFIX}{name}")
}

/// The implicit groups of a user: the group of this user alone, and the group of all users.
pub(crate) fn own_groups(name: &str) -> [String; 2] {
    [format!("platform:user:{name}"), ALL_USERS_GROUP.to_owned()]
}

/// The identity that a request was authenticated as, or impersonates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The name that access decisions see: the User's subject if set, else its name; for a team
    /// `platform:team:<name>`; for any other subject the subject itself.
    pub name: String,
    /// The uid of the User or Team object.
    pub uid: String,
    /// All groups, with those of every authenticated identity.
    pub groups: Vec<String>,
    /// The User object's name, if the key is a user's.
    pub user: Option<String>,
    /// The Team object's name, if the key is a team's.
    pub team: Option<String>,
    /// The names of the teams that the user is in.
    pub teams: Vec<String>,
    /// The uids of the user or team, and of the teams that the user is in: bindings that hold uids are for
    /// these alone.
    pub principal_uids: Vec<String>,
    /// The name of the access key that the request was sent with.
    pub access_key: String,
    /// Extra fields of an impersonation, as in Kubernetes.
    pub extra: BTreeMap<String, Vec<String>>,
    /// The scopes of the key, and of the keys that created it. All of them must allow a request.
    pub scopes: Vec<Arc<ScopeRules>>,
    /// Whether a bearer acts as this identity. The scopes are then those of the bearer.
    pub is_impersonated: bool,
}

impl Identity {
    /// Whether the identity is in a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|mine| mine == group)
    }

    /// Whether a binding with this subject applies to the identity. No identity has an empty uid.
    pub(crate) fn is_subject(&self, subject: &BoundSubject) -> bool {
        match subject {
            BoundSubject::User(name) => *name == self.name,
            BoundSubject::Group(group) => self.is_in(group),
            BoundSubject::Principal { uid, .. } => {
                !uid.is_empty() && self.principal_uids.contains(uid)
            }
        }
    }

    /// Whether the key has a scope.
    pub fn is_scoped(&self) -> bool {
        !self.scopes.is_empty()
    }

    /// The identity's own user and teams, for the rights on them.
    pub(crate) fn holder(&self) -> Holder<'_> {
        Holder { user: self.user.as_deref(), team: self.team.as_deref(), teams: &self.teams }
    }

    /// The user and teams that the key's scopes refer to. It is empty for an impersonated identity,
    /// because its teams would widen the scopes.
    pub(crate) fn scope_holder(&self) -> Holder<'_> {
        if self.is_impersonated { Holder::default() } else { self.holder() }
    }

    /// Adds groups, and removes duplicates.
    pub(crate) fn add_groups(&mut self, groups: impl IntoIterator<Item = String>) {
        self.groups.extend(groups);
        let mut seen = HashSet::new();
        self.groups.retain(|group| seen.insert(group.clone()));
    }
}
