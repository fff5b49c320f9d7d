//! Access reviews through the agent. A caller may do in the cluster only what the cluster allows *and* the
//! scope of the key lets through (`docs/reference/scopes.md#where-it-holds`). If the scope denies it, the
//! cluster is not asked.

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use postern_auth::attributes::{Attributes, RequestTarget};
use postern_auth::identity::Identity;
use postern_auth::kube_request::{KubeRequest, path_attributes};
use postern_auth::policy::target::{TargetPlace, TargetRequest};
use postern_auth::policy::{Policy, RulesOf};
use postern_kinds::reviews::self_subject_rules_review::Status;
use postern_kinds::reviews::{AccessStatus, self_subject_access_review};
use postern_meta::accept::content_type_of_body;
use postern_meta::decode::{decode_body, decode_typed};
use postern_meta::status::{ApiError, Reason};
use postern_proxy::ProxyBody;
use serde::Deserialize as _;
use serde_json::Value;

use crate::answer::{Body, whole};

/// The most bytes of a review, and of an answer to one.
const MAX_REVIEW_BYTES: usize = 256 * 1024;
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// A review whose answer depends on what gets to the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    Access,
    Rules,
}

/// The kind of review that a request is; `None` for all others, and where everything gets to the
/// target.
pub(crate) fn of(
    identity: &Identity,
    place: &TargetPlace<'_>,
    kube: &KubeRequest,
) -> Option<Asked> {
    let is_space = matches!(place.target, RequestTarget::ProjectSpace { .. });
    let Attributes::Resource { verb: "create", group, resource, subresource: "", .. } =
        kube.attributes()
    else {
        return None;
    };
    match resource {
        _ if group != "authorization.k8s.io" || !(identity.is_scoped() || is_space) => None,
        "selfsubjectaccessreviews" => Some(Asked::Access),
        "selfsubjectrulesreviews" => Some(Asked::Rules),
        _ => None,
    }
}

/// Reads a review.
///
/// # Errors
/// 415, 413 and 400 for what is none.
pub(crate) async fn read(head: &Parts, body: Incoming) -> Result<Value, ApiError> {
    let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    // kubectl sends reviews in protobuf, and does not fall back on 415.
    let format = content_type_of_body(content_type)?;
    let read = Limited::new(body, MAX_REVIEW_BYTES).collect().await;
    let bytes = read.map_err(|_| ApiError::body_too_large(MAX_REVIEW_BYTES))?.to_bytes();
    let decoded = decode_body(&bytes, format)
        .map_err(|error| ApiError::bad_request(format!("the review cannot be read: {error}")))?;
    match decoded.duplicates.first() {
        // The cluster could read the second value.
        Some(field) => {
            Err(ApiError::bad_request(format!("{field} is in the review more than once")))
        }
        None => Ok(decoded.value),
    }
}

/// The review as it is sent on: written anew, so that the cluster reads what was read here.
pub(crate) fn rewritten(head: &mut Parts, review: &Value) -> Bytes {
    let json = HeaderValue::from_static("application/json");
    head.headers.insert(CONTENT_TYPE, json.clone());
    head.headers.insert(ACCEPT, json);
    head.headers.remove(ACCEPT_ENCODING);
    head.headers.remove(CONTENT_LENGTH);
    Bytes::from(review.to_string())
}

/// Why a review of access is answered with no; `None` when the cluster decides.
///
/// # Errors
/// 400 for a review that cannot be read.
pub(crate) fn refused(
    policy: &Policy,
    identity: &Identity,
    place: TargetPlace<'_>,
    review: &Value,
) -> Result<Option<String>, ApiError> {
    let spec = review.get("spec").map(self_subject_access_review::Spec::deserialize).transpose();
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
        // The cluster says what is wrong with it.
        (None, None) => return Ok(None),
    };
    let decided = policy.decide_at_target(identity, &TargetRequest::of_review(place, attributes));
    Ok(decided.err().map(|refusal| refusal.to_string()))
}

/// A review with the answer that something is refused.
pub(crate) fn denied(review: Value, reason: String) -> Response<Body> {
    let status = AccessStatus { allowed: false, reason, ..AccessStatus::default() };
    answered(review, serde_json::to_value(status).unwrap_or_default())
}

/// A review of rules, with those that get to the target of the cluster's answer.
///
/// # Errors
/// 502 for an answer that cannot be read.
pub(crate) async fn cut(
    policy: &Policy,
    identity: &Identity,
    place: &TargetPlace<'_>,
    review: Value,
    answer: Response<ProxyBody>,
) -> Result<Response<Body>, ApiError> {
    let broken = |error: String| {
        let message = "the cluster's answer to the review cannot be read";
        ApiError::new(502, Reason::Unknown, message).with_inner(error)
    };
    let read = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
    let bytes = read.map_err(|error| broken(error.to_string()))?.to_bytes();
    let value: Value = decode_typed(&bytes).map_err(|error| broken(error.to_string()))?;
    let status = value.get("status").and_then(|status| Status::deserialize(status).ok());
    let status = status.unwrap_or_default();
    let evaluation_error = status.evaluation_error.clone();
    let namespace = review["spec"]["namespace"].as_str().unwrap_or_default();
    let rules = policy.rules_at_target(identity, place, namespace, RulesOf::from(status));
    let status = Status { evaluation_error, ..Status::from(rules) };
    Ok(answered(review, serde_json::to_value(status).unwrap_or_default()))
}

fn answered(mut review: Value, status: Value) -> Response<Body> {
    review["status"] = status;
    let mut response = Response::new(whole(review.to_string()));
    *response.status_mut() = StatusCode::CREATED;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
