//! SelfSubjectAccessReview in our own group: the same as in `authorization.k8s.io/v1`, where clients of the platform look for it:
//! may the caller do this?

use super::AccessStatus;
use super::self_subject_access_review::{self, Fields, SelfSubjectAccessReview};
use crate::prelude::*;

/// The kind.
pub struct PlatformSelfSubjectAccessReview;

impl Kind for PlatformSelfSubjectAccessReview {
    type Spec = self_subject_access_review::Spec;
    type Status = AccessStatus;

    const INFO: Info = Info {
        version: MANAGEMENT_V1,
        strict_fields: Some(StrictFields::NONE),
        ..SelfSubjectAccessReview::INFO
    };

    fn validate(write: &Write<'_, Fields>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        SelfSubjectAccessReview::validate(write, errors)
    }
}
