//! `AuditContext`: the audit records of one request, at each stage.

use std::borrow::Cow;
use std::net::IpAddr;
use std::slice;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Response};
use parking_lot::Mutex;
use postern_auth::attributes::Attributes;
use postern_auth::exec_command::exec_command;
use postern_auth::identity::Identity;
use postern_kinds::action::{self, Action};
use postern_kinds::{AnyKind, Info, ValuesAt, Verb, all};
use postern_meta::accept::{PatchType, content_type_of_body, patch_type};
use postern_meta::decode::{self, Format};
use postern_meta::status::{ApiError, Reason, Status};
use postern_meta::time::MicroTimestamp;
use postern_registry::credential::Credential;
use postern_registry::permit::ResourceTarget;
use postern_registry::registry::ObjectIdentity;
use postern_registry::registry::values::{SentObjects, SentValues};
use postern_telemetry::{TraceContext, current};
use serde_json::Value;
use serde_json::value::RawValue;

use super::audit::{Audit, UNANSWERED};
use super::event::{
    ACCESS_KEY, Annotations, Event, MAX_UNAUTHENTICATED_RECORD_BYTES, ObjectRef, ResponseStatus,
    UserInfo, bearer_json, clean, clean_value, recorded_uri, user_agent, user_json,
};
use super::failures::{AuthenticationFailures, FAILURES_LEFT_OUT};
use super::line::line_of;
use super::log::Unwritten;
use super::policy::{AuditDecision, Level, RequestAttributes, Stage};
use postern_http::stages::parse::{GatewayRequest, Parsed, Target};
use postern_http::wire::body::Body;
use postern_http::wire::incoming::IncomingBody;
use postern_http::wire::input::{RequestBody, decode_configuration};

/// The maximum size of a body in a record, in bytes. Larger bodies are omitted.
const MAX_BODY_BYTES: usize = 128 * 1024;

/// The annotation with the trace, in the form of the header `traceparent`.
const TRACEPARENT: &str = "platform.sh/traceparent";

/// The annotation that says whether values of secrets were sent.
const VALUES: &str = "platform.sh/values";

/// The annotation with the secrets of a list or a watch whose values were sent: `NAMESPACE/NAME`, with commas between them.
const OBJECTS: &str = "platform.sh/objects";

/// The annotation with the number of these secrets, if they are too many to be named.
const OBJECTS_LEFT_OUT: &str = "platform.sh/objects-left-out";

/// The most addresses from proxies in a record.
const MAX_FORWARDED: usize = 8;

/// The code of a request if its client closed the connection before the response, as in the logs of
/// proxies.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// The sender of a connection's last request, encoded for records. Most often it also sends the next request.
#[derive(Default)]
pub struct LastSender(Mutex<Option<(Arc<Identity>, Arc<RawValue>)>>);

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

/// The progress of a request's records.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The response has not started.
    Open,
    /// The response is a stream in progress.
    Streaming,
    /// The last record is written.
    Ended,
}

/// The audit context of one request, from parsing to the end of its response. The end is always recorded. A drop
/// before the response also counts as the end.
pub struct AuditContext {
    audit: Arc<Audit>,
    received: MicroTimestamp,
    id: HeaderValue,
    trace: Option<TraceContext>,
    peer: IpAddr,
    request: Parsed,
    credential: Option<Credential>,
    sender: Option<Arc<RawValue>>,
    rejected_key: Option<String>,
    authorization: Option<Authorization>,
    decision: AuditDecision,
    body: Option<Arc<OnceLock<Bytes>>>,
    response: RecordedResponse,
    /// The secrets whose values the response has.
    values: SentValues,
    state: State,
    /// The number of the last record's line in the log.
    line: Option<u64>,
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The headers that records need.
const RECORDED_HEADERS: [HeaderName; 3] = [USER_AGENT, CONTENT_TYPE, X_FORWARDED_FOR];

/// The last addresses in `X-Forwarded-For`. Each proxy appends an address, and the client can forge the earlier ones.
/// kube-apiserver also reads `X-Real-Ip`. It is ignored here, because a client could hide its true address with it.
fn forwarded(headers: &HeaderMap) -> Vec<IpAddr> {
    let values = headers.get_all(X_FORWARDED_FOR).iter();
    let parts = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let texts = parts.filter_map(|part| std::str::from_utf8(part).ok());
    let mut addresses: Vec<IpAddr> = texts.filter_map(|text| text.trim().parse().ok()).collect();
    addresses.drain(..addresses.len().saturating_sub(MAX_FORWARDED));
    addresses
}

/// The authorization decision, for Kubernetes' annotations.
enum Authorization {
    Allowed,
    Forbidden(String),
}

/// The recorded parts of the response.
#[derive(Default)]
struct RecordedResponse {
    code: u16,
    status: Option<Box<Status>>,
    object: Option<Value>,
    truncated: bool,
    identity: ObjectIdentity,
}

/// Whether the objects or bodies of a request may contain secrets.
fn is_confidential(target: &ResourceTarget) -> bool {
    target.kind.info().confidential || has_other_bodies(target)
}

/// Whether a request may change something.
fn changes(target: &ResourceTarget) -> bool {
    !matches!(target.verb, Verb::Get | Verb::List | Verb::Watch)
}

/// Whether a request is for an action with other bodies than the object. Their content is unknown here, so they count
/// as confidential.
fn has_other_bodies(target: &ResourceTarget) -> bool {
    target.action.is_some_and(Action::has_other_bodies)
}

/// Whether the response to a request can have values of secrets: those of its objects, or those that an action returns.
fn can_have_values(target: &ResourceTarget) -> bool {
    let has_values = |kind: &dyn AnyKind| kind.info().values != ValuesAt::Nowhere;
    let of_action = |action: &Action| match action.response {
        action::Response::Object(kind) => has_values(kind),
        action::Response::Same | action::Response::ListOf(_) => false,
    };
    has_values(target.kind) || target.action.is_some_and(of_action)
}

/// Whether the response of a target behind the gateway may contain secrets. Kinds that are confidential here are
/// confidential there as well, and so are the tokens of service accounts.
fn has_secrets(request: &GatewayRequest) -> bool {
    let Attributes::Resource { group, resource, subresource, .. } = request.kube.attributes()
    else {
        return false;
    };
    let is_it = |info: &Info| info.version.group == group && info.plural == resource;
    let is_token = (group, resource, subresource) == ("", "serviceaccounts", "token");
    is_token || all().iter().any(|kind| kind.info().confidential && is_it(kind.info()))
}

impl AuditContext {
    /// The context of a parsed request.
    pub fn begin(audit: &Arc<Audit>, parsed: &Parsed, peer: IpAddr, id: &HeaderValue) -> Self {
        Self {
            received: audit.source.now_micro(),
            audit: audit.clone(),
            id: id.clone(),
            trace: current().and_then(|ids| ids.trace()),
            peer,
            request: parsed.clone(),
            credential: None,
            sender: None,
            rejected_key: None,
            authorization: None,
            decision: AuditDecision::default(),
            body: None,
            response: RecordedResponse::default(),
            values: SentValues::None,
            state: State::Open,
            line: None,
        }
    }

    /// Omits the names in the path from records, because one of them is the value of an access key.
    pub fn hide_names(&mut self) {
        self.request = self.request.without_names();
    }

    /// The requested object or collection.
    fn target(&self) -> Option<&ResourceTarget> {
        match self.request.target() {
            Target::Resource(target) => Some(target),
            Target::Document(_) | Target::Gateway(_) | Target::Nothing => None,
        }
    }

    /// The request to a target behind the gateway.
    fn gateway(&self) -> Option<&Arc<GatewayRequest>> {
        match self.request.target() {
            Target::Gateway(request) => Some(request),
            _ => None,
        }
    }

    /// Sets the sender of the request, and decides how much is recorded. Returns the body. If the policy records
    /// bodies, the returned body keeps a copy of the bytes that are read.
    ///
    /// # Errors
    /// 503 when the log cannot be written.
    pub fn set_authenticated(
        &mut self,
        credential: &Credential,
        last: &LastSender,
        body: IncomingBody,
    ) -> Result<RequestBody, ApiError> {
        self.credential = Some(credential.clone());
        self.decision = self.decide();
        if self.decision.level == Level::None {
            return Ok(RequestBody::new(body, None));
        }
        if let Err(error) = self.audit.check() {
            // A request that is rejected because the log cannot be written is not recorded, or the
            // lines that wait would grow without limit.
            self.decision = AuditDecision::default();
            return Err(error);
        }
        self.sender = Some(last.json_of(credential.shared_bearer()));
        if self.decision.level >= Level::Request {
            self.body = Some(Arc::default());
        }
        Ok(RequestBody::new(body, self.body.clone()))
    }

    /// Records that the request was received: it is known as whom the caller acts, or that they may
    /// not, and nothing is done yet.
    pub fn record_received(&mut self) {
        self.record(Stage::RequestReceived);
    }

    /// The request's id.
    pub fn id(&self) -> &HeaderValue {
        &self.id
    }

    /// Waits until the records so far are in the file, before a target changes something for the
    /// caller.
    ///
    /// # Errors
    /// 503 when it cannot be written.
    pub async fn written(&self) -> Result<(), ApiError> {
        let Some(line) = self.line else { return Ok(()) };
        self.audit.log.written(line).await.map_err(|Unwritten| self.audit.reject())
    }

    /// Sets that the authentication failed. `key` is the name of the access key that was sent, if it is known.
    pub fn set_unauthenticated(&mut self, key: Option<String>) {
        self.rejected_key = key;
        self.decision = self.decide();
    }

    /// Sets the credential after impersonation.
    pub fn set_impersonated(&mut self, credential: &Credential) {
        self.credential = Some(credential.clone());
    }

    /// Sets that the request was allowed.
    pub fn set_allowed(&mut self) {
        self.authorization = Some(Authorization::Allowed);
    }

    /// Sets that the request was forbidden, if the error is a 403.
    pub fn set_forbidden(&mut self, error: &ApiError) {
        if error.reason() == Reason::Forbidden {
            self.authorization = Some(Authorization::Forbidden(error.status().message.clone()));
        }
    }

    /// Sets the object that the request created. The response may have another representation of it.
    pub fn set_created(&mut self, created: ObjectIdentity) {
        if self.decision.level != Level::None {
            self.response.identity = created;
        }
    }

    /// Records the end of a request that was rejected or failed.
    pub fn finish_with_error(mut self: Box<Self>, error: &ApiError) {
        let status = error.status();
        self.response.code = status.code;
        let about = self.target().map(|target| target.kind.info());
        if let (Some(details), Some(info)) = (&status.details, about)
            && details.group == info.version.group
            && (details.kind == info.plural || details.kind == info.kind)
        {
            // The details of other errors name other things.
            self.response.identity.name.clone_from(&details.name);
        }
        if self.decision.level == Level::RequestResponse {
            self.response.object = Some(status.to_value());
        }
        // A rejected body may be an object of another kind, and so may contain secrets.
        self.body = None;
        self.response.status = Some(Box::new(status.clone()));
        self.end();
    }

    /// Records the response, and returns it. `values` are those that it has. A stream owns the context, and records its end. With
    /// `--audit-before-answer`, a response with objects of a confidential kind is returned after its record is in the
    /// file.
    ///
    /// # Errors
    /// When the record cannot be written, and the response needs one.
    pub async fn finish_with_response(
        mut self: Box<Self>,
        response: Response<Body>,
        values: SentValues,
    ) -> Result<Response<Body>, ApiError> {
        self.response.code = response.status().as_u16();
        self.values = values;
        if !response.body().is_long() {
            if self.decision.level == Level::RequestResponse {
                self.set_response_object(&response);
            }
            self.end();
            self.written_before_answer().await?;
            return Ok(response);
        }
        self.record(Stage::ResponseStarted);
        self.state = State::Streaming;
        // A watch is long, and would keep the buffer of the request's head in memory.
        self.request = self.request.detached(&RECORDED_HEADERS);
        self.written_before_answer().await?;
        Ok(response.map(|body| body.owning(self)))
    }

    /// Waits until the last record is in the file, if the response must wait for it.
    async fn written_before_answer(&self) -> Result<(), ApiError> {
        let carries_secrets = self.target().is_some_and(is_confidential)
            || self.gateway().is_some_and(|request| has_secrets(request));
        let Some(line) = self.line.filter(|_| carries_secrets && self.audit.before_answer) else {
            return Ok(());
        };
        let written = self.audit.log.written(line).await;
        written.map_err(|Unwritten| {
            if self.is_change() {
                ApiError::internal(UNANSWERED, "the audit record was not written in time")
            } else {
                self.audit.reject()
            }
        })
    }

    fn set_response_object(&mut self, response: &Response<Body>) {
        let whole = match response.body() {
            _ if response.headers().contains_key(CONTENT_ENCODING) => None,
            Body::Whole(bytes) => bytes.clone(),
            Body::List(list) if list.source_bytes() <= MAX_BODY_BYTES => list.whole().ok(),
            Body::List(_)
            | Body::Encoded(_)
            | Body::Stream(_)
            | Body::Proxied(_)
            | Body::Socket(_) => None,
        };
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let format = if content_type.contains("yaml") { Format::Yaml } else { Format::Json };
        let whole = whole.filter(|bytes| bytes.len() <= MAX_BODY_BYTES);
        let decoded = whole.and_then(|bytes| decode::decode(&bytes, format).ok());
        self.response.truncated = decoded.is_none();
        self.response.object = decoded.map(|decoded| decoded.value);
    }

    fn end(&mut self) {
        self.record(Stage::ResponseComplete);
        self.state = State::Ended;
    }

    /// The policy's decision about the request. Bodies of confidential kinds are never recorded.
    fn decide(&self) -> AuditDecision {
        let mut decision = self.audit.policy.load().decision(&RequestAttributes {
            bearer: self.credential.as_ref().map(Credential::bearer),
            verb: self.verb().as_ref(),
            target: self.target(),
            path: self.request.path(),
        });
        if self.target().is_none_or(is_confidential) {
            decision.level = decision.level.min(Level::Metadata);
        }
        if self.is_change() && self.credential.is_some() { decision.of_change() } else { decision }
    }

    /// Whether the request may change anything, here or behind the gateway.
    fn is_change(&self) -> bool {
        self.target().is_some_and(changes)
            || self.gateway().is_some_and(|request| request.kube.changes())
    }

    fn verb(&self) -> Cow<'static, str> {
        if let Some(target) = self.target() {
            return Cow::Borrowed(target.verb.as_str());
        }
        if let Some(request) = self.gateway() {
            return Cow::Borrowed(request.kube.verb());
        }
        match *self.request.method() {
            Method::GET => Cow::Borrowed("get"),
            ref method => Cow::Owned(method.as_str().to_ascii_lowercase()),
        }
    }

    /// Appends a record to the log, if the policy records this stage.
    fn record(&mut self, stage: Stage) {
        if !self.decision.wants(stage) {
            return;
        }
        let now = self.audit.source.now_micro();
        let mut annotations = self.annotations();
        if matches!(stage, Stage::ResponseComplete | Stage::Panic) {
            self.note_values(&mut annotations);
        }
        if self.credential.is_none() {
            let seconds = now.unix_microseconds().div_euclid(1_000_000);
            let has_room = self.audit.works();
            let noted = self.failures().note(self.peer, seconds, has_room);
            let Some(omitted) = noted else { return };
            if omitted > 0 {
                let omitted = Cow::Owned(omitted.to_string());
                annotations.note(FAILURES_LEFT_OUT, omitted);
            }
        }
        let received = stage == Stage::RequestReceived;
        let verb = self.verb();
        let bearer = self.credential.as_ref().map(Credential::bearer);
        let acting = self.credential.as_ref().filter(|credential| credential.is_acting());
        let agent_text = self.request.header(USER_AGENT);
        let user = self.sender.clone();
        let user = user.unwrap_or_else(|| user_json(&UserInfo::default()).into());
        let mut event = Event {
            level: self.decision.level,
            audit_id: self.id.to_str().unwrap_or_default(),
            stage,
            request_uri: recorded_uri(self.request.uri(), bearer.is_some()),
            verb: &verb,
            user: &user,
            impersonated_user: acting.map(|acting| UserInfo::of(acting.identity())),
            source_ips: self.source_ips(),
            user_agent: user_agent(agent_text.unwrap_or_default(), bearer.is_some()),
            object_ref: self.object_ref(),
            response_status: (!received).then(|| self.response_status(stage)),
            request_object: self.request_object(),
            response_object: self.response.object.clone().map(|object| self.for_record(object)),
            request_received_timestamp: self.received,
            stage_timestamp: now,
            annotations,
        };
        let mut line = line_of(&event);
        if bearer.is_none() && line.len() > MAX_UNAUTHENTICATED_RECORD_BYTES {
            event.shorten();
            line = line_of(&event);
        }
        self.line = Some(self.audit.log.append(&line));
    }

    fn object_ref(&self) -> Option<ObjectRef<'_>> {
        let target = self.target();
        let target = target.map(|target| ObjectRef::of(target, &self.response.identity));
        target.or_else(|| ObjectRef::at_target(&self.gateway()?.kube))
    }

    /// The limit that a failed authentication counts against.
    fn failures(&self) -> &AuthenticationFailures {
        let is_known = self.rejected_key.is_some();
        if is_known { &self.audit.known_key_failures } else { &self.audit.unknown_key_failures }
    }

    fn annotations(&self) -> Annotations<'_> {
        let mut annotations: Annotations<'_> = self.audit.server_annotation().into_iter().collect();
        let mut note = |name, value| annotations.note(name, value);
        match &self.authorization {
            Some(Authorization::Allowed) => {
                note("authorization.k8s.io/decision", Cow::Borrowed("allow"));
            }
            Some(Authorization::Forbidden(why)) => {
                note("authorization.k8s.io/decision", Cow::Borrowed("forbid"));
                note("authorization.k8s.io/reason", clean(why));
            }
            None => {}
        }
        if let Some(key) = &self.rejected_key {
            note(ACCESS_KEY, Cow::Borrowed(key));
        }
        if self.audit.exec_commands
            && self.credential.is_some()
            && let Some(request) = self.gateway()
            && let Some(command) = exec_command(&request.kube)
        {
            for (name, value) in command.annotations() {
                note(name, Cow::Owned(value));
            }
        }
        if let Some((annotation, part)) = self.returned_part() {
            note(annotation, clean(part));
        }
        if let Some(trace) = &self.trace {
            note(TRACEPARENT, Cow::Owned(trace.to_string()));
        }
        if self.response.truncated || self.request_is_too_large() {
            note("audit.k8s.io/truncated", Cow::Borrowed("true"));
        }
        annotations
    }

    /// Notes whether the response has values of secrets, and of which. It is known at the end: a watch sends them over time.
    fn note_values(&self, annotations: &mut Annotations<'_>) {
        if !self.target().is_some_and(can_have_values) || self.credential.is_none() {
            return;
        }
        let are_sent = if self.values.are_sent() { "true" } else { "false" };
        annotations.note(VALUES, Cow::Borrowed(are_sent));
        let Some(objects) = self.values.objects() else { return };
        match objects {
            SentObjects::Named(names) => annotations.note(OBJECTS, Cow::Owned(names.join(","))),
            SentObjects::LeftOut(count) => {
                annotations.note(OBJECTS_LEFT_OUT, Cow::Owned(count.to_string()));
            }
        }
    }

    /// The annotation and the name of the part of an object that the response has.
    fn returned_part(&self) -> Option<(&'static str, &str)> {
        let handler = self.target()?.action.filter(|_| self.response.code == 200)?.part()?;
        Some((handler.annotation, self.request.query().get(handler.parameter)?))
    }

    fn response_status(&self, stage: Stage) -> ResponseStatus<'_> {
        match (&self.response.status, self.state) {
            (Some(status), _) => ResponseStatus::of(status),
            (None, _) if stage == Stage::Panic => {
                ResponseStatus::of_failure(500, "an internal error of the server: see its log")
            }
            (None, State::Open) if self.response.code == 0 => {
                let why = "the client closed the connection before the response; a write may have \
                           happened";
                ResponseStatus::of_failure(CLIENT_CLOSED_REQUEST, why)
            }
            (None, _) => ResponseStatus::of_code(self.response.code),
        }
    }

    /// The addresses from proxies, and at the end the address of the connection.
    fn source_ips(&self) -> Cow<'_, [IpAddr]> {
        let mut addresses = forwarded(self.request.headers());
        if addresses.is_empty() {
            return Cow::Borrowed(slice::from_ref(&self.peer));
        }
        addresses.push(self.peer);
        addresses.dedup();
        Cow::Owned(addresses)
    }

    fn request_is_too_large(&self) -> bool {
        let body = self.body.as_ref().and_then(|body| body.get());
        body.is_some_and(|body| body.len() > MAX_BODY_BYTES)
    }

    fn request_object(&self) -> Option<Value> {
        let fits = |body: &&Bytes| (1..=MAX_BODY_BYTES).contains(&body.len());
        let body = self.body.as_ref()?.get().filter(fits)?;
        let content_type = self.request.header(CONTENT_TYPE);
        decode_sent(content_type, body).map(|value| self.for_record(value))
    }

    /// A body for the record, without access keys, and without managed fields if the policy omits them.
    fn for_record(&self, mut body: Value) -> Value {
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

/// The decoded body; `None` if it cannot be decoded.
fn decode_sent(content_type: Option<&str>, body: &[u8]) -> Option<Value> {
    if patch_type(content_type, &[PatchType::Apply]).is_ok() {
        return decode_configuration(body).ok().map(|decoded| decoded.value);
    }
    let decoded = match content_type_of_body(content_type).ok() {
        Some(format) => decode::decode_body(body, format),
        // Other patches have special media types, and are JSON.
        None => decode::decode(body, Format::Json),
    };
    decoded.ok().map(|decoded| decoded.value)
}

fn drop_managed_fields(object: &mut Value) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("managedFields");
    }
}

#[cfg(test)]
mod records;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_cannot_hide_the_address_from_the_last_proxy() {
        let mut headers = HeaderMap::new();
        assert!(forwarded(&headers).is_empty());
        let invented = "1.1.1.1, ".repeat(20);
        let sent = [invented.as_bytes(), b"\xff, nonsense, ", b"192.0.2.7,2001:db8::1"].concat();
        headers.append("x-forwarded-for", HeaderValue::from_bytes(&sent[..]).unwrap());
        headers.append("x-forwarded-for", HeaderValue::from_static("192.0.2.8"));
        headers.append("x-real-ip", HeaderValue::from_static("1.1.1.1"));
        let addresses = forwarded(&headers);
        assert_eq!(addresses.len(), MAX_FORWARDED);
        let last: Vec<String> = addresses[5..].iter().map(ToString::to_string).collect();
        assert_eq!(last, ["192.0.2.7", "2001:db8::1", "192.0.2.8"]);
    }

    #[test]
    fn an_apply_in_yaml_is_recorded_without_its_key() {
        let key = format!("pst_{}", "Canary7".repeat(8));
        let body = format!("kind: OwnedAccessKey\nspec:\n  displayName: a\n  key: {key}\n");
        let mut value = decode_sent(Some("application/apply-patch+yaml"), body.as_bytes()).unwrap();
        clean_value(&mut value);
        assert_eq!(value["spec"]["displayName"], "a");
        assert!(!value.to_string().contains(&key), "{value}");
    }
}
