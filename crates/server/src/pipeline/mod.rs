//! The pipeline: a request passes the stages in their order, is carried out, and gets its response.
//!
//! The few paths that need no credential (health, version, public keys) are served before the first stage. What
//! each verb does is in [`verbs`]; what every request works with is the [`Server`].

mod agent_config;
mod audit_events;
mod client;
mod gateway;
mod server;
mod verbs;

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::poll_fn;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use parking_lot::Mutex;
use postern_auth::identity::{Identity, MASTERS_GROUP};
use postern_flow::budget::Charge;
use postern_flow::{Flow, InFlightPermit, Requester, too_many_requests};
use postern_kinds::{BASE_PATH, Verb};
use postern_meta::decode::Format;
use postern_meta::status::{ApiError, Reason};
use postern_registry::clock::new_uid;
use postern_registry::credential::{Credential, check_rights};
use postern_registry::permit::Permit;

pub(crate) use self::client::Client;
pub(crate) use self::server::Server;
use crate::audit::{self, AuditContext};
use crate::endpoints::{documents, health, jwks, version};
use crate::metrics::{self, Measured};
use crate::stages::authenticate::{AuthenticationView, authenticate, names_a_key};
use crate::stages::authorize::{Authorized, authorize};
use crate::stages::impersonate::{Acting, impersonate};
use crate::stages::parse::{self, Parsed, Target};
use crate::stages::websocket;
use crate::wire::body::Body;
use crate::wire::encode;
use crate::wire::incoming::IncomingBody;
use crate::wire::input::{ReceivedBody, RequestBody};
use crate::wire::list::SMALL_BODY_BYTES;
use crate::wire::respond;

/// The timeout of a request that reads, as upstream. Watches have a timeout of their own.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// The timeout of a request that writes, as upstream.
const WRITE_TIMEOUT: Duration = Duration::from_secs(34);

/// The memory of a request on a connection with many, until its response has gone, in bytes.
const STREAM_BYTES: usize = 12 * 1024;

/// Seconds after which a client may try again that a server has rejected at its start or end.
const RETRY_AFTER_SECONDS: u32 = 1;

/// A response, and what it holds until it has gone.
pub(crate) struct Reply {
    pub(crate) response: Response<Body>,
    pub(crate) hold: Hold,
}

/// The resources that a response holds until it has gone.
pub(crate) struct Hold {
    flow: Arc<Flow>,
    /// The owner of the key; `None` for a stranger.
    bearer: Option<Arc<Identity>>,
    /// The charge for the stream and its task, where a connection has many.
    stream: Option<Charge>,
    /// The response's bytes.
    body: Option<Charge>,
    /// The request's seat.
    seat: Mutex<Option<InFlightPermit>>,
    /// Is it known that no access key is in the path?
    has_clean_path: bool,
    /// Is there no room for a response at all? The stream is then refused.
    pub(crate) is_refused: bool,
}

impl Hold {
    fn new(flow: &Arc<Flow>) -> Self {
        Self {
            flow: flow.clone(),
            bearer: None,
            stream: None,
            body: None,
            seat: Mutex::default(),
            has_clean_path: false,
            is_refused: false,
        }
    }

    /// A charge for bytes that wait for the client; `None` when there is no room.
    pub(crate) fn charge(&self, bytes: usize) -> Option<Charge> {
        self.flow.responses.charge(self.requester(), bytes)
    }

    /// Counts the memory of a stream for the owner of the connection's first valid key, if there is one yet. The
    /// result is whether there is room.
    pub(crate) fn opens_stream(&mut self, client: &Client) -> bool {
        let charge = charge_stream(&self.flow, client);
        let has_room = charge.is_ok();
        self.stream = charge.ok().flatten();
        has_room
    }

    /// Counts what a stream takes for the owner of its key.
    fn own_stream(&mut self, client: &Client, bearer: &Arc<Identity>) -> bool {
        self.bearer = Some(bearer.clone());
        let is_counted = self.stream.as_ref().is_some_and(|charge| charge.is_of(&bearer.name));
        if client.has_streams() && !is_counted {
            self.stream = self.charge(STREAM_BYTES);
            return self.stream.is_some();
        }
        true
    }

    /// Whether the request came with a valid key.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.bearer.is_some()
    }

    /// Gives back the request's seat before its response has gone.
    pub(crate) fn give_back_seat(&self) {
        *self.seat.lock() = None;
    }

    /// Counts the answer to a change before that is made: it is never refused afterwards. So who has not taken the
    /// earlier ones makes no more changes.
    ///
    /// # Errors
    /// 429 when there is no room for it.
    fn reserve(&mut self, bytes: usize) -> Result<(), ApiError> {
        if bytes > SMALL_BODY_BYTES {
            self.body = Some(self.charge(bytes).ok_or_else(too_many_requests)?);
        }
        Ok(())
    }

    /// Counts a response. Returns whether there is room for it; that to a change is counted all the same. A small
    /// one is not counted: its connection, or its stream, is.
    fn takes(&mut self, body: &Body, changes: bool) -> bool {
        if body.is_stream() {
            // A watch, and what comes from a cluster, is counted among the watches.
            self.give_back_seat();
            self.stream = None;
        }
        let bytes = body.held_bytes();
        let reserved = self.body.take().filter(|_| bytes > SMALL_BODY_BYTES);
        if bytes <= SMALL_BODY_BYTES {
            return true;
        }
        let mut charge = reserved.unwrap_or_else(|| self.flow.responses.open(self.requester()));
        // The form that the client has asked for may be longer than what is stored.
        let more = bytes.saturating_sub(charge.bytes());
        let has_room = charge.grow(more);
        if !has_room && changes {
            charge.grow_beyond_limits(more);
        }
        self.body = Some(charge);
        has_room
    }

    fn requester(&self) -> Requester<'_> {
        self.bearer.as_ref().map_or(Requester::STRANGER, |bearer| Requester {
            owner: &bearer.name,
            is_system: bearer.is_in(MASTERS_GROUP),
        })
    }
}

/// The response to a request, and what is added to it later.
struct Outcome {
    response: Response<Body>,
    warnings: Vec<String>,
    /// The object that was created, in whatever form the response has it.
    created: Option<Bytes>,
}

impl From<Response<Body>> for Outcome {
    fn from(response: Response<Body>) -> Self {
        Self { response, warnings: Vec::new(), created: None }
    }
}

/// There is no room for another stream of an owner.
pub(crate) struct NoRoom;

/// Counts the memory of a stream for the owner of the connection's first valid key; `None` when no valid key has come
/// yet. Requests that are rejected, or that need no key, count too: their responses wait until the client reads them.
/// The streams of unauthenticated clients are counted separately.
///
/// # Errors
/// When there is no room.
pub(crate) fn charge_stream(flow: &Arc<Flow>, client: &Client) -> Result<Option<Charge>, NoRoom> {
    let owner = client.peer.owner().filter(|_| client.has_streams());
    let Some((owner, is_system)) = owner else { return Ok(None) };
    let charge = flow.responses.charge(Requester { owner, is_system }, STREAM_BYTES);
    charge.map(Some).ok_or(NoRoom)
}

/// The response to a request. An error is a response, too. `stream` is what its stream takes, where that was
/// counted before.
pub(crate) async fn handle(
    server: &Arc<Server>,
    client: &Client,
    request: Request<IncomingBody>,
    stream: Option<Charge>,
) -> Reply {
    let audit_id = audit_id(server, request.headers());
    let head = request.method() == Method::HEAD;
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
    // The query is left out, since tokens end up in queries.
    let request_line = tracing::enabled!(tracing::Level::DEBUG).then(|| {
        audit::clean(&format!("{} {}", request.method(), request.uri().path())).into_owned()
    });
    let mut measured = Measured::begin();
    let mut hold = Hold::new(&server.flow);
    hold.stream = stream;
    if hold.stream.is_none() && !hold.opens_stream(client) {
        hold.is_refused = true;
        let response = respond::error(&too_many_requests(), Format::Json, false);
        return Reply { response, hold };
    }
    let outcome = match public(server, &request, &mut measured) {
        Some(response) => {
            hold.has_clean_path = true;
            response.into()
        }
        None => protected(server, client, request, &audit_id, &mut measured, &mut hold).await,
    };
    let mut response = respond::finish(outcome.response, &audit_id, &outcome.warnings, head);
    if !hold.takes(response.body(), changes) && !changes {
        // The answer to a change that was made is never replaced: its client would make it again.
        let refused = respond::error(&too_many_requests(), Format::Json, false);
        response = respond::finish(refused, &audit_id, &[], head);
    }
    server.metrics.count(&measured, response.status());
    if let Some(request_line) = request_line {
        let (code, id) = (response.status().as_u16(), audit_id.to_str());
        let line = if hold.has_clean_path { &*request_line } else { "(left out)" };
        tracing::debug!(code, audit_id = id.unwrap_or_default(), "{line}");
    }
    if response.status() == StatusCode::TOO_MANY_REQUESTS && !hold.is_refused {
        // The request is gone by now, and its seat: what waits here is small.
        hold.give_back_seat();
        server.flow.delay_rejection().await;
    }
    Reply { response, hold }
}

/// The client's own audit id if it is a UUID, and otherwise a new one.
fn audit_id(server: &Arc<Server>, headers: &http::HeaderMap) -> HeaderValue {
    let sent = headers.get("audit-id").and_then(|value| value.to_str().ok());
    let id = sent
        .and_then(|text| uuid::Uuid::try_parse(text).ok())
        .map_or_else(|| new_uid(&*server.source), |id| id.to_string());
    HeaderValue::from_str(&id).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// The response to a path that needs no credential, at the root or under the base path;
/// `None` for all other paths.
fn public(
    server: &Server,
    request: &Request<IncomingBody>,
    measured: &mut Measured,
) -> Option<Response<Body>> {
    let path = request.uri().path();
    let under_base = path.strip_prefix(BASE_PATH).filter(|rest| rest.starts_with('/'));
    let path = under_base.unwrap_or(path);
    let query = request.uri().query().unwrap_or_default();
    let response = if path.strip_suffix('/').unwrap_or(path) == "/version" {
        let at_root = under_base.is_none();
        let document = if at_root { version::document_at_root() } else { version::document() };
        respond::value(StatusCode::OK, &document, true)
    } else if path == jwks::PATH && under_base.is_some() && server.is_loaded() {
        jwks::response(server.registry.cache().signing_keys().document().clone())
    } else {
        health::response(path, query, || server.condition())?
    };
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        measured.set_public_path(path);
        return Some(response);
    }
    Some(respond::error(&method_not_allowed(request.method()), Format::Json, false))
}

async fn protected(
    server: &Arc<Server>,
    client: &Client,
    request: Request<IncomingBody>,
    audit_id: &HeaderValue,
    measured: &mut Measured,
    hold: &mut Hold,
) -> Outcome {
    let (parts, body) = request.into_parts();
    let parsed = Parsed::new(parts);
    measured.set_request(&parsed);
    let outcome = audited(server, client, parsed.clone(), body, audit_id, hold).await;
    outcome.unwrap_or_else(|error| {
        let (format, by_accept) = encode::error_form(parsed.headers());
        let pretty = by_accept || encode::wants_pretty(&parsed).unwrap_or_default();
        respond::error(&error, format, pretty).into()
    })
}

/// Serves a request, and records it in the audit log with its result.
async fn audited(
    server: &Arc<Server>,
    client: &Client,
    parsed: Parsed,
    body: IncomingBody,
    audit_id: &HeaderValue,
    hold: &mut Hold,
) -> Result<Outcome, ApiError> {
    check_phase(server)?;
    let mut audit_context =
        Box::new(AuditContext::begin(&server.audit, &parsed, client.peer.address(), audit_id));
    match identified(server, client, parsed, body, &mut audit_context, hold).await {
        Ok(outcome) => {
            if let Some(json) = &outcome.created {
                audit_context.set_created(json);
            }
            let response = audit_context.finish_with_response(outcome.response).await?;
            Ok(Outcome { response, ..outcome })
        }
        Err(error) => {
            audit_context.finish_with_error(&error);
            Err(error)
        }
    }
}

/// Checks that requests are served now. No request is decided before the whole policy is loaded.
///
/// # Errors
/// 503 while the server starts, and when it ends.
fn check_phase(server: &Server) -> Result<(), ApiError> {
    let unavailable = |message| Err(ApiError::unavailable(message, Some(RETRY_AFTER_SECONDS)));
    if !server.is_loaded() {
        return unavailable("the server is starting, and has not loaded what is stored yet");
    }
    if server.is_draining() {
        return unavailable("the server is shutting down");
    }
    Ok(())
}

/// Serves a request whose sender has to be known first.
async fn identified(
    server: &Arc<Server>,
    client: &Client,
    parsed: Parsed,
    body: IncomingBody,
    audit_context: &mut AuditContext,
    hold: &mut Hold,
) -> Result<Outcome, ApiError> {
    let registry = &server.registry;
    let as_of = wait_for_principals(server, client).await;
    let now = server.source.now();
    let (digester, principals) = (registry.digester(), || registry.cache().principals());
    let misplaced = names_a_key(&parsed, digester, &principals());
    let problem = parsed.problem().cloned();
    if misplaced || problem.is_some() {
        audit_context.hide_names();
    } else {
        hold.has_clean_path = !parsed.is_deep();
    }
    let version = registry.cache().access_version();
    let authenticated = authenticate(
        parsed,
        &AuthenticationView {
            digester,
            principals: &principals(),
            policy: &registry.cache().policy(),
            version,
            now,
        },
        &client.last_credential,
    );
    let authenticated = authenticated.map_err(|refused| {
        audit_context.set_unauthenticated(refused.key);
        refused.error
    })?;
    let bearer = authenticated.credential().shared_bearer();
    client.set_authenticated(&server.flow, bearer);
    if !hold.own_stream(client, bearer) {
        hold.is_refused = true;
        return Err(too_many_requests());
    }
    let body =
        audit_context.set_authenticated(authenticated.credential(), &client.last_sender, body)?;
    if misplaced {
        return Err(parse::names_a_key());
    }
    if let Some(problem) = problem {
        return Err(problem);
    }
    let acting = impersonate(authenticated, &principals(), || registry.cache().policy());
    match &acting {
        Ok(acting) => audit_context.set_impersonated(acting.credential()),
        Err(error) => audit_context.set_forbidden(error),
    }
    audit_context.record_received();
    let acting = acting?;
    within_time(server, client, acting, as_of, body, audit_context, hold).await
}

/// Waits until the cache knows the keys that other servers have made, enabled or disabled: what a
/// completed request did is so for the next one. When the store does not respond, what the cache has
/// decides: no caller is locked out for that. Returns the revision that the store had, if it responds.
async fn wait_for_principals(server: &Server, client: &Client) -> Option<u64> {
    let mut current = pin!(server.registry.cache().current());
    if let Poll::Ready(current) = poll_fn(|cx| Poll::Ready(current.as_mut().poll(cx))).await {
        return current.ok();
    }
    // Few strangers ask at a time; the others wait for them, and are bounded as streams and connections.
    let _asking =
        if client.is_authenticated() { None } else { server.flow.strangers.acquire().await.ok() };
    current.await.ok()
}

/// Serves a request within its time: the body comes in, then there is a seat, then it is done.
async fn within_time(
    server: &Arc<Server>,
    client: &Client,
    acting: Acting,
    as_of: Option<u64>,
    body: RequestBody,
    audit_context: &mut AuditContext,
    hold: &mut Hold,
) -> Result<Outcome, ApiError> {
    let verb = match acting.parsed().target() {
        Target::Resource(target) => Some(target.verb),
        Target::Gateway(request) => {
            let request = request.clone();
            let serve = gateway::serve(server, acting, request, body, audit_context, hold);
            return Box::pin(serve).await;
        }
        _ => None,
    };
    let writes = !matches!(verb, None | Some(Verb::Get | Verb::List | Verb::Watch));
    let limit = if writes { WRITE_TIMEOUT } else { READ_TIMEOUT };
    let work = async {
        let bearer = acting.credential().shared_bearer().clone();
        let requester = Requester { owner: &bearer.name, is_system: bearer.is_in(MASTERS_GROUP) };
        let body = if writes {
            body.read(server.flow.bodies.open(requester)).await?
        } else {
            drop(body);
            ReceivedBody::none()
        };
        if writes && !requester.is_system {
            server.flow.write_rate.check(requester.owner)?;
        }
        let seat = server.flow.acquire(verb, requester).await;
        if !seat.as_ref().is_ok_and(|seat| !seat.has_waited()) {
            client.set_waits(requester.owner);
        }
        let seat = seat?;
        if writes || seat.has_waited() {
            check_again(server, acting.credential()).await?;
        }
        let gives_way = seat.has_waited() && server.flow.has_company();
        hold.seat = Mutex::new(Some(seat));
        act(server, acting, Asked { as_of, gives_way }, body, audit_context, hold).await
    };
    let mut work = pin!(work);
    // Most reads are served at once, from memory. They need no timer.
    if let Poll::Ready(outcome) = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await {
        return outcome;
    }
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        Err(ApiError::timeout(format!(
            "request did not complete within {} s; a write may still happen",
            limit.as_secs()
        )))
    })
}

/// Checks once more that the caller is who they were, and may act as whom they act as. A body or a seat may have taken a while: a
/// caller could otherwise act until the deadline with a key that has stopped working.
///
/// # Errors
/// See [`Credential::check`] and [`check_rights`].
async fn check_again(server: &Server, credential: &Credential) -> Result<(), ApiError> {
    let cache = server.registry.cache();
    let _ = cache.wait_until_current().await;
    let policy = cache.policy();
    credential.check(&cache.principals(), &policy, server.source.now())?;
    check_rights(credential, &policy)
}

/// How a request came to its turn.
#[derive(Clone, Copy)]
struct Asked {
    /// The store's revision when it was sent.
    as_of: Option<u64>,
    /// Has it waited for its seat, next to requests of others?
    gives_way: bool,
}

async fn act(
    server: &Arc<Server>,
    acting: Acting,
    asked: Asked,
    body: ReceivedBody,
    audit_context: &mut AuditContext,
    hold: &mut Hold,
) -> Result<Outcome, ApiError> {
    let policy = server.registry.cache().policy();
    let authorized = authorize(acting, policy).and_then(|authorized| {
        check_origin(server, &authorized)?;
        Ok(authorized)
    });
    let authorized = authorized.inspect_err(|error| audit_context.set_forbidden(error))?;
    audit_context.set_allowed();
    match authorized {
        Authorized::Resource(parsed, permit) => {
            check_websocket(&parsed, permit.target().verb == Verb::Watch)?;
            let permit = permit.asked_at(asked.as_of);
            hold.reserve(verbs::answer_bytes(server, &permit, &body))?;
            verbs::count_write(server, &parsed, &permit, &body);
            if verbs::is_large(server, &parsed, &permit, &body) {
                return Box::pin(served_as_large(server, parsed, permit, body)).await;
            }
            if asked.gives_way {
                return Box::pin(served_as_queued(server, parsed, permit, body)).await;
            }
            verbs::serve(server, &parsed, &permit, body).await
        }
        Authorized::Document(parsed) => {
            check_websocket(&parsed, false)?;
            document(server, &parsed).map(Outcome::from)
        }
    }
}

/// Checks that a WebSocket is asked for by no page but this server's.
///
/// # Errors
/// 403 for a page of another origin.
fn check_origin(server: &Server, authorized: &Authorized) -> Result<(), ApiError> {
    let (Authorized::Resource(parsed, _) | Authorized::Document(parsed)) = authorized;
    if !parsed.is_websocket() {
        return Ok(());
    }
    websocket::check_origin(parsed.headers(), &server.registry.token_policy().issuer)
}

/// Checks that a WebSocket is asked for only where there is one. An upgrade to anything else is ignored, as
/// HTTP has it.
///
/// # Errors
/// 400: an answer that is none would only puzzle the client.
fn check_websocket(parsed: &Parsed, is_watch: bool) -> Result<(), ApiError> {
    if is_watch || !parsed.is_websocket() {
        return Ok(());
    }
    let message = "only a watch can be a WebSocket: ask for a collection, with watch=true";
    Err(ApiError::bad_request(message))
}

/// Serves a request where large work is done. It is boxed: other requests need no room for it.
async fn served_as_large(
    server: &Arc<Server>,
    parsed: Parsed,
    permit: Permit,
    body: ReceivedBody,
) -> Result<Outcome, ApiError> {
    let (large, server) = (verbs::large_work(server, &permit), server.clone());
    let work = async move {
        check_again(&server, permit.credential()).await?;
        verbs::serve(&server, &parsed, &permit, body).await
    };
    large.run_async(work).await?
}

/// Serves a request that has waited for its seat. It is boxed as well.
async fn served_as_queued(
    server: &Arc<Server>,
    parsed: Parsed,
    permit: Permit,
    body: ReceivedBody,
) -> Result<Outcome, ApiError> {
    let served_by = server.clone();
    let work = async move { verbs::serve(&served_by, &parsed, &permit, body).await };
    server.flow.run_queued(work).await?
}

fn document(server: &Arc<Server>, parsed: &Parsed) -> Result<Response<Body>, ApiError> {
    let Target::Document(document) = parsed.target() else {
        return Err(ApiError::resource_not_served());
    };
    if !matches!(*parsed.method(), Method::GET | Method::HEAD) {
        return Err(method_not_allowed(parsed.method()));
    }
    let now = server.source.now();
    documents::response(parsed, *document, now, || {
        metrics::write(&server.metrics, &server.readings())
    })
}

fn method_not_allowed(method: &Method) -> ApiError {
    let message = format!("{method} is not supported on this path: it is read with GET");
    ApiError::new(405, Reason::MethodNotAllowed, message)
}

#[cfg(test)]
mod tests {
    use postern_flow::Limits;

    use super::*;

    #[tokio::test]
    async fn the_answer_to_a_change_is_counted_although_there_is_no_room_for_it() {
        const BYTES: usize = 60 << 20;
        let flow = Arc::new(Flow::new(Limits::default()));
        let ada = Identity { name: "ada".to_owned(), ..Identity::default() };
        let answer = Body::Whole(Some(Bytes::from(vec![0; BYTES])));
        let hold = || Hold { bearer: Some(Arc::new(ada.clone())), ..Hold::new(&flow) };
        assert!(!hold().takes(&answer, false));
        assert_eq!(flow.counts().response_bytes, 0, "a read is refused instead");
        let mut changed = hold();
        assert!(!changed.takes(&answer, true));
        assert_eq!(flow.counts().response_bytes, BYTES);
        let refused = hold().reserve(1 << 20).unwrap_err();
        assert_eq!(refused.code(), 429, "they make no more large changes meanwhile");
        assert!(hold().reserve(SMALL_BODY_BYTES).is_ok());
        let bob = Requester { owner: "bob", is_system: false };
        assert!(flow.responses.charge(bob, 1 << 20).is_some());
        drop(changed);
        let mut changed = hold();
        changed.reserve(1 << 20).unwrap();
        assert_eq!(flow.counts().response_bytes, 1 << 20);
        let answer = |bytes| Body::Whole(Some(Bytes::from(vec![0; bytes])));
        assert!(changed.takes(&answer(3 << 20), true));
        assert_eq!(flow.counts().response_bytes, 3 << 20, "it was longer than expected");
        assert!(changed.takes(&answer(100), true));
        assert_eq!(flow.counts().response_bytes, 0, "it was small");
    }
}
