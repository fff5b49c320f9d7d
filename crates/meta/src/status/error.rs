//! The API's error type: every way in which a request can fail, with the code,
//! reason and text that clients of this protocol know.
//!
//! An error has two parts. The Status is sent to the caller; the inner message
//! is for the log, and nothing in this crate ever serialises it.

use std::fmt;

use super::{Reason, Status, StatusCause, StatusDetails};
use crate::field::FieldErrors;
use crate::gvk::{GroupKind, GroupResource};
use crate::quote::quote;

/// The message for a list with pages that can no longer be consistent.
const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a \
    consistent list result. You can start a new list without the continue parameter, or use the \
    continue token in this response to retrieve the remainder of the results. Continuing with the \
    provided token results in an inconsistent list - objects that were created, modified, or \
    deleted between the time the first chunk was returned and now may show up in the list.";

/// The message for an update that was made from an older state.
const MODIFIED: &str = "the object has been modified; please apply your changes to the latest \
    version and try again";

/// A failed request: a Status for the caller and, where the log needs more, an
/// inner message.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiError(Box<Parts>);

/// Boxed, so that a `Result` with this error stays small.
#[derive(Clone, PartialEq, Eq)]
struct Parts {
    status: Status,
    inner: Option<String>,
}

impl ApiError {
    /// An error without details. Prefer the constructors for each case.
    pub fn new(code: u16, reason: Reason, message: impl Into<String>) -> Self {
        Self::from(Status::failure(code, reason, message))
    }

    fn detailed(code: u16, reason: Reason, message: String, details: StatusDetails) -> Self {
        let mut error = Self::new(code, reason, message);
        error.0.status.details = Some(details);
        error
    }

    /// Adds the inner message, for the log and not for the caller.
    #[must_use]
    pub fn with_inner(mut self, inner: impl fmt::Display) -> Self {
        self.0.inner = Some(inner.to_string());
        self
    }

    /// Adds a cause to the details.
    #[must_use]
    pub fn with_cause(mut self, cause: StatusCause) -> Self {
        self.0.status.details.get_or_insert_default().causes.push(cause);
        self
    }

    /// The HTTP status code.
    pub fn code(&self) -> u16 {
        self.0.status.code
    }

    /// The machine-readable reason.
    pub fn reason(&self) -> Reason {
        self.0.status.reason
    }

    /// The status for the caller.
    pub fn status(&self) -> &Status {
        &self.0.status
    }

    /// The status for the caller, without the inner message.
    pub fn into_status(self) -> Status {
        self.0.status
    }

    /// The seconds for the `Retry-After` header, if the caller should retry.
    pub fn retry_after_seconds(&self) -> Option<u32> {
        let details = self.0.status.details.as_ref()?;
        Some(details.retry_after_seconds).filter(|seconds| *seconds > 0)
    }

    /// The inner message, for the log only.
    pub fn inner(&self) -> Option<&str> {
        self.0.inner.as_deref()
    }
}

/// Errors of the request, its credential and its path: 400, 401, 403 and 404.
impl ApiError {
    /// 400: the request cannot be understood.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, Reason::BadRequest, message)
    }

    /// 401: the caller is unknown. An empty message becomes upstream's `Unauthorized`, which tells
    /// the caller only as much as the code does.
    pub fn unauthorized(message: impl Into<String>) -> Self {
        let message = message.into();
        let text = if message.is_empty() { "Unauthorized".to_owned() } else { message };
        Self::new(401, Reason::Unauthorized, text)
    }

    /// 403 on an object or, with an empty `name`, on a collection. `message` names the caller and
    /// the denied request. The whole text is HTML-escaped, since it holds names that the caller
    /// chose.
    pub fn forbidden(resource: GroupResource, name: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        let text = match (resource.resource, name) {
            ("", _) => format!("forbidden: {message}"),
            (_, "") => format!("{resource} is forbidden: {message}"),
            _ => format!("{resource} {} is forbidden: {message}", quote(name)),
        };
        let details = StatusDetails::of(resource, name);
        Self::detailed(403, Reason::Forbidden, html_escape(&text), details)
    }

    /// The error with a sentence more at the end of its message.
    #[must_use]
    pub fn with_hint(mut self, hint: &str) -> Self {
        self.0.status.message += &html_escape(&format!(": {hint}"));
        self
    }

    /// 403 on a path that is not a resource.
    pub fn forbidden_path(user: &str, verb: &str, path: &str) -> Self {
        let message = format!("User {} cannot {verb} path {}", quote(user), quote(path));
        Self::forbidden(GroupResource::new("", ""), "", message)
    }

    /// 403: nothing can be created in a namespace that is being deleted.
    /// Controllers look for the cause, and stop retrying.
    pub fn namespace_terminating(resource: GroupResource, name: &str, namespace: &str) -> Self {
        let message = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        Self::forbidden(resource, name, message).with_cause(StatusCause {
            reason: "NamespaceTerminating".to_owned(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        })
    }

    /// 404: no object of this name.
    pub fn not_found(resource: GroupResource, name: &str) -> Self {
        let message = format!("{resource} {} not found", quote(name));
        Self::detailed(404, Reason::NotFound, message, StatusDetails::of(resource, name))
    }

    /// 404: no such resource, or no such path.
    pub fn resource_not_served() -> Self {
        let message = "the server could not find the requested resource".to_owned();
        Self::detailed(404, Reason::NotFound, message, StatusDetails::default())
    }
}

/// Errors of the stored state: 409 and 410.
impl ApiError {
    /// 409: the name is taken.
    pub fn already_exists(resource: GroupResource, name: &str) -> Self {
        let message = format!("{resource} {} already exists", quote(name));
        Self::detailed(409, Reason::AlreadyExists, message, StatusDetails::of(resource, name))
    }

    /// 409: an apply would change what other managers own, with a cause for each field.
    pub fn apply_conflict(message: String, causes: Vec<StatusCause>) -> Self {
        let details = StatusDetails { causes, ..StatusDetails::default() };
        Self::detailed(409, Reason::Conflict, message, details)
    }

    /// 409: the name is taken by an object that is being deleted.
    pub fn already_exists_deleting(resource: GroupResource, name: &str) -> Self {
        let mut error = Self::already_exists(resource, name);
        error.0.status.message.insert_str(0, "object is being deleted: ");
        error
    }

    /// 409: every generated name that was tried is taken. A retry generates
    /// others.
    pub fn generate_name_conflict(resource: GroupResource, name: &str) -> Self {
        let message = format!(
            "{resource} {} already exists, the server was not able to generate a unique name for \
             the object",
            quote(name)
        );
        let details = StatusDetails { retry_after_seconds: 1, ..StatusDetails::of(resource, name) };
        Self::detailed(409, Reason::AlreadyExists, message, details)
    }

    /// 409: the object is not in the state that the request assumes.
    pub fn conflict(resource: GroupResource, name: &str, message: impl fmt::Display) -> Self {
        let text =
            format!("Operation cannot be fulfilled on {resource} {}: {message}", quote(name));
        Self::detailed(409, Reason::Conflict, text, StatusDetails::of(resource, name))
    }

    /// 409: the object has changed since the caller read it.
    pub fn conflict_modified(resource: GroupResource, name: &str) -> Self {
        Self::conflict(resource, name, MODIFIED)
    }

    /// 410: the requested revision is no longer kept; the caller must list again.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, Reason::Expired, message)
    }

    /// 410: a list's next page is no longer available at the first page's
    /// revision. `new_token` continues from the same key at the current one.
    pub fn expired_continue(new_token: String) -> Self {
        let mut error = Self::expired(CONTINUE_EXPIRED);
        error.0.status.metadata.continue_token = new_token;
        error
    }
}

/// Errors about the content and the form of a request: 405, 406, 413, 415 and 422.
impl ApiError {
    /// 405: the resource exists, but not this verb on it.
    pub fn method_not_allowed(resource: GroupResource, action: &str) -> Self {
        let message = format!(
            "{action} is not supported on resources of kind {}",
            quote(&resource.to_string())
        );
        Self::detailed(405, Reason::MethodNotAllowed, message, StatusDetails::of(resource, ""))
    }

    /// 406: the caller accepts none of the media types that are `offered`.
    pub fn not_acceptable(offered: &[&str]) -> Self {
        let list = offered.join(", ");
        let message = format!("only the following media types are accepted: {list}");
        Self::new(406, Reason::NotAcceptable, message)
    }

    /// 413: `message` follows upstream's first words.
    pub fn request_entity_too_large(message: impl fmt::Display) -> Self {
        let text = format!("Request entity too large: {message}");
        Self::new(413, Reason::RequestEntityTooLarge, text)
    }

    /// 413: the body has more than `limit_bytes`.
    pub fn body_too_large(limit_bytes: usize) -> Self {
        Self::request_entity_too_large(format_args!("limit is {limit_bytes}"))
    }

    /// 415: the body's media type is none of the `accepted` ones.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, Reason::UnsupportedMediaType, message)
    }

    /// 422: the object breaks rules, each of which becomes a cause.
    pub fn invalid(kind: GroupKind, name: &str, errors: FieldErrors) -> Self {
        let message = format!("{kind} {} is invalid: {errors}", quote(name));
        let causes = errors
            .into_iter()
            .map(|error| StatusCause {
                reason: error.kind.cause_reason().to_owned(),
                message: error.body(),
                field: error.path,
            })
            .collect();
        let details = StatusDetails {
            name: name.to_owned(),
            group: kind.group.to_owned(),
            kind: kind.kind.to_owned(),
            causes,
            ..StatusDetails::default()
        };
        Self::detailed(422, Reason::Invalid, message, details)
    }

    /// 422: the request is well formed and cannot be carried out, such as a patch with a `test`
    /// that fails. `cause` says where; it must hold no value.
    pub fn unprocessable(cause: impl Into<String>) -> Self {
        let message = "the server rejected our request due to an error in our request".to_owned();
        let details = StatusDetails::default();
        Self::detailed(422, Reason::Invalid, message, details).with_cause(StatusCause {
            reason: "UnexpectedServerResponse".to_owned(),
            message: cause.into(),
            field: "patch".to_owned(),
        })
    }
}

/// Failures of the server: 429 and 5xx.
impl ApiError {
    /// 429: too many requests, or too much work, from this caller or in total.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        let details = StatusDetails { retry_after_seconds, ..StatusDetails::default() };
        Self::detailed(429, Reason::TooManyRequests, message.into(), details)
    }

    /// 500: a fault of the server. The caller sees `outer`, the log `inner` too.
    pub fn internal(outer: &str, inner: impl fmt::Display) -> Self {
        let cause = StatusCause { message: outer.to_owned(), ..StatusCause::default() };
        Self::new(500, Reason::InternalError, format!("Internal error occurred: {outer}"))
            .with_cause(cause)
            .with_inner(inner)
    }

    /// 503: the server cannot serve now. With `retry_after_seconds` clients retry without a user,
    /// so never give one for a write with an unknown outcome.
    pub fn unavailable(message: impl Into<String>, retry_after_seconds: Option<u32>) -> Self {
        let mut error = Self::new(503, Reason::ServiceUnavailable, message);
        error.0.status.details = retry_after_seconds
            .map(|seconds| StatusDetails { retry_after_seconds: seconds, ..Default::default() });
        error
    }

    /// 504: the request took too long; it may still complete.
    pub fn timeout(message: impl fmt::Display) -> Self {
        let text = format!("Timeout: {message}");
        Self::detailed(504, Reason::Timeout, text, StatusDetails::default())
    }

    /// 504: the caller asks for a later revision than this server has seen.
    pub fn too_large_resource_version(wanted: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {wanted}, current: {current}");
        let mut error = Self::timeout(message).with_cause(StatusCause {
            reason: "ResourceVersionTooLarge".to_owned(),
            message: "Too large resource version".to_owned(),
            field: String::new(),
        });
        error.0.status.details.get_or_insert_default().retry_after_seconds = 1;
        error
    }
}

impl From<Status> for ApiError {
    fn from(status: Status) -> Self {
        Self(Box::new(Parts { status, inner: None }))
    }
}

/// The message of the Status.
impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.status.message)
    }
}

/// With the inner message, for the log.
impl fmt::Debug for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("ApiError");
        out.field("code", &self.code());
        out.field("reason", &self.reason());
        out.field("message", &self.0.status.message);
        out.field("inner", &self.0.inner);
        out.finish()
    }
}

impl std::error::Error for ApiError {}

/// Escapes `&`, `<` and `>` in `text`, so that a browser that displays the message does not take a part of it for
/// markup.
pub fn html_escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests;
