//! Rights that a write requires, in the words of Kubernetes' RBAC. `auth` decides which callers
//! have them.

use crate::names::MANAGEMENT_V1;

/// One thing that a caller must be allowed to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// The verb, in lower case: one of the API's, or one of a kind's own, such as `createkey`.
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
    /// A right on an object that has no namespace.
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

/// The plural name of projects. Rights on their members are given in the namespaces of projects.
const PROJECTS: &str = "projects";

impl Right {
    /// A right on the members of a project, as a role in the project's namespace gives it: its admins have it.
    pub fn on_members(verb: &'static str, project: &str, namespace: &str) -> Self {
        Self {
            subresource: "members".to_owned(),
            namespace: namespace.to_owned(),
            ..Self::cluster(verb, MANAGEMENT_V1.group, PROJECTS, project)
        }
    }
}

/// A requirement of a write: any one of these rights is enough. A refusal names the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredRight {
    first: Right,
    others: Vec<Right>,
    by_role: bool,
    as_owner: bool,
    hint: String,
}

impl RequiredRight {
    /// The requirement with one more right that is enough.
    #[must_use]
    pub fn or(mut self, right: Right) -> Self {
        self.others.push(right);
        self
    }

    /// The requirement for callers that hold one of the rights by a role. The rights of all users
    /// and teams on their own objects do not count.
    #[must_use]
    pub fn by_role(self) -> Self {
        Self { by_role: true, ..self }
    }

    /// The requirement with a sentence for the refusal: its purpose, and how to meet it.
    #[must_use]
    pub fn because(self, hint: String) -> Self {
        Self { hint, ..self }
    }

    /// The text of a refusal beyond the right that it names; empty for none.
    pub fn hint(&self) -> &str {
        &self.hint
    }

    /// Whether a role must grant the permission.
    pub fn is_by_role(&self) -> bool {
        self.by_role
    }

    /// The requirement for a caller that holds its rights as the owner of the object it writes,
    /// which no role says yet. Only the scope of the caller's key can forbid it.
    #[must_use]
    pub fn as_owner(self) -> Self {
        Self { as_owner: true, ..self }
    }

    /// Whether the caller holds the permissions as the owner of the written object.
    pub fn is_as_owner(&self) -> bool {
        self.as_owner
    }

    /// The rights of which one is enough. The first is the one that a refusal names.
    pub fn any_of(&self) -> impl Iterator<Item = &Right> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// The right that a refusal names.
    pub fn first(&self) -> &Right {
        &self.first
    }
}

impl From<Right> for RequiredRight {
    fn from(right: Right) -> Self {
        let (others, hint) = (Vec::new(), String::new());
        Self { first: right, others, by_role: false, as_owner: false, hint }
    }
}
