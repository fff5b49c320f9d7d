//! Verbs: the operations of requests, in the words of Kubernetes' access rules.

/// The action of a request, in the words that access rules use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read many.
    List,
    /// Follow the changes of one or many.
    Watch,
    /// Create one.
    Create,
    /// Replace one.
    Update,
    /// Change parts of one.
    Patch,
    /// Delete one.
    Delete,
    /// Delete many.
    DeleteCollection,
}

impl Verb {
    /// Every verb, in the order in which discovery lists them.
    pub const ALL: &'static [Self] = &[
        Self::Create,
        Self::Delete,
        Self::DeleteCollection,
        Self::Get,
        Self::List,
        Self::Patch,
        Self::Update,
        Self::Watch,
    ];

    /// The verb as in access rules and discovery, in lower case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}
