//! LocalSubjectAccessReview (authorization.k8s.io/v1): may a given user do this in one namespace?

use super::{
    AUTHORIZATION_V1, AccessStatus, REVIEW, SubjectSpec, answered_by, validate_metadata,
    validate_subject,
};
use crate::prelude::*;

/// The kind.
pub struct LocalSubjectAccessReview;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<SubjectSpec, AccessStatus>;

impl Kind for LocalSubjectAccessReview {
    type Spec = SubjectSpec;
    type Status = AccessStatus;

    const INFO: Info = Info {
        version: AUTHORIZATION_V1,
        kind: "LocalSubjectAccessReview",
        plural: "localsubjectaccessreviews",
        singular: "localsubjectaccessreview",
        scope: ResourceScope::Namespaced,
        actions: &[answered_by(
            Review::SubjectAccess,
            "Whether a user has a permission in the namespace.",
        )],
        description: "LocalSubjectAccessReview asks whether a user may do something in its namespace.",
        ..REVIEW
    };

    fn validate(write: &Write<'_, Fields>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        let &Write { new, .. } = write;
        let spec = write.spec();
        validate_subject(spec, errors);
        validate_metadata(&new.metadata, true, errors);
        let namespace = &new.metadata.namespace;
        let asked = spec.resource_attributes.as_ref().map(|asked| &asked.namespace);
        if let Some(asked) = asked.filter(|asked| *asked != namespace) {
            let path = "spec.resourceAttributes.namespace";
            errors.push(FieldError::invalid(path, asked, "must match metadata.namespace"));
        }
        if spec.non_resource_attributes.is_some() {
            let path = "spec.nonResourceAttributes";
            let detail = "disallowed on this kind of request";
            errors.push(FieldError::invalid(path, BadValue::Omitted, detail));
        }
        Ok(())
    }
}
