//! The scope of a credential: the maximum access that it gives. See `docs/reference/scopes.md`.
//!
//! Only the fields and their validation. `auth` decides which requests a credential with a scope
//! may send.

use postern_meta::field::{FieldError, FieldErrors};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The maximum access of a credential. Every part adds to it; an empty scope gives access to nothing.
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
    /// Rules for single requests. Deprecated where projects, spaces and virtualClusters can say the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub rules: Vec<ScopeRule>,
}

/// A project in a scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.ScopeProject", extend("required" = ["project"]))]
pub struct ScopeProject {
    /// The project's name, or `*`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub project: String,
}

/// A space in a scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(
    rename = "sh.platform.management.v1.ScopeSpace",
    extend("required" = ["project", "space"])
)]
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
#[schemars(
    rename = "sh.platform.management.v1.ScopeVirtualCluster",
    extend("required" = ["project", "virtualCluster"])
)]
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
    #[schemars(
        extend("x-kubernetes-list-type" = "atomic"),
        extend("items" = { "type": "string", "enum": REQUEST_TARGETS })
    )]
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
    /// The name of the virtual cluster; empty means all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The namespace of the virtual cluster; empty means all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// The most entries of a scope, with those of all lists in it.
pub const MAX_SCOPE_ENTRIES: usize = 1000;

/// The request targets that a rule can name. See `docs/reference/scopes.md#rules`.
pub const REQUEST_TARGETS: [&str; 5] =
    ["Management", "Cluster", "VirtualCluster", "ProjectSpace", "ProjectVirtualCluster"];

/// All of a kind of thing.
const ALL: &str = "*";

/// Adds the invalid fields of the scope at `path` to `errors`: those that would allow something
/// else than its writer means, or nothing at all.
pub fn validate(scope: &Scope, path: &str, errors: &mut FieldErrors) {
    let entries = count(scope);
    if !errors.check_count(path, entries, MAX_SCOPE_ENTRIES) {
        return;
    }
    for (index, entry) in scope.projects.iter().enumerate() {
        check_name(&format!("{path}.projects[{index}].project"), &entry.project, errors);
    }
    for (index, entry) in scope.spaces.iter().enumerate() {
        let at = format!("{path}.spaces[{index}]");
        check_project(&format!("{at}.project"), &entry.project, errors);
        check_name(&format!("{at}.space"), &entry.space, errors);
    }
    for (index, entry) in scope.virtual_clusters.iter().enumerate() {
        let at = format!("{path}.virtualClusters[{index}]");
        check_project(&format!("{at}.project"), &entry.project, errors);
        check_name(&format!("{at}.virtualCluster"), &entry.virtual_cluster, errors);
    }
    for (index, rule) in scope.rules.iter().enumerate() {
        validate_rule(rule, &format!("{path}.rules[{index}]"), errors);
    }
}

/// How many entries a scope has, with those of all lists in it.
pub fn count(scope: &Scope) -> usize {
    let of_element =
        |element: &ScopeResources| 1 + element.resources.len() + element.resource_names.len();
    let of_rule = |rule: &ScopeRule| {
        let lists = [
            rule.verbs.len(),
            rule.resource_names.len(),
            rule.namespaces.len(),
            rule.non_resource_urls.len(),
            rule.request_targets.len(),
            rule.virtual_clusters.len(),
        ];
        let elements: usize = rule.resources.iter().map(of_element).sum();
        1 + elements + lists.iter().sum::<usize>()
    };
    let entries = scope.projects.len() + scope.spaces.len() + scope.virtual_clusters.len();
    entries + scope.rules.iter().map(of_rule).sum::<usize>()
}

fn check_name(path: &str, name: &str, errors: &mut FieldErrors) {
    if name.is_empty() {
        errors.push(FieldError::required(path, "name one, or `*` for all"));
    }
}

fn check_project(path: &str, project: &str, errors: &mut FieldErrors) {
    if project.is_empty() {
        errors.push(FieldError::required(path, "name the project"));
    } else if project == ALL {
        errors.push(FieldError::invalid(path, project, "must be the name of one project"));
    }
}

fn validate_rule(rule: &ScopeRule, path: &str, errors: &mut FieldErrors) {
    if rule.resources.is_empty() && !rule.resource_names.is_empty() {
        let detail = "names of objects need `resources`";
        errors.push(FieldError::required(format!("{path}.resources"), detail));
    }
    if !rule.resources.is_empty() && !rule.non_resource_urls.is_empty() {
        let detail = "may not be set together with `resources`: no request matches both";
        errors.push(FieldError::forbidden(format!("{path}.nonResourceURLs"), detail));
    }
    for (index, element) in rule.resources.iter().enumerate() {
        validate_resources(element, &format!("{path}.resources[{index}]"), errors);
    }
    for (index, url) in rule.non_resource_urls.iter().enumerate() {
        let before = url.strip_suffix("/*").unwrap_or(url);
        if before.contains('*') || !url.starts_with('/') {
            let at = format!("{path}.nonResourceURLs[{index}]");
            let detail = "must be a path; `*` may only be its whole last step";
            errors.push(FieldError::invalid(at, url, detail));
        }
    }
    for (index, target) in rule.request_targets.iter().enumerate() {
        if !REQUEST_TARGETS.contains(&target.as_str()) {
            let at = format!("{path}.requestTargets[{index}]");
            errors.push(FieldError::not_supported(at, target, &REQUEST_TARGETS));
        }
    }
}

fn validate_resources(element: &ScopeResources, path: &str, errors: &mut FieldErrors) {
    if element.resources.is_empty() && !element.resource_names.is_empty() {
        let detail = "names of objects need `resources`";
        errors.push(FieldError::required(format!("{path}.resources"), detail));
    }
    let listed = &element.resources;
    for (index, pattern) in listed.iter().enumerate() {
        let at = || format!("{path}.resources[{index}]");
        if !is_pattern(pattern) {
            let detail = "must be `NAME`, `NAME/SUBRESOURCE`, `NAME/*`, `*/SUBRESOURCE` or `*`";
            errors.push(FieldError::invalid(at(), pattern, detail));
        } else if pattern.contains(ALL) {
            let others = listed.iter().enumerate().filter(|(other, _)| *other != index);
            let mut overlapping = others.filter(|(_, other)| overlap(pattern, other));
            if let Some((_, other)) = overlapping.next() {
                let detail = format!("overlaps with `{other}`: list only one of them");
                errors.push(FieldError::invalid(at(), pattern, detail));
            }
        }
    }
}

/// Whether this is a resource, with or without a subresource, as rules name it.
fn is_pattern(text: &str) -> bool {
    let is_part = |part: &str| part == ALL || (!part.is_empty() && !part.contains(ALL));
    match text.split_once('/') {
        None => is_part(text),
        Some((resource, sub)) => {
            is_part(resource) && is_part(sub) && (resource, sub) != (ALL, ALL) && !sub.contains('/')
        }
    }
}

/// Whether some request matches both patterns.
fn overlap(one: &str, two: &str) -> bool {
    if one == ALL || two == ALL {
        return true;
    }
    let parts = |text: &str| -> (String, String) {
        let (resource, sub) = text.split_once('/').unwrap_or((text, ""));
        (resource.to_owned(), sub.to_owned())
    };
    let ((resource, sub), (other, other_sub)) = (parts(one), parts(two));
    // A pattern of subresources does not match the object itself.
    let has_same_part = |mine: &str, other: &str| {
        mine == other || (mine == ALL && !other.is_empty()) || (other == ALL && !mine.is_empty())
    };
    has_same_part(&resource, &other) && has_same_part(&sub, &other_sub)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(scope: &serde_json::Value) -> Vec<String> {
        let scope = Scope::deserialize(scope).unwrap();
        let mut errors = FieldErrors::new();
        validate(&scope, "spec.scope", &mut errors);
        errors.iter().map(|error| format!("{}: {}", error.path, error.body())).collect()
    }

    fn rule(rule: &serde_json::Value) -> serde_json::Value {
        serde_json::json!({ "rules": [rule] })
    }

    #[test]
    fn what_is_valid() {
        for scope in [
            serde_json::json!({}),
            serde_json::json!({ "projects": [{ "project": "*" }, { "project": "p" }] }),
            serde_json::json!({ "spaces": [{ "project": "p", "space": "*" }] }),
            serde_json::json!({ "virtualClusters": [{ "project": "p", "virtualCluster": "v" }] }),
            rule(&serde_json::json!({})),
            rule(&serde_json::json!({ "nonResourceURLs": ["/metrics", "/healthz/*", "/*"] })),
            rule(&serde_json::json!({ "requestTargets": REQUEST_TARGETS })),
            rule(&serde_json::json!({ "resources": [{ "group": "" }], "resourceNames": ["a"] })),
            rule(&serde_json::json!({ "resources": [
                { "resources": ["pods", "pods/*", "nodes"] }, { "resources": ["*"] },
            ] })),
        ] {
            assert!(errors(&scope).is_empty(), "{scope}: {:?}", errors(&scope));
        }
    }

    #[test]
    fn what_is_invalid_names_its_field() {
        let of = |resources: &[&str]| {
            rule(&serde_json::json!({ "resources": [{ "resources": resources }] }))
        };
        for (scope, field) in [
            (serde_json::json!({ "projects": [{}] }), "projects[0].project"),
            (serde_json::json!({ "spaces": [{ "space": "s" }] }), "spaces[0].project"),
            (
                serde_json::json!({ "spaces": [{ "project": "*", "space": "s" }] }),
                "spaces[0].project",
            ),
            (serde_json::json!({ "spaces": [{ "project": "p" }] }), "spaces[0].space"),
            (
                serde_json::json!({ "virtualClusters": [{ "virtualCluster": "v" }] }),
                "virtualClusters[0].project",
            ),
            (
                serde_json::json!({ "virtualClusters": [{ "project": "p" }] }),
                "virtualClusters[0].virtualCluster",
            ),
            (rule(&serde_json::json!({ "resourceNames": ["a"] })), "rules[0].resources"),
            (
                rule(&serde_json::json!({ "resources": [{ "resourceNames": ["a"] }] })),
                "rules[0].resources[0].resources",
            ),
            (
                rule(&serde_json::json!({ "resources": [{}], "nonResourceURLs": ["/a"] })),
                "rules[0].nonResourceURLs",
            ),
            (
                rule(&serde_json::json!({ "nonResourceURLs": ["/a*"] })),
                "rules[0].nonResourceURLs[0]",
            ),
            (
                rule(&serde_json::json!({ "nonResourceURLs": ["/*/b"] })),
                "rules[0].nonResourceURLs[0]",
            ),
            (rule(&serde_json::json!({ "nonResourceURLs": ["*"] })), "rules[0].nonResourceURLs[0]"),
            (
                rule(&serde_json::json!({ "requestTargets": ["Space"] })),
                "rules[0].requestTargets[0]",
            ),
            (of(&["*", "pods"]), "rules[0].resources[0].resources[0]"),
            (of(&["pods/log", "pods/*"]), "rules[0].resources[0].resources[1]"),
            (of(&["deployments/scale", "*/scale"]), "rules[0].resources[0].resources[1]"),
            (of(&["pods/*", "nodes/scale", "x", "pods/log"]), "rules[0].resources[0].resources[0]"),
            (of(&["pods/"]), "rules[0].resources[0].resources[0]"),
            (of(&["/log"]), "rules[0].resources[0].resources[0]"),
            (of(&["po*"]), "rules[0].resources[0].resources[0]"),
            (of(&["*/*"]), "rules[0].resources[0].resources[0]"),
            (of(&[""]), "rules[0].resources[0].resources[0]"),
        ] {
            let errors = errors(&scope);
            let start = format!("spec.scope.{field}: ");
            assert!(errors.len() == 1 && errors[0].starts_with(&start), "{scope}: {errors:?}");
        }
    }

    #[test]
    fn the_number_of_entries_is_limited() {
        let names = vec!["a"; MAX_SCOPE_ENTRIES - 2];
        let rules = |names: &[&str]| {
            rule(&serde_json::json!({ "resources": [{}], "resourceNames": names }))
        };
        assert!(errors(&rules(&names)).is_empty());
        let too_many = vec!["a"; MAX_SCOPE_ENTRIES - 1];
        assert_eq!(errors(&rules(&too_many)).len(), 1);
    }
}
