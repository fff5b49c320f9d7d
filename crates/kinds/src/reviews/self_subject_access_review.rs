//! SelfSubjectAccessReview (authorization.k8s.io/v1): may the caller do this?

use super::{
    AUTHORIZATION_V1, AccessStatus, NonResourceAttributes, ResourceAttributes, answered_by,
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
        verbs: &[Verb::Create],
        actions: &[answered_by(
            ServerAction::SelfSubjectAccessReview,
            "Whether the caller has a permission.",
        )],
        on_command_line: false,
        confidential: false,
        description: "SelfSubjectAccessReview asks whether the caller may do something.",
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
        let spec = &new.fields.spec;
        let (resource, path) = (&spec.resource_attributes, &spec.non_resource_attributes);
        validate_request(resource.as_ref(), path.as_ref(), errors);
        validate_metadata(&new.metadata, false, errors);
        Ok(())
    }
}
