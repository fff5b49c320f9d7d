//! The way of a request: parsed, authenticated, authorised, admitted, done, answered.
//!
//! Each stage consumes the proof of the one before. What needs no credential (health, version) is
//! answered before the first stage, and is a short list.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::{BASE_PATH, Verb};
use postern_meta::accept::{Offered, PatchType, patch_type};
use postern_meta::decode::{Decoded, Format, decode};
use postern_meta::object::Object;
use postern_meta::options::{
    DeleteOptions, FieldValidation, GetOptions, ListOptions, WriteKind, WriteOptions,
};
use postern_meta::patch::{apply_json_patch, apply_merge_patch};
use postern_meta::status::{ApiError, Reason, Status};

use crate::Server;
use crate::actions::selves;
use crate::audit::{self, AuditContext, LastSender};
use crate::clock::new_uid;
use crate::endpoints::{documents, health, version};
use crate::metrics::Measured;
use crate::stages::admit::Writing;
use crate::stages::authenticate::{authenticate, names_a_key};
use crate::stages::authorize::{Authorized, Permit, authorize};
use crate::stages::flow::ConnectionState;
use crate::stages::impersonate::{Acting, impersonate};
use crate::stages::parse::{self, Parsed, Target};
use crate::wire::body::Body;
use crate::wire::encode::{self, Wanted};
use crate::wire::input::{self, Received};
use crate::wire::respond;

/// A request that reads has this long, as upstream; watches have their own.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// A request that writes has this long, as upstream.
const WRITE_TIMEOUT: Duration = Duration::from_secs(34);

/// Seconds after which a client that was turned away by a draining server may try again.
const DRAINING_RETRY_AFTER_SECONDS: u32 = 1;

/// The patch types that are served.
const SERVED_PATCHES: &[PatchType] = &[PatchType::Json, PatchType::Merge];

/// Longest name of a field manager, as upstream.
const MAX_MANAGER_BYTES: usize = 128;

/// Who is at the other end of a connection.
pub(crate) struct Client {
    /// From where he comes.
    pub(crate) address: IpAddr,
    /// His connection, for flow control.
    pub(crate) line: ConnectionState,
    /// As whom he came last, for the audit log.
    pub(crate) last_sender: LastSender,
}

/// What a request came to, before it is finished.
struct Outcome {
    response: Response<Body>,
    warnings: Vec<String>,
    /// The object that was made, whatever the response shows of it.
    made: Option<Bytes>,
}

impl From<Response<Body>> for Outcome {
    fn from(response: Response<Body>) -> Self {
        Self { response, warnings: Vec::new(), made: None }
    }
}

/// Answers a request. Never fails: what goes wrong is an answer too.
pub(crate) async fn handle(
    server: &Server,
    client: &Client,
    request: Request<Incoming>,
) -> Response<Body> {
    let audit_id = audit_id(server, request.headers());
    let head = request.method() == Method::HEAD;
    // The query is left out, since tokens end up in queries; the rest may by mistake hold a key.
    let asked = tracing::enabled!(tracing::Level::DEBUG).then(|| {
        audit::clean(&format!("{} {}", request.method(), request.uri().path())).into_owned()
    });
    let mut measured = Measured::begin();
    let outcome = match public(server, &request, &mut measured) {
        Some(response) => response.into(),
        None => protected(server, client, request, &audit_id, &mut measured).await,
    };
    server.metrics().count(&measured, outcome.response.status());
    if let Some(asked) = asked {
        let (code, id) = (outcome.response.status().as_u16(), audit_id.to_str());
        tracing::debug!(code, audit_id = id.unwrap_or_default(), "{asked}");
    }
    respond::finish(outcome.response, &audit_id, &outcome.warnings, head)
}

/// A client's own audit id is honoured when it is a UUID (decision 5).
fn audit_id(server: &Server, headers: &http::HeaderMap) -> HeaderValue {
    let sent = headers.get("audit-id").and_then(|value| value.to_str().ok());
    let id = sent
        .and_then(|text| uuid::Uuid::try_parse(text).ok())
        .map_or_else(|| new_uid(server.source()), |id| id.to_string());
    HeaderValue::from_str(&id).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// What needs no credential, at the root and under the base path.
fn public(
    server: &Server,
    request: &Request<Incoming>,
    measured: &mut Measured,
) -> Option<Response<Body>> {
    let path = request.uri().path();
    let path = path.strip_prefix(BASE_PATH).unwrap_or(path);
    let query = request.uri().query().unwrap_or_default();
    let answer = if path.strip_suffix('/').unwrap_or(path) == "/version" {
        respond::value(StatusCode::OK, &version::document(), true)
    } else {
        health::answer(path, query, || server.condition())?
    };
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        measured.note_public(path);
        return Some(answer);
    }
    Some(respond::error(&method_not_allowed(request.method()), Format::Json, false))
}

async fn protected(
    server: &Server,
    client: &Client,
    request: Request<Incoming>,
    audit_id: &HeaderValue,
    measured: &mut Measured,
) -> Outcome {
    let (parts, body) = request.into_parts();
    let mut form = encode::failure_form(&parts.headers);
    let answered = match Parsed::new(parts) {
        Ok(parsed) => {
            measured.note(&parsed);
            form.1 = encode::wants_pretty(&parsed).unwrap_or(form.1);
            audited(server, client, parsed, body, audit_id).await
        }
        Err(error) => Err(error),
    };
    answered.unwrap_or_else(|error| respond::error(&error, form.0, form.1).into())
}

/// Whatever becomes of a request that can be read is in the audit log.
async fn audited(
    server: &Server,
    client: &Client,
    parsed: Parsed,
    body: Incoming,
    audit_id: &HeaderValue,
) -> Result<Outcome, ApiError> {
    if server.is_draining() {
        return Err(ApiError::unavailable(
            "the server is shutting down",
            Some(DRAINING_RETRY_AFTER_SECONDS),
        ));
    }
    let mut audit_context =
        Box::new(AuditContext::begin(server.audit(), &parsed, client.address, audit_id));
    match within_time(server, client, parsed, body, &mut audit_context).await {
        Ok(outcome) => {
            if let Some(json) = &outcome.made {
                audit_context.made(json);
            }
            Ok(Outcome { response: audit_context.answered(outcome.response), ..outcome })
        }
        Err(error) => {
            audit_context.failed(&error);
            Err(error)
        }
    }
}

async fn within_time(
    server: &Server,
    client: &Client,
    parsed: Parsed,
    body: Incoming,
    audit_context: &mut AuditContext,
) -> Result<Outcome, ApiError> {
    let verb = match parsed.target() {
        Target::Resource(target) => Some(target.verb),
        _ => None,
    };
    let limit = match verb {
        None | Some(Verb::Get | Verb::List | Verb::Watch) => READ_TIMEOUT,
        Some(_) => WRITE_TIMEOUT,
    };
    let registry = server.registry();
    // A key that was made, enabled or disabled by an answered request is so for the next one.
    // When the store does not answer, what is known decides: that is no reason to let nobody in.
    let _ = registry.cache().wait_until_current().await;
    let now = server.source().now();
    let (digester, principals) = (registry.digester(), || registry.cache().principals());
    let misplaced = names_a_key(&parsed, digester, &principals());
    if misplaced {
        audit_context.hide_names();
    }
    let authenticated = authenticate(parsed, digester, &principals(), now);
    let authenticated = authenticated.map_err(|refused| {
        audit_context.not_identified(refused.key);
        refused.error
    })?;
    let body = audit_context.identified(authenticated.credential(), &client.last_sender, body)?;
    if misplaced {
        return Err(parse::names_a_key());
    }
    let acting = impersonate(authenticated, &principals());
    match &acting {
        Ok(acting) => audit_context.acts_as(acting.credential()),
        Err(error) => audit_context.forbidden(error),
    }
    audit_context.received();
    let acting = acting?;
    // Places are shared out among those who have keys, whomever they act as.
    let owner = &acting.credential().bearer().name;
    let _place = server.flow().enter(verb, owner, &client.line).await?;
    tokio::time::timeout(limit, act(server, acting, body, audit_context)).await.unwrap_or_else(
        |_| {
            Err(ApiError::timeout(format!(
                "request did not complete within {} s; a write may still happen",
                limit.as_secs()
            )))
        },
    )
}

async fn act(
    server: &Server,
    acting: Acting,
    body: Received,
    audit_context: &mut AuditContext,
) -> Result<Outcome, ApiError> {
    let authorized = authorize(acting).inspect_err(|error| audit_context.forbidden(error))?;
    audit_context.allowed();
    match authorized {
        Authorized::Resource(parsed, permit) => resource(server, &parsed, &permit, body).await,
        Authorized::Document(parsed) => document(server, &parsed).map(Outcome::from),
    }
}

async fn resource(
    server: &Server,
    parsed: &Parsed,
    permit: &Permit,
    body: Received,
) -> Result<Outcome, ApiError> {
    if permit.target().subresource.is_some() {
        return access_keys_of(server, parsed, permit).await.map(Outcome::from);
    }
    // What writes is boxed: a request that reads would otherwise carry the room for all of it
    // along, and be copied with it each time that it is handed on.
    match permit.target().verb {
        Verb::Get => get(server, parsed, permit).await.map(Outcome::from),
        Verb::List => list(server, parsed, permit).await.map(Outcome::from),
        Verb::Watch => watch(server, parsed, permit).await.map(Outcome::from),
        Verb::Create => Box::pin(create(server, parsed, permit, body)).await,
        Verb::Update => Box::pin(replace(server, parsed, permit, body)).await,
        Verb::Patch => Box::pin(patch(server, parsed, permit, body)).await,
        Verb::Delete => Box::pin(delete(server, parsed, permit, body)).await.map(Outcome::from),
        Verb::DeleteCollection => {
            Box::pin(delete_collection(server, parsed, permit, body)).await.map(Outcome::from)
        }
    }
}

fn wanted_object(server: &Server, parsed: &Parsed) -> Result<Wanted, ApiError> {
    Wanted::of(parsed, Offered::Object, server.source().now())
}

async fn get(
    server: &Server,
    parsed: &Parsed,
    permit: &Permit,
) -> Result<Response<Body>, ApiError> {
    let wanted = wanted_object(server, parsed)?;
    let options = GetOptions::parse(parsed.query())?;
    let answer = if selves::is_asked(permit) {
        selves::get(server.registry(), permit).await?
    } else {
        server.registry().get(permit, &options).await?
    };
    respond::object(permit.kind(), StatusCode::OK, answer, wanted)
}

async fn list(
    server: &Server,
    parsed: &Parsed,
    permit: &Permit,
) -> Result<Response<Body>, ApiError> {
    let wanted = Wanted::of(parsed, Offered::List, server.source().now())?;
    let options = ListOptions::parse(parsed.query(), crate::registry::read::SELECTABLE_FIELDS)?;
    let answer = server.registry().list(permit, &options).await?;
    respond::list(permit.kind(), answer, wanted)
}

/// The access keys of one owner.
async fn access_keys_of(
    server: &Server,
    parsed: &Parsed,
    permit: &Permit,
) -> Result<Response<Body>, ApiError> {
    let wanted = Wanted::of(parsed, Offered::List, server.source().now())?;
    if parsed.query().flag("watch")?.unwrap_or(false) {
        let message = "the access keys of one owner cannot be watched: watch ownedaccesskeys";
        return Err(ApiError::bad_request(message));
    }
    let options = ListOptions::parse(parsed.query(), crate::registry::read::SELECTABLE_FIELDS)?;
    let answer = server.registry().access_keys_of(permit, &options).await?;
    respond::list(&OwnedAccessKey, answer, wanted)
}

async fn watch(
    server: &Server,
    parsed: &Parsed,
    permit: &Permit,
) -> Result<Response<Body>, ApiError> {
    let wanted = Wanted::of(parsed, Offered::Object, server.source().now())?;
    let options = ListOptions::parse(parsed.query(), crate::registry::read::SELECTABLE_FIELDS)?;
    let slot = server.flow().enter_watch(&permit.identity().access_key)?;
    let watcher = server.registry().watch(permit, &options, server.draining()).await?;
    let meter = server.metrics().watch(permit.target());
    Ok(respond::watch(watcher, slot, meter, wanted))
}

/// A whole body. It may take its time, and a key that stops meanwhile has stopped: who held back the
/// end of a body could otherwise write until its time is over.
async fn body_of(server: &Server, permit: &Permit, body: Received) -> Result<Bytes, ApiError> {
    let body = body.read().await?;
    let cache = server.registry().cache();
    let _ = cache.wait_until_current().await;
    permit.credential().check(&cache.principals(), server.source().now())?;
    Ok(body)
}

/// The object in a body, and what there is to warn about in it.
async fn sent_object(
    server: &Server,
    parsed: &Parsed,
    permit: &Permit,
    body: Received,
    validation: FieldValidation,
) -> Result<(Object, Vec<String>), ApiError> {
    let body = body_of(server, permit, body).await?;
    let decoded = input::decode_body(parsed, &body)?;
    input::object_of(permit.kind(), decoded, validation)
}

/// How a write is to be done. Who names no field manager goes by what his client calls itself.
fn writing(parsed: &Parsed, options: &WriteOptions) -> Writing {
    let agent = || {
        let agent = parsed.header(header::USER_AGENT).unwrap_or_default();
        let name = agent.split('/').next().unwrap_or_default().trim();
        let name: String = name
            .chars()
            .take(MAX_MANAGER_BYTES)
            .filter(|c| c.is_ascii_graphic() || *c == ' ')
            .collect();
        if name.is_empty() { "unknown".to_owned() } else { name }
    };
    let manager = options.field_manager.clone().unwrap_or_else(agent);
    Writing { manager, dry_run: options.dry_run }
}

async fn create(
    server: &Server,
    parsed: &Parsed,
    permit: &Permit,
    body: Received,
) -> Result<Outcome, ApiError> {
    let wanted = wanted_object(server, parsed)?;
    let options = WriteOptions::parse(parsed.query(), WriteKind::Create)?;
    let (object, warnings) =
        sent_object(server, parsed, permit, body, options.field_validation).await?;
    let answer = if selves::is_asked(permit) {
        selves::create(server.registry(), permit, object).await?
    } else {
        server.registry().create(permit, object, &writing(parsed, &options)).await?
    };
    let made = Some(answer.json.clone());
    let response = respond::object(permit.kind(), StatusCode::CREATED, answer, wanted)?;
    Ok(Outcome { response, warnings, made })
}

async fn replace(
    server: &Server,
    parsed: &Parsed,
    permit: &Permit,
    body: Received,
) -> Result<Outcome, ApiError> {
    let wanted = wanted_object(server, parsed)?;
    let options = WriteOptions::parse(parsed.query(), WriteKind::Update)?;
    let (object, warnings) =
        sent_object(server, parsed, permit, body, options.field_validation).await?;
    let answer = server.registry().replace(permit, &writing(parsed, &options), object).await?;
    let response = respond::object(permit.kind(), StatusCode::OK, answer, wanted)?;
    Ok(Outcome { warnings, ..response.into() })
}

async fn patch(
    server: &Server,
    parsed: &Parsed,
    permit: &Permit,
    body: Received,
) -> Result<Outcome, ApiError> {
    // The patch's own type comes first, before anything else is looked at.
    let patch_type = patch_type(parsed.header(header::CONTENT_TYPE), SERVED_PATCHES)?;
    let wanted = wanted_object(server, parsed)?;
    let options = WriteOptions::parse(parsed.query(), WriteKind::Patch)?;
    let body = body_of(server, permit, body).await?;
    let Decoded { value: patch, duplicates } =
        decode(&body, Format::Json).map_err(|error| ApiError::bad_request(error.to_string()))?;
    let kind = permit.kind();
    let name = permit.target().name.as_deref().unwrap_or_default();
    let warnings = parking_lot::Mutex::new(Vec::new());
    let change = |current: &Object| {
        let current = current.clone().into_value();
        let patched = match patch_type {
            PatchType::Json => apply_json_patch(current, &patch)?,
            _ => apply_merge_patch(current, &patch)?,
        };
        let validation = options.field_validation;
        let (object, found) =
            input::patched_object_of(kind, name, patched, &duplicates, validation)?;
        *warnings.lock() = found;
        Ok(object)
    };
    let answer = server.registry().update(permit, &writing(parsed, &options), change).await?;
    let response = respond::object(kind, StatusCode::OK, answer, wanted)?;
    Ok(Outcome { warnings: warnings.into_inner(), ..response.into() })
}

async fn delete(
    server: &Server,
    parsed: &Parsed,
    permit: &Permit,
    body: Received,
) -> Result<Response<Body>, ApiError> {
    let wanted = wanted_object(server, parsed)?;
    let options = delete_options(server, parsed, permit, body).await?;
    let deleted = server.registry().delete(permit, &options).await?;
    let kind = permit.kind();
    if deleted.lingers {
        return respond::object(kind, StatusCode::OK, deleted.answer, wanted);
    }
    let metadata = &deleted.object.metadata;
    let resource = kind.info().group_resource();
    let status = Status::success_deleted(resource, &metadata.name, &metadata.uid).to_value();
    Ok(respond::value(StatusCode::OK, &status, wanted.pretty))
}

async fn delete_options(
    server: &Server,
    parsed: &Parsed,
    permit: &Permit,
    body: Received,
) -> Result<DeleteOptions, ApiError> {
    let body = body_of(server, permit, body).await?;
    if body.is_empty() {
        return DeleteOptions::from_query(parsed.query());
    }
    DeleteOptions::from_body(input::decode_body(parsed, &body)?.value, parsed.query())
}

async fn delete_collection(
    server: &Server,
    parsed: &Parsed,
    permit: &Permit,
    body: Received,
) -> Result<Response<Body>, ApiError> {
    let wanted = Wanted::of(parsed, Offered::List, server.source().now())?;
    let which = ListOptions::parse(parsed.query(), crate::registry::read::SELECTABLE_FIELDS)?;
    let options = delete_options(server, parsed, permit, body).await?;
    let deleted = server.registry().delete_collection(permit, &which, &options).await?;
    respond::list(permit.kind(), deleted, wanted)
}

fn document(server: &Server, parsed: &Parsed) -> Result<Response<Body>, ApiError> {
    let Target::Document(document) = parsed.target() else {
        return Err(ApiError::resource_not_served());
    };
    if !matches!(*parsed.method(), Method::GET | Method::HEAD) {
        return Err(method_not_allowed(parsed.method()));
    }
    documents::answer(server, parsed, *document)
}

fn method_not_allowed(method: &Method) -> ApiError {
    let message = format!("{method} is not supported on this path: it is read with GET");
    ApiError::new(405, Reason::MethodNotAllowed, message)
}
