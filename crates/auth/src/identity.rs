//! Who a request was authenticated as.

/// Members of this group may do everything.
pub const MASTERS_GROUP: &str = "system:masters";

/// Every authenticated identity is in it, as in Kubernetes.
pub const AUTHENTICATED_GROUP: &str = "system:authenticated";

/// Every authenticated identity is in it, in our own words.
pub const PLATFORM_AUTHENTICATED_GROUP: &str = "platform:authenticated";

/// Every user is in it.
pub const ALL_USERS_GROUP: &str = "platform:user:*";

/// Who a request was authenticated as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name that access decisions see: the User's subject if set, else its name.
    pub name: String,
    /// The User object's uid.
    pub uid: String,
    /// All groups, those that follow from being authenticated included.
    pub groups: Vec<String>,
    /// The User object's name.
    pub user: Option<String>,
    /// The access key that was shown.
    pub access_key: String,
}

impl Identity {
    /// Is the identity in a group?
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|mine| mine == group)
    }
}
