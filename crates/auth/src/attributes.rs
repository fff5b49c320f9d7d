//! The attributes of a request, as Kubernetes calls them: the input of a decision. The decision
//! itself is in [`crate::policy`].

use postern_kinds::Right;

/// The action that a request asks for, taken from the *parsed* request, never from its text.
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

impl<'a> Attributes<'a> {
    /// The namespace of the roles that apply; empty if there is none. A Namespace object is in the
    /// namespace with the same name, as in Kubernetes.
    pub fn role_namespace(&self) -> &'a str {
        match *self {
            Self::Resource { group: "", resource: "namespaces", namespace: "", name, .. } => name,
            Self::Resource { namespace, .. } => namespace,
            Self::Description { .. } | Self::Path { .. } => "",
        }
    }

    /// Whether it is about a non-resource path.
    pub fn is_path(&self) -> bool {
        !matches!(self, Self::Resource { .. })
    }
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
/// Where a request goes: the management API itself, or through the gateway to a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestTarget<'a> {
    /// The management API.
    #[default]
    Management,
    /// A connected cluster.
    Cluster {
        /// Its name.
        cluster: &'a str,
    },
    /// A virtual cluster, by where it runs.
    VirtualCluster {
        /// The cluster that it runs in.
        cluster: &'a str,
        /// Its namespace there.
        namespace: &'a str,
        /// Its name there.
        name: &'a str,
    },
    /// A space of a project.
    ProjectSpace {
        /// The project.
        project: &'a str,
        /// The SpaceInstance's name.
        space: &'a str,
    },
    /// A virtual cluster of a project.
    ProjectVirtualCluster {
        /// The project.
        project: &'a str,
        /// The VirtualClusterInstance's name.
        virtual_cluster: &'a str,
    },
}

/// A request: the action, and its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The action.
    pub attributes: Attributes<'a>,
    /// The target.
    pub target: RequestTarget<'a>,
}

impl<'a> Request<'a> {
    /// A request to the management API.
    pub fn management(attributes: Attributes<'a>) -> Self {
        Self { attributes, target: RequestTarget::Management }
    }
}

/// The subresources that open a stream in both ways, however they are asked for.
const STREAMS: [&str; 3] = ["exec", "attach", "portforward"];

/// Whether a subresource opens a bidirectional stream.
pub(crate) fn is_stream(subresource: &str) -> bool {
    STREAMS.contains(&subresource)
}

/// The verbs that a request needs, all of them: its own, and `create` if it opens a stream that can
/// write. A stream arrives as a GET, but is no read (`docs/reference/scopes.md#upgrades`). Equal
/// verbs are one.
pub fn required_verbs<'a>(
    verb: &'a str,
    subresource: &str,
    is_upgrade: bool,
) -> impl Iterator<Item = &'a str> + use<'a> {
    let streams = is_stream(subresource) || (is_upgrade && verb != "watch");
    let create = (streams && verb != "create").then_some("create");
    std::iter::once(verb).chain(create)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upgrades_are_not_reads() {
        for (verb, subresource, is_upgrade, verbs) in [
            ("get", "", false, &["get"][..]),
            ("get", "", true, &["get", "create"]),
            ("get", "exec", false, &["get", "create"]),
            ("create", "exec", true, &["create"]),
            ("get", "attach", true, &["get", "create"]),
            ("get", "portforward", false, &["get", "create"]),
            ("get", "proxy", false, &["get"]),
            ("get", "proxy", true, &["get", "create"]),
            ("delete", "proxy", true, &["delete", "create"]),
            ("watch", "", true, &["watch"]),
            ("watch", "exec", true, &["watch", "create"]),
            ("get", "log", false, &["get"]),
        ] {
            let required: Vec<_> = required_verbs(verb, subresource, is_upgrade).collect();
            assert_eq!(required, verbs, "{verb} {subresource} {is_upgrade}");
        }
    }
}
