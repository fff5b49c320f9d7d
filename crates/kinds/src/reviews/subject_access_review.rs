//! SubjectAccessReview (authorization.k8s.io/v1): may a given user do this?

use super::{
    AUTHORIZATION_V1, AccessStatus, SubjectSpec, answered_by, validate_metadata, validate_subject,
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
        verbs: &[Verb::Create],
        actions: &[answered_by(
            ServerAction::SubjectAccessReview,
            "Whether a user has a permission.",
        )],
        on_command_line: false,
        confidential: false,
        description: "SubjectAccessReview asks whether a user may do something.",
        ..Info::DEFAULT
    };

    fn prepare(new: &mut Draft<Fields>, _old: Option<&Draft<Fields>>, _ctx: &Context<'_>) {
        new.fields.status = AccessStatus::default();
    }

    fn validate(
        new: &Draft<Fields>,
        _old: Option<&Draft<Fields>>,
        _ctx: &Context<'_>,
        errors: &mut FieldErrors,
    ) -> Result<(), ApiError> {
        validate_subject(&new.fields.spec, errors);
        validate_metadata(&new.metadata, false, errors);
        Ok(())
    }
}
