//! Access reviews at a target: reads, forwards and answers them. `postern_auth::target_review` decides.

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use postern_auth::target_review::{TargetReview, narrowed_rules};
use postern_flow::budget::Charge;
use postern_meta::decode::{Decoded, decode_typed};
use postern_meta::status::ApiError;
use serde_json::Value;

use super::forward::{SendContext, forward};
use super::target_state::TargetState;
use postern_http::stages::authorize::GatewayPermit;
use postern_http::wire::body::{Body, Guards};
use postern_http::wire::encode;
use postern_http::wire::input::{self, RequestBody};
use postern_http::wire::respond;

/// The maximum length of a target's response to a review, in bytes.
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// The review in a request. `None` for other requests, and if all requests of the caller get to the
/// target.
pub(super) fn of(permit: &GatewayPermit, target: &TargetState) -> Option<TargetReview> {
    let is_scoped = permit.credential().bearer().is_scoped();
    TargetReview::of(is_scoped, &target.resolved(), &permit.request().kube)
}

/// The response to a review.
///
/// # Errors
/// 400, 413 and 415 for an invalid review, and those of forwarding it.
pub(super) async fn answer(
    context: SendContext<'_>,
    permit: GatewayPermit,
    target: TargetState,
    asked: TargetReview,
    body: RequestBody,
    charge: Charge,
) -> Result<Response<Body>, ApiError> {
    let received = body.read(charge).await?;
    let Decoded { value, duplicates } = input::decode_body(permit.parsed(), &received)?;
    if let Some(field) = duplicates.first() {
        // The target could read the other value.
        return Err(ApiError::bad_request(format!("duplicate field \"{field}\" in the review")));
    }
    let pretty = encode::wants_pretty(permit.parsed()).unwrap_or(false);
    let own = |mut value: Value, status: Value| {
        value["status"] = status;
        Ok(respond::value(StatusCode::CREATED, &value, pretty))
    };
    let policy = context.registry.cache().policy();
    let credential = permit.credential().clone();
    let (identity, target_state) = (credential.identity(), target.clone());
    if let Some(status) =
        asked.status_without_target(&policy, identity, target_state.resolved(), &value)?
    {
        return own(value, status);
    }
    let (request, guards) = (permit.request().clone(), Guards::default());
    let answer = forward(context, permit, target, |head| rewritten(head, &value), &guards).await?;
    if asked == TargetReview::Access || answer.status() != StatusCode::CREATED {
        return Ok(respond::proxied(answer, &request.kube, guards));
    }
    let answer = read(answer).await?;
    let status = narrowed_rules(&policy, identity, &target_state.resolved(), &value, &answer)?;
    own(answer, status)
}

/// Encodes a review again, so that the target decodes the same value. Requests a response that can be decoded here.
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

const BROKEN: &str = "the target's response to the review is invalid";
