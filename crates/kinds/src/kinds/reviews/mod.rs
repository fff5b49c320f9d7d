//! Reviews: questions about access, which are answered and never stored. Here are the types that they
//! share, as in `authorization.k8s.io/v1` and `authentication.k8s.io/v1`; each kind has its own file. What
//! the answers are is decided in `auth`.

use std::collections::BTreeMap;

use postern_meta::gvk::GroupVersion;

use crate::kind::AnyKind;
use crate::prelude::*;
use crate::rbac::{ALL, VERBS};

pub mod access_preview;
pub mod local_subject_access_review;
pub mod platform_self_subject_access_review;
pub mod platform_subject_access_review;
pub mod resource_access_review;
pub mod self_subject_access_review;
pub mod self_subject_review;
pub mod self_subject_review_v1beta1;
pub mod self_subject_rules_review;
pub mod subject_access_review;
pub mod token_review;

/// The group of reviews of access.
pub const AUTHORIZATION_V1: GroupVersion =
    GroupVersion { group: "authorization.k8s.io", version: "v1" };

/// The group of reviews of identities.
pub const AUTHENTICATION_V1: GroupVersion =
    GroupVersion { group: "authentication.k8s.io", version: "v1" };

/// The same, as clients from before Kubernetes 1.28 ask.
pub const AUTHENTICATION_V1BETA1: GroupVersion =
    GroupVersion { group: "authentication.k8s.io", version: "v1beta1" };

/// What all reviews share. Their one action is [`answered_by`].
const REVIEW: Info =
    Info { verbs: &[Verb::Create], on_command_line: false, confidential: false, ..Info::DEFAULT };

/// The one action of a review.
const fn answered_by(review: Review, description: &'static str) -> Action {
    let handler = Handler::Registry(RegistryAction::Review(review));
    Action::on_own_path(Verb::Create, handler, description)
}

/// A request to a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "io.k8s.api.authorization.v1.ResourceAttributes")]
pub struct ResourceAttributes {
    /// The namespace; empty for all namespaces, and for a resource without.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The verb; `*` is every verb.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub verb: String,
    /// The API group; `*` is every group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The version; it does not matter.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The plural name; `*` is every resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// The subresource; empty for the object itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
    /// The object's name; empty for all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The field selector of the request. It does not matter for the decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_selector: Option<SelectorAttributes>,
    /// The label selector of the request. It does not matter for the decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<SelectorAttributes>,
}

/// A selector of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "io.k8s.api.authorization.v1.SelectorAttributes")]
pub struct SelectorAttributes {
    /// The selector as it is in a query.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub raw_selector: String,
    /// The selector as requirements.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub requirements: Vec<crate::label_selector::Requirement>,
}

/// A request to a path that is no resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "io.k8s.api.authorization.v1.NonResourceAttributes")]
pub struct NonResourceAttributes {
    /// The path.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// The method in lower case.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub verb: String,
}

/// The user and the request of an access review.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "io.k8s.api.authorization.v1.SubjectAccessReviewSpec")]
pub struct SubjectSpec {
    /// A request to a resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_attributes: Option<ResourceAttributes>,
    /// A request to a path that is no resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub non_resource_attributes: Option<NonResourceAttributes>,
    /// The name of the user.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// The groups that the user is in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub groups: Vec<String>,
    /// Further facts about the user: `platform.sh/access-key` names the key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
    /// The uid of the user.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// The begin of the reason for a question about a verb or a resource that does not exist.
pub const NONE_SUCH: &str = "there is no ";

/// How much of a word of the caller's a reason repeats.
const MAX_NAME_CHARS: usize = 64;

/// The verbs of requests to paths.
const PATH_VERBS: [&str; 8] = ["*", "delete", "get", "head", "options", "patch", "post", "put"];

/// The resources of the verb `impersonate` that are no kinds.
const IDENTITY_RESOURCES: [(&str, &str); 5] = [
    ("", "users"),
    ("", "groups"),
    ("", "serviceaccounts"),
    ("authentication.k8s.io", "userextras"),
    ("authentication.k8s.io", "uids"),
];

/// Whether a verb has a meaning for any of these kinds: in rules, or as the right to an action.
pub fn is_verb(verb: &str, kinds: &[&dyn AnyKind]) -> bool {
    let of_action = |right: ActionRight| match right {
        ActionRight::OnSubresourceAs(named) | ActionRight::OnObject(named) => named == verb,
        ActionRight::OnSubresource | ActionRight::GetObject => false,
    };
    let mut actions = kinds.iter().flat_map(|kind| kind.info().actions);
    VERBS.contains(&verb) || actions.any(|action| of_action(action.right))
}

/// Which part of a question about a resource does not exist among these kinds; `None` if all parts do.
pub fn unknown_in(
    verb: &str,
    group: &str,
    resource: &str,
    kinds: &[&dyn AnyKind],
) -> Option<String> {
    if !is_verb(verb, kinds) {
        return Some(format!("{NONE_SUCH}verb {}", printable(verb)));
    }
    let (plural, _) = resource.split_once('/').unwrap_or((resource, ""));
    let is_kind = kinds.iter().map(|kind| kind.info()).any(|info| {
        (group == ALL || info.version.group == group) && (plural == ALL || info.plural == plural)
    });
    if is_kind || plural.is_empty() || IDENTITY_RESOURCES.contains(&(group, plural)) {
        return None;
    }
    let group = if group.is_empty() { "core".to_owned() } else { printable(group) };
    Some(format!("{NONE_SUCH}resource {} in the group {group}", printable(plural)))
}

/// Whether the verb of a question about a path exists, as [`unknown_in`] says it.
pub fn unknown_verb_of_path(verb: &str) -> Option<String> {
    let is_known = PATH_VERBS.contains(&verb);
    (!is_known).then(|| format!("{NONE_SUCH}verb {} of a path", printable(verb)))
}

/// The begin of a text of the caller's, in one line.
fn printable(text: &str) -> String {
    text.chars().take(MAX_NAME_CHARS).flat_map(char::escape_debug).collect()
}

/// Whether a request is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "io.k8s.api.authorization.v1.SubjectAccessReviewStatus")]
pub struct AccessStatus {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// Whether the request is denied, even if something else allows it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub denied: bool,
    /// Why the request is allowed or not.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The error, if the decision could not be made.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub evaluation_error: String,
}

/// The identity of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "io.k8s.api.authentication.v1.UserInfo")]
pub struct UserInfo {
    /// The name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username: String,
    /// The uid.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub groups: Vec<String>,
    /// Further facts about the user.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Adds an error for metadata of a review, which is not stored, in upstream's words. That of a request in a namespace
/// names it.
fn validate_metadata(metadata: &ObjectMeta, is_namespaced: bool, errors: &mut FieldErrors) {
    let allowed = ObjectMeta {
        namespace: metadata.namespace.clone(),
        managed_fields: metadata.managed_fields.clone(),
        ..ObjectMeta::default()
    };
    if *metadata != allowed || (!is_namespaced && !metadata.namespace.is_empty()) {
        let except = if is_namespaced { " except for namespace" } else { "" };
        let detail = format!("must be empty{except}");
        errors.push(FieldError::invalid("metadata", BadValue::Omitted, detail));
    }
}

/// Adds an error unless exactly one request is asked about, in upstream's words.
fn validate_request(
    resource: Option<&ResourceAttributes>,
    path: Option<&NonResourceAttributes>,
    errors: &mut FieldErrors,
) {
    let (field, detail) = match (resource, path) {
        (Some(_), Some(_)) => (
            "spec.nonResourceAttributes",
            "cannot be specified in combination with resourceAttributes",
        ),
        (None, None) => (
            "spec.resourceAttributes",
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        _ => return,
    };
    errors.push(FieldError::invalid(field, BadValue::Omitted, detail));
}

/// Adds an error unless the review names a user, by name, groups or access key, and exactly one request.
fn validate_subject(spec: &SubjectSpec, errors: &mut FieldErrors) {
    let (resource, path) =
        (spec.resource_attributes.as_ref(), spec.non_resource_attributes.as_ref());
    validate_request(resource, path, errors);
    let names_key = spec.extra.contains_key("platform.sh/access-key");
    if spec.user.is_empty() && spec.groups.is_empty() && !names_key {
        let detail = "at least one of user or group must be specified";
        errors.push(FieldError::invalid("spec.user", "", detail));
    }
    errors.check_count("spec.groups", spec.groups.len(), crate::names::MAX_IDENTITIES);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_exist_is_named() {
        let management = crate::MANAGEMENT_V1.group;
        for verb in VERBS {
            for kind in crate::all() {
                let info = kind.info();
                assert_eq!(unknown_in(verb, info.version.group, info.plural, crate::all()), None);
            }
        }
        for (group, resource) in [
            ("*", "*"),
            (management, "*"),
            ("*", "users"),
            ("", "groups"),
            ("", "namespaces/status"),
            ("", ""),
        ] {
            assert_eq!(unknown_in("*", group, resource, crate::all()), None, "{resource}");
        }
        // The verb of an action alone, which the role of agents has.
        assert_eq!(unknown_in("connect", management, "clusters/tunnel", crate::all()), None);
        for (verb, group, resource, wanted) in [
            ("gett", "", "namespaces", "there is no verb gett"),
            ("connects", "management.platform.sh", "clusters/tunnel", "there is no verb connects"),
            ("Get", "", "namespaces", "there is no verb Get"),
            ("", "", "namespaces", "there is no verb "),
            ("get", "", "pods", "there is no resource pods in the group core"),
            ("get", "apps", "*", "there is no resource * in the group apps"),
            ("get", management, "secrest", "there is no resource secrest in the group management"),
            ("get", "x\n", "y", "there is no resource y in the group x\\n"),
        ] {
            let said = unknown_in(verb, group, resource, crate::all()).unwrap();
            assert!(said.starts_with(wanted) && said.starts_with(NONE_SUCH), "{said}");
        }
        assert_eq!(unknown_verb_of_path("get"), None);
        assert_eq!(unknown_verb_of_path("list").unwrap(), "there is no verb list of a path");
    }
}
