//! Who a request was authenticated as, or acts as.

use std::collections::{BTreeMap, HashSet};

/// Members of this group may do everything.
pub const MASTERS_GROUP: &str = "system:masters";

/// Every authenticated identity is in it, as in Kubernetes.
pub const AUTHENTICATED_GROUP: &str = "system:authenticated";

/// Nobody who has a key is in it; whoever acts as somebody may ask to be.
pub const UNAUTHENTICATED_GROUP: &str = "system:unauthenticated";

/// Every authenticated identity is in it, in our own words.
pub const PLATFORM_AUTHENTICATED_GROUP: &str = "platform:authenticated";

/// Every user is in it.
pub const ALL_USERS_GROUP: &str = "platform:user:*";

/// Who a request was authenticated as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The name that access decisions see: the User's subject if set, else its name; for a team
    /// `platform:team:<name>`; for any other subject the subject itself.
    pub name: String,
    /// The uid of the User or Team object.
    pub uid: String,
    /// All groups, those that follow from being authenticated included.
    pub groups: Vec<String>,
    /// The User object's name, if the key is a user's.
    pub user: Option<String>,
    /// The Team object's name, if the key is a team's.
    pub team: Option<String>,
    /// The access key that was shown.
    pub access_key: String,
    /// What else is said about whom somebody acts as, as in Kubernetes.
    pub extra: BTreeMap<String, Vec<String>>,
    /// Has the key a scope? Then it may do nothing but Self and discovery, so far.
    pub scoped: bool,
}

impl Identity {
    /// Is the identity in a group?
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|mine| mine == group)
    }

    /// Puts it into further groups; into none of them twice.
    pub(crate) fn add_groups(&mut self, groups: impl IntoIterator<Item = String>) {
        self.groups.extend(groups);
        let mut seen = HashSet::new();
        self.groups.retain(|group| seen.insert(group.clone()));
    }
}
