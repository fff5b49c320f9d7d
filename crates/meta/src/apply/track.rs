//! `managedFields` after a create, an update, or a patch.

use serde_json::{Map, Value};

use super::compare::{Change, Comparison, compare_fields};
use super::element::PathElement;
use super::managers::{Manager, Managers, equal_except_times};
use super::metadata::compare_metadata;
use super::ownership::{Members, Shape, fields_inside, shape};
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
    let decoded =
        if who.subresource.is_empty() { decode_sent(&sent, live_entries) } else { Sent::Nothing };
    let changes = changes(live, new, kind);
    let mut managers = match decoded {
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
    new.metadata.managed_fields = managers.encode_after(sent);
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
    let mut changes = match live {
        Some(live) => compare_fields(&live.fields, &new.fields, schema.node()),
        None => created_fields(&new.fields, schema),
    };
    if let Some(metadata) = schema.node().target().property("metadata") {
        let nothing = ObjectMeta::default();
        let old = live.map_or(&nothing, |live| &live.metadata);
        let inside = compare_metadata(old, &new.metadata, metadata, kind.ignored);
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

/// The fields of a created object. Its structs exist before, and are empty, because the type has them. So a manager does
/// not own `spec` itself, but the fields that it set in it.
fn created_fields(new: &Map<String, Value>, schema: &Schema) -> Comparison {
    let mut created = Comparison::default();
    let Shape::Fields(root) = shape(Some(schema.node())) else { return created };
    for (name, value) in new {
        let at = root.field(name).schema;
        let is_struct = matches!(shape(at), Shape::Fields(fields) if fields.is_struct());
        let own = match (is_struct, value) {
            (false, _) => Change::Added,
            (true, Value::Object(_)) => Change::None,
            (true, _) => Change::Modified,
        };
        let added = fields_inside(value, at, Members::All).unwrap_or_default();
        created.nest(PathElement::field(name), own, Comparison { added, ..Comparison::default() });
    }
    created
}
