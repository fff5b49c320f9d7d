//! Access reviews at a target. A caller may do there what the target allows *and* the scope of their key
//! lets through (`docs/reference/scopes.md#where-it-holds`). If the scope denies it, the target is not
//! asked.

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use postern_auth::attributes::Attributes;
use postern_auth::kube_request::path_attributes;
use postern_auth::policy::RulesOf;
use postern_kinds::reviews::self_subject_rules_review::Status;
use postern_kinds::reviews::{AccessStatus, self_subject_access_review};
use postern_meta::decode::{Decoded, decode_typed};
use postern_meta::status::ApiError;
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::place::Found;
use super::send::{SendContext, forward};
use crate::stages::authorize::{GatewayPermit, refused_at_target};
use crate::stages::flow::budget::Charge;
use crate::wire::body::{Body, Guards};
use crate::wire::encode;
use crate::wire::input::{self, RequestBody};
use crate::wire::respond;

/// The most bytes of a target's answer to a review that are read.
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// A review whose answer depends on what gets to the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    Access,
    Rules,
}

/// The kind of review that a request is; `None` for other requests, and where all requests get to the
/// target.
pub(super) fn of(permit: &GatewayPermit, found: &Found) -> Option<Asked> {
    let is_narrowed = permit.credential().bearer().is_scoped() || found.is_space();
    let attributes = permit.request().kube.attributes();
    let Attributes::Resource { verb: "create", group, resource, subresource: "", .. } = attributes
    else {
        return None;
    };
    match resource {
        _ if !is_narrowed || group != "authorization.k8s.io" => None,
        "selfsubjectaccessreviews" => Some(Asked::Access),
        "selfsubjectrulesreviews" => Some(Asked::Rules),
        _ => None,
    }
}

/// The answer to a review.
///
/// # Errors
/// 400, 413 and 415 for a review that cannot be read; those of sending it on.
pub(super) async fn answer(
    context: SendContext<'_>,
    permit: GatewayPermit,
    found: Found,
    asked: Asked,
    body: RequestBody,
    charge: Charge,
) -> Result<Response<Body>, ApiError> {
    let received = body.read(charge).await?;
    let Decoded { mut value, duplicates } = input::decode_body(permit.parsed(), &received)?;
    if let Some(field) = duplicates.first() {
        // The target could read the other occurrence.
        return Err(ApiError::bad_request(format!("{field} is in the review more than once")));
    }
    let pretty = encode::wants_pretty(permit.parsed()).unwrap_or(false);
    let own = |mut value: Value, status: Value| {
        value["status"] = status;
        Ok(respond::value(StatusCode::CREATED, &value, pretty))
    };
    let policy = context.registry.cache().policy();
    match asked {
        Asked::Access => {
            if let Some(reason) = refused(&policy, &permit, &found, &value)? {
                let status = AccessStatus { allowed: false, reason, ..AccessStatus::default() };
                return own(value, encoded(&status)?);
            }
            let (request, guards) = (permit.request().clone(), Guards::default());
            let answer =
                forward(context, permit, found, |head| rewritten(head, &value), &guards).await?;
            Ok(respond::proxied(answer, &request.kube, guards))
        }
        Asked::Rules => {
            let namespace = value["spec"]["namespace"].as_str().unwrap_or_default().to_owned();
            let place = found.place();
            let credential = permit.credential().clone();
            if found.is_space() && place.space_namespace != Some(namespace.as_str()) {
                return own(value, encoded(&Status { incomplete: true, ..Status::default() })?);
            }
            let (request, guards) = (permit.request().clone(), Guards::default());
            let of_place = found.clone();
            let answer =
                forward(context, permit, found, |head| rewritten(head, &value), &guards).await?;
            if answer.status() != StatusCode::CREATED {
                return Ok(respond::proxied(answer, &request.kube, guards));
            }
            value = read(answer).await?;
            let status: Status = field(&value, "status");
            let evaluation_error = status.evaluation_error.clone();
            let rules = RulesOf::from(status);
            let identity = credential.identity();
            let cut = policy.rules_at_target(identity, &of_place.place(), &namespace, rules);
            let status = encoded(&Status { evaluation_error, ..Status::from(cut) })?;
            own(value, status)
        }
    }
}

/// Why a review of access is answered with no.
fn refused(
    policy: &crate::cache::PolicyAt,
    permit: &GatewayPermit,
    found: &Found,
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
        // The target says what is wrong with it.
        (None, None) => return Ok(None),
    };
    Ok(refused_at_target(policy, permit.credential(), found.place(), attributes))
}

fn field<T: DeserializeOwned + Default>(of: &Value, name: &str) -> T {
    of.get(name).and_then(|value| T::deserialize(value).ok()).unwrap_or_default()
}

fn encoded(status: &impl serde::Serialize) -> Result<Value, ApiError> {
    serde_json::to_value(status).map_err(|error| ApiError::internal("a review", error))
}

/// Writes a review anew, so that the target reads what was read here, and asks for an answer that can be
/// read.
fn rewritten(head: &mut HeaderMap, review: &Value) -> Full<Bytes> {
    let json = HeaderValue::from_static("application/json");
    head.insert(CONTENT_TYPE, json.clone());
    head.insert(ACCEPT, json);
    head.remove(ACCEPT_ENCODING);
    Full::new(Bytes::from(review.to_string()))
}

async fn read(answer: Response<postern_proxy::ProxyBody>) -> Result<Value, ApiError> {
    let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
    let broken =
        |error| ApiError::new(502, postern_meta::status::Reason::Unknown, BROKEN).with_inner(error);
    let bytes = body.map_err(|error| broken(error.to_string()))?.to_bytes();
    decode_typed(&bytes).map_err(|error| broken(error.to_string()))
}

const BROKEN: &str = "the target's answer to the review cannot be read";
