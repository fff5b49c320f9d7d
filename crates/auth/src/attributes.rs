//! What a decision is about: the attributes of a request, as Kubernetes calls them. The decision
//! itself is in [`crate::policy`].

use postern_kinds::Right;

/// What a request wants to do, taken from the *parsed* request, never from its text.
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
        /// The subresource; empty for the object itself.
        subresource: &'a str,
        /// The namespace; empty when the resource has none, and for all namespaces.
        namespace: &'a str,
        /// The object's name; empty for the collection.
        name: &'a str,
    },
    /// A description of the API: discovery, `OpenAPI`, the version.
    Description {
        /// The HTTP method in lower case.
        verb: &'a str,
        /// The path.
        path: &'a str,
    },
    /// Any other path that is no resource.
    Path {
        /// The HTTP method in lower case.
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
