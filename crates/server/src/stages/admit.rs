//! From `Permit` to `Admitted`: is this write one that may be stored?
//!
//! Metadata rules and the kind's own preparation and validation run here on every write, also on
//! dry runs and on changes that another write brings with it. The registry commits nothing but what
//! is [`Admitted`], and only this file makes one. Admission reads through an [`AdmissionView`].

use std::sync::{Arc, LazyLock};

use postern_auth::digest::Digester;
use postern_kinds::action::{ActionRequest, ActionResult};
use postern_kinds::write_only::WriteOnlyValues;
use postern_kinds::{AnyKind, Companion, Context, Owner, Prepared, RequiredRight, Right, Verb};
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
use serde_json::{Map, Value};

use super::authorize::Permit;
use crate::cache::{Cache, CachedObject};
use crate::clock::{Source, new_uid};
use crate::secret_record::SecretRecord;
use crate::storage_key;

/// An object as it was read, to be changed. It is decoded once for all checks.
pub(crate) struct Previous {
    /// What was read.
    pub(crate) cached: Arc<CachedObject>,
    /// The same, decoded.
    pub(crate) object: Object,
}

impl Previous {
    /// Returns what was read, with its decoded form.
    ///
    /// # Errors
    /// 500 when what is stored cannot be read.
    pub(crate) fn of(cached: Arc<CachedObject>) -> Result<Self, ApiError> {
        let object = cached.decode()?;
        Ok(Self { cached, object })
    }
}

/// A write to one object.
pub(crate) enum Write {
    /// A new object.
    Create {
        /// What it will be.
        object: Object,
        /// What was written into write-only fields.
        write_only: WriteOnlyValues,
    },
    /// A new state for an object that is as it was read.
    Replace {
        /// What it will be.
        object: Object,
        /// What was read.
        previous: Previous,
        /// What was written into write-only fields.
        write_only: WriteOnlyValues,
        /// What is kept of them.
        secrets: SecretRecord,
    },
    /// The removal of an object that is as it was read.
    Remove {
        /// Its last state, which is in the response.
        object: Object,
        /// What was read.
        previous: Previous,
    },
    /// The removal of an object that cannot be read.
    RemoveCorrupt {
        /// Its storage key.
        key: Arc<str>,
        /// Its last change.
        position: Position,
    },
    /// Nothing: the write changes nothing.
    Nothing(Arc<CachedObject>),
}

/// A write to one object, and which object it is.
pub(crate) struct AdmittedChange {
    /// Its kind.
    pub(crate) kind: &'static dyn AnyKind,
    /// Its namespace, where its kind has one.
    pub(crate) namespace: Option<String>,
    /// Its name.
    pub(crate) name: String,
    /// The write.
    pub(crate) write: Write,
}

/// A write that may be stored: one change or several, all in one transaction or none. The first is
/// the one that was asked for; its result is the response.
pub(crate) struct Admitted {
    first: AdmittedChange,
    others: Vec<AdmittedChange>,
}

impl Admitted {
    fn one(permit: &Permit, name: &str, write: Write) -> Self {
        let (kind, namespace) = (permit.kind(), permit.target().namespace.clone());
        let first = AdmittedChange { kind, namespace, name: name.to_owned(), write };
        Self { first, others: Vec::new() }
    }

    /// Returns both writes as one, with the response of this one. Changes of the other one that
    /// change nothing are left out.
    #[must_use]
    pub(crate) fn with(mut self, other: Self) -> Self {
        let changes = std::iter::once(other.first).chain(other.others);
        self.others.extend(changes.filter(|one| !matches!(one.write, Write::Nothing(_))));
        self
    }

    /// Is the object that was asked for removed?
    pub(crate) fn removes(&self) -> bool {
        matches!(self.first.write, Write::Remove { .. } | Write::RemoveCorrupt { .. })
    }

    /// Returns its parts for the registry: the change whose result is the response, and the others.
    pub(crate) fn into_parts(self) -> (AdmittedChange, Vec<AdmittedChange>) {
        (self.first, self.others)
    }
}

/// A kind's own action: a pure function.
pub(crate) type ActionHandler = fn(&ActionRequest<'_>) -> Result<ActionResult, ApiError>;

/// What the operator decides about access keys.
#[derive(Clone, Copy, Debug)]
pub struct KeyPolicy {
    /// The longest life of a key, which then also is the default; `None` for no limit.
    pub max_ttl_seconds: Option<i64>,
    /// How long a key that has expired is kept before it is removed.
    pub expired_retention_seconds: i64,
    /// How many keys an owner may have.
    pub max_per_owner: usize,
}

impl Default for KeyPolicy {
    fn default() -> Self {
        Self {
            max_ttl_seconds: None,
            expired_retention_seconds: 30 * 24 * 3600,
            max_per_owner: 1000,
        }
    }
}

/// All that admission reads: what is cached, and the time of the write, which is read once.
pub(crate) struct AdmissionView<'a> {
    cache: &'a Cache,
    source: &'a dyn Source,
    digester: &'a Digester,
    key_policy: KeyPolicy,
    now: Timestamp,
}

impl<'a> AdmissionView<'a> {
    /// Returns a view as of now.
    pub(crate) fn new(
        cache: &'a Cache,
        source: &'a dyn Source,
        digester: &'a Digester,
        key_policy: KeyPolicy,
    ) -> Self {
        Self { cache, source, digester, key_policy, now: source.now() }
    }

    /// Has the kind prepare an object. Returns what the write requires, and what is wrong with it.
    fn prepare(
        &self,
        permit: &Permit,
        new: &mut Object,
        old: Option<&Object>,
        has_new_credential: bool,
    ) -> Result<Prepared, ApiError> {
        self.with_context(permit, |context| {
            permit.kind().prepare(new, old, &Context { has_new_credential, ..context })
        })
    }

    /// Runs a kind's own action on an object.
    ///
    /// # Errors
    /// Those of the action.
    pub(crate) fn act(
        &self,
        permit: &Permit,
        handle: ActionHandler,
        object: &Object,
        body: &Object,
    ) -> Result<ActionResult, ApiError> {
        self.with_context(permit, |context| {
            handle(&ActionRequest { object, body, context: &context })
        })
    }

    /// Runs a hook of a kind with what it may know of the caller and of the principals.
    fn with_context<T>(
        &self,
        permit: &Permit,
        run: impl FnOnce(Context<'_>) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let (caller, principals) = (permit.caller(), self.cache.principals());
        let caller_key = permit.credential().caller_key(&principals, self.now)?;
        run(Context {
            access_key_max_ttl_seconds: self.key_policy.max_ttl_seconds,
            caller_key: caller_key.as_ref(),
            is_server: permit.credential().is_server(),
            ..Context::of(&caller, self.now, &*principals)
        })
    }

    /// Returns another object that a write changes as well; `None` when it is gone.
    fn read(
        &self,
        kind: &'static dyn AnyKind,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Previous>, ApiError> {
        let found =
            self.cache.of(kind.info()).get(&storage_key::object(kind.info(), namespace, name))?;
        found.map(Previous::of).transpose()
    }
}

/// How a write is to be done.
#[derive(Clone, Debug)]
pub(crate) struct Writing {
    /// The field manager, for `managedFields`.
    pub(crate) manager: String,
    /// Which part of the object is written.
    pub(crate) part: Part,
    /// Is it a dry run?
    pub(crate) dry_run: bool,
}

impl Writing {
    /// Returns how the server itself writes.
    pub(crate) fn by_server() -> Self {
        Self { manager: "postern".to_owned(), part: Part::Main, dry_run: false }
    }
}

/// Records in an object which manager set which of its fields.
pub(crate) fn track(
    kind: &'static dyn AnyKind,
    object: &mut Object,
    old: Option<&Object>,
    manager: &str,
    part: Part,
    now: Timestamp,
) {
    static STATUS: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of_fields(&[&["status"]]));
    // A client that writes managedFields itself could name what is write-only.
    let write_only = kind.write_only().iter().map(|field| field.path);
    // The status is the server's own, or has a subresource.
    let status = (part == Part::Main).then_some(&["status"][..]);
    let paths: Vec<&[&str]> = write_only.chain(status).collect();
    let only_status = paths.len() == 1 && status.is_some();
    let ignored = if only_status { &*STATUS } else { &FieldSet::of_fields(&paths) };
    let tracked = TrackedKind { schema: kind.schema(), ignored };
    let subresource = match part {
        Part::Main => "",
        Part::Status => "status",
        Part::Action(name) => name,
    };
    let manager = Manager {
        name: manager.to_owned(),
        api_version: kind.info().version.to_string(),
        subresource: subresource.to_owned(),
    };
    track_update(old, object, &tracked, &manager, now);
}

/// Admits a new object. Generates its name when it has only a prefix of one.
///
/// # Errors
/// 400 and 422 as wire contract 1.5 and 1.6 say.
pub(crate) fn create(
    view: &AdmissionView<'_>,
    permit: &Permit,
    mut object: Object,
    writing: &Writing,
) -> Result<Admitted, ApiError> {
    let kind = permit.kind();
    let write_only = WriteOnlyValues::take(&mut object, kind.write_only());
    check_size(kind, &object)?;
    if has_status_subresource(kind) {
        object.fields.remove("status");
    }
    init_system_metadata(&mut object.metadata, permit, view)?;
    let prepared = view.prepare(permit, &mut object, None, false)?;
    permit.check_owned_by(prepared.owner.as_ref())?;
    check_rights(permit, &prepared.required_rights, &object, None)?;
    if let Some(owner) = &prepared.owner {
        check_count(view, permit, &object.metadata.name, owner)?;
    }
    track(kind, &mut object, None, &writing.manager, Part::Main, view.now);
    let mut errors = validate::validate_create(&object.metadata, kind.info().is_namespaced());
    errors.extend(prepared.verdict?);
    write_only.validate(kind.write_only(), &mut errors);
    finish(kind, &object.metadata, errors)?;
    let name = object.metadata.name.clone();
    Ok(Admitted::one(permit, &name, Write::Create { object, write_only }))
}

/// Checks that an owner may have one object more. The administrator of the machine is not held to
/// that: their command makes a key for whoever has lost all.
fn check_count(
    view: &AdmissionView<'_>,
    permit: &Permit,
    name: &str,
    owner: &Owner,
) -> Result<(), ApiError> {
    let (info, limit) = (permit.kind().info(), view.key_policy.max_per_owner);
    if permit.credential().is_server() || view.cache.of(info).count_owned(owner) < limit {
        return Ok(());
    }
    let reason = format!(
        "exceeded quota: their owner has {limit} {}, the most that one may have; delete some first",
        info.plural
    );
    Err(ApiError::forbidden(info.group_resource(), name, reason))
}

/// Checks the rights that a write requires beyond the verb on the object. This comes before
/// validation: a caller need not learn about fields that they may not write.
fn check_rights(
    permit: &Permit,
    required: &[RequiredRight],
    new: &Object,
    old: Option<&Object>,
) -> Result<(), ApiError> {
    for right in required {
        permit.check_right(right)?;
    }
    check_blocked_owners(permit, &new.metadata, old.map(|old| &old.metadata))
}

/// Checks that a caller who blocks an owner's deletion may delete that owner. By the specification
/// (part 7) the code is 422, where upstream has 403.
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
    for (index, reference) in new.owner_references.iter().enumerate() {
        if !blocks(&reference) || blocked_before(&reference.uid) {
            continue;
        }
        let right = right_to_delete(reference, &new.namespace);
        if permit.check_right(&right.into()).is_err() {
            let path = format!("metadata.ownerReferences[{index}].blockOwnerDeletion");
            let detail = "cannot be set without the right to delete the owner";
            errors.push(FieldError::forbidden(path, detail));
        }
    }
    finish(permit.kind(), new, errors)
}

fn right_to_delete(reference: &OwnerReference, namespace: &str) -> Right {
    let kind = postern_kinds::of_reference(&reference.api_version, &reference.kind);
    let Some(info) = kind.map(AnyKind::info) else {
        // A kind that is not served here: only a caller who may delete everything may delete it.
        return Right::cluster("delete", "", "*", &reference.name);
    };
    let namespace = if info.is_namespaced() { namespace.to_owned() } else { String::new() };
    let name = reference.name.clone();
    Right { namespace, ..Right::cluster("delete", info.version.group, info.plural, name) }
}

/// Which part of an object a write is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// Everything but a status that has a subresource of its own.
    Main,
    /// Only the status, through its subresource.
    Status,
    /// Everything, by an action of this subresource: the kind itself decides what changes.
    Action(&'static str),
}

impl Part {
    /// Leaves in `object` only what may be written through this part; the rest is as it was.
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

/// Checks what a kind may have in all, its write-only fields included.
fn check_size(kind: &'static dyn AnyKind, object: &Object) -> Result<(), ApiError> {
    let Some(max_bytes) = kind.max_bytes() else { return Ok(()) };
    if object.to_json_bytes().len() <= max_bytes {
        return Ok(());
    }
    let mut errors = FieldErrors::new();
    errors.push(FieldError::too_long("spec", max_bytes));
    finish(kind, &object.metadata, errors)
}

/// Is the status of this kind written through a subresource alone?
fn has_status_subresource(kind: &'static dyn AnyKind) -> bool {
    [Verb::Update, Verb::Patch].iter().any(|verb| kind.info().action("status", *verb).is_some())
}

fn set_or_remove(fields: &mut Map<String, Value>, name: &str, value: Option<&Value>) {
    match value {
        Some(value) => fields.insert(name.to_owned(), value.clone()),
        None => fields.remove(name),
    };
}

/// Admits a new state of an object. `object` is the state from the client, `previous` what was
/// read.
///
/// # Errors
/// 400, 409 and 422 as wire contract 1.5 and 1.6 say.
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
    let written = WriteOnlyValues::take(&mut object, kind.write_only());
    // They are part of the desired state, which the status subresource leaves alone.
    let write_only =
        if writing.part == Part::Status { WriteOnlyValues::default() } else { written };
    writing.part.keep_rest(kind, &mut object, old);
    keep_system_metadata(&mut object.metadata, &old.metadata);
    let has_new_credential = secrets.has_new_credential(kind, &write_only, view.digester);
    let prepared = view.prepare(permit, &mut object, Some(old), has_new_credential)?;
    permit.check(&previous.cached)?;
    permit.check_owned_by(prepared.owner.as_ref())?;
    check_rights(permit, &prepared.required_rights, &object, Some(old))?;
    track(kind, &mut object, Some(old), &writing.manager, writing.part, view.now);
    let mut errors = validate::validate_update(&object.metadata, &old.metadata);
    errors.extend(prepared.verdict?);
    write_only.validate(kind.write_only(), &mut errors);
    finish(kind, &object.metadata, errors)?;
    // A new value of a write-only field is a change of the desired state, too.
    let new_secret = secrets.differs(kind, &write_only, view.digester);
    if new_secret || desired_state_differs(&object, old) {
        object.metadata.generation += 1;
    }
    write_for(view, permit, object, previous, Some((write_only, secrets)))
}

/// Admits the deletion of an object: marks the object, or removes it if nothing blocks that.
///
/// # Errors
/// 403 when the kind forbids it; 409 when it takes more changes than one transaction can have.
pub(crate) fn delete(
    view: &AdmissionView<'_>,
    permit: &Permit,
    previous: Previous,
    grace_seconds: i64,
    propagation: Option<Propagation>,
) -> Result<Admitted, ApiError> {
    let kind = permit.kind();
    let old = &previous.object;
    permit.check(&previous.cached)?;
    kind.check_delete(&old.metadata)?;
    let mut object = old.clone();
    if !object.metadata.is_terminating() {
        propagate(&mut object.metadata, propagation);
    }
    mark_deleted(kind, &mut object, grace_seconds, view.now)?;
    write_for(view, permit, object, previous, None)
}

/// Admits the removal of an object that is corrupt: its finalizers are not known, and the caller
/// has asked for it to be removed in spite of that.
///
/// # Errors
/// 403 when the kind forbids it.
pub(crate) fn delete_corrupt(
    view: &AdmissionView<'_>,
    permit: &Permit,
    key: Arc<str>,
    position: Position,
) -> Result<Admitted, ApiError> {
    permit.check_owned_by(None)?;
    let metadata = ObjectMeta { name: permit.name().to_owned(), ..ObjectMeta::default() };
    permit.kind().check_delete(&metadata)?;
    let removal = Admitted::one(permit, permit.name(), Write::RemoveCorrupt { key, position });
    with_companions(view, removal, permit.kind(), &metadata)
}

/// Admits that the server itself no longer blocks an object's deletion; when nothing else does, the
/// object is removed.
///
/// # Errors
/// 500 when what is stored cannot be read as its kind.
pub(crate) fn release(
    view: &AdmissionView<'_>,
    permit: &Permit,
    object: Object,
    previous: Previous,
) -> Result<Admitted, ApiError> {
    write_for(view, permit, object, previous, None)
}

/// Admits the changes that the removal of an object brings with it, in the same transaction.
fn with_companions(
    view: &AdmissionView<'_>,
    removal: Admitted,
    kind: &'static dyn AnyKind,
    metadata: &ObjectMeta,
) -> Result<Admitted, ApiError> {
    let companions = {
        let principals = view.cache.principals();
        kind.on_remove(metadata, &*principals)?
    };
    companions.into_iter().try_fold(removal, |all, companion| {
        let Companion { kind, namespace, name, change } = companion;
        let Some(previous) = view.read(kind, namespace.as_deref(), &name)? else { return Ok(all) };
        let permit = Permit::for_server(kind, Verb::Update, namespace.as_deref(), &name);
        let mut object = previous.object.clone();
        change(&mut object.fields);
        let (secrets, writing) = (SecretRecord::default(), Writing::by_server());
        Ok(all.with(update(view, &permit, object, previous, secrets, &writing)?))
    })
}

/// Sets the finalizer of a propagation policy. Without a policy, the finalizers stay as they are.
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

/// Returns the write for a new state: nothing, when it equals the old one; the removal, when the
/// object is being deleted, its time has come and nothing blocks its deletion any longer.
fn write_for(
    view: &AdmissionView<'_>,
    permit: &Permit,
    object: Object,
    previous: Previous,
    written: Option<(WriteOnlyValues, SecretRecord)>,
) -> Result<Admitted, ApiError> {
    let kind = permit.kind();
    let due = object.metadata.deletion_timestamp.is_some_and(|due| due <= view.now);
    if due && object.metadata.finalizers.is_empty() && !kind.blocks_deletion(&object)? {
        let metadata = object.metadata.clone();
        let removal = Admitted::one(permit, permit.name(), Write::Remove { object, previous });
        return with_companions(view, removal, kind, &metadata);
    }
    let (write_only, secrets) = written.unwrap_or_default();
    let write = if same(&object, &previous.object) {
        Write::Nothing(previous.cached)
    } else {
        Write::Replace { object, previous, write_only, secrets }
    };
    Ok(Admitted::one(permit, permit.name(), write))
}

fn same(new: &Object, old: &Object) -> bool {
    new.metadata == old.metadata && new.fields == old.fields
}

/// Returns whether the desired state differs: everything but metadata and status.
fn desired_state_differs(new: &Object, old: &Object) -> bool {
    fn desired(object: &Object) -> impl Iterator<Item = (&String, &Value)> {
        object.fields.iter().filter(|(name, _)| *name != "status")
    }
    !desired(new).eq(desired(old))
}

fn init_system_metadata(
    metadata: &mut ObjectMeta,
    permit: &Permit,
    view: &AdmissionView<'_>,
) -> Result<(), ApiError> {
    if !metadata.resource_version.is_empty() {
        return Err(ApiError::bad_request(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    set_namespace(metadata, permit)?;
    metadata.uid = new_uid(view.source);
    metadata.generation = 1;
    metadata.creation_timestamp = Some(view.now);
    metadata.deletion_timestamp = None;
    metadata.deletion_grace_period_seconds = None;
    metadata.self_link.clear();
    let given = Some(metadata.generate_name.as_str()).filter(|prefix| !prefix.is_empty());
    if let Some(prefix) = given.or(permit.kind().name_prefix())
        && metadata.name.is_empty()
    {
        let mut random = [0; 5];
        view.source.fill(&mut random);
        metadata.name = generated_name(prefix, random);
    }
    Ok(())
}

/// Sets an empty namespace to the URL's. Another namespace than that is an error: which one is
/// meant must not be guessed.
fn set_namespace(metadata: &mut ObjectMeta, permit: &Permit) -> Result<(), ApiError> {
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

/// Keeps the metadata that the server owns as it was, whatever the client sent.
fn keep_system_metadata(metadata: &mut ObjectMeta, old: &ObjectMeta) {
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
