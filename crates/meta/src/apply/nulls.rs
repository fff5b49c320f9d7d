//! The fields of a configuration without a value: fields that are null, and values that are empty.
//!
//! A null says that a field is to be absent. As upstream, that is a change of a value, or of a list or map that is
//! owned as a whole, and conflicts with its owner. A map or list that is owned by its parts keeps them.

use serde_json::{Map, Value};

use super::element::PathElement;
use super::ownership::{Fields, Items, Shape, shape};
use super::set::FieldSet;
use crate::schema::{Node, Schema};

/// The fields that are null in a configuration, and that could have a value of one owner. To be
/// called before [`Schema::prune_unknown`], which removes them. Where null is a value like others, it
/// is not one of them.
pub fn nulls_of(configuration: &Value, schema: &Schema) -> FieldSet {
    let is_null = |value: &Value, at: Option<Node<'_>>| {
        value.is_null() && at.is_some_and(|at| !at.takes_any_value())
    };
    let picker = Picker { is_picked: &is_null };
    picker.inside(configuration, shape(Some(schema.node())))
}

/// The fields with empty values: texts, lists, maps, false and zero. A kind may store them as
/// absent.
pub(super) fn empty_values(value: &Value, schema: &Schema) -> FieldSet {
    let picker = Picker { is_picked: &|value, _| is_empty(value) };
    picker.inside(value, shape(Some(schema.node())))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// Collects the paths of values that are owned as a whole.
struct Picker<'p> {
    is_picked: &'p dyn Fn(&Value, Option<Node<'_>>) -> bool,
}

impl Picker<'_> {
    fn inside(&self, value: &Value, shape: Shape<'_>) -> FieldSet {
        match (shape, value) {
            (Shape::Fields(of), Value::Object(fields)) => self.fields(fields, of),
            (Shape::Items(of), Value::Array(items)) => self.items(items, of),
            _ => FieldSet::new(),
        }
    }

    fn fields(&self, fields: &Map<String, Value>, of: Fields<'_>) -> FieldSet {
        let mut set = FieldSet::new();
        for (name, value) in fields {
            let at = of.field(name).schema;
            let shape = shape(at);
            let is_member = (matches!(shape, Shape::Leaf) || is_empty(value) && !value.is_null())
                && (self.is_picked)(value, at);
            let inside = self.inside(value, shape);
            if is_member || !inside.is_empty() {
                set.add(PathElement::field(name), is_member, inside);
            }
        }
        set
    }

    fn items(&self, items: &[Value], of: Items<'_>) -> FieldSet {
        let shape = shape(of.schema);
        let mut set = FieldSet::new();
        for item in items {
            if let Some(element) = of.element(item) {
                set.add(element, false, self.inside(item, shape));
            }
        }
        set
    }
}

/// Removes the fields at the paths of `removed` from an object, and maps that become empty by that.
pub(super) fn remove_all(object: &mut Value, removed: &FieldSet, schema: &Schema) {
    if removed.is_empty() {
        return;
    }
    if let (Shape::Fields(of), Value::Object(fields)) = (shape(Some(schema.node())), object) {
        remove_fields(fields, of, removed);
    }
}

fn remove_fields(fields: &mut Map<String, Value>, of: Fields<'_>, removed: &FieldSet) {
    for node in removed.nodes() {
        let PathElement::Field(name) = &node.element else { continue };
        if node.is_member {
            fields.remove(name);
            continue;
        }
        match (shape(of.field(name).schema), fields.get_mut(name)) {
            (Shape::Fields(of), Some(Value::Object(inner))) => {
                remove_fields(inner, of, &node.children);
            }
            (Shape::Items(of), Some(Value::Array(items))) => {
                remove_from_items(items, of, &node.children);
            }
            _ => {}
        }
    }
}

fn remove_from_items(items: &mut [Value], of: Items<'_>, removed: &FieldSet) {
    let Shape::Fields(inside) = shape(of.schema) else { return };
    for item in items {
        let node = of.element(item).and_then(|element| removed.get(&element));
        if let (Some(node), Value::Object(fields)) = (node, item) {
            remove_fields(fields, inside, &node.children);
        }
    }
}
