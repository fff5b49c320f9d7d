//! A record as one line of JSON, written field by field.
//!
//! Every request writes a record. serde_json looks at each byte of each name and text; the names are known here, and
//! most texts need no escape, which is seen for many bytes at once. The rare parts are still encoded by serde_json.

use std::io::Write as _;

use serde::Serialize;

use super::event::{Event, ObjectRef, ResponseStatus};

/// Bytes that a record without bodies usually has.
const USUAL_BYTES: usize = 1536;

/// A record as its line in the log, which ends in a newline.
pub(super) fn line_of(event: &Event<'_>) -> Vec<u8> {
    let mut line = Line(Vec::with_capacity(USUAL_BYTES));
    line.open("{");
    line.text("kind", "Event");
    line.text("apiVersion", "audit.k8s.io/v1");
    line.text("level", event.level.as_str());
    line.text("auditID", event.audit_id);
    line.text("stage", event.stage.as_str());
    line.text("requestURI", &event.request_uri);
    line.text("verb", event.verb);
    line.raw("user", event.user.get());
    if let Some(user) = &event.impersonated_user {
        line.value("impersonatedUser", user);
    }
    if !event.source_ips.is_empty() {
        line.name("sourceIPs");
        line.open("[");
        for address in &event.source_ips {
            line.separate();
            // Writing to memory cannot fail.
            let _ = write!(line.0, "\"{address}\"");
        }
        line.close("]");
    }
    line.text_unless_empty("userAgent", &event.user_agent);
    if let Some(object) = &event.object_ref {
        object_ref(&mut line, object);
    }
    if let Some(status) = &event.response_status {
        response_status(&mut line, status);
    }
    if let Some(object) = &event.request_object {
        line.value("requestObject", object);
    }
    if let Some(object) = &event.response_object {
        line.value("responseObject", object);
    }
    line.plain("requestReceivedTimestamp", &event.request_received_timestamp.text());
    line.plain("stageTimestamp", &event.stage_timestamp.text());
    if !event.annotations.is_empty() {
        line.name("annotations");
        line.open("{");
        for (name, text) in &event.annotations {
            line.text(name, text);
        }
        line.close("}");
    }
    line.close("}\n");
    line.0
}

fn object_ref(line: &mut Line, object: &ObjectRef<'_>) {
    line.name("objectRef");
    line.open("{");
    line.text("resource", &object.resource);
    line.text_if_any("namespace", object.namespace.as_deref());
    line.text_if_any("name", object.name.as_deref());
    line.text_unless_empty("uid", object.uid);
    line.text_unless_empty("apiGroup", object.api_group);
    line.text("apiVersion", object.api_version);
    line.text_if_any("subresource", object.subresource.as_deref());
    line.close("}");
}

fn response_status(line: &mut Line, status: &ResponseStatus<'_>) {
    line.name("responseStatus");
    line.open("{");
    line.raw("metadata", "{}");
    line.text_unless_empty("status", status.status);
    line.text_unless_empty("message", &status.message);
    line.text_unless_empty("reason", status.reason);
    line.name("code");
    // Writing to memory cannot fail.
    let _ = write!(line.0, "{}", status.code);
    line.close("}");
}

/// JSON that is being written. Names are of the program's own, and need no escape.
struct Line(Vec<u8>);

impl Line {
    fn open(&mut self, bracket: &str) {
        self.0.extend_from_slice(bracket.as_bytes());
    }

    fn close(&mut self, bracket: &str) {
        self.0.extend_from_slice(bracket.as_bytes());
    }

    /// A comma, unless nothing stands before in the same brackets.
    fn separate(&mut self) {
        if !matches!(self.0.last(), Some(b'{' | b'[') | None) {
            self.0.push(b',');
        }
    }

    fn name(&mut self, name: &str) {
        self.separate();
        self.0.push(b'"');
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
    }

    fn raw(&mut self, name: &str, json: &str) {
        self.name(name);
        self.0.extend_from_slice(json.as_bytes());
    }

    /// Bytes without a character that JSON escapes.
    fn plain(&mut self, name: &str, bytes: &[u8]) {
        self.name(name);
        self.0.push(b'"');
        self.0.extend_from_slice(bytes);
        self.0.push(b'"');
    }

    fn text(&mut self, name: &str, text: &str) {
        if needs_escape(text) {
            self.value(name, text);
        } else {
            self.plain(name, text.as_bytes());
        }
    }

    fn text_if_any(&mut self, name: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(name, text);
        }
    }

    fn text_unless_empty(&mut self, name: &str, text: &str) {
        self.text_if_any(name, Some(text).filter(|text| !text.is_empty()));
    }

    fn value(&mut self, name: &str, value: &(impl Serialize + ?Sized)) {
        self.name(name);
        // Writing to memory cannot fail.
        let _ = serde_json::to_writer(&mut self.0, value);
    }
}

/// Whether JSON escapes a character of a text. Without an early return, the compiler looks at many bytes at once.
fn needs_escape(text: &str) -> bool {
    text.bytes().fold(false, |found, byte| found | (byte < 0x20) | (byte == b'"') | (byte == b'\\'))
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use postern_meta::time::MicroTimestamp;
    use proptest::prelude::*;
    use serde_json::Value;

    use super::super::event::{UserInfo, user_json};
    use super::super::policy::{Level, Stage};
    use super::*;

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-z0-9/._-]{0,40}",
            any::<String>(),
            "[\"\\\\\u{0}-\u{1f}é\u{7f}\u{2028}]{0,8}"
        ]
    }

    proptest! {
        /// The line is the JSON that serde_json makes of the same texts, in one line.
        #[test]
        fn every_text_comes_back(uri in text(), agent in text(), name in text(), message in text(), why in text()) {
            let time = MicroTimestamp::from_unix_microseconds(1_700_000_000_123_456);
            let user = user_json(&UserInfo::default());
            let event = Event {
                level: Level::Metadata,
                audit_id: "id",
                stage: Stage::ResponseComplete,
                request_uri: Cow::Borrowed(&uri),
                verb: "get",
                user: &user,
                impersonated_user: Some(UserInfo { username: Cow::Borrowed(&why), ..UserInfo::default() }),
                source_ips: vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
                user_agent: Cow::Borrowed(&agent),
                object_ref: Some(ObjectRef {
                    resource: Cow::Borrowed("sharedsecrets"),
                    namespace: None,
                    name: Some(Cow::Borrowed(&name)),
                    uid: "",
                    api_group: "management.platform.sh",
                    api_version: "v1",
                    subresource: None,
                }),
                response_status: Some(ResponseStatus {
                    message: Cow::Borrowed(&message),
                    ..ResponseStatus::of_failure(403, "")
                }),
                request_object: Some(Value::from(why.as_str())),
                response_object: None,
                request_received_timestamp: time,
                stage_timestamp: time,
                annotations: [("platform.sh/x", Cow::Borrowed(why.as_str()))].into(),
            };
            let line = line_of(&event);
            prop_assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            let read: Value = serde_json::from_slice(&line).unwrap();
            prop_assert_eq!(&read["requestURI"], uri.as_str());
            prop_assert_eq!(read["userAgent"].as_str().unwrap_or_default(), agent.as_str());
            prop_assert_eq!(&read["objectRef"]["name"], name.as_str());
            prop_assert!(read["objectRef"].get("uid").is_none());
            prop_assert_eq!(read["responseStatus"]["message"].as_str().unwrap_or_default(), message.as_str());
            prop_assert_eq!(&read["responseStatus"]["code"], 403);
            prop_assert_eq!(&read["annotations"]["platform.sh/x"], why.as_str());
            prop_assert_eq!(&read["requestObject"], why.as_str());
            prop_assert_eq!(&read["sourceIPs"][1], "2001:db8::1");
            prop_assert_eq!(&read["stageTimestamp"], "2023-11-14T22:13:20.123456Z");
        }
    }
}
