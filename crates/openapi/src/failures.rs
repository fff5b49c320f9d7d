//! The failures of each operation: their codes and meanings. The body is a Status. They are components, named by their
//! reasons, because nearly all operations have nearly all of them.

use postern_kinds::Verb;
use serde_json::{Map, Value, json};

/// A failure: the code, the reason, and the meaning.
type Failure = (&'static str, &'static str, &'static str);

/// The failures of any request.
const ANY: &[Failure] = &[
    ("400", "BadRequest", "The request is malformed or contradictory."),
    ("401", "Unauthorized", "The access key is missing, unknown, expired or disabled."),
    ("403", "Forbidden", "The caller, or the scope of the access key, has no permission."),
    ("404", "NotFound", "The object does not exist, or the caller has no permission to get it."),
    ("406", "NotAcceptable", "The server cannot respond in the requested format."),
    (
        "409",
        "Conflict",
        "The object exists already, or has changed, or other managers own its fields; or the caller's permissions have changed.",
    ),
    ("422", "Invalid", "Options or fields are invalid. The causes name each field."),
    (
        "429",
        "TooManyRequests",
        "There are too many requests. Retry after the seconds in Retry-After.",
    ),
    ("500", "InternalError", "The server failed."),
    (
        "503",
        "ServiceUnavailable",
        "The server cannot serve the request now. Retry after the seconds in Retry-After, if it is set.",
    ),
    ("504", "Timeout", "The request did not complete within its timeout."),
];

/// The additional failures of a list, and of the deletion of a collection.
const LIST: &[Failure] = &[("410", "Expired", "The requested version or page is compacted.")];

/// The additional failures of a write.
const WRITE: &[Failure] = &[
    ("413", "RequestEntityTooLarge", "The body is too long."),
    ("415", "UnsupportedMediaType", "The server does not support the format of the body."),
];

/// The failures as components. `content` is the content of a Status.
pub(super) fn components(content: &Value) -> Value {
    let all = [ANY, LIST, WRITE].into_iter().flatten();
    all.map(|(_, reason, what)| {
        ((*reason).to_owned(), json!({ "description": what, "content": content }))
    })
    .collect::<Map<_, _>>()
    .into()
}

/// Adds the failures of an operation to its responses.
pub(super) fn add(responses: &mut Value, verb: Verb) {
    let more: &[&[Failure]] = match verb {
        Verb::Get => &[],
        Verb::List | Verb::Watch => &[LIST],
        Verb::Create | Verb::Update | Verb::Patch | Verb::Delete => &[WRITE],
        Verb::DeleteCollection => &[LIST, WRITE],
    };
    let failures = ANY.iter().chain(more.iter().copied().flatten()).map(|(code, reason, _)| {
        ((*code).to_owned(), json!({ "$ref": format!("#/components/responses/{reason}") }))
    });
    if let Some(responses) = responses.as_object_mut() {
        responses.extend(failures);
    }
}

/// The response of an operation in version 2. Of the failures, only 401 is included: older clients download the whole
/// document often, and do not use the failures.
pub(super) fn in_v2(code: &str, response: &Value) -> Option<Value> {
    if response.get("$ref").is_none() {
        return Some(response.clone());
    }
    let (_, _, what) = ANY.iter().find(|(of, _, _)| *of == code && code == "401")?;
    Some(json!({ "description": what }))
}
