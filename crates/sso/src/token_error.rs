//! Why the token endpoint gives no key, as OAuth has it (RFC 6749 section 5.2).

use super::places::Busy;
use super::refused::{RETRY_AFTER_SECONDS, TOO_MANY, Uncounted};
use http::header::{ALLOW, PRAGMA, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use postern_http::wire::body::Body;
use postern_http::wire::respond;
use postern_meta::status::ApiError;
use postern_registry::actions::exchanges::NoKey;
use serde_json::{Value, json};

/// The seconds after which a client may ask again if something else must change first.
pub(super) const UNAVAILABLE_SECONDS: u32 = 10;

/// Why a request gets no key: the error for the caller (RFC 6749 section 5.2), and the reason for the audit record.
pub(super) struct TokenError {
    pub(super) code: StatusCode,
    pub(super) error: &'static str,
    pub(super) reason: String,
    retry_after_seconds: Option<u32>,
    counting: Counting,
}

/// Whether a refusal counts as a failure of the client's address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counting {
    Counted,
    /// It is no fault of the client: this server or its store is busy, or a person has not decided yet.
    Uncounted,
}

impl TokenError {
    pub(super) fn request(reason: &str) -> Self {
        Self::of(StatusCode::BAD_REQUEST, "invalid_request", reason)
    }

    #[expect(clippy::needless_pass_by_value, reason = "most callers have an error to give away")]
    pub(super) fn of(code: StatusCode, error: &'static str, reason: impl ToString) -> Self {
        let (reason, counting) = (reason.to_string(), Counting::Counted);
        Self { code, error, reason, retry_after_seconds: None, counting }
    }

    /// The refusal of a token. The caller does not learn the reason: the workload identity may
    /// belong to another owner.
    pub(super) fn grant(reason: impl ToString) -> Self {
        Self::of(StatusCode::BAD_REQUEST, "invalid_grant", reason)
    }

    /// This server cannot decide now.
    pub(super) fn unavailable(reason: impl ToString) -> Self {
        Self::later(StatusCode::SERVICE_UNAVAILABLE, reason, UNAVAILABLE_SECONDS).uncounted()
    }

    /// The person has not decided yet.
    pub(super) fn pending() -> Self {
        Self::of(StatusCode::BAD_REQUEST, PENDING, "the login is not allowed yet").uncounted()
    }

    /// An issuer cannot be reached. It counts, because the client has chosen the issuer.
    pub(super) fn of_issuer(reason: impl ToString) -> Self {
        Self::later(StatusCode::SERVICE_UNAVAILABLE, reason, UNAVAILABLE_SECONDS)
    }

    pub(super) fn uncounted(self) -> Self {
        Self { counting: Counting::Uncounted, ..self }
    }

    /// A refusal of now: the same request may succeed after some seconds.
    pub(super) fn later(code: StatusCode, reason: impl ToString, seconds: u32) -> Self {
        let refused = Self::of(code, "temporarily_unavailable", reason);
        Self { retry_after_seconds: Some(seconds), ..refused }
    }

    /// The response. The caller learns no reason of `invalid_grant`.
    pub(super) fn response(self) -> Response<Body> {
        let mut answer = json!({ "error": self.error });
        if self.error != "invalid_grant" {
            answer["error_description"] = Value::String(self.reason);
        }
        let mut response = answered(self.code, &answer);
        if let Some(seconds) = self.retry_after_seconds {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        if self.code == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        }
        if self.counting == Counting::Uncounted {
            response.extensions_mut().insert(Uncounted);
        }
        response
    }
}

/// A response to a request for a key. Old caches know `Pragma` only (RFC 6749 section 5.1).
pub(super) fn answered(code: StatusCode, answer: &Value) -> Response<Body> {
    let mut response = respond::value(code, answer, false);
    response.headers_mut().insert(PRAGMA, HeaderValue::from_static("no-cache"));
    response
}

impl From<&ApiError> for TokenError {
    fn from(error: &ApiError) -> Self {
        let code = StatusCode::from_u16(error.code()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        let seconds = error.retry_after_seconds().unwrap_or(UNAVAILABLE_SECONDS);
        Self::later(code, &error.status().message, seconds).uncounted()
    }
}

impl From<Busy> for TokenError {
    fn from(Busy: Busy) -> Self {
        Self::later(StatusCode::TOO_MANY_REQUESTS, TOO_MANY, RETRY_AFTER_SECONDS).uncounted()
    }
}

impl From<NoKey> for TokenError {
    fn from(no_key: NoKey) -> Self {
        match no_key {
            NoKey::Unusable(why) => Self::grant(why),
            NoKey::Mismatch(mismatch) => Self::grant(mismatch),
            NoKey::TooMany(why) => {
                Self::later(StatusCode::TOO_MANY_REQUESTS, why, UNAVAILABLE_SECONDS).uncounted()
            }
            NoKey::Failed(error) => Self::unavailable(&error.status().message),
        }
    }
}

/// The error before a person has consented (RFC 8628 section 3.5).
pub(super) const PENDING: &str = "authorization_pending";
