//! An audit record: the `Event` of Kubernetes' `audit.k8s.io/v1`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use http::Uri;
use postern_auth::attributes::Attributes;
use postern_auth::credential_text::may_have_access_key;
use postern_auth::identity::Identity;
use postern_auth::kube_request::KubeRequest;
use postern_meta::status::Status;
use postern_meta::time::MicroTimestamp;
use postern_registry::permit::ResourceTarget;
use postern_registry::registry::ObjectIdentity;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::policy::{Level, Stage, namespace_of};

/// The name of the extra field, or annotation after a failed authentication, with the name of the access key.
pub(super) const ACCESS_KEY: &str = "platform.sh/access-key";

/// The annotation with the name of the server, if several share a store.
pub(super) const SERVER: &str = "platform.sh/server";

/// The text that replaces values that must not be recorded.
const LEFT_OUT: &str = "(left-out)";

/// The most bytes of a user agent, and of a path with its query, for an authenticated sender.
const MAX_AGENT_BYTES: usize = 1024;
const MAX_URI_BYTES: usize = 16 * 1024;

/// The maximum length of each of the two texts for an unauthenticated sender, in bytes. Such a
/// sender can send any number of requests.
const MAX_UNAUTHENTICATED_BYTES: usize = 256;

/// The most bytes of a record of an unauthenticated sender. In a larger record, texts are cut to the lengths below.
pub(super) const MAX_UNAUTHENTICATED_RECORD_BYTES: usize = 1024;
const SHORT_URI_BYTES: usize = 128;
const SHORT_TEXT_BYTES: usize = 48;

/// The addresses in a shortened record: that of the connection, and the last from a proxy.
const SHORT_ADDRESSES: usize = 2;

/// The suffix of a text that was cut.
const CUT: &str = "(cut)";

/// The query parameters with keywords of the API or numbers as values.
const KEYWORD_PARAMETERS: &[&str] = &[
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

/// The maximum length of the value of such a parameter, in bytes. All keywords are shorter.
const MAX_KEYWORD_BYTES: usize = 24;

/// The query parameters with values that are recorded unchanged. The values of other parameters may
/// be secret, and are not recorded.
const TEXT_PARAMETERS: &[&str] = &["continue", "fieldManager", "fieldSelector", "labelSelector"];

/// An audit record of the kind `Event` of `audit.k8s.io/v1`. The line omits empty optional fields.
pub(super) struct Event<'a> {
    pub(super) level: Level,
    pub(super) audit_id: &'a str,
    pub(super) stage: Stage,
    pub(super) request_uri: Cow<'a, str>,
    pub(super) verb: &'a str,
    pub(super) user: &'a RawValue,
    pub(super) impersonated_user: Option<UserInfo<'a>>,
    pub(super) source_ips: Cow<'a, [IpAddr]>,
    pub(super) user_agent: Cow<'a, str>,
    pub(super) object_ref: Option<ObjectRef<'a>>,
    pub(super) response_status: Option<ResponseStatus<'a>>,
    pub(super) request_object: Option<Value>,
    pub(super) response_object: Option<Value>,
    pub(super) request_received_timestamp: MicroTimestamp,
    pub(super) stage_timestamp: MicroTimestamp,
    pub(super) annotations: Annotations<'a>,
}

impl Event<'_> {
    /// Cuts all texts that an unauthenticated sender controls, so that the record has at most
    /// [`MAX_UNAUTHENTICATED_RECORD_BYTES`]. The cut path still shows the requested resource, if there is room.
    pub(super) fn shorten(&mut self) {
        let short = |text: &mut Cow<'_, str>, max_bytes| {
            *text = cut_encoded(std::mem::take(text), max_bytes);
        };
        short(&mut self.request_uri, SHORT_URI_BYTES);
        short(&mut self.user_agent, SHORT_TEXT_BYTES);
        self.verb = self.verb.get(..SHORT_TEXT_BYTES).unwrap_or(self.verb);
        let cut = self.source_ips.len().saturating_sub(SHORT_ADDRESSES);
        self.source_ips.to_mut().drain(..cut);
        self.object_ref = None;
        if let Some(status) = &mut self.response_status {
            short(&mut status.message, SHORT_TEXT_BYTES);
        }
        for (_, text) in &mut self.annotations.0 {
            short(text, SHORT_TEXT_BYTES);
        }
    }
}

/// The annotations of a record, in the order of their names.
#[derive(Default)]
pub(super) struct Annotations<'a>(Vec<Annotation<'a>>);

/// The name and the text of an annotation.
pub(super) type Annotation<'a> = (&'static str, Cow<'a, str>);

impl<'a> Annotations<'a> {
    /// Adds an annotation. It replaces one with the same name.
    pub(super) fn note(&mut self, name: &'static str, text: Cow<'a, str>) {
        if self.0.last().is_none_or(|(last, _)| *last < name) {
            self.0.push((name, text));
            return;
        }
        match self.0.binary_search_by(|(known, _)| known.cmp(&name)) {
            Ok(index) => self.0[index].1 = text,
            Err(index) => self.0.insert(index, (name, text)),
        }
    }

    pub(super) fn as_slice(&self) -> &[Annotation<'a>] {
        &self.0
    }
}

impl<'a> FromIterator<Annotation<'a>> for Annotations<'a> {
    fn from_iter<I: IntoIterator<Item = Annotation<'a>>>(annotations: I) -> Self {
        let mut all = Self::default();
        annotations.into_iter().for_each(|(name, text)| all.note(name, text));
        all
    }
}

/// A user. It is empty for an unauthenticated sender. Texts from clients are [`clean`].
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
    /// The owner of an access key, with the key's name in the extra fields.
    fn of_bearer(identity: &'a Identity) -> Self {
        let key = vec![Cow::Borrowed(identity.access_key.as_str())];
        let extra = BTreeMap::from([(Cow::Borrowed(ACCESS_KEY), key)]);
        Self { extra, ..Self::of(identity) }
    }

    /// The user of an identity.
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

/// The owner of an access key, encoded for records.
pub(super) fn bearer_json(identity: &Identity) -> Box<RawValue> {
    user_json(&UserInfo::of_bearer(identity))
}

pub(super) fn user_json(user: &UserInfo<'_>) -> Box<RawValue> {
    // Writing to memory cannot fail.
    to_raw_value(user).unwrap_or_default()
}

/// The object or collection that a request is for.
pub(super) struct ObjectRef<'a> {
    pub(super) resource: Cow<'a, str>,
    pub(super) namespace: Option<Cow<'a, str>>,
    pub(super) name: Option<Cow<'a, str>>,
    pub(super) uid: &'a str,
    pub(super) api_group: &'a str,
    pub(super) api_version: &'a str,
    pub(super) subresource: Option<Cow<'a, str>>,
}

impl<'a> ObjectRef<'a> {
    pub(super) fn of(target: &'a ResourceTarget, identity: &'a ObjectIdentity) -> Self {
        let version = target.requested().info().version;
        let name = target.name.as_deref().or(Some(identity.name.as_str()));
        Self {
            resource: Cow::Borrowed(target.requested().info().plural),
            namespace: namespace_of(target).map(clean),
            name: name.filter(|name| !name.is_empty()).map(clean),
            uid: &identity.uid,
            api_group: version.group,
            api_version: version.version,
            subresource: Some(target.subresource())
                .filter(|name| !name.is_empty())
                .map(Cow::Borrowed),
        }
    }

    /// The resource at a target behind the gateway that is requested; `None` for a path that is not a resource.
    pub(super) fn at_target(request: &'a KubeRequest) -> Option<Self> {
        let Attributes::Resource { group, resource, subresource, namespace, name, .. } =
            request.attributes()
        else {
            return None;
        };
        let unless_empty = |text: &'a str| (!text.is_empty()).then(|| clean(text));
        Some(Self {
            resource: clean(resource),
            namespace: unless_empty(namespace),
            name: unless_empty(name),
            uid: "",
            api_group: group,
            api_version: request.version(),
            subresource: unless_empty(subresource),
        })
    }
}

/// The result of a request.
pub(super) struct ResponseStatus<'a> {
    pub(super) status: &'a str,
    pub(super) message: Cow<'a, str>,
    pub(super) reason: &'a str,
    pub(super) code: u16,
}

impl<'a> ResponseStatus<'a> {
    /// The status of a response with this code.
    pub(super) fn of_code(code: u16) -> Self {
        Self { status: "", message: Cow::Borrowed(""), reason: "", code }
    }

    /// The status of a request that was rejected or failed.
    pub(super) fn of(status: &'a Status) -> Self {
        Self {
            status: "Failure",
            message: clean(&status.message),
            reason: status.reason.as_str(),
            ..Self::of_code(status.code)
        }
    }

    /// The status of a request that failed without a response.
    pub(super) fn of_failure(code: u16, message: &'a str) -> Self {
        let message = Cow::Borrowed(message);
        Self { status: "Failure", message, ..Self::of_code(code) }
    }
}

/// The text, or `LEFT_OUT` if the text may contain an access key in any encoding.
pub fn clean(text: &str) -> Cow<'_, str> {
    Cow::Borrowed(if may_have_access_key(text) { LEFT_OUT } else { text })
}

/// Removes access keys from a body.
pub(super) fn clean_value(value: &mut Value) {
    match value {
        Value::String(text) if may_have_access_key(text) => LEFT_OUT.clone_into(text),
        Value::Array(values) => values.iter_mut().for_each(clean_value),
        Value::Object(fields) => {
            if fields.keys().any(|name| may_have_access_key(name)) {
                let clean_name = |(name, value): (String, _)| (clean(&name).into_owned(), value);
                *fields = std::mem::take(fields).into_iter().map(clean_name).collect();
            }
            fields.values_mut().for_each(clean_value);
        }
        _ => {}
    }
}

/// The user agent for the record.
pub(super) fn user_agent(text: &str, authenticated: bool) -> Cow<'_, str> {
    cut(clean(text), if authenticated { MAX_AGENT_BYTES } else { MAX_UNAUTHENTICATED_BYTES })
}

/// The text, cut to a maximum number of bytes of encoded JSON. [`CUT`] follows a text that was cut.
fn cut_encoded(text: Cow<'_, str>, max_bytes: usize) -> Cow<'_, str> {
    let encoded = |c: char| match c {
        '"' | '\\' => 2,
        _ if c.is_control() => 6,
        _ => c.len_utf8(),
    };
    let mut left = max_bytes;
    let too_much = text.char_indices().find(|(_, c)| {
        let fits = left.checked_sub(encoded(*c));
        left = fits.unwrap_or_default();
        fits.is_none()
    });
    match too_much {
        Some((end, _)) => Cow::Owned(format!("{}{CUT}", &text[..end])),
        None => text,
    }
}

fn cut(text: Cow<'_, str>, max_bytes: usize) -> Cow<'_, str> {
    if text.len() <= max_bytes {
        return text;
    }
    let end = (0..=max_bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    Cow::Owned(format!("{}{CUT}", &text[..end]))
}

/// The path, and the parts of the query that may be recorded.
pub(super) fn recorded_uri(uri: &Uri, authenticated: bool) -> Cow<'_, str> {
    cut(clean_uri(uri), if authenticated { MAX_URI_BYTES } else { MAX_UNAUTHENTICATED_BYTES })
}

fn clean_uri(uri: &Uri) -> Cow<'_, str> {
    let path = clean(uri.path());
    let Some(query) = uri.query().filter(|query| !query.is_empty()) else { return path };
    let mut recorded = path.into_owned();
    for (index, pair) in query.split('&').enumerate() {
        recorded.push(if index == 0 { '?' } else { '&' });
        recorded.push_str(if may_be_recorded(pair) { pair } else { LEFT_OUT });
    }
    Cow::Owned(recorded)
}

fn may_be_recorded(pair: &str) -> bool {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    let is_keyword =
        value.len() <= MAX_KEYWORD_BYTES && value.bytes().all(|b| b.is_ascii_alphanumeric());
    (KEYWORD_PARAMETERS.contains(&name) && is_keyword)
        || (TEXT_PARAMETERS.contains(&name) && !may_have_access_key(value))
}

#[cfg(test)]
mod tests {
    use super::super::line::line_of;
    use super::*;

    #[test]
    fn only_known_parameters_of_a_query_are_recorded() {
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
            assert_eq!(recorded_uri(&uri.parse().unwrap(), true), want, "{uri}");
        }
    }

    #[test]
    fn user_agents_are_short_and_without_keys() {
        assert_eq!(user_agent("kubectl/v1.37", false), "kubectl/v1.37");
        assert_eq!(user_agent("x pst_1", true), LEFT_OUT);
        let long = "é".repeat(600);
        assert_eq!(user_agent(&long, true).len(), MAX_AGENT_BYTES + CUT.len());
        assert_eq!(user_agent(&long, false).len(), MAX_UNAUTHENTICATED_BYTES + CUT.len());
    }

    #[test]
    fn an_unauthenticated_sender_cannot_fill_the_log_with_a_query() {
        let uri = format!("/a?labelSelector={}", "x".repeat(10_000)).parse().unwrap();
        assert_eq!(recorded_uri(&uri, false).len(), MAX_UNAUTHENTICATED_BYTES + CUT.len());
        assert!(recorded_uri(&uri, true).len() > 10_000);
    }

    #[test]
    fn a_shortened_record_fits_whatever_was_sent() {
        let (long, time) = ("\\\"\u{1}é".repeat(5000), MicroTimestamp::from_unix_microseconds(0));
        let method = "X".repeat(9000);
        let user = user_json(&UserInfo::default());
        let object = ObjectRef {
            resource: Cow::Borrowed("directclusterendpointtokens"),
            namespace: Some(Cow::Borrowed(&long)),
            name: Some(Cow::Borrowed(&long)),
            uid: "",
            api_group: "rbac.authorization.k8s.io",
            api_version: "v1",
            subresource: Some(Cow::Borrowed("migratevirtualclusterinstance")),
        };
        let mut event = Event {
            level: Level::RequestResponse,
            audit_id: "5f0c1f6e-2b0a-4a56-9c39-94e3a1f6a7b1",
            stage: Stage::ResponseComplete,
            request_uri: Cow::Borrowed(&long),
            verb: &method,
            user: &user,
            impersonated_user: None,
            source_ips: vec!["2001:db8:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap(); 9].into(),
            user_agent: Cow::Borrowed(&long),
            object_ref: Some(object),
            response_status: Some(ResponseStatus {
                message: Cow::Borrowed(&long),
                reason: "Unauthorized",
                ..ResponseStatus::of_failure(401, "")
            }),
            request_object: None,
            response_object: None,
            request_received_timestamp: time,
            stage_timestamp: time,
            annotations: [ACCESS_KEY, "platform.sh/failures-left-out"]
                .map(|name| (name, Cow::Borrowed(long.as_str())))
                .into_iter()
                .collect(),
        };
        event.shorten();
        let line = line_of(&event);
        assert!(line.len() <= MAX_UNAUTHENTICATED_RECORD_BYTES, "{}", line.len());
        event.user_agent = Cow::Borrowed("curl/8");
        event.shorten();
        assert_eq!(event.user_agent, "curl/8", "a short text is not changed");
    }

    #[test]
    fn keys_are_removed_from_bodies() {
        let mut body = serde_json::json!({ "a": ["x", { "b": "pst_1", "pst_2": 1 }], "c": 1 });
        clean_value(&mut body);
        assert_eq!(body, serde_json::json!({ "a": ["x", { "b": LEFT_OUT, LEFT_OUT: 1 }], "c": 1 }));
    }
}
