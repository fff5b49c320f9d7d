//! The identity that a request was authenticated as, or impersonates, and the groups that have a
//! meaning here. How an identity is found is in [`crate::principal_index`].

use std::collections::{BTreeMap, HashSet};

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
    /// The name of the access key that the request was sent with.
    pub access_key: String,
    /// Extra fields of an impersonation, as in Kubernetes.
    pub extra: BTreeMap<String, Vec<String>>,
    /// Has the key a scope? Then it may do nothing but Self and discovery, so far.
    pub scoped: bool,
}

impl Identity {
    /// Is the identity in a group?
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|mine| mine == group)
    }

    /// Adds groups, and removes duplicates.
    pub(crate) fn add_groups(&mut self, groups: impl IntoIterator<Item = String>) {
        self.groups.extend(groups);
        let mut seen = HashSet::new();
        self.groups.retain(|group| seen.insert(group.clone()));
    }
}
