//! The Status object, the response to errors and deletions, and its reasons.
//!
//! The errors that become one, with their texts, are in `error.rs`.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::gvk::GroupResource;
use crate::object::{ListMeta, is_default};

mod error;

pub use error::{ApiError, html_escape};

/// The machine-readable reason of a failure. Clients decide by it, more than by
/// the code.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub enum Reason {
    /// 401: no credential, or one that is not valid (any more).
    Unauthorized,
    /// 403: the caller has no right to do this.
    Forbidden,
    /// 404: the object, or the resource, does not exist.
    NotFound,
    /// 409: the name is taken.
    AlreadyExists,
    /// 409: the object is not in the state that the request assumes.
    Conflict,
    /// 410: it existed, and will not return.
    Gone,
    /// 422: the object breaks a rule.
    Invalid,
    /// 500: the server stopped waiting for a service that it depends on.
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
    /// Absent, or unknown to this crate.
    #[default]
    #[serde(rename = "", other)]
    Unknown,
}

impl Reason {
    /// The reason as a Status has it.
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
        // No enum: to clients the set is open.
        schemars::json_schema!({ "type": "string" })
    }
}

/// The outcome of a request that does not return an object.
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
    /// List metadata; its continue token is set when an expired list can be continued.
    #[serde(default)]
    pub metadata: ListMeta,
    /// `Success` or `Failure`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// A description of the result for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The reason, for programs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reason: Reason,
    /// Which object is meant, and the causes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<StatusDetails>,
    /// The HTTP status code, repeated for watches. The response code of a watch was sent earlier.
    #[serde(default, skip_serializing_if = "is_default")]
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
    /// The individual causes, such as one for each invalid field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub causes: Vec<StatusCause>,
    /// How long to wait before trying again, in seconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retry_after_seconds: u32,
}

/// One cause among several.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.k8s.apimachinery.pkg.apis.meta.v1.StatusCause")]
pub struct StatusCause {
    /// The cause, for programs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The cause in words, without the field.
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
    /// The response to a deletion that took effect at once. Clients wait
    /// until no object has the `uid`.
    pub fn success_deleted(resource: GroupResource, name: &str, uid: &str) -> Self {
        let details = StatusDetails { uid: uid.to_owned(), ..StatusDetails::of(resource, name) };
        Self { details: Some(details), ..Self::bare(SUCCESS) }
    }

    /// The Status as one JSON value.
    pub fn to_value(&self) -> Value {
        // A struct of texts and numbers cannot fail to encode.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// A failure with only a code, a reason and a message.
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
    fn reasons_are_encoded_as_their_text() {
        for reason in [Reason::Expired, Reason::ServerTimeout, Reason::Unknown] {
            assert_eq!(serde_json::to_value(reason).unwrap(), json!(reason.as_str()));
        }
    }
}
