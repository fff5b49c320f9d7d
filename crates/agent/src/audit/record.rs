//! The records of one request, stage by stage.

use std::net::IpAddr;
use std::sync::Arc;

use http::Method;
use http::header::USER_AGENT;
use http::request::Parts;
use parking_lot::Mutex;
use postern_auth::attributes::Attributes;
use postern_auth::credential_text::{has_jwt, may_have_access_key};
use postern_auth::endpoint_token::VerifiedToken;
use postern_auth::exec_command::exec_command;
use postern_auth::identity::Identity;
use postern_auth::kube_request::KubeRequest;
use postern_kinds::audit_event_list::{
    AuditEvent, AuditObjectReference, AuditResponseStatus, AuditUser,
};
use postern_meta::status::{ApiError, Reason};
use postern_meta::time::MicroTimestamp;
use postern_telemetry::{TraceContext, sent_audit_id};
use uuid::Uuid;

use super::Audit;
use crate::state::Clock;

/// The maximum number of bytes of a recorded text: first for an unauthenticated sender, which can
/// send any number of them, then for other senders.
const MAX_UNAUTHENTICATED_BYTES: usize = 256;
const MAX_TEXT_BYTES: usize = 4096;

/// Bytes of the id that the client gives a request.
const MAX_ID_BYTES: usize = 64;

/// Replaces a text that may be an access key or a JWT.
const LEFT_OUT: &str = "(left-out)";

/// The names of further data about the user: the access key, and the token.
const ACCESS_KEY: &str = "platform.sh/access-key";
const TOKEN_ID: &str = "platform.sh/token-id";

/// The annotation with the id that the client gives a request, where it is no UUID: a UUID is the id of the records.
const CLIENT_ID: &str = "platform.sh/client-audit-id";

/// The annotation with the trace, in the form of the header `traceparent`.
const TRACEPARENT: &str = "platform.sh/traceparent";

pub(super) const DECISION: &str = "authorization.k8s.io/decision";

/// The annotation of a request that was allowed, and lost its permission before its response.
const ENDED: &str = "platform.sh/ended-by";

const REASON: &str = "authorization.k8s.io/reason";

/// The code of a request if the client closed the connection before the response, as proxies log
/// it.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// One request. Its end is recorded when this is dropped.
pub(crate) struct Record {
    audit: Arc<Audit>,
    clock: Clock,
    id: String,
    inner: Mutex<Inner>,
}

struct Inner {
    event: AuditEvent,
    is_authenticated: bool,
    /// Kubernetes' verb, when it is known.
    verb: Option<&'static str>,
}

impl Record {
    /// The record of a request that has just arrived.
    pub(crate) fn new(audit: &Arc<Audit>, clock: &Clock, from: IpAddr, head: &Parts) -> Arc<Self> {
        let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
        let own = sent_audit_id(&head.headers);
        let client_id = header("audit-id").filter(|id| own.is_none() && id.len() <= MAX_ID_BYTES);
        let client_id = client_id.map(|id| (CLIENT_ID.to_owned(), clean(id, MAX_ID_BYTES)));
        let id = own.map_or_else(|| audit.next_id(), |id| id.to_string());
        let event = AuditEvent {
            level: "Metadata".to_owned(),
            audit_id: id.clone(),
            request_uri: uri_of(head.uri.path()),
            verb: verb_of(&head.method),
            source_ips: vec![from.to_string()],
            user_agent: clean(
                header(USER_AGENT.as_str()).unwrap_or_default(),
                MAX_UNAUTHENTICATED_BYTES,
            ),
            request_received_timestamp: Some(clock()),
            annotations: client_id.into_iter().collect(),
            ..AuditEvent::default()
        };
        let inner = Mutex::new(Inner { event, is_authenticated: false, verb: None });
        Arc::new(Self { audit: audit.clone(), clock: clock.clone(), id, inner })
    }

    /// Adds the trace to the record, if there is one.
    pub(crate) fn set_trace(&self, trace: Option<TraceContext>) {
        if let Some(trace) = trace {
            let annotations = &mut self.inner.lock().event.annotations;
            annotations.insert(TRACEPARENT.to_owned(), trace.to_string());
        }
    }

    /// Its id as a number.
    pub(crate) fn uuid(&self) -> Uuid {
        Uuid::try_parse(&self.id).unwrap_or_default()
    }

    /// Its id: the client's own, when it is a UUID, and else a new one.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Kubernetes' verb; `None` before the request was read.
    pub(crate) fn verb(&self) -> Option<&'static str> {
        self.inner.lock().verb
    }

    /// Sets the caller of the request.
    pub(crate) fn set_authenticated(&self, token: &VerifiedToken) {
        let identity = &token.identity;
        let extra = [
            (ACCESS_KEY.to_owned(), vec![identity.access_key.clone()]),
            (TOKEN_ID.to_owned(), vec![token.token_id.clone()]),
        ];
        let user = if identity.is_impersonated {
            AuditUser { username: token.owner().to_owned(), ..AuditUser::default() }
        } else {
            user_of(identity)
        };
        let mut inner = self.inner.lock();
        inner.is_authenticated = true;
        inner.event.user = AuditUser { extra: extra.into(), ..user };
        inner.event.impersonated_user = identity.is_impersonated.then(|| user_of(identity));
    }

    /// Sets the action that the request asks of the cluster.
    pub(crate) fn set_asked(&self, kube: &KubeRequest) {
        let mut inner = self.inner.lock();
        inner.verb = Some(kube.verb());
        kube.verb().clone_into(&mut inner.event.verb);
        inner.event.object_ref = object_of(kube);
        if self.audit.has_commands
            && let Some(command) = exec_command(kube)
        {
            let annotations = command.annotations().map(|(name, value)| (name.to_owned(), value));
            inner.event.annotations.extend(annotations);
        }
    }

    /// Sets that it was allowed; for a change, it is recorded first that it was asked for.
    ///
    /// # Errors
    /// 503 when that is not possible: then it must not be sent on.
    pub(crate) async fn allowed(&self, is_change: bool) -> Result<(), ApiError> {
        let received = {
            let mut inner = self.inner.lock();
            inner.event.annotations.insert(DECISION.to_owned(), "allow".to_owned());
            is_change.then(|| self.at("RequestReceived", &inner.event))
        };
        match received {
            Some(event) => self.audit.append_first(event).await,
            None => Ok(()),
        }
    }

    /// Sets the head of its response. With `goes_on`, the rest of the response has no time limit
    /// here.
    pub(crate) fn answered(&self, code: u16, error: Option<&ApiError>, goes_on: bool) {
        let mut inner = self.inner.lock();
        let status = error.map(ApiError::status);
        inner.event.response_status = Some(AuditResponseStatus {
            status: status.map(|_| "Failure".to_owned()).unwrap_or_default(),
            message: status.map(|one| clean(&one.message, MAX_TEXT_BYTES)).unwrap_or_default(),
            reason: status.map(|one| one.reason.as_str().to_owned()).unwrap_or_default(),
            code,
        });
        if let Some(error) = error.filter(|error| error.reason() == Reason::Forbidden) {
            let message = clean(&error.status().message, MAX_TEXT_BYTES);
            let annotations = &mut inner.event.annotations;
            // The cluster may have carried out a forwarded request, even if it was ended.
            if annotations.contains_key(DECISION) {
                annotations.insert(ENDED.to_owned(), message);
            } else {
                annotations.insert(DECISION.to_owned(), "forbid".to_owned());
                annotations.insert(REASON.to_owned(), message);
            }
        }
        if goes_on {
            let event = self.at("ResponseStarted", &inner.event);
            drop(inner);
            self.audit.append(event);
        }
    }

    fn at(&self, stage: &str, event: &AuditEvent) -> AuditEvent {
        let stage_timestamp = Some((self.clock)());
        AuditEvent { stage: stage.to_owned(), stage_timestamp, ..event.clone() }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let inner = self.inner.get_mut();
        let now: MicroTimestamp = (self.clock)();
        if inner.event.response_status.is_none() {
            inner.event.response_status = Some(AuditResponseStatus {
                status: "Failure".to_owned(),
                message: "the client closed the connection before the response".to_owned(),
                code: CLIENT_CLOSED_REQUEST,
                ..AuditResponseStatus::default()
            });
        }
        let mut event = std::mem::take(&mut inner.event);
        if !inner.is_authenticated {
            if !self.audit.note_failure(now) {
                return;
            }
            event.request_uri = clean(&event.request_uri, MAX_UNAUTHENTICATED_BYTES);
        }
        "ResponseComplete".clone_into(&mut event.stage);
        event.stage_timestamp = Some(now);
        self.audit.append(event);
    }
}

fn user_of(identity: &Identity) -> AuditUser {
    AuditUser {
        username: identity.name.clone(),
        uid: identity.uid.clone(),
        groups: identity.groups.clone(),
        ..AuditUser::default()
    }
}

fn object_of(kube: &KubeRequest) -> Option<AuditObjectReference> {
    let Attributes::Resource { group, resource, subresource, namespace, name, .. } =
        kube.attributes()
    else {
        return None;
    };
    let text = |text: &str| clean(text, MAX_UNAUTHENTICATED_BYTES);
    Some(AuditObjectReference {
        resource: text(resource),
        namespace: text(namespace),
        name: text(name),
        api_group: text(group),
        api_version: text(kube.version()),
        subresource: text(subresource),
    })
}

/// The methods that are recorded by their names.
const METHODS: [Method; 9] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
    Method::CONNECT,
    Method::TRACE,
];

/// The verb of a request if only its method is known. A client can send any method, and the central server
/// accepts only words.
fn verb_of(method: &Method) -> String {
    let known = METHODS.contains(method);
    if known { method.as_str().to_ascii_lowercase() } else { "other".to_owned() }
}

/// A path as it is recorded: it begins with `/`, also for `OPTIONS *` and CONNECT, which have none.
fn uri_of(path: &str) -> String {
    let path = clean(path, MAX_TEXT_BYTES);
    if path.starts_with('/') { path } else { format!("/{path}") }
}

/// A text in its recorded form: shortened, and replaced if it may contain an access key or a JWT.
pub(super) fn clean(text: &str, max_bytes: usize) -> String {
    if may_have_access_key(text) || has_jwt(text) {
        return LEFT_OUT.to_owned();
    }
    let end = (0..=max_bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or_default()].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_credential_is_left_out() {
        for text in ["/x/pst_1", "/eyJhbGciOiJFUzI1NiJ9.eyJzdWIi", "curl eyJeyJ.x.y"] {
            assert_eq!(clean(text, 100), LEFT_OUT, "{text}");
        }
        for text in ["/api/v1/pods", "/keyJ/a.b", "eyJ"] {
            assert_eq!(clean(text, 100), text);
        }
    }
}
