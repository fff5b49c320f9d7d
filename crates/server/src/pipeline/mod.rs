//! The pipeline: runs the stages of a request in order, serves the request, and returns the response.
//!
//! A few paths need no credential (health, version, public keys). They are served before the first stage.
//! [`verbs`] serves each verb. [`Server`] has the parts that all requests use.

mod agent_config;
mod audit_events;
mod browser_headers;
mod client;
mod client_address;
mod gateway;
mod login_failures;
mod owner_warning;
mod response_guard;
mod server;
mod sessions;
mod tunnel;
mod verbs;

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::poll_fn;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use postern_flow::budget::Charge;
use postern_flow::too_many_requests;
use postern_kinds::action::{Action, Handler, ServerAction};
use postern_kinds::{BASE_PATH, Verb};
use postern_meta::decode::Format;
use postern_meta::options::{Query, parameter_warnings};
use postern_meta::status::{ApiError, Reason};
use postern_registry::clock::new_uuid;
use postern_registry::credential::{Credential, check_impersonation};
use postern_registry::permit::Permit;
use postern_registry::registry::ObjectIdentity;
use postern_telemetry::{
    RequestIds, SpanKind, in_current_request, request_span, sent_audit_id, span,
};

use self::browser_headers::{AUTH_PREFIX, BrowserHeaders};
pub(crate) use self::client::Client;
pub use self::client_address::ClientAddresses;
pub(crate) use self::login_failures::LoginKind;
pub(crate) use self::response_guard::{ResponseGuard, charge_stream};
pub use self::server::DEFAULT_LOGIN_FAILURES;
pub(crate) use self::server::{Server, Storage};
use self::verbs::VerbRequest;
use crate::audit::{self, AuditContext, SignIn};
use crate::endpoints::{console, documents, health, jwks, version};
use crate::gateway::relay::{self, Relay};
use crate::metrics::{self, Measured};
use crate::sso::{self, Sso, Visit};
use crate::stages::authenticate::{AuthenticationView, authenticate, names_a_key};
use crate::stages::authorize::{Authorized, authorize};
use crate::stages::impersonate::{Acting, impersonate};
use crate::stages::parse::{self, Document, Parsed, Target};
use crate::stages::{not_served, websocket};
use crate::wire::body::Body;
use crate::wire::encode;
use crate::wire::incoming::IncomingBody;
use crate::wire::input::{ReceivedBody, RequestBody};
use crate::wire::respond;

/// The timeout of a read, as in kube-apiserver. Watches have a separate timeout.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// The timeout of a write, as in kube-apiserver.
const WRITE_TIMEOUT: Duration = Duration::from_secs(34);

/// The owner of connections of other servers, in the table of connections.
const RELAY_OWNER: &str = "system:postern";

/// The seconds after which a client may retry a request that was rejected at the server's start or shutdown.
const RETRY_AFTER_SECONDS: u32 = 1;

/// A response, and the guard that its request keeps until the response is sent.
pub(crate) struct Reply {
    pub(crate) response: Response<Body>,
    pub(crate) guard: ResponseGuard,
}

/// The sender of a request.
#[derive(Clone, Copy)]
struct Caller<'a> {
    client: &'a Client,
    /// The address of the client, which may be behind a proxy.
    address: IpAddr,
    /// The id of the request in the audit log.
    audit_id: &'a HeaderValue,
}

/// The response to a request, with the warnings and the audit data that are added to it later.
struct Outcome {
    response: Response<Body>,
    warnings: Vec<String>,
    /// The object that was created.
    created: Option<ObjectIdentity>,
}

impl From<Response<Body>> for Outcome {
    fn from(response: Response<Body>) -> Self {
        Self { response, warnings: Vec::new(), created: None }
    }
}

/// Serves a request. An error is also a response. `stream` is the charge for the request's stream, if it is counted
/// already.
///
/// Its log lines carry the request's ids, and its steps are spans of the request's trace. The request's span ends
/// with the head of the response.
pub(crate) async fn handle(
    server: &Arc<Server>,
    client: &Arc<Client>,
    mut request: Request<IncomingBody>,
    stream: Option<Charge>,
) -> Reply {
    let sent_id = sent_audit_id(request.headers());
    let audit_id = sent_id.unwrap_or_else(|| new_uuid(&*server.source));
    let mut ids = RequestIds::of_headers(audit_id, request.headers_mut());
    let mut span = request_span("request", &mut ids);
    let audit_id = id_header(audit_id);
    // Pinned here: moved into the scope, it would be copied.
    let replied = pin!(reply(server, client, request, stream, &audit_id));
    let reply = ids.scope(replied).await;
    span.set_status(reply.response.status().as_u16());
    reply
}

async fn reply(
    server: &Arc<Server>,
    client: &Arc<Client>,
    request: Request<IncomingBody>,
    stream: Option<Charge>,
    audit_id: &HeaderValue,
) -> Reply {
    let head = request.method() == Method::HEAD;
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
    let request_line = tracing::enabled!(tracing::Level::DEBUG).then(|| line_of(&request));
    let mut measured = Measured::begin();
    let mut guard = ResponseGuard::new(client, stream);
    if !guard.opens_stream() {
        guard.is_refused = true;
        let response = respond::error(&too_many_requests(), Format::Json, false);
        return Reply { response, guard };
    }
    let browser_headers = BrowserHeaders::of(&request);
    let address = server.clients.of(client.peer.address(), request.headers());
    let caller = Caller { client, address, audit_id };
    if request.uri().path().ends_with(jwks::PATH) {
        // The keys are those of now. If the store does not answer, they are those that are known.
        let _ = wait_for_principals(server, client).await;
    }
    let failed_relay = match relay::check(&server.gateway, &server.registry, &request) {
        Relay::None => None,
        Relay::Valid => return relayed(server, client, request, guard).await,
        Relay::Opening => return opened(client, request, guard),
        Relay::Refused => Some(LoginKind::Server),
    };
    if Sso::serves(request.method(), request.uri().path()) {
        return sign_in(server, caller, request, guard, browser_headers, measured).await;
    }
    let counted_kind = failed_relay.or_else(|| is_login(&request).then_some(LoginKind::Person));
    let outcome = match public(server, &request, &mut measured) {
        Some(response) => {
            guard.has_clean_path = true;
            Outcome { warnings: public_warnings(&request), ..response.into() }
        }
        None => protected(server, caller, request, &mut measured, &mut guard).await,
    };
    let mut response = respond::finish(outcome.response, audit_id, &outcome.warnings, head);
    if let Some(kind) = counted_kind
        && response.status() == StatusCode::UNAUTHORIZED
        && let Err(error) = server.count_failure(kind, address)
    {
        let refused = respond::error(&error, Format::Json, false);
        response = respond::finish(refused, audit_id, &[], head);
    }
    if !guard.takes(response.body(), changes) && !changes {
        // The response to a committed change is never replaced: the client would repeat the change.
        let refused = respond::error(&too_many_requests(), Format::Json, false);
        response = respond::finish(refused, audit_id, &[], head);
    }
    browser_headers.add_to(response.headers_mut());
    server.metrics.count(&measured, response.status());
    if let Some(request_line) = request_line {
        let line = if guard.has_clean_path { &*request_line } else { "(left out)" };
        tracing::debug!(code = response.status().as_u16(), "{line}");
    }
    if response.status() == StatusCode::TOO_MANY_REQUESTS && !guard.is_refused {
        // The request is no longer in memory. Its slot is released before the delay.
        guard.release_slot();
        server.flow.delay_rejection().await;
    }
    Reply { response, guard }
}

/// The first line of a request for the log. The query is omitted, since clients put tokens in queries.
fn line_of(request: &Request<IncomingBody>) -> String {
    audit::clean(&format!("{} {}", request.method(), request.uri().path())).into_owned()
}

/// Whether a request begins a session, or something else that needs a key or a session at a path for logins. A 401 counts as
/// a failed login, and a valid key is never refused for the failures of others at its address. A request that reads or
/// ends a session is none: a browser whose session has ended sends it with each page.
fn is_login(request: &Request<IncomingBody>) -> bool {
    request.method() == Method::POST && request.uri().path().starts_with(AUTH_PREFIX)
}

/// Serves a request of a login, which needs no credential.
async fn sign_in(
    server: &Arc<Server>,
    caller: Caller<'_>,
    request: Request<IncomingBody>,
    guard: ResponseGuard,
    browser_headers: BrowserHeaders,
    mut measured: Measured,
) -> Reply {
    let Caller { address, audit_id, .. } = caller;
    let (path, head) = (request.uri().path().to_owned(), request.method() == Method::HEAD);
    measured.set_public_path(&path);
    let is_page = accepts_html(request.headers());
    let refused = |error: &ApiError| sso::error(&path, error, is_page);
    let kind = kind_of(&path);
    let mut response = if let Err(error) = check_phase(server) {
        refused(&error)
    } else if let Err(error) = server.check_failures(kind, address) {
        let of = (request.uri(), request.headers());
        let record = SignIn::begin(&server.audit, of, address, audit_id);
        record.end(StatusCode::TOO_MANY_REQUESTS, Some(&error.status().message));
        refused(&error)
    } else {
        let visit = Visit { address, audit_id, has_console: server.console.is_some() };
        let response = Box::pin(server.sso.serve(request, visit)).await;
        if sso::is_failure(&response) {
            // If it is one too many, the next request is the first that gets no answer.
            let _ = server.count_failure(kind, address);
        }
        response
    };
    server.metrics.count(&measured, response.status());
    // Not a refused stream: a browser repeats that, and shows its page no code and no time to wait.
    browser_headers.add_to(response.headers_mut());
    Reply { response: respond::finish(response, audit_id, &[], head), guard }
}

fn kind_of(path: &str) -> LoginKind {
    if Sso::is_logout(path) {
        LoginKind::Logout
    } else if Sso::is_of_program(path) {
        LoginKind::Token
    } else {
        LoginKind::Person
    }
}

/// Whether a client wants a page: a browser that follows a link or a redirect.
fn accepts_html(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

/// Sends a request of another server on. That server has decided, recorded and counted it.
async fn relayed(
    server: &Arc<Server>,
    client: &Client,
    request: Request<IncomingBody>,
    mut guard: ResponseGuard,
) -> Reply {
    guard.has_clean_path = true;
    let sent = match check_phase(server).and_then(|()| server.registry.cache().check_store()) {
        Ok(()) => relay::serve(&server.gateway, request).await,
        Err(error) => Err(error),
    };
    let response = match sent {
        Ok(response) => {
            client.peer.set_authenticated(RELAY_OWNER, true);
            respond::relayed(response)
        }
        Err(error) => respond::error(&error, Format::Json, false),
    };
    Reply { response, guard }
}

/// The response to the first request of a connection on which another server sends long heads.
fn opened(client: &Client, request: Request<IncomingBody>, mut guard: ResponseGuard) -> Reply {
    guard.has_clean_path = true;
    client.peer.set_authenticated(RELAY_OWNER, true);
    Reply { response: respond::long_heads(request), guard }
}

/// The header with an audit id.
fn id_header(id: uuid::Uuid) -> HeaderValue {
    HeaderValue::from_str(id.hyphenated().encode_lower(&mut uuid::Uuid::encode_buffer()))
        .unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// The response to a path that needs no credential, at the root or under the base path; `None` for all other
/// paths.
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
    } else if path == "/auth/methods" && under_base.is_none() {
        respond::value(StatusCode::OK, &server.sso.methods(), false)
    } else if under_base.is_none()
        && let Some(console) = &server.console
        && let Some(page) = console::response(console, request)
    {
        page
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

/// Warnings about the parameters of a public path. Health checks have parameters of their own.
fn public_warnings<T>(request: &Request<T>) -> Vec<String> {
    let is_methods = request.uri().path() == "/auth/methods";
    let query = request.uri().query().filter(|_| is_methods).map(Query::parse);
    query.and_then(Result::ok).map_or(Vec::new(), |query| parameter_warnings(&query, None))
}

async fn protected(
    server: &Arc<Server>,
    caller: Caller<'_>,
    request: Request<IncomingBody>,
    measured: &mut Measured,
    guard: &mut ResponseGuard,
) -> Outcome {
    let (parts, body) = request.into_parts();
    let parsed = Parsed::new(parts);
    measured.set_request(&parsed);
    let outcome = audited(server, caller, &parsed, body, guard).await;
    outcome.unwrap_or_else(|error| {
        let (format, by_accept) = encode::error_form(parsed.headers());
        let pretty = by_accept || encode::wants_pretty(&parsed).unwrap_or_default();
        respond::error(&error, format, pretty).into()
    })
}

/// The context of a request: the server, the client, the audit record and the guard of the response.
struct Exchange<'a> {
    server: &'a Arc<Server>,
    client: &'a Client,
    address: IpAddr,
    audit: &'a mut AuditContext,
    guard: &'a mut ResponseGuard,
}

/// Serves a request, and records it in the audit log with its result.
async fn audited(
    server: &Arc<Server>,
    caller: Caller<'_>,
    parsed: &Parsed,
    body: IncomingBody,
    guard: &mut ResponseGuard,
) -> Result<Outcome, ApiError> {
    check_phase(server)?;
    let Caller { client, address, audit_id } = caller;
    let mut audit = Box::new(AuditContext::begin(&server.audit, parsed, address, audit_id));
    let mut exchange = Exchange { server, client, address, audit: &mut audit, guard };
    match identified(&mut exchange, parsed.clone(), body).await {
        Ok(outcome) => {
            let Outcome { response, warnings, created } = outcome;
            if let Some(created) = created {
                audit.set_created(created);
            }
            let response = audit.finish_with_response(response).await?;
            Ok(Outcome { response, warnings, created: None })
        }
        Err(error) => {
            audit.finish_with_error(&error);
            Err(error)
        }
    }
}

/// Checks that the server serves requests. It decides no request before the whole policy is loaded.
///
/// # Errors
/// 503 while the server starts, and during its shutdown.
fn check_phase(server: &Server) -> Result<(), ApiError> {
    let unavailable = |message| Err(ApiError::unavailable(message, Some(RETRY_AFTER_SECONDS)));
    if !server.is_loaded() {
        return unavailable("the server is starting: the stored objects are not loaded yet");
    }
    if server.is_draining() {
        return unavailable("the server is shutting down");
    }
    Ok(())
}

/// Authenticates and impersonates, and then serves the request.
async fn identified(
    exchange: &mut Exchange<'_>,
    parsed: Parsed,
    body: IncomingBody,
) -> Result<Outcome, ApiError> {
    let as_of = wait_for_principals(exchange.server, exchange.client).await;
    let (acting, body) = acting(exchange, parsed, body)?;
    within_time(exchange, acting, as_of, body).await
}

/// The authenticated caller, and the impersonated user. Nothing here waits: one version of the keys and of the policy
/// decides.
fn acting(
    exchange: &mut Exchange<'_>,
    parsed: Parsed,
    body: IncomingBody,
) -> Result<(Acting, RequestBody), ApiError> {
    let Exchange { server, client, audit, guard, .. } = exchange;
    let (digester, cache) = (server.registry.digester(), server.registry.cache());
    cache.check_store()?;
    // The version is read first: the others are then at least as new as it says.
    let version = cache.access_version();
    let (principals, policy) = (cache.principals(), cache.policy());
    let misplaced = names_a_key(&parsed, digester, &principals);
    let problem = parsed.problem().cloned();
    if misplaced || problem.is_some() {
        audit.hide_names();
    } else {
        guard.has_clean_path = !parsed.is_deep();
    }
    let view = AuthenticationView {
        digester,
        principals: &principals,
        policy: &policy,
        version,
        now: server.source.now(),
        uses: server.registry.key_uses(),
        own_url: &server.registry.token_policy().issuer,
    };
    let authenticated = authenticate(parsed, &view, &client.last_credential);
    let authenticated = authenticated.map_err(|refused| {
        audit.set_unauthenticated(refused.key);
        refused.error
    })?;
    let requester = client.set_authenticated(authenticated.credential().bearer());
    if !guard.set_requester(requester) {
        guard.is_refused = true;
        return Err(too_many_requests());
    }
    let body = audit.set_authenticated(authenticated.credential(), &client.last_sender, body)?;
    if misplaced {
        return Err(parse::names_a_key());
    }
    if let Some(problem) = problem {
        return Err(problem);
    }
    let acting = impersonate(authenticated, &principals, &policy);
    match &acting {
        Ok(acting) => audit.set_impersonated(acting.credential()),
        Err(error) => audit.set_forbidden(error),
    }
    audit.record_received();
    Ok((acting?, body))
}

/// Waits until the cache has all committed changes to keys, including those of other servers. So a completed request
/// takes effect for the next one. If the store does not respond, the cached keys decide, and no caller is locked
/// out. Returns the store's revision, if the store responds.
async fn wait_for_principals(server: &Server, client: &Client) -> Option<u64> {
    let mut current = pin!(server.registry.cache().current());
    if let Poll::Ready(current) = poll_fn(|cx| Poll::Ready(current.as_mut().poll(cx))).await {
        return current.ok();
    }
    // Few unauthenticated requests wait for the store at a time. The limits of streams and connections bound the others.
    let _asking = if client.is_authenticated() {
        None
    } else {
        server.flow.unauthenticated_permits.acquire().await.ok()
    };
    current.await.ok()
}

/// Serves a request within its timeout: reads the body, acquires a slot, and runs the request.
async fn within_time(
    exchange: &mut Exchange<'_>,
    acting: Acting,
    as_of: Option<u64>,
    body: RequestBody,
) -> Result<Outcome, ApiError> {
    let verb = match acting.parsed().target() {
        Target::Resource(target) => Some(target.verb),
        Target::Gateway(request) => {
            let request = request.clone();
            return Box::pin(gateway::serve(exchange, acting, request, body)).await;
        }
        _ => None,
    };
    let writes = !matches!(verb, None | Some(Verb::Get | Verb::List | Verb::Watch));
    let limit = if writes { WRITE_TIMEOUT } else { READ_TIMEOUT };
    let work = async {
        let (flow, requester) = (&exchange.server.flow, exchange.guard.requester());
        let body = if writes {
            body.read(flow.bodies.open(&requester)).await?
        } else {
            drop(body);
            ReceivedBody::none()
        };
        if writes && !requester.is_system {
            flow.write_rate.check(&requester.account)?;
        }
        let slot = flow.acquire(verb, &requester).await;
        if !slot.as_ref().is_ok_and(|slot| !slot.has_waited()) {
            exchange.client.set_waits(&requester);
        }
        let slot = slot?;
        if writes || slot.has_waited() {
            check_again(exchange.server, acting.credential()).await?;
        }
        let is_low_priority = slot.has_waited() && flow.has_contention();
        exchange.guard.keep_slot(slot);
        act(exchange, acting, Scheduling { as_of, is_low_priority }, body).await
    };
    let mut work = pin!(work);
    // Most reads are served at once from memory. They need no timer.
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

/// Checks again that the key is valid, and that the caller may impersonate the user. The body or the slot may have
/// taken seconds. Without this check, a caller could act until the timeout with a key that was revoked.
///
/// # Errors
/// See [`Credential::check`] and [`check_impersonation`].
async fn check_again(server: &Server, credential: &Credential) -> Result<(), ApiError> {
    let cache = server.registry.cache();
    let _ = cache.wait_until_current().await;
    let policy = cache.policy();
    credential.check(cache, &policy, server.source.now())?;
    check_impersonation(credential, &policy)
}

/// The store's revision and the threads for an authorized request.
#[derive(Clone, Copy)]
struct Scheduling {
    /// The store's revision when the request arrived.
    as_of: Option<u64>,
    /// Whether the request waited for its slot while other owners sent requests.
    is_low_priority: bool,
}

async fn act(
    exchange: &mut Exchange<'_>,
    acting: Acting,
    scheduling: Scheduling,
    body: ReceivedBody,
) -> Result<Outcome, ApiError> {
    let Exchange { server, audit, guard, address, .. } = exchange;
    let policy = server.registry.cache().policy();
    let decision = span("decision", SpanKind::Internal);
    let authorized = authorize(acting, policy).and_then(|authorized| {
        check_origin(server, &authorized)?;
        Ok(authorized)
    });
    drop(decision);
    let authorized = authorized.inspect_err(|error| audit.set_forbidden(error))?;
    audit.set_allowed();
    match authorized {
        Authorized::Resource(parsed, permit) => {
            check_websocket(&parsed, can_switch(&permit))?;
            if is_session(&permit) {
                return Box::pin(sessions::serve(server, *address, (&parsed, &body), &permit))
                    .await;
            }
            let permit = permit.received_at(scheduling.as_of);
            guard.reserve(verbs::answer_bytes(server, &permit, &body))?;
            let request = VerbRequest { parsed, permit, account: guard.requester().account };
            verbs::count_write(server, &request, &body);
            if verbs::is_large(server, &request, &body) {
                return Box::pin(served_as_large(server, request, body)).await;
            }
            if scheduling.is_low_priority {
                return Box::pin(served_as_queued(server, request, body)).await;
            }
            verbs::serve(server, &request, body).await
        }
        Authorized::Document(parsed) => {
            check_websocket(&parsed, false)?;
            Box::pin(document(server, &parsed)).await.map(Outcome::from)
        }
    }
}

/// Whether a request is for the session of a browser, or for a code that begins one.
fn is_session(permit: &Permit) -> bool {
    permit.target().action.is_some_and(|action| {
        matches!(
            action.handler,
            Handler::Server(
                ServerAction::ConsoleSession
                    | ServerAction::ConsoleLoginCode
                    | ServerAction::CommandLineConsent
            )
        )
    })
}

/// Checks the origin of a WebSocket: a browser may open one only from this server's pages.
///
/// # Errors
/// 403 for a page of another origin.
fn check_origin(server: &Server, authorized: &Authorized) -> Result<(), ApiError> {
    let (Authorized::Resource(parsed, _) | Authorized::Document(parsed)) = authorized;
    if !parsed.is_websocket() {
        return Ok(());
    }
    let own_url = &server.registry.token_policy().issuer;
    websocket::check_origin(parsed.uri(), parsed.headers(), own_url)
}

/// Whether a request may become a WebSocket: a watch, and a tunnel.
fn can_switch(permit: &Permit) -> bool {
    let is_tunnel =
        |action: &Action| matches!(action.handler, Handler::Server(ServerAction::Tunnel));
    permit.target().verb == Verb::Watch || permit.target().action.is_some_and(is_tunnel)
}

/// Checks that a WebSocket is requested only for a watch or a tunnel. An upgrade to another protocol is ignored, as HTTP
/// requires.
///
/// # Errors
/// 400, because a plain response would not tell the client why there is no WebSocket.
fn check_websocket(parsed: &Parsed, can_switch: bool) -> Result<(), ApiError> {
    if can_switch || !parsed.is_websocket() {
        return Ok(());
    }
    let message = "only a watch can use a WebSocket: request a collection with watch=true";
    Err(ApiError::bad_request(message))
}

/// Serves a request on the threads for large work. The caller boxes the future, so that other requests need no room
/// for it.
async fn served_as_large(
    server: &Arc<Server>,
    request: VerbRequest,
    body: ReceivedBody,
) -> Result<Outcome, ApiError> {
    let (large, server) = (request.large_work(server), server.clone());
    let work = async move {
        check_again(&server, request.permit.credential()).await?;
        verbs::serve(&server, &request, body).await
    };
    Box::pin(large.run_async(in_current_request(work))).await?
}

/// Serves a request that has waited for its slot, on the low-priority threads. The caller boxes the future as well.
async fn served_as_queued(
    server: &Arc<Server>,
    request: VerbRequest,
    body: ReceivedBody,
) -> Result<Outcome, ApiError> {
    let served_by = server.clone();
    let work = async move { verbs::serve(&served_by, &request, body).await };
    Box::pin(server.flow.run_queued(in_current_request(work))).await?
}

async fn document(server: &Arc<Server>, parsed: &Parsed) -> Result<Response<Body>, ApiError> {
    let Target::Document(document) = parsed.target() else {
        return Err(not_served::other(parsed.path()));
    };
    if !matches!(*parsed.method(), Method::GET | Method::HEAD) {
        return Err(method_not_allowed(parsed.method()));
    }
    let metrics = match document {
        Document::Metrics => metrics_text(server).await?,
        Document::OwnerMetrics => metrics::write_owners(&server.flow.owners_with_most_requests()),
        _ => String::new(),
    };
    documents::response(parsed, *document, server.source.now(), metrics)
}

/// The metrics, written on a thread that may block: the keyring and the free space are read from the disk.
async fn metrics_text(server: &Arc<Server>) -> Result<String, ApiError> {
    let server = server.clone();
    let write = move || metrics::write(&server.metrics, &server.readings());
    let written = tokio::task::spawn_blocking(write).await;
    written.map_err(|_| ApiError::internal("cannot read the metrics", "their task has panicked"))
}

fn method_not_allowed(method: &Method) -> ApiError {
    let message = format!("{method} is not supported on this path: use GET");
    ApiError::new(405, Reason::MethodNotAllowed, message)
}
