//! SelfSubjectAccessReview (authorization.k8s.io/v1): may the caller do this?

use super::{
    AUTHORIZATION_V1, AccessStatus, NonResourceAttributes, REVIEW, ResourceAttributes, answered_by,
    validate_metadata, validate_request,
};
use crate::prelude::*;

/// The kind.
pub struct SelfSubjectAccessReview;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec, AccessStatus>;

/// The request that is asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "io.k8s.api.authorization.v1.SelfSubjectAccessReviewSpec")]
pub struct Spec {
    /// A request to a resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_attributes: Option<ResourceAttributes>,
    /// A request to a path that is no resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub non_resource_attributes: Option<NonResourceAttributes>,
}

impl Kind for SelfSubjectAccessReview {
    type Spec = Spec;
    type Status = AccessStatus;

    const INFO: Info = Info {
        version: AUTHORIZATION_V1,
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        singular: "selfsubjectaccessreview",
        actions: &[answered_by(Review::SelfSubjectAccess, "Whether the caller has a permission.")],
        description: "SelfSubjectAccessReview asks whether the caller may do something.",
        ..REVIEW
    };

    fn validate(write: &Write<'_, Fields>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        let Spec { resource_attributes, non_resource_attributes } = write.spec();
        let (resource, path) = (resource_attributes.as_ref(), non_resource_attributes.as_ref());
        validate_request(resource, path, errors);
        validate_metadata(&write.new.metadata, false, errors);
        Ok(())
    }
}
