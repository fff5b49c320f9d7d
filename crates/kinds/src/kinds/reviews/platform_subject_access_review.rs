//! SubjectAccessReview in our own group: the same as in `authorization.k8s.io/v1`, where clients of the platform look for it:
//! may a user or group do this?

use super::subject_access_review::{Fields, SubjectAccessReview};
use super::{AccessStatus, SubjectSpec};
use crate::prelude::*;

/// The kind.
pub struct PlatformSubjectAccessReview;

impl Kind for PlatformSubjectAccessReview {
    type Spec = SubjectSpec;
    type Status = AccessStatus;

    const INFO: Info = Info {
        version: MANAGEMENT_V1,
        strict_fields: Some(StrictFields::NONE),
        ..SubjectAccessReview::INFO
    };

    fn validate(write: &Write<'_, Fields>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        SubjectAccessReview::validate(write, errors)
    }
}
