//! The agent's own answers: Kubernetes Statuses, and a word for the checks of health.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use http_body::{Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use postern_meta::status::{ApiError, Reason};
use postern_proxy::{BoxError, DeliveredBody, ProxyBody, ProxyError, UNREACHABLE};

use crate::rare_line::RareLines;
use crate::state::Refused;

/// The body of an answer.
pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;

/// A body that is completely in memory.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// The body of a response of the cluster, sent as it arrives.
pub(crate) fn proxied(body: ProxyBody, is_watch: bool) -> Body {
    if is_watch {
        return Watch(body).boxed_unsync();
    }
    DeliveredBody::new(body).map_err(Into::into).boxed_unsync()
}

/// The response to a watch. It ends cleanly with its session or with the cluster. Its client then
/// watches again, and gets the reason. A response that breaks off is an error for the client.
struct Watch(ProxyBody);

impl http_body::Body for Watch {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.0).poll_frame(cx).map(|frame| match frame {
            Some(Err(ProxyError::SessionEnded(_) | ProxyError::Lost { .. })) => None,
            frame => frame.map(|frame| frame.map_err(Into::into)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// The answer to a check of health, which has a problem or none.
pub(crate) fn health(problem: Option<String>) -> Response<Body> {
    let (code, text) = match problem {
        None => (StatusCode::OK, "ok".to_owned()),
        Some(problem) => (StatusCode::SERVICE_UNAVAILABLE, problem),
    };
    let mut response = Response::new(whole(text));
    *response.status_mut() = code;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

/// An error as a Status.
pub(crate) fn status(error: &ApiError) -> Response<Body> {
    let text = error.status().to_value().to_string();
    let mut response = Response::new(whole(text));
    let code = StatusCode::from_u16(error.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = error.retry_after_seconds() {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if code == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// The error of a rejected request. It does not contain the reason why a token is invalid.
pub(crate) fn refused(refused: &Refused) -> ApiError {
    match refused {
        Refused::NotConfigured | Refused::Offline => {
            ApiError::unavailable(refused.to_string(), Some(10))
        }
        Refused::Token(_) => ApiError::unauthorized("Unauthorized"),
        Refused::Target(_) | Refused::Unsendable => forbidden(refused.to_string()),
    }
}

/// The 401 for a caller that sends an access key: the agent knows no keys.
pub(crate) fn wants_token() -> ApiError {
    ApiError::unauthorized(
        "this is an access key, and the direct endpoint of a cluster takes endpoint tokens: get one by \
         `postern token`, or by creating a DirectClusterEndpointToken at the central server",
    )
}

/// A 403.
pub(crate) fn forbidden(message: impl Into<String>) -> ApiError {
    ApiError::new(403, Reason::Forbidden, message)
}

/// Requests that could not be sent on, by target: a tenant can cause those to a virtual cluster.
static UNREACHED: RareLines = RareLines::new();

/// The error of a request that could not be sent on to a target, which is in words. Where the target is,
/// callers need not know.
pub(crate) fn failed(error: ProxyError, target: &'static str) -> ApiError {
    let message = match &error {
        ProxyError::BadRequest(_) | ProxyError::ClientGone => {
            return ApiError::bad_request(error.to_string());
        }
        ProxyError::SessionEnded(_) | ProxyError::Draining | ProxyError::Overloaded { .. } => {
            return ApiError::unavailable(error.to_string(), Some(1));
        }
        ProxyError::Redirect { .. } => {
            format!("{target} answered with a redirect to another place")
        }
        _ => {
            UNREACHED.write(target, |left_out| {
                tracing::warn!(left_out, "{target} could not be reached: {error}");
            });
            format!("{target} {UNREACHABLE}")
        }
    };
    let reason = match error.status() {
        StatusCode::SERVICE_UNAVAILABLE => Reason::ServiceUnavailable,
        _ => Reason::Unknown,
    };
    ApiError::new(error.status().as_u16(), reason, message).with_inner(error)
}
