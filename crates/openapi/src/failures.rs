//! The failures that `OpenAPI` lists for each operation: their codes, and what they mean. The body is a Status. They are
//! components, named by their reasons, because nearly all operations have nearly all of them.

use postern_kinds::Verb;
use serde_json::{Map, Value, json};

/// A failure: its code, its reason, and what it means.
type Failure = (&'static str, &'static str, &'static str);

/// The failures of any request.
const ANY: &[Failure] = &[
    ("400", "BadRequest", "The request cannot be read, or contradicts itself."),
    ("401", "Unauthorized", "The access key is missing, unknown, expired or disabled."),
    ("403", "Forbidden", "The caller, or the scope of their key, may not do this."),
    ("404", "NotFound", "It is not there, or not for the caller to see."),
    ("406", "NotAcceptable", "The format that was asked for is not served."),
    (
        "409",
        "Conflict",
        "It is there already, or has changed, or others own fields of it; or what the caller may do has changed.",
    ),
    ("422", "Invalid", "Options or fields are invalid: the causes name each."),
    ("429", "TooManyRequests", "There are too many requests; Retry-After says when to try again."),
    ("500", "InternalError", "The server has failed."),
    ("503", "ServiceUnavailable", "The server cannot serve this now; Retry-After says when."),
    ("504", "Timeout", "It was not done in time."),
];

/// The additional failures of a list, or of a deletion of what it selects.
const LIST: &[Failure] =
    &[("410", "Expired", "The version or the page that was asked for is no longer kept.")];

/// The additional failures of a write.
const WRITE: &[Failure] = &[
    ("413", "RequestEntityTooLarge", "The body is too long."),
    ("415", "UnsupportedMediaType", "The format of the body is not read."),
];

/// The failures as components. `content` is that of a Status.
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

/// An operation's response as version 2 has it: a failure only if it is the one for a missing key. The
/// readers of version 2 are older clients, which read all of it often, and the failures never.
pub(super) fn in_v2(code: &str, response: &Value) -> Option<Value> {
    if response.get("$ref").is_none() {
        return Some(response.clone());
    }
    let (_, _, what) = ANY.iter().find(|(of, _, _)| *of == code && code == "401")?;
    Some(json!({ "description": what }))
}
