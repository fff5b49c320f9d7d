//! Removal of the fields that a manager applied before and no longer applies.
//!
//! A value is removed only if no manager owns it or anything in it any longer. If the manager owned
//! a struct, an item or an entry itself, it is removed with everything else in it: defaults, which
//! no manager owns. From maps and lists only the entries that the manager owned are removed, and
//! the map or list when it has become empty. The top-level structs of an object stay: its type has
//! them.
//!
//! Upstream removes an item with the fields that others own in it; here, no removal takes the fields of another
//! manager.

use serde_json::{Map, Value};

use super::element::PathElement;
use super::ownership::{Field, Fields, Items, Shape, shape};
use super::set::{FieldSet, Node};
use crate::schema::{ItemKey, Schema};

/// Removes from `object` the fields that are in `last`, unless they are in `owned` or around
/// anything in it.
pub(super) fn prune(object: &mut Value, last: &FieldSet, owned: &FieldSet, schema: &Schema) {
    if let (Shape::Fields(of), Value::Object(fields)) = (shape(Some(schema.node())), object) {
        prune_fields(fields, of, last, owned, Level::Root);
    }
}

/// Where fields are.
#[derive(Clone, Copy)]
enum Level<'p> {
    /// At the top of the object.
    Root,
    /// In an item of a list that these fields identify.
    Item(&'p [ItemKey]),
    /// Anywhere else.
    Inside,
}

/// The owners of one value, before and now.
#[derive(Clone, Copy)]
struct Owners<'s> {
    last: &'s Node,
    now: Option<&'s Node>,
}

impl<'s> Owners<'s> {
    fn below(self) -> (&'s FieldSet, &'s FieldSet) {
        static NOTHING: FieldSet = FieldSet::new();
        (&self.last.children, self.now.map_or(&NOTHING, |now| &now.children))
    }

    /// Whether no manager owns the value, or anything in it.
    fn is_gone(self) -> bool {
        self.now.is_none()
    }
}

fn prune_fields(
    fields: &mut Map<String, Value>,
    of: Fields<'_>,
    last: &FieldSet,
    owned: &FieldSet,
    level: Level<'_>,
) {
    for node in last.nodes() {
        let PathElement::Field(name) = &node.element else { continue };
        if matches!(level, Level::Item(keys) if is_key(keys, name)) {
            continue;
        }
        let Some(value) = fields.get_mut(name) else { continue };
        let owners = Owners { last: node, now: owned.get(&node.element) };
        if prune_value(value, owners, of.field(name), matches!(level, Level::Root)) {
            fields.remove(name);
        }
    }
}

/// Prunes one value. Returns whether it is to be removed as a whole.
fn prune_value(value: &mut Value, owners: Owners<'_>, field: Field<'_>, at_root: bool) -> bool {
    let (is_empty, was_empty) = match (shape(field.schema), value) {
        (Shape::Fields(of), Value::Object(fields)) => {
            let is_struct = field.is_declared && of.is_struct();
            let goes_whole = if is_struct { !at_root } else { owners.owned_entry(field) };
            if owners.is_gone() && goes_whole {
                return true;
            }
            let was_empty = fields.is_empty();
            let (last, owned) = owners.below();
            prune_fields(fields, of, last, owned, Level::Inside);
            (fields.is_empty() && !(is_struct && at_root), was_empty)
        }
        (Shape::Items(of), Value::Array(items)) => {
            if owners.is_gone() && owners.owned_entry(field) {
                return true;
            }
            let was_empty = items.is_empty();
            let (last, owned) = owners.below();
            prune_items(items, of, last, owned);
            (items.is_empty(), was_empty)
        }
        _ => return owners.last.is_member && owners.is_gone(),
    };
    owners.is_gone() && is_empty && (owners.last.is_member || !was_empty)
}

fn prune_items(items: &mut Vec<Value>, of: Items<'_>, last: &FieldSet, owned: &FieldSet) {
    if last.is_empty() {
        return;
    }
    let shape = shape(of.schema);
    items.retain_mut(|item| {
        let found = of.element(item).and_then(|element| {
            Some(Owners { last: last.get(&element)?, now: owned.get(&element) })
        });
        let Some(owners) = found else { return true };
        if owners.is_gone() && owners.last.is_member {
            return false;
        }
        if let (Shape::Fields(inside), Value::Object(fields)) = (shape, item) {
            let (last, owned) = owners.below();
            prune_fields(fields, inside, last, owned, Level::Item(of.keys()));
        }
        true
    });
}

fn is_key(keys: &[ItemKey], name: &str) -> bool {
    keys.iter().any(|key| &*key.name == name)
}

impl Owners<'_> {
    /// Whether it was an entry of a map that the manager owned.
    fn owned_entry(self, field: Field<'_>) -> bool {
        !field.is_declared && self.last.is_member
    }
}
