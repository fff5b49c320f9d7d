//! The fields of a configuration without a value: fields that are null, and values that are empty.
//!
//! A null says that a field is to be absent. As upstream, that is a change of a value, or of a list or map that is
//! owned as a whole, and conflicts with its owner. A map or list that is owned by its parts keeps them.

use serde_json::{Map, Value};

use super::element::PathElement;
use super::ownership::{Fields, Items, Shape, shape};
use super::set::FieldSet;
use crate::schema::Schema;

/// The fields that are null in a configuration, and that could have a value of one owner. To be
/// called before [`Schema::prune_unknown`], which removes them. Where null is a value like others, it
/// is not one of them.
pub fn nulls_of(configuration: &Value, schema: &Schema) -> FieldSet {
    let is_null = |value: &Value, at: Option<&Value>| {
        value.is_null() && at.is_some_and(|at| !schema.takes_any_value(at))
    };
    let picker = Picker { schema, is_picked: &is_null };
    picker.inside(configuration, Some(schema.root()))
}

/// The fields whose values are empty: texts, lists, maps, false and zero. A kind may store them
/// as absent.
pub(super) fn empty_values(value: &Value, schema: &Schema) -> FieldSet {
    let picker = Picker { schema, is_picked: &|value, _| is_empty(value) };
    picker.inside(value, Some(schema.root()))
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
struct Picker<'a, 'p> {
    schema: &'a Schema,
    is_picked: &'p dyn Fn(&Value, Option<&Value>) -> bool,
}

impl<'a> Picker<'a, '_> {
    fn inside(&self, value: &Value, at: Option<&'a Value>) -> FieldSet {
        match (at.map_or(Shape::Leaf, |at| shape(self.schema, at)), value) {
            (Shape::Fields(of), Value::Object(fields)) => self.fields(fields, &of),
            (Shape::Items(of), Value::Array(items)) => self.items(items, &of),
            _ => FieldSet::new(),
        }
    }

    fn fields(&self, fields: &Map<String, Value>, of: &Fields<'a>) -> FieldSet {
        let mut set = FieldSet::new();
        for (name, value) in fields {
            let at = of.field(name).schema;
            let is_leaf = at.is_none_or(|at| matches!(shape(self.schema, at), Shape::Leaf));
            let is_member =
                (is_leaf || is_empty(value) && !value.is_null()) && (self.is_picked)(value, at);
            set.add(PathElement::field(name), is_member, self.inside(value, at));
        }
        set
    }

    fn items(&self, items: &[Value], of: &Items<'a>) -> FieldSet {
        let mut set = FieldSet::new();
        for item in items {
            if let Some(element) = of.element(item) {
                set.add(element, false, self.inside(item, of.schema));
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
    if let (Shape::Fields(of), Value::Object(fields)) = (shape(schema, schema.root()), object) {
        Remover { schema }.fields(fields, &of, removed);
    }
}

struct Remover<'a> {
    schema: &'a Schema,
}

impl<'a> Remover<'a> {
    fn fields(&self, fields: &mut Map<String, Value>, of: &Fields<'a>, removed: &FieldSet) {
        for node in removed.nodes() {
            let PathElement::Field(name) = &node.element else { continue };
            if node.is_member {
                fields.remove(name);
                continue;
            }
            let Some(at) = of.field(name).schema else { continue };
            match (shape(self.schema, at), fields.get_mut(name)) {
                (Shape::Fields(of), Some(Value::Object(inner))) => {
                    self.fields(inner, &of, &node.children);
                }
                (Shape::Items(of), Some(Value::Array(items))) => {
                    self.items(items, &of, &node.children);
                }
                _ => {}
            }
        }
    }

    fn items(&self, items: &mut [Value], of: &Items<'a>, removed: &FieldSet) {
        let Some(Shape::Fields(inside)) = of.schema.map(|at| shape(self.schema, at)) else {
            return;
        };
        for item in items {
            let node = of.element(item).and_then(|element| removed.get(&element));
            if let (Some(node), Value::Object(fields)) = (node, item) {
                self.fields(fields, &inside, &node.children);
            }
        }
    }
}
