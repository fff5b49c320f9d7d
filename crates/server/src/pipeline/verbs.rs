//! The verbs of an authorized request. Each reads the options and the body, runs the operation, and makes the
//! response.

use std::sync::Arc;

use http::{Response, StatusCode, header};
use postern_flow::OwnerAccount;
use postern_flow::large::{LARGE_BYTES, LargeWork};
use postern_kinds::action::{Action, Handler, PartHandler, ServerAction};
use postern_kinds::audit_event_list::AuditEventList;
use postern_kinds::connector_test::ConnectorTest;
use postern_kinds::{AnyKind, Verb};
use postern_meta::accept::{Offered, PatchType, patch_type};
use postern_meta::apply::nulls_of;
use postern_meta::decode::{Decoded, Format, decode};
use postern_meta::object::{Object, Operation};
use postern_meta::options::{
    DeleteOptions, DeletionOf, FieldValidation, GetOptions, ListOptions, Request, WriteKind,
    WriteOptions, ignored_option_warnings, parameter_warnings,
};
use postern_meta::patch::{
    apply_json_patch, apply_json_patch_unread, apply_merge_patch, apply_strategic_merge_patch,
    json_patch_reads,
};
use postern_meta::status::{ApiError, Status};
use postern_openapi::v3::SERVED_PATCHES;
use postern_registry::actions::{self, ActionInput, ActionOutput};
use postern_registry::admit::{Part, Writing};
use postern_registry::operations::{self, Applied};
use postern_registry::permit::{
    Permit, SELECTABLE_FIELDS, selectable_fields, with_namespace_to_try,
};
use postern_registry::registry::EncodedObject;

use super::owner_warning::{self, leaves_owner_out};
use super::{Outcome, Server, agent_config, audit_events, tunnel};
use crate::stages::parse::Parsed;
use crate::wire::body::Body;
use crate::wire::encode::Negotiated;
use crate::wire::input::{self, ReceivedBody, Written};
use crate::wire::{respond, websocket};

/// The bytes of YAML above which decoding counts as large work. YAML takes several times as long as JSON.
const LARGE_YAML_BYTES: usize = 8 * 1024;

/// Why a JSON Patch is forbidden for callers without permission to get the object.
const PATCH_READS: &str = "test, copy and move in a JSON Patch need permission to get the object";

/// The maximum length of a field manager's name, as in kube-apiserver.
const MAX_MANAGER_BYTES: usize = 128;

/// An authorized request for a resource.
pub(super) struct VerbRequest {
    pub(super) parsed: Parsed,
    pub(super) permit: Permit,
    /// The account of the owner of the key.
    pub(super) account: Arc<OwnerAccount>,
}

impl VerbRequest {
    /// The queue and the threads for the request's work that needs much processor time.
    pub(super) fn large_work(&self, server: &Server) -> LargeWork {
        server.flow.large_work(self.account.clone())
    }
}

/// Serves an authorized request.
///
/// # Errors
/// The error that the client gets.
pub(super) async fn serve(
    server: &Server,
    request: &VerbRequest,
    body: ReceivedBody,
) -> Result<Outcome, ApiError> {
    let VerbRequest { parsed, permit, .. } = request;
    let mut outcome = serve_verb(server, request, body).await?;
    // Reads that agents poll have a special parameter.
    let is_polled = permit
        .target()
        .action
        .is_some_and(|action| matches!(action.handler, Handler::Server(ServerAction::AgentConfig)));
    match written_by(permit.target().verb) {
        Some(write) => outcome.warnings.extend(ignored_option_warnings(parsed.query(), write)),
        None if is_polled => {}
        None => {
            let own = part_handler(permit.target().action).map(|handler| handler.parameter);
            outcome.warnings.extend(parameter_warnings(parsed.query(), own));
        }
    }
    Ok(outcome)
}

/// The write that a verb is, for its options; `None` for a read.
fn written_by(verb: Verb) -> Option<Request> {
    match verb {
        Verb::Get | Verb::List | Verb::Watch => None,
        Verb::Create => Some(Request::Create),
        Verb::Update => Some(Request::Update),
        Verb::Patch => Some(Request::Patch),
        Verb::Delete => Some(Request::Delete),
        Verb::DeleteCollection => Some(Request::DeleteCollection),
    }
}

/// The handler of an action that returns one part of an object.
fn part_handler(action: Option<&'static Action>) -> Option<&'static PartHandler> {
    match action?.handler {
        Handler::Part(handler) => Some(handler),
        _ => None,
    }
}

async fn serve_verb(
    server: &Server,
    request: &VerbRequest,
    body: ReceivedBody,
) -> Result<Outcome, ApiError> {
    let VerbRequest { parsed, permit, .. } = request;
    if let Some(action) = permit.target().action {
        if matches!(action.handler, Handler::Server(ServerAction::AgentConfig)) {
            return Box::pin(agent_config::serve(server, request)).await.map(Outcome::from);
        }
        if matches!(action.handler, Handler::Server(ServerAction::Tunnel)) {
            return Box::pin(tunnel::serve(server, request)).await.map(Outcome::from);
        }
        if matches!(action.handler, Handler::Server(ServerAction::TestConnector)) {
            return Box::pin(test_connector(server, request)).await.map(Outcome::from);
        }
        return Box::pin(act(server, request, action, body)).await;
    }
    // The futures of writes are boxed. Otherwise the future of a read would contain room for them, and
    // each move of the future would copy that room.
    match permit.target().verb {
        Verb::Get => get(server, request).await.map(Outcome::from),
        Verb::List => list(server, request).await,
        Verb::Watch => watch(server, request).await.map(Outcome::from),
        Verb::Create => Box::pin(create(server, parsed, permit, body)).await,
        Verb::Update => Box::pin(replace(server, parsed, permit, Part::Main, body)).await,
        Verb::Patch => Box::pin(patch(server, parsed, permit, Part::Main, body)).await,
        Verb::Delete => {
            // Before the deletion, since it may take the instances along.
            let warnings = operations::deletion_warnings(&server.registry, permit);
            let response = Box::pin(delete(server, parsed, permit, body)).await?;
            Ok(Outcome { warnings, ..response.into() })
        }
        Verb::DeleteCollection => {
            let response = Box::pin(delete_collection(server, request, body)).await?;
            let warnings = operations::deletion_warnings(&server.registry, permit);
            Ok(Outcome { warnings, ..response.into() })
        }
    }
}

/// Counts the bytes of a write before the write: a client may disconnect meanwhile. A patch writes the whole
/// object again.
pub(super) fn count_write(server: &Server, request: &VerbRequest, body: &[u8]) {
    let VerbRequest { parsed, permit, account } = request;
    let patched = match permit.target().verb {
        Verb::Get | Verb::List | Verb::Watch => return,
        Verb::Patch => server.registry.stored_bytes(permit),
        Verb::Create | Verb::Update | Verb::Delete | Verb::DeleteCollection => 0,
    };
    if parsed.query().get("dryRun").is_none() {
        server.flow.write_rate.count(account, body.len() + patched);
    }
}

/// The approximate length of the response to a change: that of the sent or the stored object. It is 0 for reads.
pub(super) fn answer_bytes(server: &Server, permit: &Permit, body: &[u8]) -> usize {
    match permit.target().verb {
        Verb::Get | Verb::List | Verb::Watch => 0,
        Verb::Create => body.len(),
        Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => {
            body.len().max(server.registry.stored_bytes(permit))
        }
    }
}

/// Whether a write needs much processor time: it sends a large body, or changes a large object. Reads decide it
/// when they have read the object.
pub(super) fn is_large(server: &Server, request: &VerbRequest, body: &[u8]) -> bool {
    let VerbRequest { parsed, permit, .. } = request;
    if matches!(permit.target().verb, Verb::Get | Verb::List | Verb::Watch) {
        return false;
    }
    let from = if input::can_be_yaml(parsed) { LARGE_YAML_BYTES } else { LARGE_BYTES };
    body.len() > from || server.registry.stored_bytes(permit) > LARGE_BYTES
}

fn negotiated_object(server: &Server, parsed: &Parsed) -> Result<Negotiated, ApiError> {
    Negotiated::of(parsed, Offered::Object, server.source.now())
}

async fn get(server: &Server, request: &VerbRequest) -> Result<Response<Body>, ApiError> {
    let VerbRequest { parsed, permit, .. } = request;
    let negotiated = negotiated_object(server, parsed)?;
    let options = GetOptions::parse(parsed.query())?;
    let found = server.registry.get(permit, &options).await;
    let mut object = found.map_err(|error| with_namespace_to_try(permit.target(), error))?;
    let kind = permit.kind();
    if permit.target().action.is_some() {
        // A caller with permission for the status alone must not get the rest.
        object = server.registry.for_writer(permit, object)?;
    }
    if object.json().len() > LARGE_BYTES && (negotiated.gzip || !negotiated.is_stored()) {
        let encode = move || respond::object(kind, StatusCode::OK, object, negotiated);
        return Box::pin(request.large_work(server).run(encode)).await?;
    }
    respond::object(kind, StatusCode::OK, object, negotiated)
}

async fn list(server: &Server, request: &VerbRequest) -> Result<Outcome, ApiError> {
    let VerbRequest { parsed, permit, .. } = request;
    let negotiated = Negotiated::of(parsed, Offered::List, server.source.now())?;
    let options = ListOptions::parse(parsed.query(), &selectable_fields(permit.kind()))?;
    let mut page = server.registry.list(permit, &options).await?;
    let warnings = std::mem::take(&mut page.warnings);
    let response = respond::list(permit.kind(), page, negotiated, request.large_work(server))?;
    Ok(Outcome { warnings, ..response.into() })
}

/// Tests a connector, which takes requests to the identity provider.
async fn test_connector(
    server: &Server,
    request: &VerbRequest,
) -> Result<Response<Body>, ApiError> {
    let VerbRequest { parsed, permit, .. } = request;
    let negotiated = negotiated_object(server, parsed)?;
    // The options have no effect. Invalid ones are rejected all the same.
    GetOptions::parse(parsed.query())?;
    let tested = server.sso.test(permit.name()).await?;
    let object = EncodedObject::with_fields(permit, &ConnectorTest, &tested)?;
    respond::object(&ConnectorTest, StatusCode::OK, object, negotiated)
}

/// Serves an action from the kind's table of actions.
async fn act(
    server: &Server,
    request: &VerbRequest,
    action: &'static Action,
    body: ReceivedBody,
) -> Result<Outcome, ApiError> {
    let VerbRequest { parsed, permit, .. } = request;
    if matches!(action.handler, Handler::Status) {
        return match action.verb {
            Verb::Get => get(server, request).await.map(Outcome::from),
            Verb::Update => replace(server, parsed, permit, Part::Status, body).await,
            Verb::Patch => patch(server, parsed, permit, Part::Status, body).await,
            _ => Err(ApiError::resource_not_served()),
        };
    }
    let lists = matches!(action.response, postern_kinds::action::Response::ListOf(_));
    let offered = if lists { Offered::List } else { Offered::Object };
    let negotiated = Negotiated::of(parsed, offered, server.source.now())?;
    let list = list_options(parsed, lists)?;
    let writes = action.verb != Verb::Get;
    if !writes && !lists {
        // The options have no effect. Invalid ones are rejected all the same.
        GetOptions::parse(parsed.query())?;
    }
    let (mut sent, mut warnings, mut options) = (None, Vec::new(), WriteOptions::default());
    if writes {
        options = WriteOptions::parse(parsed.query(), WriteKind::Create)?;
        let kind = action.request.unwrap_or(permit.kind());
        let (object, of_object) = sent_object(parsed, kind, &body, options.field_validation)?;
        (sent, warnings) = (Some(object), of_object);
    }
    let writing = writing(parsed, &options, Part::Main);
    if matches!(action.handler, Handler::Server(ServerAction::ReportAuditEvents)) {
        let object = audit_events::report(server, permit, sent, &writing).await?;
        let response = respond::object(&AuditEventList, StatusCode::CREATED, object, negotiated)?;
        return Ok(Outcome { response, warnings, created: None });
    }
    let part = match part_handler(Some(action)) {
        Some(handler) => parsed.query().single(handler.parameter)?,
        None => None,
    };
    let input = ActionInput { body: sent, list: &list, part };
    match actions::run(&server.registry, permit, action, input, &writing).await? {
        ActionOutput::List(kind, page) => {
            let large = request.large_work(server);
            respond::list(kind, page, negotiated, large).map(Outcome::from)
        }
        ActionOutput::Object(kind, object) => {
            let is_post = action.verb == Verb::Create;
            let code = if is_post { StatusCode::CREATED } else { StatusCode::OK };
            // The audit record gets the created object only if it has the kind that the request names.
            let same = matches!(action.response, postern_kinds::action::Response::Same);
            let created = object.created().filter(|_| is_post && same).cloned();
            let response = respond::object(kind, code, object, negotiated)?;
            Ok(Outcome { response, warnings, created })
        }
    }
}

/// The list options of an action that lists; the defaults for other actions.
fn list_options(parsed: &Parsed, lists: bool) -> Result<ListOptions, ApiError> {
    if !lists {
        return Ok(ListOptions::default());
    }
    if parsed.query().flag("watch")?.unwrap_or(false) {
        let message = "the access keys of one owner cannot be watched: watch ownedaccesskeys";
        return Err(ApiError::bad_request(message));
    }
    ListOptions::parse(parsed.query(), SELECTABLE_FIELDS)
}

async fn watch(server: &Server, request: &VerbRequest) -> Result<Response<Body>, ApiError> {
    let VerbRequest { parsed, permit, account } = request;
    let negotiated = Negotiated::of(parsed, Offered::Object, server.source.now())?;
    let options = ListOptions::parse(parsed.query(), &selectable_fields(permit.kind()))?;
    let handshake = websocket::handshake(parsed)?;
    let watch_permit = server.flow.acquire_watch(account)?;
    let (ending, large) = (server.watches_end(), request.large_work(server));
    let watcher = server.registry.watch(permit, &options, ending, large.clone()).await?;
    let meter = server.metrics.watch(permit.target());
    Ok(respond::watch(watcher, watch_permit, meter, negotiated, handshake, large))
}

/// The object in a body, and the warnings about it.
pub(super) fn sent_object(
    parsed: &Parsed,
    kind: &'static dyn AnyKind,
    body: &ReceivedBody,
    validation: FieldValidation,
) -> Result<(Object, Vec<String>), ApiError> {
    let decoded = input::decode_body(parsed, body)?;
    input::object_of(kind, decoded, Part::Main, validation)
}

/// An object as it is stored, which the client may have sent in another version.
fn stored(permit: &Permit, object: Object) -> Object {
    match permit.target().requested().stored_as() {
        Some(stored) => stored.stored(object),
        None => object,
    }
}

/// The parameters of a write. If the request has no field manager, the first part of the user agent is used.
fn writing(parsed: &Parsed, options: &WriteOptions, part: Part) -> Writing {
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
    Writing { manager, operation: Operation::Update, part, dry_run: options.dry_run }
}

async fn create(
    server: &Server,
    parsed: &Parsed,
    permit: &Permit,
    body: ReceivedBody,
) -> Result<Outcome, ApiError> {
    let negotiated = negotiated_object(server, parsed)?;
    let options = WriteOptions::parse(parsed.query(), WriteKind::Create)?;
    let requested = permit.target().requested();
    let (object, mut warnings) = sent_object(parsed, requested, &body, options.field_validation)?;
    let object = stored(permit, object);
    warnings.extend(permit.kind().no_effect_warnings(&object.fields));
    let writing = writing(parsed, &options, Part::Main);
    let object = operations::create(&server.registry, permit, object, &writing).await?;
    let created = object.created().cloned();
    let object = server.registry.for_writer(permit, object)?;
    let response = respond::object(permit.kind(), StatusCode::CREATED, object, negotiated)?;
    Ok(Outcome { response, warnings, created })
}

async fn replace(
    server: &Server,
    parsed: &Parsed,
    permit: &Permit,
    part: Part,
    body: ReceivedBody,
) -> Result<Outcome, ApiError> {
    let negotiated = negotiated_object(server, parsed)?;
    let options = WriteOptions::parse(parsed.query(), WriteKind::Update)?;
    let kind = permit.kind();
    let decoded = input::decode_body(parsed, &body)?;
    let is_null =
        |name: &&&str| decoded.value["spec"].get(**name).is_some_and(serde_json::Value::is_null);
    let is_ownerless = leaves_owner_out(kind, &decoded.value);
    let removed: Vec<&str> = kind.kept_fields().iter().filter(is_null).copied().collect();
    let requested = permit.target().requested();
    let (object, mut warnings) =
        input::object_of(requested, decoded, part, options.field_validation)?;
    let object = stored(permit, object);
    let writing = writing(parsed, &options, part);
    let replaced = operations::replace(&server.registry, permit, &writing, object, &removed).await;
    let (object, kept) = replaced?;
    warnings.extend(kept);
    warnings.extend(is_ownerless.then(|| owner_warning::of_written(permit, &object)).flatten());
    let object = server.registry.for_writer(permit, object)?;
    let response = respond::object(permit.kind(), StatusCode::OK, object, negotiated)?;
    Ok(Outcome { warnings, ..response.into() })
}

async fn patch(
    server: &Server,
    parsed: &Parsed,
    permit: &Permit,
    part: Part,
    body: ReceivedBody,
) -> Result<Outcome, ApiError> {
    // The patch's type is checked before anything else.
    let patch_type = patch_type(parsed.header(header::CONTENT_TYPE), &SERVED_PATCHES)?;
    let negotiated = negotiated_object(server, parsed)?;
    if patch_type == PatchType::Apply {
        return apply(server, parsed, permit, part, body, negotiated).await;
    }
    let options = WriteOptions::parse(parsed.query(), WriteKind::Patch)?;
    let Decoded { value: patch, duplicates } =
        decode(&body, Format::Json).map_err(|error| ApiError::bad_request(error.to_string()))?;
    let kind = permit.kind();
    let warnings = parking_lot::Mutex::new(Vec::new());
    let may_read = server.registry.check_may_read(permit, PATCH_READS);
    let is_unread = may_read.is_err();
    if patch_type == PatchType::Json && json_patch_reads(&patch) {
        may_read?;
    }
    if patch_type != PatchType::Json {
        input::check_patch_is_strict(kind, permit.name(), &patch)?;
    }
    let requested = permit.target().requested();
    let written = Written { kind: requested, name: permit.name(), part };
    let change = |current: &Object| {
        let current = current.clone();
        let current = match requested.stored_as() {
            Some(stored) => stored.in_version(current, requested).into_value(),
            None => current.into_value(),
        };
        let patched = match patch_type {
            PatchType::Json if is_unread => {
                apply_json_patch_unread(current, &patch, kind.read_protected())?
            }
            PatchType::Json => apply_json_patch(current, &patch)?,
            PatchType::Strategic => {
                apply_strategic_merge_patch(current, &patch, requested.schema())?
            }
            _ => apply_merge_patch(current, &patch)?,
        };
        let validation = options.field_validation;
        let (object, of_object) =
            input::patched_object_of(written, patched, &duplicates, validation)?;
        *warnings.lock() = of_object;
        Ok(stored(permit, object))
    };
    let writing = writing(parsed, &options, part);
    let is_ownerless = leaves_owner_out(kind, &patch);
    let object = operations::update(&server.registry, permit, &writing, change).await?;
    let mut warnings = warnings.into_inner();
    warnings.extend(is_ownerless.then(|| owner_warning::of_written(permit, &object)).flatten());
    let object = server.registry.for_writer(permit, object)?;
    let response = respond::object(kind, StatusCode::OK, object, negotiated)?;
    Ok(Outcome { warnings, ..response.into() })
}

/// Serves a patch that is a server-side apply.
async fn apply(
    server: &Server,
    parsed: &Parsed,
    permit: &Permit,
    part: Part,
    body: ReceivedBody,
    negotiated: Negotiated,
) -> Result<Outcome, ApiError> {
    let options = WriteOptions::parse(parsed.query(), WriteKind::Apply)?;
    let (kind, name) = (permit.kind(), permit.name());
    let decoded = input::decode_configuration(&body)?;
    let validation = options.field_validation;
    let nulls = nulls_of(&decoded.value, kind.schema());
    let is_ownerless = leaves_owner_out(kind, &decoded.value);
    let written = Written { kind: permit.target().requested(), name, part };
    let (configuration, mut warnings) = input::configuration_of(written, decoded, validation)?;
    let configuration = stored(permit, configuration);
    let writing = Writing { operation: Operation::Apply, ..writing(parsed, &options, part) };
    let applied = Applied {
        configuration: &configuration,
        nulls: &nulls,
        writing: &writing,
        force: options.force,
    };
    let (object, is_new) = operations::apply(&server.registry, permit, &applied).await?;
    let created = object.created().cloned();
    let code = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    if is_new {
        warnings.extend(kind.no_effect_warnings(&configuration.fields));
    }
    warnings.extend(is_ownerless.then(|| owner_warning::of_written(permit, &object)).flatten());
    let object = server.registry.for_writer(permit, object)?;
    let response = respond::object(kind, code, object, negotiated)?;
    Ok(Outcome { response, warnings, created })
}

async fn delete(
    server: &Server,
    parsed: &Parsed,
    permit: &Permit,
    body: ReceivedBody,
) -> Result<Response<Body>, ApiError> {
    let negotiated = negotiated_object(server, parsed)?;
    let options = delete_options(parsed, &body, DeletionOf::Object)?;
    let deleted = operations::delete(&server.registry, permit, &options).await?;
    let kind = permit.kind();
    if deleted.is_terminating {
        let object = server.registry.for_writer(permit, deleted.encoded)?;
        return respond::object(kind, StatusCode::OK, object, negotiated);
    }
    let metadata = &deleted.object.metadata;
    let resource = kind.info().group_resource();
    let status = Status::success_deleted(resource, &metadata.name, &metadata.uid);
    Ok(respond::success(&status, negotiated))
}

fn delete_options(
    parsed: &Parsed,
    body: &ReceivedBody,
    of: DeletionOf,
) -> Result<DeleteOptions, ApiError> {
    if body.is_empty() {
        return DeleteOptions::from_query(parsed.query(), of);
    }
    DeleteOptions::from_body(input::decode_body(parsed, body)?, parsed.query(), of)
}

async fn delete_collection(
    server: &Server,
    request: &VerbRequest,
    body: ReceivedBody,
) -> Result<Response<Body>, ApiError> {
    let VerbRequest { parsed, permit, .. } = request;
    let negotiated = Negotiated::of(parsed, Offered::List, server.source.now())?;
    let which = ListOptions::parse_of_deletion(parsed.query(), &selectable_fields(permit.kind()))?;
    let options = delete_options(parsed, &body, DeletionOf::Collection)?;
    let deleted = operations::delete_collection(&server.registry, permit, &which, &options).await?;
    respond::list(permit.kind(), deleted, negotiated, request.large_work(server))
}
