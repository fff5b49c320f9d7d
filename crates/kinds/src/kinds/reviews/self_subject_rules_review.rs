//! SelfSubjectRulesReview (authorization.k8s.io/v1): the permissions of the caller in a namespace.

use super::{AUTHORIZATION_V1, REVIEW, answered_by};
use crate::prelude::*;

/// The kind.
pub struct SelfSubjectRulesReview;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec, Status>;

/// The namespace that is asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "io.k8s.api.authorization.v1.SelfSubjectRulesReviewSpec")]
pub struct Spec {
    /// The namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// The permissions of the caller there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "io.k8s.api.authorization.v1.SubjectRulesReviewStatus")]
pub struct Status {
    /// The permissions on resources.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub resource_rules: Vec<ResourceRule>,
    /// The permissions on paths that are no resources.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub non_resource_rules: Vec<NonResourceRule>,
    /// Whether the caller may do more than is listed.
    pub incomplete: bool,
    /// The error, if not all rules could be found.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub evaluation_error: String,
}

/// A permission on resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "io.k8s.api.authorization.v1.ResourceRule")]
pub struct ResourceRule {
    /// Verbs; `*` is every verb.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub verbs: Vec<String>,
    /// API groups; `*` is every group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub api_groups: Vec<String>,
    /// Resources, and subresources as `resource/subresource`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub resources: Vec<String>,
    /// Names of objects; none given means every object.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub resource_names: Vec<String>,
}

/// A permission on paths that are no resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "io.k8s.api.authorization.v1.NonResourceRule")]
pub struct NonResourceRule {
    /// Methods in lower case; `*` is every method.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub verbs: Vec<String>,
    /// Paths; `*` may be the last character.
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub non_resource_urls: Vec<String>,
}

impl Kind for SelfSubjectRulesReview {
    type Spec = Spec;
    type Status = Status;

    const INFO: Info = Info {
        version: AUTHORIZATION_V1,
        kind: "SelfSubjectRulesReview",
        plural: "selfsubjectrulesreviews",
        singular: "selfsubjectrulesreview",
        actions: &[answered_by(
            Review::SelfSubjectRules,
            "The permissions of the caller in a namespace.",
        )],
        description: "SelfSubjectRulesReview asks what the caller may do in a namespace.",
        ..REVIEW
    };

    fn validate(write: &Write<'_, Fields>, _errors: &mut FieldErrors) -> Result<(), ApiError> {
        if write.spec().namespace.is_empty() {
            return Err(ApiError::bad_request("no namespace on request"));
        }
        Ok(())
    }
}
