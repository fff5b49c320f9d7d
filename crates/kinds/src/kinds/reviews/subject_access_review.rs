//! SubjectAccessReview (authorization.k8s.io/v1): may a given user do this?

use super::{
    AUTHORIZATION_V1, AccessStatus, REVIEW, SubjectSpec, answered_by, validate_metadata,
    validate_subject,
};
use crate::prelude::*;

/// The kind.
pub struct SubjectAccessReview;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<SubjectSpec, AccessStatus>;

impl Kind for SubjectAccessReview {
    type Spec = SubjectSpec;
    type Status = AccessStatus;

    const INFO: Info = Info {
        version: AUTHORIZATION_V1,
        kind: "SubjectAccessReview",
        plural: "subjectaccessreviews",
        singular: "subjectaccessreview",
        actions: &[answered_by(Review::SubjectAccess, "Whether a user has a permission.")],
        description: "SubjectAccessReview asks whether a user may do something.",
        ..REVIEW
    };

    fn validate(write: &Write<'_, Fields>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        validate_subject(write.spec(), errors);
        validate_metadata(&write.new.metadata, false, errors);
        Ok(())
    }
}
