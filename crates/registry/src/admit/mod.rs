//! From `Permit` to `Admitted`: the checks of a write before it is stored.
//!
//! Metadata rules, and the preparation and validation of the kind, run here for every write. This
//! includes dry runs and the changes that another write requires. The registry commits only
//! `Admitted` writes, and only this module creates them. Admission reads through an
//! `AdmissionView`.

mod claims;
mod counted;
mod deletion;
mod dependents;
mod fields;
mod kubeconfig;
mod members;
mod metadata;
mod migrate;
mod named;
mod phase;
mod rights;
mod view;
mod write;
mod writer;

use std::borrow::Cow;

use postern_kinds::write_only::WriteOnlyValues;
use postern_kinds::{AnyKind, Verb};
use postern_meta::field::{FieldError, FieldErrors};
use postern_meta::object::{Object, ObjectMeta, Operation};
use postern_meta::status::ApiError;
use postern_meta::validate;
use serde_json::{Map, Value};

use self::claims::{bound_issuer, check_claims};
pub(crate) use self::counted::{Counted, Limit};
pub(crate) use self::deletion::{Ending, delete, delete_corrupt, end, release};
use self::deletion::{companions, with_companions};
use self::dependents::{Transition, with_dependents};
use self::fields::{SentFields, track_create, track_write};
pub(crate) use self::fields::{apply, track};
use self::kubeconfig::check_kubeconfig;
pub(crate) use self::metadata::set_namespace;
use self::metadata::{check_uid, init_system_metadata, keep_system_metadata};
pub(crate) use self::migrate::{MigratedSecret, Migration, migrate};
use self::phase::{observe_generation, set_phase};
use self::rights::check_rights;
pub use self::view::UserPolicy;
pub(crate) use self::view::{ActionHandler, AdmissionView, Previous};
use self::view::{Before, NewSecrets};
pub(crate) use self::write::{Admitted, AdmittedChange, ObjectNames, Remover, Write};
pub(crate) use self::writer::data_source;
use self::writer::remember_writer;
use crate::permit::Permit;
use crate::secret_record::SecretRecord;

/// The options of a write.
#[derive(Clone, Debug)]
pub struct Writing {
    /// The field manager, for `managedFields`.
    pub manager: String,
    /// An apply, with the object that `apply` made, or any other write.
    pub operation: Operation,
    /// The part of the object that is written.
    pub part: Part,
    /// Whether it is a dry run.
    pub dry_run: bool,
}

impl Writing {
    /// The options of the server's own writes.
    pub fn by_server() -> Self {
        Self::by("postern")
    }

    /// The options of a write of objects by this field manager.
    pub(crate) fn by(manager: &str) -> Self {
        let manager = manager.to_owned();
        Self { manager, operation: Operation::Update, part: Part::Main, dry_run: false }
    }
}

/// Prepares and checks an object that is returned and not stored, such as a review.
///
/// # Errors
/// 400 and 422, as for a new object.
pub(crate) fn review(
    view: &AdmissionView<'_>,
    permit: &Permit,
    mut object: Object,
) -> Result<Object, ApiError> {
    set_namespace(&mut object.metadata, permit)?;
    let prepared = view.prepare(permit, &mut object, None, &NewSecrets::default())?;
    check_errors(permit.kind(), &object.metadata, prepared.verdict?)?;
    Ok(object)
}

/// Admits a new object. If it has only `generateName`, it gets a generated name.
///
/// # Errors
/// The 400 and 422 of `docs/reference/api.md#metadata` and `docs/reference/api.md#writes`.
pub(crate) fn create(
    view: &AdmissionView<'_>,
    permit: &Permit,
    mut object: Object,
    writing: &Writing,
) -> Result<Admitted, ApiError> {
    let kind = permit.kind();
    let write_only = WriteOnlyValues::take(&mut object, kind.info().write_only);
    check_size(kind, &object)?;
    if has_status_subresource(kind) {
        object.fields.remove("status");
    }
    init_system_metadata(&mut object.metadata, permit, view)?;
    let sent = SentFields::of(&object);
    let new_secrets = NewSecrets {
        has_new_credential: false,
        others: SecretRecord::default().new_secrets(kind, &write_only),
    };
    let prepared = view.prepare(permit, &mut object, None, &new_secrets)?;
    set_phase(view, permit, &mut object, None);
    permit.check_owned_by(prepared.owner.as_ref())?;
    check_rights(view, permit, &prepared, &object, None)?;
    remember_writer(view, permit, &mut object, None)?;
    track_create(kind, &mut object, &sent, writing, view.now);
    let mut errors = validate::validate_create(
        &object.metadata,
        kind.info().is_namespaced(),
        kind.info().name_rule,
    );
    errors.extend(prepared.verdict?);
    write_only.validate(kind.info().write_only, &mut errors);
    check_kubeconfig(view, kind, &object, None, &mut errors)?;
    check_claims(view, permit, &object, None, &mut errors)?;
    check_errors(kind, &object.metadata, errors)?;
    let name = object.metadata.name.clone();
    let new = prepared.has_dependents.then(|| object.clone());
    // Objects may still refer to a removed object of this name. These references must not mean the new one.
    let companions = companions(view, kind, &object.metadata)?;
    let members = members::added(view, kind, None, &object)?;
    let limits = counted::limits(view, permit, &object, prepared.owner_uid.as_deref())?;
    let issuer = bound_issuer(view, kind, &object)?;
    let write = Write::Create { object, owner_uid: prepared.owner_uid, write_only };
    let created = Admitted::one(permit, &name, write);
    let created = created.with_members(members).with_limits(limits).with_names(issuer);
    let created = with_companions(view, created, companions)?;
    let Some(new) = new else { return Ok(created) };
    with_dependents(view, permit, created, Transition { kind, old: None, new: Some(&new) })
}

/// The part of an object that a write is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Everything except a status with its own subresource.
    Main,
    /// Only the status, through its subresource.
    Status,
    /// Everything, by an action of this subresource. The kind decides which fields change.
    Action(&'static str),
}

impl Part {
    /// A configuration with only the fields that may be applied through this part.
    fn applicable<'a>(
        self,
        kind: &'static dyn AnyKind,
        configuration: &'a Object,
    ) -> Cow<'a, Object> {
        let has_status = configuration.fields.contains_key("status");
        let mut applicable = Cow::Borrowed(configuration);
        match self {
            Self::Main if has_status && has_status_subresource(kind) => {
                applicable.to_mut().fields.remove("status");
            }
            Self::Main | Self::Action(_) => {}
            Self::Status => {
                let applicable = applicable.to_mut();
                applicable.fields.retain(|name, _| name == "status");
                let ObjectMeta { name, namespace, uid, resource_version, .. } =
                    std::mem::take(&mut applicable.metadata);
                applicable.metadata =
                    ObjectMeta { name, namespace, uid, resource_version, ..ObjectMeta::default() };
            }
        }
        applicable
    }

    /// Keeps in `object` only the changes that may be written through this part; the rest gets its old state.
    fn keep_rest(self, kind: &'static dyn AnyKind, object: &mut Object, old: &Object) {
        match self {
            Self::Main if has_status_subresource(kind) => {
                set_or_remove(&mut object.fields, "status", old.fields.get("status"));
            }
            Self::Main | Self::Action(_) => {}
            Self::Status => {
                let status = object.fields.remove("status");
                object.fields.clone_from(&old.fields);
                set_or_remove(&mut object.fields, "status", status.as_ref());
                let sent = std::mem::take(&mut object.metadata.managed_fields);
                object.metadata.clone_from(&old.metadata);
                object.metadata.managed_fields = sent;
            }
        }
    }
}

/// Checks the maximum size of an object of the kind, including its write-only fields.
fn check_size(kind: &'static dyn AnyKind, object: &Object) -> Result<(), ApiError> {
    let Some(max_bytes) = kind.info().max_bytes else { return Ok(()) };
    if object.to_json_bytes().len() <= max_bytes {
        return Ok(());
    }
    let mut errors = FieldErrors::new();
    errors.push(FieldError::too_long("spec", max_bytes));
    check_errors(kind, &object.metadata, errors)
}

/// Whether the status of this kind can only be written through a subresource.
fn has_status_subresource(kind: &'static dyn AnyKind) -> bool {
    [Verb::Update, Verb::Patch].iter().any(|verb| kind.info().action("status", *verb).is_some())
}

fn set_or_remove(fields: &mut Map<String, Value>, name: &str, value: Option<&Value>) {
    match value {
        Some(value) => fields.insert(name.to_owned(), value.clone()),
        None => fields.remove(name),
    };
}

/// Admits a new state of an object. `object` is the state from the client, `previous` the state that was read.
///
/// # Errors
/// The 400, 409 and 422 of `docs/reference/api.md#metadata` and `docs/reference/api.md#writes`.
pub(crate) fn update(
    view: &AdmissionView<'_>,
    permit: &Permit,
    mut object: Object,
    previous: Previous,
    secrets: SecretRecord,
    writing: &Writing,
) -> Result<Admitted, ApiError> {
    let kind = permit.kind();
    let old = &previous.object;
    check_uid(kind, &object.metadata, &old.metadata)?;
    check_size(kind, &object)?;
    let written = WriteOnlyValues::take(&mut object, kind.info().write_only);
    // Write-only fields are part of the desired state, which the status subresource does not change.
    let write_only =
        if writing.part == Part::Status { WriteOnlyValues::default() } else { written };
    writing.part.keep_rest(kind, &mut object, old);
    keep_system_metadata(&mut object.metadata, &old.metadata);
    let new_secrets = NewSecrets {
        has_new_credential: secrets.has_new_credential(kind, &write_only, view.digester),
        others: secrets.new_secrets(kind, &write_only),
    };
    // Without entries, a client leaves them as they are.
    let sent_managers = &object.metadata.managed_fields;
    let changes_managers = writing.operation != Operation::Apply
        && !sent_managers.is_empty()
        && *sent_managers != old.metadata.managed_fields;
    let before = Before { changes_managers, ..previous.before() };
    let prepared = view.prepare(permit, &mut object, Some(before), &new_secrets)?;
    set_phase(view, permit, &mut object, Some(old));
    permit.check(&previous.cached)?;
    permit.check_owned_by(prepared.owner.as_ref())?;
    check_rights(view, permit, &prepared, &object, Some(&previous))?;
    let (owner_uid, old_owner_uid) = (prepared.owner_uid.as_deref(), previous.cached.owner_uid());
    counted::check_stays_owned(permit, &object, owner_uid, old_owner_uid)?;
    remember_writer(view, permit, &mut object, Some(old))?;
    track_write(kind, &mut object, old, writing, view.now);
    let mut errors = validate::validate_update(&object.metadata, &old.metadata);
    errors.extend(prepared.verdict?);
    write_only.validate(kind.info().write_only, &mut errors);
    check_kubeconfig(view, kind, &object, Some(old), &mut errors)?;
    check_claims(view, permit, &object, Some(old), &mut errors)?;
    check_errors(kind, &object.metadata, errors)?;
    // A new value of a write-only field is also a change of the desired state.
    let new_secret = secrets.differs(kind, &write_only, view.digester);
    // A caller that may write but not read could guess a value and see that the write changed nothing.
    let is_blind =
        !kind.info().read_protected.is_empty() && !permit.may(Verb::Get, Some(&previous.cached));
    if new_secret || is_blind || desired_state_differs(&object, old) {
        object.metadata.generation += 1;
    }
    observe_generation(kind, &mut object);
    let written = SideData { owner_uid: prepared.owner_uid, write_only, secrets };
    write_for(view, permit, object, previous, Some(written))
}

/// The data that a write stores in addition to the object.
struct SideData {
    owner_uid: Option<String>,
    write_only: WriteOnlyValues,
    secrets: SecretRecord,
}

impl SideData {
    /// The unchanged owner, and no values of write-only fields.
    fn keeping(owner_uid: Option<&str>) -> Self {
        let owner_uid = owner_uid.map(str::to_owned);
        Self { owner_uid, write_only: WriteOnlyValues::default(), secrets: SecretRecord::default() }
    }
}

/// The write for a new state. It is nothing if the state equals the old one. It is the removal if the object is
/// terminating, its time has come, and nothing blocks the deletion any longer.
fn write_for(
    view: &AdmissionView<'_>,
    permit: &Permit,
    object: Object,
    previous: Previous,
    written: Option<SideData>,
) -> Result<Admitted, ApiError> {
    let kind = permit.kind();
    let due = object.metadata.deletion_timestamp.is_some_and(|due| due <= view.now);
    let is_removed =
        due && object.metadata.finalizers.is_empty() && !kind.blocks_deletion(&object)?;
    // The copies are made only for objects that need them. Writes of the server itself always update the dependents.
    let may_differ = || {
        is_removed
            || permit.credential().is_server()
            || kind.changes_dependents(&object, &previous.object)
    };
    let needs_states = kind.has_dependents() && may_differ();
    let states = needs_states.then(|| (previous.object.clone(), object.clone()));
    let admitted = if is_removed {
        let companions = companions(view, kind, &object.metadata)?;
        let by = Remover::of(permit, &previous.object);
        let removal = Admitted::one(permit, permit.name(), Write::Remove { object, previous, by });
        with_companions(view, removal, companions)?
    } else {
        let kept = || SideData::keeping(previous.cached.owner_uid());
        let SideData { owner_uid, write_only, secrets } = written.unwrap_or_else(kept);
        let members = members::added(view, kind, Some(&previous.object), &object)?;
        let issuer = bound_issuer(view, kind, &object)?;
        let is_same_owner = owner_uid.as_deref() == previous.cached.owner_uid();
        let write = if is_same_owner && is_unchanged(&object, &previous.object) {
            Write::Unchanged(previous.cached)
        } else {
            Write::Replace { object, owner_uid, previous, write_only, secrets }
        };
        Admitted::one(permit, permit.name(), write).with_members(members).with_names(issuer)
    };
    let Some((old, new)) = states else { return Ok(admitted) };
    let new = Some(&new).filter(|_| !is_removed);
    with_dependents(view, permit, admitted, Transition { kind, old: Some(&old), new })
}

fn is_unchanged(new: &Object, old: &Object) -> bool {
    new.metadata == old.metadata && new.fields == old.fields
}

/// Whether the desired state differs: everything except metadata and status.
fn desired_state_differs(new: &Object, old: &Object) -> bool {
    fn desired(object: &Object) -> impl Iterator<Item = (&String, &Value)> {
        object.fields.iter().filter(|(name, _)| *name != "status")
    }
    !desired(new).eq(desired(old))
}

fn check_errors(
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
