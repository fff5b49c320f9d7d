//! The Status object, by which this API answers errors and deletions.
//!
//! Here is its shape and the list of reasons. The errors that become one, with
//! their texts, are in `error.rs`.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::gvk::GroupResource;
use crate::object::ListMeta;

mod error;

pub use error::{ApiError, html_escape};

/// The machine-readable word for what went wrong. Clients decide by it, more
/// than by the code.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub enum Reason {
    /// 401: nobody, or somebody whose credential does not count (any more).
    Unauthorized,
    /// 403: somebody who may not.
    Forbidden,
    /// 404: the object, or the resource, is not there.
    NotFound,
    /// 409: the name is taken.
    AlreadyExists,
    /// 409: the object is not what the caller thinks it is.
    Conflict,
    /// 410: it was there, and will not come back.
    Gone,
    /// 422: the object breaks a rule.
    Invalid,
    /// 500: the server gave up waiting for something behind it.
    ServerTimeout,
    /// 504: the request took too long; it may still complete.
    Timeout,
    /// 429: the caller should wait.
    TooManyRequests,
    /// 400: the request cannot be understood.
    BadRequest,
    /// 405: the resource does not have this verb.
    MethodNotAllowed,
    /// 406: no representation that the caller accepts.
    NotAcceptable,
    /// 413: the body is too large.
    RequestEntityTooLarge,
    /// 415: the body's media type is not understood.
    UnsupportedMediaType,
    /// 500: a fault of the server.
    InternalError,
    /// 410: the revision asked for is no longer kept.
    Expired,
    /// 503: the server cannot serve now.
    ServiceUnavailable,
    /// Not said, or a word this crate does not know.
    #[default]
    #[serde(rename = "", other)]
    Unknown,
}

impl Reason {
    /// The word as it stands in a Status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::AlreadyExists => "AlreadyExists",
            Self::Conflict => "Conflict",
            Self::Gone => "Gone",
            Self::Invalid => "Invalid",
            Self::ServerTimeout => "ServerTimeout",
            Self::Timeout => "Timeout",
            Self::TooManyRequests => "TooManyRequests",
            Self::BadRequest => "BadRequest",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::NotAcceptable => "NotAcceptable",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::UnsupportedMediaType => "UnsupportedMediaType",
            Self::InternalError => "InternalError",
            Self::Expired => "Expired",
            Self::ServiceUnavailable => "ServiceUnavailable",
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
    fn is_unknown(&self) -> bool {
        *self == Self::Unknown
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl JsonSchema for Reason {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Reason".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        // An open set to clients: no enum.
        schemars::json_schema!({ "type": "string" })
    }
}

/// The outcome of a request that does not answer with an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.k8s.apimachinery.pkg.apis.meta.v1.Status")]
pub struct Status {
    /// Always `Status`.
    #[serde(default)]
    pub kind: String,
    /// Always `v1`.
    #[serde(default)]
    pub api_version: String,
    /// List metadata; its continue token is set when an expired list can go on.
    #[serde(default)]
    pub metadata: ListMeta,
    /// `Success` or `Failure`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// What happened, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What happened, for programs, in one word.
    #[serde(default, skip_serializing_if = "Reason::is_unknown")]
    pub reason: Reason,
    /// What it happened to, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<StatusDetails>,
    /// The HTTP status code again, for watches, whose own code is long sent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub code: u16,
}

/// More about an outcome; which fields are set depends on the reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.k8s.apimachinery.pkg.apis.meta.v1.StatusDetails")]
pub struct StatusDetails {
    /// The object's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The API group of `kind`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The plural resource name, or, when an object is invalid, its kind.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The object's uid, if one object is meant.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The single reasons, such as one for each invalid field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub causes: Vec<StatusCause>,
    /// How long to wait before trying again, in seconds.
    #[serde(default, skip_serializing_if = "is_zero_u32")]
    pub retry_after_seconds: u32,
}

/// One reason among several.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.k8s.apimachinery.pkg.apis.meta.v1.StatusCause")]
pub struct StatusCause {
    /// The reason in one word, for programs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The reason for people, without the field.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The path of the field that is meant.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// `status.status` of an error.
const FAILURE: &str = "Failure";
/// `status.status` of a deletion.
const SUCCESS: &str = "Success";

impl Status {
    /// The answer to a deletion that took effect at once. Clients wait for the
    /// `uid` to be gone.
    pub fn success_deleted(resource: GroupResource, name: &str, uid: &str) -> Self {
        let details = StatusDetails { uid: uid.to_owned(), ..StatusDetails::of(resource, name) };
        Self { details: Some(details), ..Self::bare(SUCCESS) }
    }

    /// The Status as one JSON value.
    pub fn to_value(&self) -> Value {
        // A struct of texts and numbers has nothing that could fail to encode.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// A failure with nothing but its code, reason and message.
    pub fn failure(code: u16, reason: Reason, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), ..Self::bare(FAILURE) }
    }

    fn bare(status: &str) -> Self {
        Self {
            kind: "Status".to_owned(),
            api_version: "v1".to_owned(),
            metadata: ListMeta::default(),
            status: status.to_owned(),
            message: String::new(),
            reason: Reason::Unknown,
            details: None,
            code: 0,
        }
    }
}

impl StatusDetails {
    /// Details that name an object by its resource.
    pub fn of(resource: GroupResource, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            group: resource.group.to_owned(),
            kind: resource.resource.to_owned(),
            ..Self::default()
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(value: &u16) -> bool {
    *value == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero_u32(value: &u32) -> bool {
    *value == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_deletion_names_the_uid() {
        let status = Status::success_deleted(GroupResource::new("g", "things"), "a", "u-1");
        assert_eq!(
            serde_json::to_value(status).unwrap(),
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                "details": {"name": "a", "group": "g", "kind": "things", "uid": "u-1"},
            })
        );
    }

    #[test]
    fn an_unknown_reason_is_read_as_unknown() {
        let status: Status =
            serde_json::from_value(json!({"reason": "FromTheFuture", "code": 499})).unwrap();
        assert_eq!((status.reason, status.code), (Reason::Unknown, 499));
    }

    #[test]
    fn every_reason_is_written_as_its_word() {
        for reason in [Reason::Expired, Reason::ServerTimeout, Reason::Unknown] {
            assert_eq!(serde_json::to_value(reason).unwrap(), json!(reason.as_str()));
        }
    }
}
