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

    const INFO: Info = Info { version: MANAGEMENT_V1, ..SelfSubjectAccessReview::INFO };

    const STRICT_FIELDS: StrictFields = SelfSubjectAccessReview::STRICT_FIELDS;

    fn prepare(new: &mut Draft<Fields>, old: Option<&Draft<Fields>>, ctx: &Context<'_>) {
        SelfSubjectAccessReview::prepare(new, old, ctx);
    }

    fn validate(
        new: &Draft<Fields>,
        old: Option<&Draft<Fields>>,
        ctx: &Context<'_>,
        errors: &mut FieldErrors,
    ) -> Result<(), ApiError> {
        SelfSubjectAccessReview::validate(new, old, ctx, errors)
    }
}
