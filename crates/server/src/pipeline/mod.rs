//! The pipeline: runs the stages of a request in order, serves the request, and returns the response.
//!
//! The list of stages is two functions. `pass` has those of all requests, and `api` those of a request to the API.
//! [`EntryPoint`] is decided in between: public paths, logins and requests of other servers need no credential of a caller.
//! [`verbs`] serves each verb. [`Server`] has the parts that all requests use.

mod actions;
mod agent_config;
mod audit_events;
mod browser_headers;
mod client;
mod client_address;
mod entry_point;
mod gateway;
mod login;
mod login_failures;
mod owner_warning;
mod public;
mod relay;
mod response_guard;
mod secret_subscriptions;
mod serve;
mod server;
mod sessions;
mod tunnel;
mod verbs;

use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::poll_fn;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use postern_flow::budget::Charge;
use postern_flow::too_many_requests;
use postern_kinds::Verb;
use postern_kinds::action::Action;
use postern_meta::decode::Format;
use postern_meta::status::ApiError;
use postern_registry::clock::new_uuid;
use postern_registry::credential::{Credential, check_impersonation};
use postern_registry::permit::Permit;
use postern_registry::registry::ObjectIdentity;
use postern_registry::registry::values::SentValues;
use postern_telemetry::{
    RequestIds, SpanKind, in_current_request, request_span, sent_audit_id, span,
};

use self::browser_headers::BrowserHeaders;
pub(crate) use self::client::Client;
pub use self::client_address::ClientAddresses;
use self::entry_point::EntryPoint;
pub(crate) use self::login_failures::LoginKind;
pub(crate) use self::response_guard::{ResponseGuard, charge_stream};
pub use self::server::DEFAULT_LOGIN_FAILURES;
pub(crate) use self::server::{Server, Storage};
use self::verbs::VerbRequest;
use crate::endpoints::{documents, jwks};
use postern_audit::AuditContext;
use postern_http::metrics::{self, Measured};
use postern_http::stages::authenticate::{AuthenticationView, authenticate, names_a_key};
use postern_http::stages::authorize::{Authorized, authorize};
use postern_http::stages::impersonate::{Acting, impersonate};
use postern_http::stages::parse::{Document, Parsed, Target};
use postern_http::stages::path;
use postern_http::stages::{not_served, websocket};
use postern_http::wire::body::Body;
use postern_http::wire::encode;
use postern_http::wire::incoming::IncomingBody;
use postern_http::wire::input::{ReceivedBody, RequestBody};
use postern_http::wire::respond::{self, ObjectResponse};

/// The timeout of a read, as in kube-apiserver. Watches have a separate timeout.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// The timeout of a write, as in kube-apiserver.
const WRITE_TIMEOUT: Duration = Duration::from_secs(34);

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
    /// The secrets whose values the response has.
    values: SentValues,
}

impl From<Response<Body>> for Outcome {
    /// A response without objects.
    fn from(response: Response<Body>) -> Self {
        Self { response, warnings: Vec::new(), created: None, values: SentValues::None }
    }
}

impl From<ObjectResponse> for Outcome {
    fn from(response: ObjectResponse) -> Self {
        let (response, values) = response.into_parts();
        Self { values, ..response.into() }
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
    let stages = pin!(pass(server, client, request, stream, &audit_id));
    let reply = ids.scope(stages).await;
    span.set_status(reply.response.status().as_u16());
    reply
}

/// The stages of every request, in order. Those of the API are in [`api`].
async fn pass(
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
    // Streams of the connection.
    let mut guard = ResponseGuard::new(client, stream);
    if !guard.opens_stream() {
        guard.is_refused = true;
        let response = respond::error(&too_many_requests(), Format::Json, false);
        return Reply { response, guard };
    }
    // Address of the client, and entry point.
    let browser_headers = BrowserHeaders::of(&request);
    let address = server.clients.of(client.peer.address(), request.headers());
    let caller = Caller { client, address, audit_id };
    if request.uri().path().ends_with(jwks::PATH) {
        // The keys are those of now. If the store does not answer, they are those that are known.
        let _ = wait_for_principals(server, client).await;
    }
    let entry = EntryPoint::of(server, &request, &mut measured);
    guard.has_clean_path = entry.has_clean_path();
    let failures = entry.counted_failures();
    // Phase of the server.
    let admitted = entry.check_phase(server);
    // Service. The rare and long branches are boxed: other requests need no room for them.
    let outcome = match entry {
        EntryPoint::Api(_) => {
            api(server, caller, request, admitted, &mut measured, &mut guard).await
        }
        EntryPoint::Public(outcome) => *outcome,
        EntryPoint::Login(kind) => {
            Box::pin(login::serve(server, caller, request, kind, admitted)).await.into()
        }
        // The other server adds the headers, and counts the response.
        EntryPoint::Relay => {
            let response = Box::pin(relay::serve(server, client, request, admitted)).await;
            return Reply { response, guard };
        }
        EntryPoint::RelayOpening => return Reply { response: relay::open(client, request), guard },
    };
    // Headers of all responses.
    let mut response = respond::finish(outcome.response, audit_id, &outcome.warnings, head);
    // Failed logins of the address.
    if let Err(error) = failures.count(server, address, &response) {
        response = refusal(&error, audit_id, head);
    }
    // Bytes of the response. The response to a committed change is never replaced: the client would repeat the change.
    if !guard.takes(response.body(), changes) && !changes {
        response = refusal(&too_many_requests(), audit_id, head);
    }
    // Headers for browsers, metrics, and the log.
    browser_headers.add_to(response.headers_mut());
    server.metrics.count(&measured, response.status());
    if let Some(line) = request_line {
        log_line(&line, response.status(), guard.has_clean_path);
    }
    // Delay of a rejection. The request is no longer in memory, and its slot is released before.
    if response.status() == StatusCode::TOO_MANY_REQUESTS && !guard.is_refused {
        guard.release_slot();
        server.flow.delay_rejection().await;
    }
    Reply { response, guard }
}

/// The stages of a request to the API, in order. `admitted` is the result of the stages before.
async fn api(
    server: &Arc<Server>,
    caller: Caller<'_>,
    request: Request<IncomingBody>,
    admitted: Result<(), ApiError>,
    measured: &mut Measured,
    guard: &mut ResponseGuard,
) -> Outcome {
    let Caller { client, address, audit_id } = caller;
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
    // Parse. A problem is reported to authenticated clients only.
    let (parts, body) = request.into_parts();
    let parsed = Parsed::new(parts);
    measured.set_request(&parsed);
    if let Err(error) = admitted {
        return error_outcome(&parsed, &error);
    }
    // Audit: from here on, the end of the request is recorded.
    let mut audit = Box::new(AuditContext::begin(&server.audit, &parsed, address, audit_id));
    let mut exchange = Exchange { server, client, address, audit: &mut audit, guard };
    let result: Result<Outcome, ApiError> = async {
        // Authenticate and impersonate.
        let as_of = wait_for_principals(server, client).await;
        let (acting, body) = acting(&mut exchange, parsed.clone(), body)?;
        let verb = match acting.parsed().target() {
            Target::Resource(target) => Some(target.verb),
            Target::Gateway(request) => {
                let request = request.clone();
                return Box::pin(gateway::serve(&mut exchange, acting, request, body)).await;
            }
            Target::Document(_) | Target::Nothing => None,
        };
        let writes = !matches!(verb, None | Some(Verb::Get | Verb::List | Verb::Watch));
        let work = pin!(async {
            // Body, and rate of the owner's writes.
            let body = if writes { received(&exchange, body).await? } else { ignored(body) };
            // Slot of the owner.
            let requester = exchange.guard.requester();
            let slot = server.flow.acquire(verb, &requester).await;
            if !slot.as_ref().is_ok_and(|slot| !slot.has_waited()) {
                client.set_waits(&requester);
            }
            let slot = slot?;
            if writes || slot.has_waited() {
                check_again(server, acting.credential()).await?;
            }
            let is_low_priority = slot.has_waited() && server.flow.has_contention();
            exchange.guard.keep_slot(slot);
            // Authorize, and serve.
            let authorized = authorized(&mut exchange, acting)?;
            serve(&mut exchange, authorized, Scheduling { as_of, is_low_priority }, body).await
        });
        within(if writes { WRITE_TIMEOUT } else { READ_TIMEOUT }, work).await
    }
    .await;
    // Bytes of the response to a read, before its record: a response that is replaced sends no values.
    let result = result.and_then(|outcome| {
        let body = outcome.response.body();
        let has_room = changes || body.is_stream() || guard.takes(body, changes);
        if has_room { Ok(outcome) } else { Err(too_many_requests()) }
    });
    // Audit: the end of the request.
    let outcome = match result {
        Ok(Outcome { response, warnings, created, values }) => {
            if let Some(created) = created {
                audit.set_created(created);
            }
            let response = audit.finish_with_response(response, values).await;
            response.map(|response| Outcome { warnings, ..response.into() })
        }
        Err(error) => {
            audit.finish_with_error(&error);
            Err(error)
        }
    };
    outcome.unwrap_or_else(|error| error_outcome(&parsed, &error))
}

/// An error of the API, in the format that the client requests.
fn error_outcome(parsed: &Parsed, error: &ApiError) -> Outcome {
    let (format, by_accept) = encode::error_form(parsed.headers());
    let pretty = by_accept || encode::wants_pretty(parsed).unwrap_or_default();
    respond::error(error, format, pretty).into()
}

/// A response that rejects a request in the place of another response.
fn refusal(error: &ApiError, audit_id: &HeaderValue, head: bool) -> Response<Body> {
    respond::finish(respond::error(error, Format::Json, false), audit_id, &[], head)
}

/// Logs a request. Its path is left out if it may contain an access key.
fn log_line(line: &str, status: StatusCode, has_clean_path: bool) {
    let line = if has_clean_path { line } else { "(left out)" };
    tracing::debug!(code = status.as_u16(), "{line}");
}

/// The first line of a request for the log. The query is omitted, since clients put tokens in queries.
fn line_of(request: &Request<IncomingBody>) -> String {
    postern_audit::clean(&format!("{} {}", request.method(), request.uri().path())).into_owned()
}

/// The header with an audit id.
fn id_header(id: uuid::Uuid) -> HeaderValue {
    HeaderValue::from_str(id.hyphenated().encode_lower(&mut uuid::Uuid::encode_buffer()))
        .unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// The context of a request: the server, the client, the audit record and the guard of the response.
struct Exchange<'a> {
    server: &'a Arc<Server>,
    client: &'a Client,
    address: IpAddr,
    audit: &'a mut AuditContext,
    guard: &'a mut ResponseGuard,
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
        return Err(path::names_a_key());
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

/// The result of a request's work, within a time. The work is pinned by the caller: moved, it would be copied.
///
/// # Errors
/// 504 after that time; those of the work.
async fn within<W>(limit: Duration, mut work: Pin<&mut W>) -> Result<Outcome, ApiError>
where
    W: Future<Output = Result<Outcome, ApiError>>,
{
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

/// The body of a write, if its owner does not write too much.
///
/// # Errors
/// Those of [`RequestBody::read`]; 429 if the owner writes too much.
async fn received(exchange: &Exchange<'_>, body: RequestBody) -> Result<ReceivedBody, ApiError> {
    let (flow, requester) = (&exchange.server.flow, exchange.guard.requester());
    let body = body.read(flow.bodies.open(&requester)).await?;
    if !requester.is_system {
        flow.write_rate.check(&requester.account)?;
    }
    Ok(body)
}

/// The body of a request that is no write. It is not read.
fn ignored(body: RequestBody) -> ReceivedBody {
    drop(body);
    ReceivedBody::none()
}

/// Authorizes a request, and checks the origin of a WebSocket.
///
/// # Errors
/// Those of [`authorize`] and [`check_origin`].
fn authorized(exchange: &mut Exchange<'_>, acting: Acting) -> Result<Authorized, ApiError> {
    let Exchange { server, audit, .. } = exchange;
    let policy = server.registry.cache().policy();
    let decision = span("decision", SpanKind::Internal);
    let authorized = authorize(acting, policy).and_then(|authorized| {
        check_origin(server, &authorized)?;
        Ok(authorized)
    });
    drop(decision);
    let authorized = authorized.inspect_err(|error| audit.set_forbidden(error))?;
    audit.set_allowed();
    Ok(authorized)
}

/// Serves an authorized request, on the threads for its work.
async fn serve(
    exchange: &mut Exchange<'_>,
    authorized: Authorized,
    scheduling: Scheduling,
    body: ReceivedBody,
) -> Result<Outcome, ApiError> {
    let Exchange { server, guard, address, .. } = exchange;
    let (parsed, permit) = match authorized {
        Authorized::Resource(parsed, permit) => (parsed, permit),
        Authorized::Document(parsed) => {
            check_websocket(&parsed, false)?;
            return Box::pin(document(server, &parsed)).await.map(Outcome::from);
        }
    };
    check_websocket(&parsed, can_switch(&permit))?;
    let permit = permit.received_at(scheduling.as_of);
    guard.reserve(verbs::answer_bytes(server, &permit, &body))?;
    let account = guard.requester().account;
    let request = VerbRequest { parsed, permit, account, address: *address };
    verbs::count_write(server, &request, &body);
    if verbs::is_large(server, &request, &body) {
        return Box::pin(served_as_large(server, request, body)).await;
    }
    if scheduling.is_low_priority {
        return Box::pin(served_as_queued(server, request, body)).await;
    }
    serve::serve(server, &request, body).await
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
    let target = permit.target();
    target.verb == Verb::Watch || target.action.is_some_and(Action::can_switch_protocol)
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
        serve::serve(&server, &request, body).await
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
    let work = async move { serve::serve(&served_by, &request, body).await };
    Box::pin(server.flow.run_queued(in_current_request(work))).await?
}

async fn document(server: &Arc<Server>, parsed: &Parsed) -> Result<Response<Body>, ApiError> {
    let Target::Document(document) = parsed.target() else {
        return Err(not_served::other(parsed.path()));
    };
    if !matches!(*parsed.method(), Method::GET | Method::HEAD) {
        return Err(public::method_not_allowed(parsed.method()));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The most bytes of the future of a request. Each HTTP/2 stream has one, and each move copies it.
    const MAX_FUTURE_BYTES: usize = 7424;

    fn output_bytes<A, B, C, D, F>(_: impl FnOnce(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn rare_branches_do_not_enlarge_the_future_of_a_request() {
        let bytes = output_bytes(
            |server: &'static Arc<Server>,
             client: &'static Arc<Client>,
             request: Request<IncomingBody>,
             stream: Option<Charge>| handle(server, client, request, stream),
        );
        assert!(bytes <= MAX_FUTURE_BYTES, "{bytes}");
    }
}
