//! One record: Kubernetes' `Event` of `audit.k8s.io/v1`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use http::Uri;
use percent_encoding::percent_decode_str;
use postern_auth::identity::Identity;
use postern_kinds::access_key;
use postern_meta::status::Status;
use postern_meta::time::MicroTimestamp;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::policy::{Level, Stage};
use crate::stages::parse::ResourceTarget;

/// Bytes of a record without bodies, about.
const USUAL_BYTES: usize = 1536;

/// Under which key the name of an access key stands: with the user who showed it, or, where nobody
/// could be let in, among the annotations.
pub(super) const ACCESS_KEY: &str = "platform.sh/access-key";

/// What stands instead of what must not be recorded.
const LEFT_OUT: &str = "(left-out)";

/// Bytes of a user agent, and of a path with its query, that are recorded of somebody with a key.
const MAX_AGENT_BYTES: usize = 1024;
const MAX_URI_BYTES: usize = 16 * 1024;

/// Bytes of either that are recorded of somebody without: he can send as many as he likes.
const MAX_STRANGE_BYTES: usize = 256;

/// Stands where the rest was cut off.
const CUT: &str = "(cut)";

/// The parameters whose values are words of the API and numbers.
const WORDS: &[&str] = &[
    "allowWatchBookmarks",
    "dryRun",
    "fieldValidation",
    "force",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "includeObject",
    "limit",
    "orphanDependents",
    "pretty",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeout",
    "timeoutSeconds",
    "watch",
];

/// Bytes of the longest of these words, with room to spare.
const MAX_WORD_BYTES: usize = 24;

/// The parameters whose values are texts, and recorded as they are. What stands in others may be
/// anything.
const TEXTS: &[&str] = &["continue", "fieldManager", "fieldSelector", "labelSelector"];

/// A record.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event<'a> {
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
    pub(super) level: Level,
    #[serde(rename = "auditID")]
    pub(super) audit_id: &'a str,
    pub(super) stage: Stage,
    #[serde(rename = "requestURI")]
    pub(super) request_uri: Cow<'a, str>,
    pub(super) verb: &'a str,
    pub(super) user: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) impersonated_user: Option<UserInfo<'a>>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    pub(super) source_ips: Vec<IpAddr>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) user_agent: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) object_ref: Option<ObjectRef<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_status: Option<ResponseStatus<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_object: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_object: Option<Value>,
    pub(super) request_received_timestamp: MicroTimestamp,
    pub(super) stage_timestamp: MicroTimestamp,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<&'static str, Cow<'a, str>>,
}

/// Somebody. Empty for whoever could not be let in. What of it came from outside is clean.
#[derive(Default, Serialize)]
pub(super) struct UserInfo<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) username: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) uid: Cow<'a, str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) groups: Vec<Cow<'a, str>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) extra: BTreeMap<Cow<'a, str>, Vec<Cow<'a, str>>>,
}

impl<'a> UserInfo<'a> {
    /// Whoever showed a key; which one it was stands beside him.
    fn of_bearer(identity: &'a Identity) -> Self {
        let key = vec![Cow::Borrowed(identity.access_key.as_str())];
        let extra = BTreeMap::from([(Cow::Borrowed(ACCESS_KEY), key)]);
        Self { extra, ..Self::of(identity) }
    }

    /// Whom somebody acts as.
    pub(super) fn of(identity: &'a Identity) -> Self {
        let all = |texts: &'a Vec<String>| texts.iter().map(|text| clean(text)).collect();
        Self {
            username: clean(&identity.name),
            uid: clean(&identity.uid),
            groups: all(&identity.groups),
            extra: identity.extra.iter().map(|(key, texts)| (clean(key), all(texts))).collect(),
        }
    }
}

/// Whoever showed a key, as he stands in a record.
pub(super) fn bearer_json(identity: &Identity) -> Box<RawValue> {
    user_json(&UserInfo::of_bearer(identity))
}

pub(super) fn user_json(user: &UserInfo<'_>) -> Box<RawValue> {
    // Writing to memory cannot fail.
    to_raw_value(user).unwrap_or_default()
}

/// What a request is about.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectRef<'a> {
    resource: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_group: &'static str,
    api_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    subresource: Option<&'static str>,
}

/// The namespace that a request is about: of a Namespace, that is its own name, as upstream.
pub(super) fn namespace_of(target: &ResourceTarget) -> Option<&str> {
    let info = target.kind.info();
    let is_namespace = info.version.group.is_empty() && info.plural == "namespaces";
    if is_namespace { target.name.as_deref() } else { target.namespace.as_deref() }
}

/// The object that a request made, or was about without naming it in its path.
#[derive(Debug, Default)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) uid: String,
}

impl<'a> ObjectRef<'a> {
    pub(super) fn of(target: &'a ResourceTarget, named: &'a Named) -> Self {
        let version = target.kind.info().version;
        let name = target.name.as_deref().or(Some(named.name.as_str()));
        Self {
            resource: target.kind.info().plural,
            namespace: namespace_of(target).map(clean),
            name: name.filter(|name| !name.is_empty()).map(clean),
            uid: &named.uid,
            api_group: version.group,
            api_version: version.version,
            subresource: Some(target.subresource()).filter(|name| !name.is_empty()),
        }
    }
}

/// What came of it.
#[derive(Serialize)]
pub(super) struct ResponseStatus<'a> {
    metadata: Empty,
    #[serde(skip_serializing_if = "str::is_empty")]
    status: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    code: u16,
}

#[derive(Serialize)]
struct Empty {}

impl<'a> ResponseStatus<'a> {
    /// An answer.
    pub(super) fn of_code(code: u16) -> Self {
        Self { metadata: Empty {}, status: "", message: Cow::Borrowed(""), reason: "", code }
    }

    /// A refusal or a failure.
    pub(super) fn of(status: &'a Status) -> Self {
        Self {
            status: "Failure",
            message: clean(&status.message),
            reason: status.reason.as_str(),
            ..Self::of_code(status.code)
        }
    }

    /// None at all.
    pub(super) fn none(code: u16, message: &'a str) -> Self {
        let message = Cow::Borrowed(message);
        Self { status: "Failure", message, ..Self::of_code(code) }
    }
}

/// A text without access keys in it, however they are encoded.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    Cow::Borrowed(if may_hold_key(text) { LEFT_OUT } else { text })
}

/// A body without access keys in it.
pub(super) fn clean_value(value: &mut Value) {
    match value {
        Value::String(text) if may_hold_key(text) => LEFT_OUT.clone_into(text),
        Value::Array(values) => values.iter_mut().for_each(clean_value),
        Value::Object(fields) => {
            if fields.keys().any(|name| may_hold_key(name)) {
                let clean_name = |(name, value): (String, _)| (clean(&name).into_owned(), value);
                *fields = std::mem::take(fields).into_iter().map(clean_name).collect();
            }
            fields.values_mut().for_each(clean_value);
        }
        _ => {}
    }
}

fn may_hold_key(text: &str) -> bool {
    let decoded = || percent_decode_str(text).decode_utf8_lossy();
    text.contains(access_key::PREFIX)
        || (text.contains('%') && decoded().contains(access_key::PREFIX))
}

/// What a client calls itself.
pub(super) fn agent(text: &str, is_known: bool) -> Cow<'_, str> {
    cut(clean(text), if is_known { MAX_AGENT_BYTES } else { MAX_STRANGE_BYTES })
}

fn cut(text: Cow<'_, str>, max_bytes: usize) -> Cow<'_, str> {
    if text.len() <= max_bytes {
        return text;
    }
    let end = (0..=max_bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    Cow::Owned(format!("{}{CUT}", &text[..end]))
}

/// The path and what is known of the query.
pub(super) fn shown_uri(uri: &Uri, is_known: bool) -> Cow<'_, str> {
    cut(whole_uri(uri), if is_known { MAX_URI_BYTES } else { MAX_STRANGE_BYTES })
}

fn whole_uri(uri: &Uri) -> Cow<'_, str> {
    let path = clean(uri.path());
    let Some(query) = uri.query().filter(|query| !query.is_empty()) else { return path };
    let mut shown = path.into_owned();
    for (place, pair) in query.split('&').enumerate() {
        shown.push(if place == 0 { '?' } else { '&' });
        shown.push_str(if is_shown(pair) { pair } else { LEFT_OUT });
    }
    Cow::Owned(shown)
}

fn is_shown(pair: &str) -> bool {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    let is_word = value.len() <= MAX_WORD_BYTES && value.bytes().all(|b| b.is_ascii_alphanumeric());
    (WORDS.contains(&name) && is_word) || (TEXTS.contains(&name) && !may_hold_key(value))
}

/// A record as its line in the log.
pub(super) fn line_of(event: &Event<'_>) -> Vec<u8> {
    let mut line = Vec::with_capacity(USUAL_BYTES);
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(&mut line, event);
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_of_a_query_is_shown() {
        for (uri, want) in [
            ("/a/b", "/a/b"),
            ("/a?", "/a"),
            ("/a?limit=5&watch", "/a?limit=5&watch"),
            ("/a?access_token=x&limit=5", "/a?(left-out)&limit=5"),
            ("/a?whatever", "/a?(left-out)"),
            ("/a?limit=not-a-number-but-a-secret", "/a?(left-out)"),
            ("/a?resourceVersionMatch=NotOlderThan", "/a?resourceVersionMatch=NotOlderThan"),
            ("/a?labelSelector=k%3Dv", "/a?labelSelector=k%3Dv"),
            ("/a?labelSelector=k%3Dpst_x", "/a?(left-out)"),
            ("/a?labelSelector=k%3D%70st%5Fx", "/a?(left-out)"),
            ("/a/pst_x?limit=1", "(left-out)?limit=1"),
        ] {
            assert_eq!(shown_uri(&uri.parse().unwrap(), true), want, "{uri}");
        }
    }

    #[test]
    fn agents_are_short_and_without_keys() {
        assert_eq!(agent("kubectl/v1.37", false), "kubectl/v1.37");
        assert_eq!(agent("x pst_1", true), LEFT_OUT);
        let long = "é".repeat(600);
        assert_eq!(agent(&long, true).len(), MAX_AGENT_BYTES + CUT.len());
        assert_eq!(agent(&long, false).len(), MAX_STRANGE_BYTES + CUT.len());
    }

    #[test]
    fn a_stranger_cannot_fill_the_log_with_his_query() {
        let uri = format!("/a?labelSelector={}", "x".repeat(10_000)).parse().unwrap();
        assert_eq!(shown_uri(&uri, false).len(), MAX_STRANGE_BYTES + CUT.len());
        assert!(shown_uri(&uri, true).len() > 10_000);
    }

    #[test]
    fn keys_are_taken_out_of_whatever_is_recorded() {
        let mut body = serde_json::json!({ "a": ["x", { "b": "pst_1", "pst_2": 1 }], "c": 1 });
        clean_value(&mut body);
        assert_eq!(body, serde_json::json!({ "a": ["x", { "b": LEFT_OUT, LEFT_OUT: 1 }], "c": 1 }));
    }
}
