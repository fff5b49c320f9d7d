//! What one request leaves in the log, stage by stage.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Response, Uri};
use hyper::body::Incoming;
use parking_lot::Mutex;
use postern_auth::identity::Identity;
use postern_kinds::action::Handler;
use postern_meta::accept::content_type_of_body;
use postern_meta::decode::{self, Format};
use postern_meta::status::{ApiError, Reason, Status};
use postern_meta::time::MicroTimestamp;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Audit;
use super::event::{
    ACCESS_KEY, Event, Named, ObjectRef, ResponseStatus, UserInfo, agent, bearer_json, clean,
    clean_value, line_of, shown_uri, user_json,
};
use super::failures::Failures;
use super::policy::{Asked, AuditDecision, Level, Stage};
use crate::stages::authenticate::Credential;
use crate::stages::parse::{Parsed, ResourceTarget, Target};
use crate::wire::body::Body;
use crate::wire::input::Received;

/// Bodies with more bytes are left out of records.
const MAX_BODY_BYTES: usize = 128 * 1024;

/// Addresses that proxies name and that are recorded.
const MAX_FORWARDED: usize = 8;

/// The code of a request whose client has left, as proxies log it.
const CLIENT_LEFT: u16 = 499;

/// Who sent the last request of a connection, as he stands in records: he sends the next one, too.
#[derive(Default)]
pub(crate) struct LastSender(Mutex<Option<(Arc<Identity>, Arc<RawValue>)>>);

impl LastSender {
    fn json_of(&self, identity: &Arc<Identity>) -> Arc<RawValue> {
        let mut last = self.0.lock();
        match &*last {
            Some((known, json)) if Arc::ptr_eq(known, identity) => json.clone(),
            _ => {
                let json: Arc<RawValue> = bearer_json(identity).into();
                *last = Some((identity.clone(), json.clone()));
                json
            }
        }
    }
}

/// How far the recording has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// There is no answer yet.
    Open,
    /// The answer goes on.
    Streaming,
    /// All is recorded.
    Ended,
}

/// One request, from when it could be read until its answer has ended. Whatever becomes of it, its
/// end is recorded: when it is dropped half-way, that is an end, too.
pub(crate) struct AuditContext {
    audit: Arc<Audit>,
    received: MicroTimestamp,
    id: HeaderValue,
    peer: IpAddr,
    method: Method,
    uri: Uri,
    headers: Headers,
    target: Option<ResourceTarget>,
    credential: Option<Credential>,
    sender: Option<Arc<RawValue>>,
    refused_key: Option<String>,
    verdict: Option<Verdict>,
    decision: AuditDecision,
    body: Option<Arc<OnceLock<Bytes>>>,
    response: RecordedResponse,
    state: State,
}

/// The headers that are recorded, or needed for it.
struct Headers {
    agent: Option<HeaderValue>,
    content_type: Option<HeaderValue>,
    forwarded: Vec<IpAddr>,
}

impl Headers {
    fn of(headers: &HeaderMap) -> Self {
        let one = |name: HeaderName| headers.get(name).cloned();
        Self {
            agent: one(USER_AGENT),
            content_type: one(CONTENT_TYPE),
            forwarded: forwarded(headers),
        }
    }

    /// The same without what else came in with them, for a request that goes on.
    fn detach(&mut self) {
        for value in [&mut self.agent, &mut self.content_type].into_iter().flatten() {
            // What was a header's value still is one.
            *value = HeaderValue::from_bytes(value.as_bytes()).unwrap_or_else(|_| value.clone());
        }
    }
}

/// Where proxies say that it came from. Each adds to the end what it knows: what stands before that
/// can be invented, so it is the end that is kept. `X-Real-Ip`, which upstream reads besides, has no
/// such order: a client could push the truth out with it.
fn forwarded(headers: &HeaderMap) -> Vec<IpAddr> {
    let values = headers.get_all("x-forwarded-for").iter();
    let parts = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let texts = parts.filter_map(|part| std::str::from_utf8(part).ok());
    let mut said: Vec<IpAddr> = texts.filter_map(|text| text.trim().parse().ok()).collect();
    said.drain(..said.len().saturating_sub(MAX_FORWARDED));
    said
}

/// What was decided, in the words of Kubernetes' annotations.
enum Verdict {
    Allowed,
    Forbidden(String),
}

/// What is known of the answer.
#[derive(Default)]
struct RecordedResponse {
    code: u16,
    status: Option<Box<Status>>,
    object: Option<Value>,
    left_out: bool,
    named: Named,
}

/// Has an action bodies of its own? What is in them is not known here, so it counts as confidential.
fn has_other_bodies(target: &ResourceTarget) -> bool {
    target.action.is_some_and(|action| !matches!(action.handler, Handler::Status))
}

impl AuditContext {
    /// Of a request that could be read.
    pub(crate) fn begin(
        audit: &Arc<Audit>,
        parsed: &Parsed,
        peer: IpAddr,
        id: &HeaderValue,
    ) -> Self {
        let target = match parsed.target() {
            Target::Resource(target) => Some(target.clone()),
            Target::Document(_) | Target::Nothing => None,
        };
        Self {
            received: audit.source.now_micro(),
            audit: audit.clone(),
            id: id.clone(),
            peer,
            method: parsed.method().clone(),
            uri: parsed.uri().clone(),
            headers: Headers::of(parsed.headers()),
            target,
            credential: None,
            sender: None,
            refused_key: None,
            verdict: None,
            decision: AuditDecision::default(),
            body: None,
            response: RecordedResponse::default(),
            state: State::Open,
        }
    }

    /// What stands in the path where names belong must not be recorded.
    pub(crate) fn hide_names(&mut self) {
        self.uri = Uri::from_static("/(left-out)");
        if let Some(target) = &mut self.target {
            (target.namespace, target.name) = (None, None);
        }
    }

    /// It is known who sent it. Returns the body, which is watched if the policy wants it.
    ///
    /// # Errors
    /// 503 when nothing can be recorded.
    pub(crate) fn identified(
        &mut self,
        credential: &Credential,
        last: &LastSender,
        body: Incoming,
    ) -> Result<Received, ApiError> {
        self.credential = Some(credential.clone());
        self.decision = self.look_up();
        if self.decision.level == Level::None {
            return Ok(Received::new(body, None));
        }
        if let Err(error) = self.audit.check() {
            // Whoever is turned away for want of a log cannot stand in it, or it would grow for ever.
            self.decision = AuditDecision::default();
            return Err(error);
        }
        self.sender = Some(last.json_of(credential.shared_bearer()));
        if self.decision.level >= Level::Request {
            self.body = Some(Arc::default());
        }
        Ok(Received::new(body, self.body.clone()))
    }

    /// It is known as whom he acts, or that he may not: nothing is done yet.
    pub(crate) fn received(&self) {
        self.record(Stage::RequestReceived);
    }

    /// Nobody could be let in. `key` is the name of the access key that was shown, if there is one.
    pub(crate) fn not_identified(&mut self, key: Option<String>) {
        self.refused_key = key;
        self.decision = self.look_up();
    }

    /// Somebody acts as somebody else.
    pub(crate) fn acts_as(&mut self, credential: &Credential) {
        self.credential = Some(credential.clone());
    }

    /// He may.
    pub(crate) fn allowed(&mut self) {
        self.verdict = Some(Verdict::Allowed);
    }

    /// He may not.
    pub(crate) fn forbidden(&mut self, error: &ApiError) {
        if error.reason() == Reason::Forbidden {
            self.verdict = Some(Verdict::Forbidden(error.status().message.clone()));
        }
    }

    /// The object that it made: whatever representation is answered, this one names it.
    pub(crate) fn made(&mut self, json: &[u8]) {
        if self.decision.level != Level::None {
            self.response.named = named(json);
        }
    }

    /// It was refused, or failed.
    pub(crate) fn failed(mut self: Box<Self>, error: &ApiError) {
        let status = error.status();
        self.response.code = status.code;
        let about = self.target.as_ref().map(|target| target.kind.info());
        if let (Some(details), Some(info)) = (&status.details, about)
            && details.group == info.version.group
            && (details.kind == info.plural || details.kind == info.kind)
        {
            // Of a refusal that is about something else, this would be the name of that.
            self.response.named.name.clone_from(&details.name);
        }
        if self.decision.level == Level::RequestResponse {
            self.response.object = Some(status.to_value());
        }
        // A body that was not taken may be anything, also what belongs to another kind.
        self.body = None;
        self.response.status = Some(Box::new(status.clone()));
        self.end();
    }

    /// It has an answer. One that goes on takes the rest of the trail along.
    pub(crate) fn answered(mut self: Box<Self>, response: Response<Body>) -> Response<Body> {
        self.response.code = response.status().as_u16();
        if !matches!(response.body(), Body::Stream(_)) {
            if self.decision.level == Level::RequestResponse {
                self.note_answer(&response);
            }
            self.end();
            return response;
        }
        self.record(Stage::ResponseStarted);
        self.state = State::Streaming;
        // A watch lives long, and would keep everything that came in together with its head.
        self.headers.detach();
        self.uri = self.uri.to_string().parse().unwrap_or_default();
        response.map(|body| body.holding(self))
    }

    fn note_answer(&mut self, response: &Response<Body>) {
        let whole = match response.body() {
            _ if response.headers().contains_key(CONTENT_ENCODING) => None,
            Body::Whole(bytes) => bytes.clone(),
            Body::List(list) if list.plain_bytes() <= MAX_BODY_BYTES => Some(list.whole()),
            Body::List(_) | Body::Stream(_) => None,
        };
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let format = if content_type.contains("yaml") { Format::Yaml } else { Format::Json };
        let whole = whole.filter(|bytes| bytes.len() <= MAX_BODY_BYTES);
        let decoded = whole.and_then(|bytes| decode::decode(&bytes, format).ok());
        self.response.left_out = decoded.is_none();
        self.response.object = decoded.map(|decoded| decoded.value);
    }

    fn end(&mut self) {
        self.record(Stage::ResponseComplete);
        self.state = State::Ended;
    }

    /// What the policy says about it. Bodies of kinds that keep secrets are not recorded, whatever
    /// it says.
    fn look_up(&self) -> AuditDecision {
        let mut decision = self.audit.policy.decision(&Asked {
            bearer: self.credential.as_ref().map(Credential::bearer),
            verb: self.verb().as_ref(),
            target: self.target.as_ref(),
            path: self.uri.path(),
        });
        let confidential = self
            .target
            .as_ref()
            .is_none_or(|target| target.kind.info().confidential || has_other_bodies(target));
        if confidential {
            decision.level = decision.level.min(Level::Metadata);
        }
        decision
    }

    fn verb(&self) -> Cow<'static, str> {
        if let Some(target) = &self.target {
            return Cow::Borrowed(target.verb.as_str());
        }
        match self.method {
            Method::GET => Cow::Borrowed("get"),
            ref method => Cow::Owned(method.as_str().to_ascii_lowercase()),
        }
    }

    /// Puts a record into the log, if the policy wants one at this stage.
    fn record(&self, stage: Stage) {
        if !self.decision.wants(stage) {
            return;
        }
        let now = self.audit.source.now_micro();
        let mut annotations = self.annotations();
        if self.credential.is_none() {
            let seconds = now.unix_microseconds().div_euclid(1_000_000);
            let room = self.audit.works();
            let Some(left_out) = self.failures().note(seconds, room) else { return };
            if left_out > 0 {
                let left_out = Cow::Owned(left_out.to_string());
                annotations.insert("platform.sh/failures-left-out", left_out);
            }
        }
        let received = stage == Stage::RequestReceived;
        let verb = self.verb();
        let bearer = self.credential.as_ref().map(Credential::bearer);
        let acting = self.credential.as_ref().filter(|credential| credential.is_acting());
        let agent_text = self.headers.agent.as_ref().and_then(|value| value.to_str().ok());
        let user = self.sender.clone();
        let user = user.unwrap_or_else(|| user_json(&UserInfo::default()).into());
        let line = line_of(&Event {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: self.decision.level,
            audit_id: self.id.to_str().unwrap_or_default(),
            stage,
            request_uri: shown_uri(&self.uri, bearer.is_some()),
            verb: &verb,
            user: &user,
            impersonated_user: acting.map(|acting| UserInfo::of(acting.identity())),
            source_ips: self.source_ips(),
            user_agent: agent(agent_text.unwrap_or_default(), bearer.is_some()),
            object_ref: self
                .target
                .as_ref()
                .map(|target| ObjectRef::of(target, &self.response.named)),
            response_status: (!received).then(|| self.response_status(stage)),
            request_object: self.request_object(),
            response_object: self.response.object.clone().map(|object| self.shown(object)),
            request_received_timestamp: self.received,
            stage_timestamp: now,
            annotations,
        });
        self.audit.log.append(&line);
    }

    /// Those among whom it counts when nobody could be let in.
    fn failures(&self) -> &Failures {
        let known = self.refused_key.is_some();
        if known { &self.audit.stopped_keys } else { &self.audit.strangers }
    }

    fn annotations(&self) -> BTreeMap<&'static str, Cow<'_, str>> {
        let mut annotations = BTreeMap::new();
        let mut note = |name, value| annotations.insert(name, value);
        match &self.verdict {
            Some(Verdict::Allowed) => {
                note("authorization.k8s.io/decision", Cow::Borrowed("allow"));
            }
            Some(Verdict::Forbidden(why)) => {
                note("authorization.k8s.io/decision", Cow::Borrowed("forbid"));
                note("authorization.k8s.io/reason", clean(why));
            }
            None => {}
        }
        if let Some(key) = &self.refused_key {
            note(ACCESS_KEY, Cow::Borrowed(key));
        }
        if self.response.left_out || self.request_is_too_large() {
            note("audit.k8s.io/truncated", Cow::Borrowed("true"));
        }
        annotations
    }

    fn response_status(&self, stage: Stage) -> ResponseStatus<'_> {
        match (&self.response.status, self.state) {
            (Some(status), _) => ResponseStatus::of(status),
            (None, _) if stage == Stage::Panic => {
                ResponseStatus::none(500, "a mistake in the server: see its log")
            }
            (None, State::Open) if self.response.code == 0 => {
                let why = "the client has left before the answer; a write may have happened";
                ResponseStatus::none(CLIENT_LEFT, why)
            }
            (None, _) => ResponseStatus::of_code(self.response.code),
        }
    }

    /// What proxies say about where it came from, and, as the last, where it did come from.
    fn source_ips(&self) -> Vec<IpAddr> {
        let mut addresses = self.headers.forwarded.clone();
        addresses.push(self.peer);
        addresses.dedup();
        addresses
    }

    fn request_is_too_large(&self) -> bool {
        let body = self.body.as_ref().and_then(|body| body.get());
        body.is_some_and(|body| body.len() > MAX_BODY_BYTES)
    }

    fn request_object(&self) -> Option<Value> {
        let fits = |body: &&Bytes| (1..=MAX_BODY_BYTES).contains(&body.len());
        let body = self.body.as_ref()?.get().filter(fits)?;
        let content_type = self.headers.content_type.as_ref().and_then(|value| value.to_str().ok());
        let format = content_type_of_body(content_type).ok();
        let decoded = match format {
            Some(format) => decode::decode_body(body, format),
            // Patches have types of their own, and are JSON.
            None => decode::decode(body, Format::Json),
        };
        decoded.ok().map(|decoded| self.shown(decoded.value))
    }

    /// A body, as the policy wants it.
    fn shown(&self, mut body: Value) -> Value {
        clean_value(&mut body);
        if self.decision.omit_managed_fields {
            drop_managed_fields(&mut body);
            let items = body.get_mut("items").and_then(Value::as_array_mut);
            items.into_iter().flatten().for_each(drop_managed_fields);
        }
        body
    }
}

impl Drop for AuditContext {
    fn drop(&mut self) {
        match self.state {
            State::Ended => {}
            _ if std::thread::panicking() => self.record(Stage::Panic),
            State::Open | State::Streaming => self.record(Stage::ResponseComplete),
        }
    }
}

fn drop_managed_fields(object: &mut Value) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("managedFields");
    }
}

/// The name and uid of an object.
fn named(json: &[u8]) -> Named {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Metadata {
        name: String,
        uid: String,
    }
    let Object { metadata } = decode::decode_typed(json).unwrap_or_default();
    Named { name: metadata.name, uid: metadata.uid }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_last_proxy_says_cannot_be_pushed_out() {
        let mut headers = HeaderMap::new();
        assert!(forwarded(&headers).is_empty());
        let invented = "1.1.1.1, ".repeat(20);
        let said = [invented.as_bytes(), b"\xff, nonsense, ", b"192.0.2.7,2001:db8::1"].concat();
        headers.append("x-forwarded-for", HeaderValue::from_bytes(&said[..]).unwrap());
        headers.append("x-forwarded-for", HeaderValue::from_static("192.0.2.8"));
        headers.append("x-real-ip", HeaderValue::from_static("1.1.1.1"));
        let found = forwarded(&headers);
        assert_eq!(found.len(), MAX_FORWARDED);
        let last: Vec<String> = found[5..].iter().map(ToString::to_string).collect();
        assert_eq!(last, ["192.0.2.7", "2001:db8::1", "192.0.2.8"]);
    }

    #[test]
    fn an_object_is_named_by_its_metadata() {
        let of = |json: &str| named(json.as_bytes());
        assert_eq!(of(r#"{"metadata":{"name":"a","uid":"u","x":1},"spec":{}}"#).name, "a");
        assert_eq!(of("[]").name, "");
        assert_eq!(of("").uid, "");
    }
}
