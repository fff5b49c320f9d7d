//! ResourceAccessReview: the subjects with a permission. Kubernetes has no such review.

use super::{REVIEW, answered_by};
use crate::prelude::*;

/// The kind.
pub struct ResourceAccessReview;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec, Status>;

/// The request that is asked about: to a resource, or to a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(
    rename = "sh.platform.management.v1.ResourceAccessReviewSpec",
    extend("required" = ["verb"])
)]
pub struct Spec {
    /// The verb; for a path, the method in lower case.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub verb: String,
    /// The API group; empty for the core group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The plural name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// The subresource; empty for the object itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
    /// The object's name; empty for all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The namespace; empty for all namespaces, and for a resource without.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// A path that is no resource, instead of a resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
}

impl Spec {
    /// Adds an error for each invalid field. `path` is the path of the request.
    pub(super) fn validate(&self, path: &str, errors: &mut FieldErrors) {
        if self.verb.is_empty() {
            errors.push(FieldError::required(format!("{path}.verb"), ""));
        }
        let of_resource =
            [&self.group, &self.resource, &self.subresource, &self.name, &self.namespace];
        if self.path.is_empty() && self.resource.is_empty() {
            let detail = "name a resource or a path";
            errors.push(FieldError::required(format!("{path}.resource"), detail));
        }
        if !self.path.is_empty() && of_resource.iter().any(|field| !field.is_empty()) {
            let detail = "may not be given with a resource";
            errors.push(FieldError::forbidden(format!("{path}.path"), detail));
        }
    }
}

/// The users, teams and other subjects that can.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.ResourceAccessReviewStatus")]
pub struct Status {
    /// All subjects with the permission.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub subjects: Vec<AllowedSubject>,
    /// Whether the list is complete.
    pub complete: bool,
    /// Why the list may be incomplete.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub incomplete_reason: String,
}

/// A subject that can.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.AllowedSubject")]
pub struct AllowedSubject {
    /// User, Team, Group, `AccessKey`, Subject or `ClusterWide`. `ClusterWide` is one row for all that have
    /// the permission by a role in the whole server. Callers without a role for this review get it.
    pub kind: String,
    /// The name.
    pub name: String,
    /// How many users are in the group or team, where that is known; for `ClusterWide`, how many subjects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// The sources of the permission, for people: roles, bindings, access rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub via: Vec<String>,
}

impl Kind for ResourceAccessReview {
    type Spec = Spec;
    type Status = Status;

    const INFO: Info = Info {
        kind: "ResourceAccessReview",
        plural: "resourceaccessreviews",
        singular: "resourceaccessreview",
        actions: &[answered_by(Review::ResourceAccess, "The subjects that hold a permission.")],
        description: "ResourceAccessReview asks who can do something.",
        ..REVIEW
    };

    fn validate(write: &Write<'_, Fields>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        write.spec().validate("spec", errors);
        Ok(())
    }
}
