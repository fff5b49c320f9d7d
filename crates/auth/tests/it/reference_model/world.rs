//! The plain data of the reference model: roles, bindings, owners, namespaces, a caller, a request. The types
//! are its own and follow the documentation; nothing of `postern_auth` is used.

use serde::{Deserialize, Serialize};

/// The data that decides: roles and bindings, owners of objects, and projects of namespaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct World {
    pub(crate) namespaces: Vec<Namespace>,
    pub(crate) roles: Vec<Role>,
    pub(crate) bindings: Vec<Binding>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) owned: Vec<Owned>,
}

/// An object with an owner: a user or team, by uid. The namespace is empty where it has none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Owned {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) group: String,
    pub(crate) resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// A namespace; its project is empty when it belongs to none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Namespace {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) project: String,
}

/// A Role, or a ClusterRole when it has no namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Role {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) rules: Vec<Rule>,
}

/// A rule of a role.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Rule {
    pub(crate) verbs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) api_groups: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) resources: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) resource_names: Vec<String>,
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub(crate) non_resource_urls: Vec<String>,
}

/// A RoleBinding, or a ClusterRoleBinding when it has no namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Binding {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Whether it gives a ClusterRole.
    pub(crate) cluster_role: bool,
    pub(crate) role: String,
    pub(crate) subjects: Vec<Subject>,
}

/// The subject that a binding gives its role to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Subject {
    User(String),
    Group(String),
    /// The one user or team with this uid, also when another one has its name in the group now.
    Principal {
        group: String,
        uid: String,
    },
}

/// The caller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Caller {
    /// The name that roles are bound to.
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) team: Option<String>,
    /// The teams that the user is in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) teams: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) groups: Vec<String>,
    /// The own uid, and those of the teams that the user is in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) uids: Vec<String>,
    /// Whether the caller is impersonated. The scopes are then those of the impersonator's key.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) impersonated: bool,
    /// The scope of the key, and of each key with a scope that it was made with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) scopes: Vec<Scope>,
}

/// The scope of a key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Scope {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) allow_platform_cli: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) projects: Vec<String>,
    /// Pairs of a project and a space.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) spaces: Vec<(String, String)>,
    /// Pairs of a project and a virtual cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) virtual_clusters: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) rules: Vec<ScopeRule>,
}

/// An entry of `rules` in a scope.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ScopeRule {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) verbs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) resources: Vec<ScopeResources>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) resource_names: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub(crate) non_resource_urls: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) request_targets: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) cluster: String,
    /// Pairs of a name and a namespace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) virtual_clusters: Vec<(String, String)>,
}

/// An entry of `resources` in a rule of a scope.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ScopeResources {
    pub(crate) group: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) resources: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) resource_names: Vec<String>,
}

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Request {
    #[serde(skip_serializing_if = "Target::is_management")]
    pub(crate) target: Target,
    pub(crate) verb: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) group: String,
    /// Empty for a path that is no resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) subresource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    /// Empty for a resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) path: String,
    /// Whether the path is a description of the API: discovery, OpenAPI, the version.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) description: bool,
}

impl Request {
    pub(crate) fn is_path(&self) -> bool {
        !self.path.is_empty()
    }
}

/// Where a request goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Target {
    #[default]
    Management,
    Cluster {
        cluster: String,
    },
    VirtualCluster {
        cluster: String,
        namespace: String,
        name: String,
    },
    ProjectSpace {
        project: String,
        name: String,
    },
    ProjectVirtualCluster {
        project: String,
        name: String,
    },
}

impl Target {
    fn is_management(&self) -> bool {
        *self == Self::Management
    }
}
