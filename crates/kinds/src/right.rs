//! Rights that a write takes, in the words of access rules.

/// One thing that a caller must be allowed to do. `auth` decides whether they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// The verb, beyond HTTP's where a kind has its own: `createkey`, `impersonate`.
    pub verb: &'static str,
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The plural name.
    pub resource: &'static str,
    /// The subresource; empty for the object itself.
    pub subresource: String,
    /// The namespace; empty when the resource has none.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

impl Right {
    /// Returns a right on an object that has no namespace.
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

/// What a write takes: any one of these rights. The first is the one that a refusal names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredRight {
    first: Right,
    others: Vec<Right>,
}

impl RequiredRight {
    /// Returns the same requirement, which this right satisfies, too.
    #[must_use]
    pub fn or(mut self, right: Right) -> Self {
        self.others.push(right);
        self
    }

    /// Returns the rights of which one is enough, the one that a refusal names first.
    pub fn any_of(&self) -> impl Iterator<Item = &Right> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Returns the right that a refusal names.
    pub fn first(&self) -> &Right {
        &self.first
    }
}

impl From<Right> for RequiredRight {
    fn from(right: Right) -> Self {
        Self { first: right, others: Vec::new() }
    }
}
