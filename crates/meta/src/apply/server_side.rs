//! Server-side apply: a configuration is merged into an object, and the manager owns its fields.
//! Fields that the manager owned and no longer applies are removed. Fields of other managers are
//! not changed unless forced.
//!
//! No permission is checked here. The result is admitted like any other change.

use serde_json::{Map, Value};

use super::compare::{Comparison, compare};
use super::conflicts::Conflicts;
use super::element::PathElement;
use super::last_applied::{self, KUBECTL};
use super::managers::{BEFORE_FIRST_APPLY, ManagedSet, Manager, Managers, equal_except_times};
use super::merge::merge;
use super::nulls::{empty_values, remove_all};
use super::ownership::{ownable, set_of};
use super::prune::prune;
use super::set::FieldSet;
use super::track::{TrackedKind, changes, has_fields};
use crate::object::{Object, ObjectMeta, Operation};
use crate::time::Timestamp;

/// The subresource through which nothing is written but the status.
const STATUS: &str = "status";

/// An apply of one manager.
#[derive(Debug, Clone, Copy)]
pub struct Apply<'a> {
    /// The fields that the manager wants to set, and no others. Lists in it are free of duplicates: see
    /// [`check_lists`](super::check_lists).
    pub configuration: &'a Object,
    /// The manager.
    pub manager: &'a Manager,
    /// Whether it takes over what others own.
    pub force: bool,
    /// The time.
    pub now: Timestamp,
}

/// The result of one attempt.
struct Outcome {
    merged: Value,
    managers: Managers,
    /// Whether it changed anything but `managedFields`.
    is_change: bool,
}

/// Applies a configuration to `live`, or to nothing. Returns the object that it makes, with the
/// server's metadata as in `live` and the resourceVersion of the configuration, if that has one.
///
/// An apply that changes nothing returns `live` with its `managedFields` as they are.
///
/// An object without `managedFields` gets them: its fields are then owned by `before-first-apply`.
/// For the manager `kubectl`, fields set by its client-side apply do not conflict.
///
/// # Errors
/// The conflicts, if it is not forced.
pub fn apply(
    live: Option<&Object>,
    apply: &Apply<'_>,
    kind: &TrackedKind<'_>,
) -> Result<Object, Conflicts> {
    apply_with_nulls(live, apply, &FieldSet::new(), kind)
}

/// Applies a configuration as [`apply`] does. `nulls` are the fields that are null in it, which is their absence: see
/// [`nulls_of`](super::nulls_of). If the apply is forced, they are removed, even if other managers own them.
///
/// # Errors
/// The conflicts, if it is not forced.
pub fn apply_with_nulls(
    live: Option<&Object>,
    apply: &Apply<'_>,
    nulls: &FieldSet,
    kind: &TrackedKind<'_>,
) -> Result<Object, Conflicts> {
    let is_kubectl = apply.manager.name == KUBECTL;
    let attempt = |apply: &Apply<'_>| attempt(live, apply, nulls, kind);
    let outcome = attempt(apply).or_else(|conflicts| {
        let live = live.filter(|_| is_kubectl);
        let fields =
            live.and_then(|live| last_applied::fields_of(live, kind, &apply.manager.api_version));
        let Some(fields) = fields else { return Err(conflicts) };
        let rest = conflicts.without(&fields);
        if rest.is_empty() { attempt(&Apply { force: true, ..*apply }) } else { Err(rest) }
    })?;
    let mut object = object_of(outcome, live, apply.configuration);
    if is_kubectl {
        last_applied::refresh(&mut object, apply.configuration);
    }
    Ok(object)
}

fn attempt(
    live: Option<&Object>,
    apply: &Apply<'_>,
    nulls: &FieldSet,
    kind: &TrackedKind<'_>,
) -> Result<Outcome, Conflicts> {
    let mut managers = managers_of(live, apply, kind);
    let last = managers.take(&apply.identity());
    let configuration = ownable(apply.configuration);
    let mut own = writable(set_of(&configuration, kind.schema), apply.manager);
    own.subtract_below(kind.ignored);

    let before = live.map_or_else(|| Value::Object(Map::new()), ownable);
    let mut merged = before.clone();
    merge(&mut merged, &configuration, kind.schema);
    // A manager that applies the same fields again removes none.
    if let Some(last) = last.as_ref().filter(|last| last.fields != own) {
        let others = managers.entries().iter().map(|entry| entry.fields.clone());
        let owned = FieldSet::union_of(others.chain([own.clone(), kind.ignored.clone()]));
        prune(&mut merged, &last.fields, &owned, kind.schema);
    }
    let mut nulls = writable(nulls.clone(), apply.manager);
    nulls.subtract_below(kind.ignored);
    remove_all(&mut merged, &nulls, kind.schema);

    let mut changed = compare(&before, &merged, kind.schema);
    changed.ignore(kind.ignored);
    let is_change = !changed.is_empty();
    if !managers.is_empty() {
        if !changed.added.is_empty() {
            changed.added.subtract(&empty_values(&configuration, kind.schema));
        }
        give_way(&mut managers, changed, apply.force)?;
    }
    let time = match &last {
        Some(last) if !is_change && last.fields == own => last.time,
        _ => Some(apply.now),
    };
    managers.put(ManagedSet { fields: own, time, ..apply.identity() });
    managers.normalize(|| true);
    Ok(Outcome { merged, managers, is_change })
}

impl Apply<'_> {
    /// The entry of its manager, without fields.
    fn identity(&self) -> ManagedSet {
        ManagedSet {
            manager: self.manager.clone(),
            operation: Operation::Apply,
            time: None,
            fields: FieldSet::new(),
        }
    }
}

/// The entries of `live` in the version of the apply. If it has none, one manager owns all
/// that it has.
fn managers_of(live: Option<&Object>, apply: &Apply<'_>, kind: &TrackedKind<'_>) -> Managers {
    let Some(live) = live else { return Managers::default() };
    let mut managers = Managers::decode_stored(&live.metadata.managed_fields);
    managers.retain_version(&apply.manager.api_version);
    if managers.is_empty() {
        let name = BEFORE_FIRST_APPLY.to_owned();
        let manager = Manager { name, ..apply.manager.clone() };
        let fields = writable(changes(None, live, kind).added, &manager);
        let (operation, time) = (Operation::Update, Some(apply.now));
        managers.put(ManagedSet { manager, operation, time, fields });
        managers.normalize(|| false);
    }
    managers
}

/// The part of a set that is written through the manager's subresource.
fn writable(set: FieldSet, manager: &Manager) -> FieldSet {
    if manager.subresource == STATUS {
        return set.at_and_below(&PathElement::field(STATUS));
    }
    set
}

/// Takes the fields that the apply changes from the other managers.
///
/// # Errors
/// The changed fields that they own, if it is not forced.
fn give_way(managers: &mut Managers, changed: Comparison, force: bool) -> Result<(), Conflicts> {
    let Comparison { added: mut touched, modified, removed } = changed;
    touched.unite(modified);
    touched.unite(removed);
    if touched.is_empty() {
        return Ok(());
    }
    if !force {
        let mut conflicts = Conflicts::default();
        for entry in managers.entries() {
            conflicts.add(entry, entry.fields.intersection(&touched));
        }
        if !conflicts.is_empty() {
            return Err(conflicts);
        }
    }
    managers.subtract(&touched);
    Ok(())
}

fn object_of(outcome: Outcome, live: Option<&Object>, configuration: &Object) -> Object {
    let Outcome { merged, managers, is_change } = outcome;
    let Value::Object(mut fields) = merged else { return configuration.clone() };
    let written = fields.remove("metadata").unwrap_or_else(|| Value::Object(Map::new()));
    // Both sides of the merge were metadata, so the result is.
    let written = ObjectMeta::from_value(&written)
        .unwrap_or_else(|()| unreachable!("metadata merged into metadata is none"));
    let entries = managers.encode();
    let mut metadata = live.map_or(&configuration.metadata, |live| &live.metadata).clone();
    metadata.labels = written.labels;
    metadata.annotations = written.annotations;
    metadata.owner_references = written.owner_references;
    metadata.finalizers = written.finalizers;
    metadata.generate_name = written.generate_name;
    metadata.resource_version.clone_from(&configuration.metadata.resource_version);
    if !configuration.metadata.namespace.is_empty() {
        metadata.namespace.clone_from(&configuration.metadata.namespace);
    }
    if is_change || !equal_except_times(&metadata.managed_fields, &entries) {
        metadata.managed_fields = entries;
    }
    let (api_version, kind) = (configuration.api_version.clone(), configuration.kind.clone());
    Object { api_version, kind, metadata, fields }
}

/// Sets `new.metadata.managed_fields` once the object is otherwise complete. `new` has the entries
/// of [`apply`], and admission may have changed or removed something since. A write that changes
/// nothing keeps the entries of `live`, with their times.
///
/// The manager keeps all that it has applied, as upstream: an empty value is its own, though the kind
/// does not store it.
pub fn track_apply(
    live: Option<&Object>,
    new: &mut Object,
    kind: &TrackedKind<'_>,
    manager: &Manager,
) {
    let mut changed = changes(live, new, kind);
    let live_entries = live.map_or(&[][..], |live| &live.metadata.managed_fields);
    if changed.is_empty() && equal_except_times(live_entries, &new.metadata.managed_fields) {
        new.metadata.managed_fields = live_entries.to_vec();
        return;
    }
    let is_change = !changed.is_empty();
    // Of several items with one key, one may have stayed.
    changed.removed.subtract(&changed.added);
    if is_change && changed.removed.is_empty() {
        // No manager loses a field.
        return;
    }
    let applied = std::mem::take(&mut new.metadata.managed_fields);
    let mut managers = Managers::decode_stored(&applied);
    managers.subtract_from_others(manager, &changed.removed);
    managers.normalize(|| has_fields(new, kind.schema));
    if !is_change {
        // Admission made the applied object equal to the live one: an apply that changes nothing.
        managers.keep_times(&Managers::decode_stored(live_entries));
    }
    let entries = managers.encode_after(applied);
    let is_same = !is_change && equal_except_times(live_entries, &entries);
    new.metadata.managed_fields = if is_same { live_entries.to_vec() } else { entries };
}
