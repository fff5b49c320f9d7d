//! SelfSubjectReview in `authentication.k8s.io/v1beta1`: the same as in v1, for clients from before
//! Kubernetes 1.28.

use super::AUTHENTICATION_V1BETA1;
use super::self_subject_review::{Fields, SelfSubjectReview, TopLevel};
use crate::prelude::*;

/// The kind.
pub struct SelfSubjectReviewV1Beta1;

impl Kind for SelfSubjectReviewV1Beta1 {
    type Spec = TopLevel;
    type Status = NoStatus;

    const INFO: Info = Info { version: AUTHENTICATION_V1BETA1, ..SelfSubjectReview::INFO };

    fn prepare(new: &mut Draft<Fields>, old: Option<&Draft<Fields>>, ctx: &Context<'_>) {
        SelfSubjectReview::prepare(new, old, ctx);
    }
}
