//! What a decision is about: the attributes of a request, as Kubernetes calls them.

use postern_kinds::Right;

/// What a request wants, taken from the *parsed* request, never from its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attributes<'a> {
    /// Something done to a resource.
    Resource {
        /// The verb, as access rules spell it.
        verb: &'a str,
        /// The API group; empty for the core group.
        group: &'a str,
        /// The plural name.
        resource: &'a str,
        /// What is reached behind the object; empty for the object itself.
        subresource: &'a str,
        /// The namespace; empty when the resource has none, or all are meant.
        namespace: &'a str,
        /// The object's name; empty when none is named.
        name: &'a str,
    },
    /// A description of the API: discovery, `OpenAPI`, the version.
    Description {
        /// The HTTP method in small letters.
        verb: &'a str,
        /// The path.
        path: &'a str,
    },
    /// Any other path that is no resource.
    Path {
        /// The HTTP method in small letters.
        verb: &'a str,
        /// The path.
        path: &'a str,
    },
}

impl<'a> From<&'a Right> for Attributes<'a> {
    fn from(right: &'a Right) -> Self {
        Attributes::Resource {
            verb: right.verb,
            group: right.group,
            resource: right.resource,
            subresource: &right.subresource,
            namespace: &right.namespace,
            name: &right.name,
        }
    }
}
