//! The verbs of an authorized request. Each reads the options and the body, runs the operation, and makes the
//! response. `serve` calls them.

use std::net::IpAddr;
use std::sync::Arc;

use http::{StatusCode, header};
use postern_flow::OwnerAccount;
use postern_flow::large::{LARGE_BYTES, LargeWork};
use postern_kinds::{AnyKind, Verb};
use postern_meta::accept::{Offered, PatchType, patch_type};
use postern_meta::apply::nulls_of;
use postern_meta::decode::{Decoded, Format, decode};
use postern_meta::object::{Object, Operation};
use postern_meta::options::{
    DeleteOptions, DeletionOf, FieldValidation, GetOptions, ListOptions, WriteKind, WriteOptions,
};
use postern_meta::patch::{
    apply_json_patch, apply_json_patch_unread, apply_merge_patch, apply_strategic_merge_patch,
    json_patch_reads,
};
use postern_meta::status::{ApiError, Status};
use postern_openapi::v3::SERVED_PATCHES;
use postern_registry::admit::{Part, Writing};
use postern_registry::operations::{self, Applied};
use postern_registry::permit::{Permit, selectable_fields, with_namespace_to_try};
use postern_registry::registry::EncodedObject;
use postern_registry::registry::values::Recipient;

use super::owner_warning::{self, leaves_owner_out};
use super::{Outcome, Server};
use postern_http::stages::parse::Parsed;
use postern_http::wire::encode::Negotiated;
use postern_http::wire::input::{self, ReceivedBody, Written};
use postern_http::wire::respond::{self, ObjectResponse};
use postern_http::wire::websocket;

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
    /// The address of the client.
    pub(super) address: IpAddr,
}

impl VerbRequest {
    /// The queue and the threads for the request's work that needs much processor time.
    pub(super) fn large_work(&self, server: &Server) -> LargeWork {
        server.flow.large_work(self.account.clone())
    }
}

/// Counts the bytes of a write before the write: a client may disconnect meanwhile. A patch writes the whole
/// object again.
pub(super) fn count_write(server: &Server, request: &VerbRequest, body: &[u8]) {
    let VerbRequest { parsed, permit, account, .. } = request;
    let patched = match permit.target().verb {
        Verb::Get | Verb::List | Verb::Watch => return,
        Verb::Patch => stored_bytes(server, permit),
        Verb::Create | Verb::Update | Verb::Delete | Verb::DeleteCollection => 0,
    };
    if parsed.query().get("dryRun").is_none() {
        server.flow.write_rate.count(account, body.len() + patched);
    }
}

/// The size of the stored object of a permit, in bytes; 0 if there is none. Sessions have no cache, since no object of their
/// kinds is stored.
fn stored_bytes(server: &Server, permit: &Permit) -> usize {
    if permit.kind().info().is_stored() { server.registry.stored_bytes(permit) } else { 0 }
}

/// The approximate length of the response to a change: that of the sent or the stored object. It is 0 for reads.
pub(super) fn answer_bytes(server: &Server, permit: &Permit, body: &[u8]) -> usize {
    match permit.target().verb {
        Verb::Get | Verb::List | Verb::Watch => 0,
        Verb::Create => body.len(),
        Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => {
            body.len().max(stored_bytes(server, permit))
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
    body.len() > from || stored_bytes(server, permit) > LARGE_BYTES
}

fn negotiated_object(server: &Server, parsed: &Parsed) -> Result<Negotiated, ApiError> {
    Negotiated::of(parsed, Offered::Object, server.source.now())
}

fn recipient(server: &Server, permit: &Permit) -> Recipient {
    Recipient::new(&server.registry, permit)
}

pub(super) async fn get(
    server: &Server,
    request: &VerbRequest,
) -> Result<ObjectResponse, ApiError> {
    let VerbRequest { parsed, permit, .. } = request;
    let negotiated = negotiated_object(server, parsed)?;
    let options = GetOptions::parse(parsed.query())?;
    let found = server.registry.get(permit, &options).await;
    let mut object = found.map_err(|error| with_namespace_to_try(permit.target(), error))?;
    let (kind, to) = (permit.kind(), recipient(server, permit));
    if permit.target().action.is_some() {
        // A caller with permission for the status alone must not get the rest.
        object = server.registry.for_writer(permit, object)?;
    }
    if object.json().len() > LARGE_BYTES && (negotiated.gzip || !negotiated.is_stored()) {
        let encode = move || respond::object(&to, kind, StatusCode::OK, object, negotiated);
        return Box::pin(request.large_work(server).run(encode)).await?;
    }
    respond::object(&to, kind, StatusCode::OK, object, negotiated)
}

pub(super) async fn list(server: &Server, request: &VerbRequest) -> Result<Outcome, ApiError> {
    let VerbRequest { parsed, permit, .. } = request;
    let negotiated = Negotiated::of(parsed, Offered::List, server.source.now())?;
    let options = ListOptions::parse(parsed.query(), &selectable_fields(permit.kind()))?;
    let mut page = server.registry.list(permit, &options).await?;
    let warnings = std::mem::take(&mut page.warnings);
    let response = respond::list(
        &recipient(server, permit),
        permit.kind(),
        page,
        negotiated,
        request.large_work(server),
    )?;
    Ok(Outcome { warnings, ..response.into() })
}

pub(super) async fn watch(
    server: &Server,
    request: &VerbRequest,
) -> Result<ObjectResponse, ApiError> {
    let VerbRequest { parsed, permit, account, .. } = request;
    let negotiated = Negotiated::of(parsed, Offered::Object, server.source.now())?;
    let options = ListOptions::parse(parsed.query(), &selectable_fields(permit.kind()))?;
    let handshake = websocket::handshake(parsed)?;
    let watch_permit = server.flow.acquire_watch(account)?;
    let (ending, large) = (server.watches_end(), request.large_work(server));
    let watcher = server.registry.watch(permit, &options, ending, large.clone()).await?;
    let (to, meter) = (recipient(server, permit), server.metrics.watch(permit.target()));
    Ok(respond::watch(to, watcher, watch_permit, meter, negotiated, handshake, large))
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
    match permit.target().requested().info().stored_as {
        Some(stored) => stored.stored(object),
        None => object,
    }
}

/// The parameters of a write. If the request has no field manager, the first part of the user agent is used.
pub(super) fn writing(parsed: &Parsed, options: &WriteOptions, part: Part) -> Writing {
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

pub(super) async fn create(
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
    let object = for_writer(server, permit, object).await?;
    let response = respond::object(
        &recipient(server, permit),
        permit.kind(),
        StatusCode::CREATED,
        object,
        negotiated,
    )?;
    Ok(Outcome { warnings, created, ..response.into() })
}

/// The response to a create, with the values that the caller may get. The caller owns the new object, so the decision waits
/// until the policy knows the owner.
async fn for_writer(
    server: &Server,
    permit: &Permit,
    object: EncodedObject,
) -> Result<EncodedObject, ApiError> {
    let registry = &server.registry;
    if object.created().is_some() && !registry.may_read_written(permit, &object) {
        // The object is stored. If the cache is late, the response has no values.
        let _ = registry.cache().wait_until_current().await;
    }
    registry.for_writer(permit, object)
}

pub(super) async fn replace(
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
    let removed: Vec<&str> = kind.info().kept_fields.iter().filter(is_null).copied().collect();
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
    let response = respond::object(
        &recipient(server, permit),
        permit.kind(),
        StatusCode::OK,
        object,
        negotiated,
    )?;
    Ok(Outcome { warnings, ..response.into() })
}

pub(super) async fn patch(
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
        let current = match requested.info().stored_as {
            Some(stored) => stored.in_version(current, requested).into_value(),
            None => current.into_value(),
        };
        let patched = match patch_type {
            PatchType::Json if is_unread => {
                apply_json_patch_unread(current, &patch, kind.info().read_protected)?
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
    let response =
        respond::object(&recipient(server, permit), kind, StatusCode::OK, object, negotiated)?;
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
    let object = for_writer(server, permit, object).await?;
    let response = respond::object(&recipient(server, permit), kind, code, object, negotiated)?;
    Ok(Outcome { warnings, created, ..response.into() })
}

pub(super) async fn delete(
    server: &Server,
    parsed: &Parsed,
    permit: &Permit,
    body: ReceivedBody,
) -> Result<Outcome, ApiError> {
    let negotiated = negotiated_object(server, parsed)?;
    let options = delete_options(parsed, &body, DeletionOf::Object)?;
    let deleted = operations::delete(&server.registry, permit, &options).await?;
    let kind = permit.kind();
    if deleted.is_terminating {
        let object = server.registry.for_writer(permit, deleted.encoded)?;
        let to = recipient(server, permit);
        return respond::object(&to, kind, StatusCode::OK, object, negotiated).map(Outcome::from);
    }
    let metadata = &deleted.object.metadata;
    let resource = kind.info().group_resource();
    let status = Status::success_deleted(resource, &metadata.name, &metadata.uid);
    Ok(respond::success(&status, negotiated).into())
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

pub(super) async fn delete_collection(
    server: &Server,
    request: &VerbRequest,
    body: ReceivedBody,
) -> Result<ObjectResponse, ApiError> {
    let VerbRequest { parsed, permit, .. } = request;
    let negotiated = Negotiated::of(parsed, Offered::List, server.source.now())?;
    let which = ListOptions::parse_of_deletion(parsed.query(), &selectable_fields(permit.kind()))?;
    let options = delete_options(parsed, &body, DeletionOf::Collection)?;
    let deleted = operations::delete_collection(&server.registry, permit, &which, &options).await?;
    respond::list(
        &recipient(server, permit),
        permit.kind(),
        deleted,
        negotiated,
        request.large_work(server),
    )
}
