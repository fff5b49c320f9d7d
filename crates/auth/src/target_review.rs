//! Access reviews at a target. A caller has the permissions that the target allows *and* that the
//! scope of the key allows (`docs/reference/scopes.md#where-it-holds`). If the scope denies a
//! request, the target is not asked. The central server and an agent answer these reviews in the
//! same way.

use postern_kinds::reviews::self_subject_rules_review::Status;
use postern_kinds::reviews::{AccessStatus, self_subject_access_review};
use postern_meta::status::ApiError;
use serde::{Deserialize as _, Serialize};
use serde_json::Value;

use crate::attributes::{Attributes, RequestTarget};
use crate::identity::Identity;
use crate::kube_request::{KubeRequest, path_attributes};
use crate::policy::target::{ResolvedTarget, TargetRequest};
use crate::policy::{Policy, RulesOf};

/// A review with a result that depends on the requests that reach the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TargetReview {
    /// A `SelfSubjectAccessReview`.
    Access,
    /// A `SelfSubjectRulesReview`.
    Rules,
}

impl TargetReview {
    /// The review that a request is; `None` for other requests, and if every request of the caller gets to the
    /// target.
    pub fn of(is_scoped: bool, place: &ResolvedTarget<'_>, kube: &KubeRequest) -> Option<Self> {
        let Attributes::Resource { verb: "create", group, resource, subresource: "", .. } =
            kube.attributes()
        else {
            return None;
        };
        match resource {
            _ if group != "authorization.k8s.io" || !(is_scoped || is_space(place)) => None,
            "selfsubjectaccessreviews" => Some(Self::Access),
            "selfsubjectrulesreviews" => Some(Self::Rules),
            _ => None,
        }
    }

    /// The status of a review that is answered without the target; `None` if the target is asked.
    ///
    /// # Errors
    /// 400 for a review that cannot be read.
    pub fn status_without_target(
        self,
        policy: &Policy,
        identity: &Identity,
        place: ResolvedTarget<'_>,
        review: &Value,
    ) -> Result<Option<Value>, ApiError> {
        if self == Self::Rules {
            let is_elsewhere = is_space(&place) && place.space_namespace != Some(namespace(review));
            let nothing = || encoded(&Status { incomplete: true, ..Status::default() });
            return is_elsewhere.then(nothing).transpose();
        }
        let spec =
            review.get("spec").map(self_subject_access_review::Spec::deserialize).transpose();
        let spec = spec.map_err(|error| ApiError::bad_request(format!("spec: {error}")))?;
        let spec = spec.unwrap_or_default();
        let attributes = match (&spec.resource_attributes, &spec.non_resource_attributes) {
            (Some(of), _) => Attributes::Resource {
                verb: &of.verb,
                group: &of.group,
                resource: &of.resource,
                subresource: &of.subresource,
                namespace: &of.namespace,
                name: &of.name,
            },
            (None, Some(of)) => path_attributes(&of.verb, &of.path),
            // The target reports the error in the review.
            (None, None) => return Ok(None),
        };
        let asked = TargetRequest::of_review(place, attributes);
        let Err(refusal) = policy.decide_at_target(identity, &asked) else { return Ok(None) };
        let reason = refusal.to_string();
        encoded(&AccessStatus { allowed: false, reason, ..AccessStatus::default() }).map(Some)
    }
}

/// The status of a review of rules: those of the target's answer that the caller's requests reach.
///
/// # Errors
/// 500 when it cannot be encoded: a bug.
pub fn narrowed_rules(
    policy: &Policy,
    identity: &Identity,
    place: &ResolvedTarget<'_>,
    review: &Value,
    answer: &Value,
) -> Result<Value, ApiError> {
    let status = answer.get("status").and_then(|status| Status::deserialize(status).ok());
    let status = status.unwrap_or_default();
    let evaluation_error = status.evaluation_error.clone();
    let rules = RulesOf::from(status);
    let rules = policy.rules_at_target(identity, place, namespace(review), rules);
    encoded(&Status { evaluation_error, ..Status::from(rules) })
}

fn is_space(place: &ResolvedTarget<'_>) -> bool {
    matches!(place.target, RequestTarget::ProjectSpace { .. })
}

fn namespace(review: &Value) -> &str {
    review["spec"]["namespace"].as_str().unwrap_or_default()
}

fn encoded(status: &impl Serialize) -> Result<Value, ApiError> {
    serde_json::to_value(status)
        .map_err(|error| ApiError::internal("a review could not be encoded", error))
}
