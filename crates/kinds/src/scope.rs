//! The scope of a credential: what it gives access to at most (specification 2.5, decision 4).
//!
//! Only the fields. What a credential with a scope may do is decided in `auth`; so far that is Self
//! and discovery, whatever the scope contains.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a credential gives access to at most. Every part adds to it; an empty scope gives access to
/// nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.Scope")]
pub struct Scope {
    /// Allows the read-only requests that the command line needs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_platform_cli: bool,
    /// Projects with everything in them; `*` is every project.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub projects: Vec<ScopeProject>,
    /// Single spaces; `*` is every space of the project.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub spaces: Vec<ScopeSpace>,
    /// Single virtual clusters; `*` is every virtual cluster of the project.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub virtual_clusters: Vec<ScopeVirtualCluster>,
    /// Deprecated: rules on single requests. Use projects, spaces and virtualClusters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub rules: Vec<ScopeRule>,
}

/// A project in a scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.ScopeProject")]
pub struct ScopeProject {
    /// The project's name, or `*`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub project: String,
}

/// A space in a scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.ScopeSpace")]
pub struct ScopeSpace {
    /// The project that the space is in.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub project: String,
    /// The space's name, or `*`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub space: String,
}

/// A virtual cluster in a scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.ScopeVirtualCluster")]
pub struct ScopeVirtualCluster {
    /// The project that the virtual cluster is in.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub project: String,
    /// The virtual cluster's name, or `*`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub virtual_cluster: String,
}

/// A rule on single requests: all fields that are set must match, any entry of a field does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.ScopeRule")]
pub struct ScopeRule {
    /// Verbs that match; none given means every verb.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub verbs: Vec<String>,
    /// Resources that match; none given means all kinds in all API groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub resources: Vec<ScopeResources>,
    /// Names of objects that match, for all entries of `resources`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub resource_names: Vec<String>,
    /// Namespaces that match; the empty text is for resources that have none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub namespaces: Vec<String>,
    /// Paths that match; the whole last segment may be `*`.
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub non_resource_urls: Vec<String>,
    /// Request targets that match; none given means every request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub request_targets: Vec<String>,
    /// The cluster that a request must be for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// The virtual clusters of which a request must be for one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub virtual_clusters: Vec<RuleVirtualCluster>,
}

/// Resources that a rule is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.ScopeResources")]
pub struct ScopeResources {
    /// The API group; empty for the core group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Plural names, `name/subresource`, `name/*`, `*/scale` or `*`; none given means all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub resources: Vec<String>,
    /// Names of objects that match; none given means every one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub resource_names: Vec<String>,
}

/// A virtual cluster that a rule is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.RuleVirtualCluster")]
pub struct RuleVirtualCluster {
    /// Its name; empty means all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its namespace; empty means all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}
