//! `managedFields` after a create, an update, or a patch.

use serde_json::{Map, Value};

use super::compare::{Change, Comparison, compare_fields};
use super::element::PathElement;
use super::managers::{Manager, Managers, same_but_for_times};
use super::ownership::{Shape, shape};
use super::set::FieldSet;
use crate::object::{ManagedFieldsEntry, Object, ObjectMeta};
use crate::schema::Schema;
use crate::time::Timestamp;

/// What tracking needs to know of a kind.
#[derive(Debug, Clone, Copy)]
pub struct TrackedKind<'a> {
    /// The schema of its objects.
    pub schema: &'a Schema,
    /// What nobody owns, with all below it: fields that are never shown, or
    /// that are not this writer's to set.
    pub ignored: &'a FieldSet,
}

/// Sets `new.metadata.managed_fields` to what it becomes when `who` writes
/// `new` in the place of `live`, which is `None` for a create. Call it when
/// `new` is otherwise complete. A write that changes nothing leaves the
/// entries of `live`, with their times, so that equal objects stay equal.
///
/// What stands there before the call is what the client sent, and counts as
/// upstream: entries that can be read replace those of `live`; one that is
/// empty, `[{}]`, ends tracking; no entries, broken ones, and any that come
/// through a sub-resource change nothing.
///
/// An object that exists and has no entries stays without: only an apply
/// begins to track it, and then gives all that is there to one manager.
pub fn track_update(
    live: Option<&Object>,
    new: &mut Object,
    kind: &TrackedKind<'_>,
    who: &Manager,
    now: Timestamp,
) {
    let sent = std::mem::take(&mut new.metadata.managed_fields);
    let live_entries = live.map_or(&[][..], |live| &live.metadata.managed_fields);
    let sent =
        if who.subresource.is_empty() { read_sent(&sent, live_entries) } else { Sent::Nothing };
    let changes = changes(live, new, kind);
    let mut managers = match sent {
        Sent::Nothing if changes.is_empty() => {
            new.metadata.managed_fields = live_entries.to_vec();
            return;
        }
        Sent::Nothing => Managers::decode_stored(live_entries),
        Sent::Reset => Managers::default(),
        Sent::Entries(mut managers) => {
            managers.ignore(kind.ignored);
            managers
        }
    };
    if live.is_some() && managers.is_empty() {
        return;
    }
    managers.record_update(changes, who, now);
    new.metadata.managed_fields = managers.encode();
}

/// What the client says about the entries.
enum Sent {
    Nothing,
    Reset,
    Entries(Managers),
}

fn read_sent(sent: &[ManagedFieldsEntry], live: &[ManagedFieldsEntry]) -> Sent {
    if matches!(sent, [only] if *only == ManagedFieldsEntry::default()) {
        return Sent::Reset;
    }
    // The usual case: what was read is sent back.
    if sent.is_empty() || same_but_for_times(sent, live) {
        return Sent::Nothing;
    }
    Managers::decode(sent).map_or(Sent::Nothing, Sent::Entries)
}

/// What a write changes, of all that can be owned.
fn changes(live: Option<&Object>, new: &Object, kind: &TrackedKind<'_>) -> Comparison {
    let schema = kind.schema;
    let nothing;
    let old = if let Some(live) = live {
        &live.fields
    } else {
        nothing = empty_structs(&new.fields, schema);
        &nothing
    };
    let mut changes = compare_fields(old, &new.fields, schema.root(), schema);
    let metadata = schema.root().get("properties").and_then(|known| known.get("metadata"));
    if let Some(metadata) = metadata {
        let (old, new) = ownable_metadata(live.map(|live| &live.metadata), &new.metadata);
        let inside = compare_fields(&old, &new, metadata, schema);
        changes.nest(PathElement::field("metadata"), Change::None, inside);
    }
    changes.ignore(kind.ignored);
    changes
}

/// What there is before an object is created: its structs, empty, because the
/// type has them. So nobody owns `spec` itself, but what he set in it.
fn empty_structs(new: &Map<String, Value>, schema: &Schema) -> Map<String, Value> {
    let Shape::Fields(root) = shape(schema, schema.root()) else { return Map::new() };
    let is_struct = |name: &str| {
        let field = root.field(name).schema.map(|at| shape(schema, at));
        matches!(field, Some(Shape::Fields(fields)) if fields.is_struct())
    };
    new.keys().filter(|name| is_struct(name)).map(|name| (name.clone(), empty())).collect()
}

fn empty() -> Value {
    Value::Object(Map::new())
}

/// The metadata that one can own, as JSON, as far as it differs: what is the
/// same need not be copied. All else in metadata is the server's, and upstream
/// takes it out of every set; deletion is not an update there, so that its
/// fields are nobody's either.
fn ownable_metadata(
    old: Option<&ObjectMeta>,
    new: &ObjectMeta,
) -> (Map<String, Value>, Map<String, Value>) {
    let nothing = ObjectMeta::default();
    let old = old.unwrap_or(&nothing);
    let differing = |this: &ObjectMeta, other: &ObjectMeta| {
        let mut part = ObjectMeta::default();
        if this.generate_name != other.generate_name {
            part.generate_name.clone_from(&this.generate_name);
        }
        if this.labels != other.labels {
            part.labels.clone_from(&this.labels);
        }
        if this.annotations != other.annotations {
            part.annotations.clone_from(&this.annotations);
        }
        if this.owner_references != other.owner_references {
            part.owner_references.clone_from(&this.owner_references);
        }
        if this.finalizers != other.finalizers {
            part.finalizers.clone_from(&this.finalizers);
        }
        // Mostly there is nothing, and nothing need not be encoded to know that.
        if part == nothing {
            return Map::new();
        }
        match part.to_value() {
            Value::Object(fields) => fields,
            _ => Map::new(),
        }
    };
    (differing(old, new), differing(new, old))
}
