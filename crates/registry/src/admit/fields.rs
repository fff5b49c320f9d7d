//! The field managers of an object: tracked on every write, and compared by applies.

use std::borrow::Cow;
use std::sync::LazyLock;

use postern_kinds::{AnyKind, is_zero};
use postern_meta::apply::{self, Apply, FieldSet, Manager, TrackedKind, track_apply, track_update};
use postern_meta::field::{FieldError, FieldErrors};
use postern_meta::object::{Object, Operation};
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;
use serde_json::{Map, Value};

use super::view::AdmissionView;
use super::{Part, Writing};
use crate::permit::Permit;

/// The maximum number of managers that own fields of one object by apply. Each has an entry with
/// its own paths, so without a limit the entries of new managers could fill the object.
const MAX_APPLY_MANAGERS: usize = 100;

const STATUS: &[&str] = &["status"];

/// The object that an apply makes from `live`, or from nothing. It is then admitted like any other new state, and
/// keeps the `managedFields` from here.
///
/// # Errors
/// 409 with the fields of other managers, if it is not forced. 422 for the uid of another object, for one manager too
/// many, and if it removes a field that restricts a permission. If there is no object: 400 without a name, and 409
/// with a uid or a version.
pub(crate) fn apply(
    view: &AdmissionView<'_>,
    permit: &Permit,
    live: Option<&Object>,
    (configuration, nulls): (&Object, &FieldSet),
    writing: &Writing,
    force: bool,
) -> Result<Object, ApiError> {
    let kind = permit.kind();
    match live {
        Some(live) => check_same_uid(kind, configuration, live)?,
        None => check_creates(permit, configuration)?,
    }
    let configuration = writing.part.applicable(kind, configuration);
    let manager = &manager(kind, &writing.manager, writing.part);
    let ignored = ignored(kind, writing.part);
    let tracked = TrackedKind { schema: kind.schema(), ignored: &ignored };
    let asked = Apply { configuration: &configuration, manager, force, now: view.now };
    let made = apply::apply_with_nulls(live, &asked, nulls, &tracked)
        .map_err(apply::Conflicts::into_error)?;
    let mut errors = FieldErrors::new();
    if let Some(live) = live {
        check_managers(&made, live, &mut errors);
        check_narrowing(kind, &made, live, &mut errors);
    }
    super::check_errors(kind, &made.metadata, errors)?;
    Ok(made)
}

/// Checks that an apply does not exceed the maximum number of managers.
fn check_managers(made: &Object, live: &Object, errors: &mut FieldErrors) {
    let applies = |object: &Object| {
        let entries = object.metadata.managed_fields.iter();
        entries.filter(|entry| entry.operation == Operation::Apply).count()
    };
    let count = applies(made);
    if count > MAX_APPLY_MANAGERS && count > applies(live) {
        let why = format!(
            "{MAX_APPLY_MANAGERS} managers already apply this object: apply as one of them, or remove \
             the entries of unused managers from metadata.managedFields"
        );
        errors.push(FieldError::forbidden("metadata.managedFields", why));
    }
}

/// Checks that an apply does not remove a field that restricts a permission by leaving it out. A part of the field
/// may belong to another manager or to none. Without the field, the permission would be wider.
fn check_narrowing(
    kind: &'static dyn AnyKind,
    made: &Object,
    live: &Object,
    errors: &mut FieldErrors,
) {
    for path in kind.info().strict_fields().not_null {
        let has = |object: &Object| {
            let mut names = path.split('.');
            let first = names.next().and_then(|name| object.fields.get(name));
            let value =
                first.and_then(|first| names.try_fold(first, |value, name| value.get(name)));
            value.is_some_and(|value| narrows(path, value))
        };
        if has(live) && !has(made) {
            let why = "an apply cannot remove the field: apply it with its new value, or replace the object";
            errors.push(FieldError::forbidden(*path, why));
        }
    }
}

/// Whether a value restricts more than its absence. An empty scope permits nothing, and an absent one permits all.
fn narrows(path: &str, value: &Value) -> bool {
    let is_limit = path.starts_with("spec.quotas") || path.ends_with(".disabled");
    !(is_limit && is_zero(value))
}

/// Checks that a uid in a configuration is the uid of the object. As in kube-apiserver, the field is immutable, and
/// no precondition as in an update.
fn check_same_uid(
    kind: &'static dyn AnyKind,
    configuration: &Object,
    live: &Object,
) -> Result<(), ApiError> {
    let (sent, uid) = (&configuration.metadata.uid, &live.metadata.uid);
    if sent.is_empty() || sent == uid {
        return Ok(());
    }
    let mut errors = FieldErrors::new();
    errors.push(FieldError::invalid("metadata.uid", sent.as_str(), "field is immutable"));
    Err(ApiError::invalid(kind.info().group_kind(), &live.metadata.name, errors))
}

/// Checks that a configuration can create an object: it has a name, and no uid or version of an earlier object.
fn check_creates(permit: &Permit, configuration: &Object) -> Result<(), ApiError> {
    let (resource, metadata) = (permit.kind().info().group_resource(), &configuration.metadata);
    if metadata.name.is_empty() {
        return Err(ApiError::bad_request("name must be provided"));
    }
    if !metadata.uid.is_empty() {
        let message = format!(
            "uid mismatch: the provided object specified uid {}, and no existing object was found",
            metadata.uid
        );
        return Err(ApiError::conflict(resource, permit.name(), message));
    }
    if !metadata.resource_version.is_empty() {
        return Err(ApiError::conflict_modified(resource, permit.name()));
    }
    Ok(())
}

/// Records in an object which manager set which of its fields.
pub(crate) fn track(
    kind: &'static dyn AnyKind,
    object: &mut Object,
    old: Option<&Object>,
    manager_name: &str,
    part: Part,
    now: Timestamp,
) {
    let ignored = ignored(kind, part);
    let tracked = TrackedKind { schema: kind.schema(), ignored: &ignored };
    track_update(old, object, &tracked, &manager(kind, manager_name, part), now);
}

/// Records the changes of a write in an object, for an apply and for any other write.
pub(super) fn track_write(
    kind: &'static dyn AnyKind,
    object: &mut Object,
    old: &Object,
    writing: &Writing,
    now: Timestamp,
) {
    track_with(kind, object, Some(old), writing, &ignored(kind, writing.part), now);
}

/// The fields that a client has sent in a new object, where the server may add others.
pub(super) struct SentFields {
    /// The names of the fields in `spec`.
    spec: Vec<String>,
    owner_references: bool,
}

impl SentFields {
    /// The fields that an object has.
    pub(super) fn of(object: &Object) -> Self {
        Self {
            spec: spec_fields(object).cloned().collect(),
            owner_references: !object.metadata.owner_references.is_empty(),
        }
    }
}

/// The names of the fields in `spec`.
fn spec_fields(object: &Object) -> impl Iterator<Item = &String> {
    object.fields.get("spec").and_then(Value::as_object).into_iter().flat_map(Map::keys)
}

/// Records in a new object which manager set which of its fields. Fields that the server has added have no manager,
/// like those that admission adds in Kubernetes. With a manager, a later apply by the client would remove them: it
/// takes over the fields of its create, and leaves out the rest. An object would lose its owner.
pub(super) fn track_create(
    kind: &'static dyn AnyKind,
    object: &mut Object,
    sent: &SentFields,
    writing: &Writing,
    now: Timestamp,
) {
    let mut ignored = ignored(kind, writing.part);
    let mut added: Vec<[&str; 2]> = spec_fields(object)
        .filter(|name| !sent.spec.contains(*name))
        .map(|name| ["spec", name.as_str()])
        .collect();
    if !object.metadata.owner_references.is_empty() && !sent.owner_references {
        added.push(["metadata", "ownerReferences"]);
    }
    if !added.is_empty() {
        let added: Vec<&[&str]> = added.iter().map(<[&str; 2]>::as_slice).collect();
        ignored.to_mut().unite(FieldSet::of_fields(&added));
    }
    track_with(kind, object, None, writing, &ignored, now);
}

/// Records the changes of a write. The fields in `ignored` get no manager.
fn track_with(
    kind: &'static dyn AnyKind,
    object: &mut Object,
    old: Option<&Object>,
    writing: &Writing,
    ignored: &FieldSet,
    now: Timestamp,
) {
    let tracked = TrackedKind { schema: kind.schema(), ignored };
    let manager = manager(kind, &writing.manager, writing.part);
    if writing.operation == Operation::Apply {
        track_apply(old, object, &tracked, &manager);
    } else {
        track_update(old, object, &tracked, &manager, now);
    }
}

fn manager(kind: &'static dyn AnyKind, name: &str, part: Part) -> Manager {
    let subresource = match part {
        Part::Main => "",
        Part::Status => "status",
        Part::Action(name) => name,
    };
    Manager {
        name: name.to_owned(),
        api_version: kind.info().version.to_string(),
        subresource: subresource.to_owned(),
    }
}

/// The fields that have no manager.
fn ignored(kind: &'static dyn AnyKind, part: Part) -> Cow<'static, FieldSet> {
    static USUAL: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of_fields(&[STATUS]));
    // A client that writes managedFields itself could name write-only fields.
    let write_only = kind.info().write_only.iter().map(|field| field.path);
    // The server sets the status, or it has a subresource.
    let status = (part == Part::Main).then_some(STATUS);
    if status.is_some() && kind.info().write_only.is_empty() {
        return Cow::Borrowed(&*USUAL);
    }
    let paths: Vec<_> = write_only.chain(status).collect();
    Cow::Owned(FieldSet::of_fields(&paths))
}
