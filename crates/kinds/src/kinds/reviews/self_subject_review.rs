//! SelfSubjectReview (authentication.k8s.io/v1): the identity of the caller, in Kubernetes' words.

use super::{AUTHENTICATION_V1, REVIEW, UserInfo, answered_by};
use crate::prelude::*;

/// The kind.
pub struct SelfSubjectReview;

/// The fields next to `metadata`: it has a status and no spec.
pub type Fields = crate::Fields<TopLevel>;

/// The fields of the review.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "io.k8s.api.authentication.v1.SelfSubjectReviewFields")]
pub struct TopLevel {
    /// The identity of the caller.
    pub status: Status,
}

/// The identity of the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "io.k8s.api.authentication.v1.SelfSubjectReviewStatus")]
pub struct Status {
    /// The identity of the caller.
    pub user_info: UserInfo,
}

impl Kind for SelfSubjectReview {
    type Spec = TopLevel;
    type Status = NoStatus;

    const INFO: Info = Info {
        version: AUTHENTICATION_V1,
        kind: "SelfSubjectReview",
        plural: "selfsubjectreviews",
        singular: "selfsubjectreview",
        actions: &[answered_by(Review::SelfSubject, "The identity of the caller.")],
        description: "SelfSubjectReview asks who the caller is.",
        layout: Layout::TopLevel,
        ..REVIEW
    };

    fn prepare(new: &mut Draft<Fields>, _old: Option<&Draft<Fields>>, _ctx: &Context<'_>) {
        new.fields.spec = TopLevel::default();
    }
}
