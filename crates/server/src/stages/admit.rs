//! From `Permit` to `Admitted`: is this write one that may be stored?
//!
//! Metadata rules and the kind's own preparation and validation run here, on every write, dry
//! runs included. The registry commits nothing but what is [`Admitted`], and only this file
//! makes one.

use std::sync::{Arc, LazyLock};

use postern_kinds::write_only::WriteOnlyValues;
use postern_kinds::{AnyKind, Context, Right};
use postern_meta::apply::{FieldSet, Manager, TrackedKind, track_update};
use postern_meta::field::{FieldError, FieldErrors};
use postern_meta::names::generated_name;
use postern_meta::object::{
    FOREGROUND_FINALIZER, ORPHAN_FINALIZER, Object, ObjectMeta, OwnerReference,
};
use postern_meta::options::Propagation;
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;
use postern_meta::validate;
use postern_store::Position;
use serde_json::Value;

use crate::cache::CachedObject;
use crate::clock::{Source, new_uid};
use crate::registry::Registry;
use crate::registry::side_records::SecretRecord;
use crate::stages::authorize::Permit;

/// An object as it was read, to be changed. It is decoded once for all that look at it.
pub(crate) struct Previous {
    /// What was read.
    pub(crate) cached: Arc<CachedObject>,
    /// The same, decoded.
    pub(crate) object: Object,
}

impl Previous {
    /// Decodes what was read.
    ///
    /// # Errors
    /// 500 when what is stored cannot be read.
    pub(crate) fn of(cached: Arc<CachedObject>) -> Result<Self, ApiError> {
        let object = cached.decode()?;
        Ok(Self { cached, object })
    }
}

/// What a write comes to.
pub(crate) enum Write {
    /// A new object.
    Create {
        /// What it will be.
        object: Object,
        /// What was written into fields that are never shown.
        write_only: WriteOnlyValues,
    },
    /// A new state for an object that is as it was read.
    Replace {
        /// What it will be.
        object: Object,
        /// What was read.
        previous: Previous,
        /// What was written into fields that are never shown.
        write_only: WriteOnlyValues,
        /// What is kept of them.
        kept: SecretRecord,
    },
    /// The end of an object that is as it was read.
    Remove {
        /// What the answer shows: its last state.
        object: Object,
        /// What was read.
        previous: Previous,
    },
    /// The end of an object that cannot be read.
    RemoveDamaged {
        /// Its storage key.
        key: Arc<str>,
        /// Its last change.
        position: Position,
    },
    /// Nothing: the write changes nothing.
    Nothing(Arc<CachedObject>),
}

/// A write that may be stored.
pub(crate) struct Admitted {
    permit: Permit,
    write: Write,
}

impl Admitted {
    /// Takes it apart, for the registry.
    pub(crate) fn into_parts(self) -> (Permit, Write) {
        (self.permit, self.write)
    }
}

/// How a write is to be done.
#[derive(Clone, Debug)]
pub(crate) struct Writing {
    /// The field manager: who is noted in `managedFields`.
    pub(crate) manager: String,
    /// Only say what would be?
    pub(crate) dry_run: bool,
}

impl Writing {
    /// By the server itself.
    pub(crate) fn by_server() -> Self {
        Self { manager: "postern".to_owned(), dry_run: false }
    }
}

/// Notes in an object who set which of its fields. The status is the server's own.
pub(crate) fn track(
    kind: &'static dyn AnyKind,
    object: &mut Object,
    old: Option<&Object>,
    manager: &str,
    now: Timestamp,
) {
    static STATUS: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of_fields(&[&["status"]]));
    // A client that writes managedFields itself could name what is never shown.
    let write_only = kind.write_only().iter().map(|field| field.path);
    let paths: Vec<&[&str]> = write_only.chain([&["status"][..]]).collect();
    let ignored = if paths.len() > 1 { &FieldSet::of_fields(&paths) } else { &*STATUS };
    let tracked = TrackedKind { schema: kind.schema(), ignored };
    let manager = Manager {
        name: manager.to_owned(),
        api_version: kind.info().version.to_string(),
        subresource: String::new(),
    };
    track_update(old, object, &tracked, &manager, now);
}

/// Admits a new object. Makes its name, when it has only a prefix of one.
///
/// # Errors
/// 400 and 422 as wire contract 1.5 and 1.6 say.
pub(crate) fn create(
    registry: &Registry,
    permit: &Permit,
    mut object: Object,
    writing: &Writing,
) -> Result<Admitted, ApiError> {
    let kind = permit.kind();
    let now = registry.source().now();
    let write_only = WriteOnlyValues::take(&mut object, kind.write_only());
    own_metadata_of_new(&mut object.metadata, permit, registry.source(), now)?;
    let caller = permit.caller();
    let principals = registry.cache().principals();
    let ctx = Context { principals: &*principals, ..registry.context(&caller, now) };
    let prepared = kind.prepare(&mut object, None, &ctx)?;
    check_rights(permit, &prepared.required_rights, &object, None)?;
    track(kind, &mut object, None, &writing.manager, now);
    let mut errors = validate::validate_create(&object.metadata, kind.info().is_namespaced());
    errors.extend(prepared.verdict?);
    kind.validate_write_only(&write_only, &mut errors);
    finish(kind, &object.metadata, errors)?;
    Ok(Admitted { permit: permit.clone(), write: Write::Create { object, write_only } })
}

/// What is asked about the object itself, beyond the verb on its kind. Before validation: what
/// somebody may not write, he need not be told about.
fn check_rights(
    permit: &Permit,
    required: &[Right],
    new: &Object,
    old: Option<&Object>,
) -> Result<(), ApiError> {
    permit.check(new)?;
    for right in required {
        permit.check_right(right)?;
    }
    check_blocked_owners(permit, &new.metadata, old.map(|old| &old.metadata))
}

/// Whoever lets an owner's deletion wait must be allowed to delete it. By the specification (part
/// 7) that is 422, where upstream answers 403.
fn check_blocked_owners(
    permit: &Permit,
    new: &ObjectMeta,
    old: Option<&ObjectMeta>,
) -> Result<(), ApiError> {
    let blocks = |one: &&OwnerReference| one.block_owner_deletion == Some(true);
    let blocked_before = |uid: &str| {
        old.is_some_and(|old| old.owner_references.iter().filter(blocks).any(|one| one.uid == uid))
    };
    let mut errors = FieldErrors::new();
    for (place, reference) in new.owner_references.iter().enumerate() {
        if !blocks(&reference) || blocked_before(&reference.uid) {
            continue;
        }
        let right = right_to_delete(reference, &new.namespace);
        if permit.check_right(&right).is_err() {
            let path = format!("metadata.ownerReferences[{place}].blockOwnerDeletion");
            let detail = "cannot be set without the right to delete the owner";
            errors.push(FieldError::forbidden(path, detail));
        }
    }
    finish(permit.kind(), new, errors)
}

fn right_to_delete(reference: &OwnerReference, namespace: &str) -> Right {
    let kind = postern_kinds::of_reference(&reference.api_version, &reference.kind);
    let Some(info) = kind.map(AnyKind::info) else {
        // A kind that is not served here: only who may delete everything may delete it.
        return Right::cluster("delete", "", "*", &reference.name);
    };
    let namespace = if info.is_namespaced() { namespace.to_owned() } else { String::new() };
    let name = reference.name.clone();
    Right { namespace, ..Right::cluster("delete", info.version.group, info.plural, name) }
}

/// Admits a new state for an object. `object` is what the client wants, `previous` what was read.
///
/// # Errors
/// 400, 409 and 422 as wire contract 1.5 and 1.6 say.
pub(crate) fn update(
    registry: &Registry,
    permit: &Permit,
    mut object: Object,
    previous: Previous,
    kept: SecretRecord,
    writing: &Writing,
) -> Result<Admitted, ApiError> {
    let kind = permit.kind();
    let now = registry.source().now();
    let old = &previous.object;
    check_uid(kind, &object.metadata, &old.metadata)?;
    let write_only = WriteOnlyValues::take(&mut object, kind.write_only());
    own_metadata_of_changed(&mut object.metadata, &old.metadata);
    let caller = permit.caller();
    let principals = registry.cache().principals();
    let ctx = Context { principals: &*principals, ..registry.context(&caller, now) };
    let prepared = kind.prepare(&mut object, Some(old), &ctx)?;
    check_rights(permit, &prepared.required_rights, &object, Some(old))?;
    track(kind, &mut object, Some(old), &writing.manager, now);
    let mut errors = validate::validate_update(&object.metadata, &old.metadata);
    errors.extend(prepared.verdict?);
    kind.validate_write_only(&write_only, &mut errors);
    finish(kind, &object.metadata, errors)?;
    // A new value that is never shown is a change of the desired state, too.
    if kept.differs(kind, &write_only, registry.digester()) || desired_state_differs(&object, old) {
        object.metadata.generation += 1;
    }
    let write = match write_for(kind, object, previous, now)? {
        Write::Replace { object, previous, .. } => {
            Write::Replace { object, previous, write_only, kept }
        }
        other => other,
    };
    Ok(Admitted { permit: permit.clone(), write })
}

/// Admits the start or the end of an object's deletion: marks it, or removes it if nothing holds
/// it back.
///
/// # Errors
/// 403 when the kind forbids it.
pub(crate) fn delete(
    permit: &Permit,
    previous: Previous,
    grace_seconds: i64,
    propagation: Option<Propagation>,
    source: &dyn Source,
) -> Result<Admitted, ApiError> {
    let kind = permit.kind();
    let old = &previous.object;
    permit.check(old)?;
    kind.check_delete(&old.metadata)?;
    let now = source.now();
    let mut object = old.clone();
    if !object.metadata.is_terminating() {
        propagate(&mut object.metadata, propagation);
    }
    mark_deleted(kind, &mut object, grace_seconds, now)?;
    let write = write_for(kind, object, previous, now)?;
    Ok(Admitted { permit: permit.clone(), write })
}

/// Admits the end of an object that is damaged: its finalizers are not known, and its owner has
/// said that he does not mind.
///
/// # Errors
/// 403 when the kind forbids it.
pub(crate) fn delete_damaged(
    permit: &Permit,
    key: Arc<str>,
    position: Position,
) -> Result<Admitted, ApiError> {
    let name = permit.target().name.clone().unwrap_or_default();
    permit.kind().check_delete(&ObjectMeta { name, ..ObjectMeta::default() })?;
    Ok(Admitted { permit: permit.clone(), write: Write::RemoveDamaged { key, position } })
}

/// Lets go of what the server itself held an object by; the last to let go removes it.
///
/// # Errors
/// 500 when what is stored cannot be read as its kind.
pub(crate) fn release(
    permit: &Permit,
    object: Object,
    previous: Previous,
    source: &dyn Source,
) -> Result<Admitted, ApiError> {
    let write = write_for(permit.kind(), object, previous, source.now())?;
    Ok(Admitted { permit: permit.clone(), write })
}

/// Says in finalizers what becomes of dependents; who does not say leaves those that are there.
fn propagate(metadata: &mut ObjectMeta, propagation: Option<Propagation>) {
    let wanted = match propagation {
        None => return,
        Some(Propagation::Foreground) => Some(FOREGROUND_FINALIZER),
        Some(Propagation::Orphan) => Some(ORPHAN_FINALIZER),
        Some(Propagation::Background) => None,
    };
    let ours = [FOREGROUND_FINALIZER, ORPHAN_FINALIZER];
    metadata.finalizers.retain(|one| !ours.contains(&one.as_str()));
    metadata.finalizers.extend(wanted.map(str::to_owned));
}

/// Sets `deletionTimestamp`, or moves it closer. It never moves away, and a second deletion
/// leaves finalizers alone (wire contract 1.5).
fn mark_deleted(
    kind: &'static dyn AnyKind,
    object: &mut Object,
    grace_seconds: i64,
    now: Timestamp,
) -> Result<(), ApiError> {
    let metadata = &mut object.metadata;
    let (Some(due), Some(old_grace)) =
        (metadata.deletion_timestamp, metadata.deletion_grace_period_seconds)
    else {
        metadata.deletion_timestamp = Some(later(now, grace_seconds));
        metadata.deletion_grace_period_seconds = Some(grace_seconds);
        metadata.generation += 1;
        return kind.begin_delete(object);
    };
    if grace_seconds < old_grace {
        let shortened = later(due, grace_seconds - old_grace);
        metadata.deletion_timestamp = Some(shortened.max(now));
        metadata.deletion_grace_period_seconds = Some(grace_seconds);
    }
    Ok(())
}

fn later(from: Timestamp, seconds: i64) -> Timestamp {
    Timestamp::from_unix_seconds(from.unix_seconds().saturating_add(seconds))
}

/// What a new state comes to: nothing, when it is the old one; the end, when the object was
/// being deleted, its time has come and nothing holds it any longer.
fn write_for(
    kind: &'static dyn AnyKind,
    object: Object,
    previous: Previous,
    now: Timestamp,
) -> Result<Write, ApiError> {
    let due = object.metadata.deletion_timestamp.is_some_and(|due| due <= now);
    if due && object.metadata.finalizers.is_empty() && !kind.blocks_deletion(&object)? {
        return Ok(Write::Remove { object, previous });
    }
    if same(&object, &previous.object) {
        return Ok(Write::Nothing(previous.cached));
    }
    let (write_only, kept) = (WriteOnlyValues::default(), SecretRecord::default());
    Ok(Write::Replace { object, previous, write_only, kept })
}

fn same(new: &Object, old: &Object) -> bool {
    new.metadata == old.metadata && new.fields == old.fields
}

/// The desired state is everything but metadata and status.
fn desired_state_differs(new: &Object, old: &Object) -> bool {
    fn desired(object: &Object) -> impl Iterator<Item = (&String, &Value)> {
        object.fields.iter().filter(|(name, _)| *name != "status")
    }
    !desired(new).eq(desired(old))
}

fn own_metadata_of_new(
    metadata: &mut ObjectMeta,
    permit: &Permit,
    source: &dyn Source,
    now: Timestamp,
) -> Result<(), ApiError> {
    if !metadata.resource_version.is_empty() {
        return Err(ApiError::bad_request(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    place(metadata, permit)?;
    metadata.uid = new_uid(source);
    metadata.generation = 1;
    metadata.creation_timestamp = Some(now);
    metadata.deletion_timestamp = None;
    metadata.deletion_grace_period_seconds = None;
    metadata.self_link.clear();
    let given = Some(metadata.generate_name.as_str()).filter(|prefix| !prefix.is_empty());
    if let Some(prefix) = given.or(permit.kind().name_prefix())
        && metadata.name.is_empty()
    {
        let mut random = [0; 5];
        source.fill(&mut random);
        metadata.name = generated_name(prefix, random);
    }
    Ok(())
}

/// An empty namespace takes the URL's; another is a mistake that must not be guessed at.
fn place(metadata: &mut ObjectMeta, permit: &Permit) -> Result<(), ApiError> {
    let wanted = permit.target().namespace.as_deref().unwrap_or_default();
    let namespaced = permit.kind().info().is_namespaced();
    if namespaced && !metadata.namespace.is_empty() && metadata.namespace != wanted {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    wanted.clone_into(&mut metadata.namespace);
    Ok(())
}

fn check_uid(
    kind: &'static dyn AnyKind,
    new: &ObjectMeta,
    old: &ObjectMeta,
) -> Result<(), ApiError> {
    if new.uid.is_empty() || new.uid == old.uid {
        return Ok(());
    }
    Err(ApiError::conflict(
        kind.info().group_resource(),
        &old.name,
        format!(
            "Precondition failed: UID in precondition: {}, UID in object meta: {}",
            new.uid, old.uid
        ),
    ))
}

/// What belongs to the server stays as it was, whatever the client sent.
fn own_metadata_of_changed(metadata: &mut ObjectMeta, old: &ObjectMeta) {
    // The client's has been compared already; with the stored one, equal objects are equal.
    metadata.resource_version.clone_from(&old.resource_version);
    metadata.uid.clone_from(&old.uid);
    metadata.generation = old.generation;
    metadata.creation_timestamp = old.creation_timestamp;
    metadata.deletion_timestamp = old.deletion_timestamp;
    metadata.deletion_grace_period_seconds = old.deletion_grace_period_seconds;
    metadata.self_link.clear();
    metadata.generate_name.clone_from(&old.generate_name);
    if metadata.namespace.is_empty() {
        metadata.namespace.clone_from(&old.namespace);
    }
}

fn finish(
    kind: &'static dyn AnyKind,
    metadata: &ObjectMeta,
    errors: FieldErrors,
) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    let name = if metadata.name.is_empty() { &metadata.generate_name } else { &metadata.name };
    Err(ApiError::invalid(kind.info().group_kind(), name, errors))
}
