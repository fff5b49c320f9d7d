//! Access reviews through the agent: how they are read, sent on and answered. `postern_auth::target_review` decides.

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use postern_meta::accept::content_type_of_body;
use postern_meta::decode::{decode_body, decode_typed};
use postern_meta::status::{ApiError, Reason};
use postern_proxy::ProxyBody;
use serde_json::Value;

use crate::answer::{Body, whole};

/// The most bytes of a review, and of an answer to one.
const MAX_REVIEW_BYTES: usize = 256 * 1024;
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// Reads a review.
///
/// # Errors
/// 415, 413 or 400 if the body is not a valid review.
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

/// The review as it is forwarded. It is encoded again, so that the cluster reads the same values as
/// the agent.
pub(crate) fn rewritten(head: &mut Parts, review: &Value) -> Bytes {
    let json = HeaderValue::from_static("application/json");
    head.headers.insert(CONTENT_TYPE, json.clone());
    head.headers.insert(ACCEPT, json);
    head.headers.remove(ACCEPT_ENCODING);
    head.headers.remove(CONTENT_LENGTH);
    Bytes::from(review.to_string())
}

/// Reads the cluster's answer to a review.
///
/// # Errors
/// 502 for an answer that cannot be read.
pub(crate) async fn read_answer(answer: Response<ProxyBody>) -> Result<Value, ApiError> {
    let broken = |error: String| {
        let message = "the cluster's answer to the review cannot be read";
        ApiError::new(502, Reason::Unknown, message).with_inner(error)
    };
    let read = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
    let bytes = read.map_err(|error| broken(error.to_string()))?.to_bytes();
    decode_typed(&bytes).map_err(|error| broken(error.to_string()))
}

/// A review with its answer.
pub(crate) fn answered(mut review: Value, status: Value) -> Response<Body> {
    review["status"] = status;
    let mut response = Response::new(whole(review.to_string()));
    *response.status_mut() = StatusCode::CREATED;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
