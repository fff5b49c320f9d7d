//! Failures as text, in a format for snapshots.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::http::Response;

/// A Status as text: its code and reason, its message, its details. Fields that are the same in
/// every failure are checked here and left out.
#[must_use]
pub fn failure(reply: &Response) -> String {
    assert_eq!(reply.header("content-type"), Some("application/json"), "{}", reply.text());
    assert!(reply.header("audit-id").is_some(), "every response has an Audit-Id");
    failure_of(&reply.json(), reply.status)
}

/// Like [`failure`], for a Status that is not a response, such as one in an event.
#[must_use]
pub fn failure_of(status: &Value, code: u16) -> String {
    let mut rest = status.clone();
    let fields = rest.as_object_mut().unwrap_or_else(|| panic!("not an object: {status}"));
    let mut take = |name: &str| fields.remove(name).unwrap_or(Value::Null);
    assert_eq!(take("kind"), "Status");
    assert_eq!(take("apiVersion"), "v1");
    let metadata = take("metadata");
    assert_eq!(take("status"), "Failure");
    assert_eq!(take("code"), code, "the Status has the code of the response");
    let (reason, message, details) = (take("reason"), take("message"), take("details"));
    assert_eq!(rest, json!({}), "fields that a Status does not have");
    let mut text = format!("{code} {}\n", reason.as_str().unwrap_or("without a reason"));
    writeln!(text, "{}", message.as_str().expect("a Status has a message")).unwrap();
    if metadata != json!({}) {
        writeln!(text, "metadata: {metadata}").unwrap();
    }
    if !details.is_null() {
        writeln!(text, "{details}").unwrap();
    }
    text
}
