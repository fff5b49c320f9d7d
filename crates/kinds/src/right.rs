//! Rights that a write needs, in the words of access rules.

/// One thing that somebody must be allowed to do. `auth` decides whether he is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// The verb, beyond HTTP's where a kind has its own: `createkey`, `impersonate`.
    pub verb: &'static str,
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The plural name.
    pub resource: &'static str,
    /// What is reached behind the object; empty for the object itself.
    pub subresource: String,
    /// The namespace; empty when the resource has none.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

impl Right {
    /// On an object that has no namespace.
    pub fn cluster(
        verb: &'static str,
        group: &'static str,
        resource: &'static str,
        name: impl Into<String>,
    ) -> Self {
        Self {
            verb,
            group,
            resource,
            subresource: String::new(),
            namespace: String::new(),
            name: name.into(),
        }
    }
}
