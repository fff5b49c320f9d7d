//! `managedFields` after a create, an update, or a patch.

use serde_json::{Map, Value};

use super::compare::{Change, Comparison, compare_fields};
use super::element::PathElement;
use super::managers::{Manager, Managers, equal_except_times};
use super::ownership::{Shape, shape};
use super::set::FieldSet;
use crate::object::{ManagedFieldsEntry, Object, ObjectMeta};
use crate::schema::Schema;
use crate::time::Timestamp;

/// The properties of a kind that tracking depends on.
#[derive(Debug, Clone, Copy)]
pub struct TrackedKind<'a> {
    /// The schema of its objects.
    pub schema: &'a Schema,
    /// The fields that no manager owns, with everything below them: write-only fields, fields that this writer may not
    /// set, and annotations of the server.
    pub ignored: &'a FieldSet,
}

/// Sets `new.metadata.managed_fields` for a write by a manager: `new` replaces `live`, which is
/// `None` for a create. Call it when `new` is otherwise complete. A write that changes nothing
/// keeps the entries of `live`, with their times, so that equal objects stay equal.
///
/// Before the call, the field has the entries that the client sent, which count as upstream:
///
/// - Valid entries replace those of `live`.
/// - A single empty one, `[{}]`, ends tracking.
/// - No entries, invalid ones, and any through a subresource change nothing.
///
/// An existing object without entries stays without: only an apply starts to track it, and then attributes everything
/// in it to one manager. If an object is tracked, and no manager owns anything of it, it has an entry without fields.
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
        if who.subresource.is_empty() { decode_sent(&sent, live_entries) } else { Sent::Nothing };
    let changes = changes(live, new, kind);
    let mut managers = match sent {
        Sent::Nothing if changes.is_empty() && live.is_some() => {
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
    managers.record_update(changes, who, now, || has_fields(new, kind.schema));
    new.metadata.managed_fields = managers.encode();
}

/// The meaning of the entries that the client sent.
enum Sent {
    Nothing,
    Reset,
    Entries(Managers),
}

fn decode_sent(sent: &[ManagedFieldsEntry], live: &[ManagedFieldsEntry]) -> Sent {
    if matches!(sent, [only] if *only == ManagedFieldsEntry::default()) {
        return Sent::Reset;
    }
    // The usual case: the client sends back the entries it read.
    if sent.is_empty() || equal_except_times(sent, live) {
        return Sent::Nothing;
    }
    Managers::decode(sent).map_or(Sent::Nothing, Sent::Entries)
}

/// The changes of a write, among the fields that can be owned.
pub(super) fn changes(live: Option<&Object>, new: &Object, kind: &TrackedKind<'_>) -> Comparison {
    let schema = kind.schema;
    let nothing;
    let old = if let Some(live) = live {
        &live.fields
    } else {
        nothing = empty_structs(&new.fields, schema);
        &nothing
    };
    let mut changes = compare_fields(old, &new.fields, schema.node());
    if let Some(metadata) = schema.node().target().property("metadata") {
        let old = live.map(|live| &live.metadata);
        let (old, new) = ownable_metadata(old, &new.metadata, kind.ignored);
        let inside = compare_fields(&old, &new, metadata);
        changes.nest(PathElement::field("metadata"), Change::None, inside);
    }
    changes.ignore(kind.ignored);
    changes
}

/// Whether an object has anything that a manager could own.
pub(super) fn has_fields(object: &Object, schema: &Schema) -> bool {
    let ignored = &FieldSet::new();
    !changes(None, object, &TrackedKind { schema, ignored }).is_empty()
}

/// The object that a created object is compared with: its structs, empty, because the type has them. So a manager does
/// not own `spec` itself, but the fields that it set in it.
fn empty_structs(new: &Map<String, Value>, schema: &Schema) -> Map<String, Value> {
    let Shape::Fields(root) = shape(Some(schema.node())) else { return Map::new() };
    let is_struct = |name: &str| {
        let field = shape(root.field(name).schema);
        matches!(field, Shape::Fields(fields) if fields.is_struct())
    };
    new.keys().filter(|name| is_struct(name)).map(|name| (name.clone(), empty())).collect()
}

/// The path of an annotation.
fn annotation(name: &str) -> [PathElement; 3] {
    ["metadata", "annotations", name].map(PathElement::field)
}

fn empty() -> Value {
    Value::Object(Map::new())
}

/// The metadata that can be owned, as JSON, as far as it differs: equal metadata need not be
/// copied. The rest of metadata is set by the server, and upstream removes it from every set.
/// Deletion is not an update there, so its fields have no owner either.
fn ownable_metadata(
    old: Option<&ObjectMeta>,
    new: &ObjectMeta,
    ignored: &FieldSet,
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
            // Without those that have no owner: if annotations have nothing else, they count as absent.
            part.annotations.clone_from(&this.annotations);
            part.annotations.retain(|name, _| !ignored.contains(&annotation(name)));
        }
        if this.owner_references != other.owner_references {
            part.owner_references.clone_from(&this.owner_references);
        }
        if this.finalizers != other.finalizers {
            part.finalizers.clone_from(&this.finalizers);
        }
        // Mostly nothing differs, and then nothing is encoded.
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
