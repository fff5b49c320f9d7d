//! The ownership that a kind's schema declares: the values that are owned as a whole, those that are owned by their
//! parts, and the keys of the items of a list.
//!
//! Unless the schema says otherwise, lists are owned as a whole, and maps and structs by their parts. A value without a
//! schema is owned as a whole. If the schema preserves unknown fields, the shape of a value follows from the value:
//! objects are owned by their parts, and everything else as a whole, as upstream.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use super::element::{PathElement, Scalar};
use super::set::FieldSet;
use crate::object::{Object, ObjectMeta};
use crate::schema::{Branch, ItemKey, Node, Ownership, Schema};

/// How a value is owned.
#[derive(Clone, Copy)]
pub(super) enum Shape<'a> {
    /// As a whole: a scalar, something atomic, or something free-form.
    Leaf,
    /// By its fields, or the entries of a map.
    Fields(Fields<'a>),
    /// By its items.
    Items(Items<'a>),
}

/// The declarations of a struct or map about its fields.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    at: Node<'a>,
}

/// One field.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    /// Its schema; `None` if it is free-form.
    pub(super) schema: Option<Node<'a>>,
    /// Whether it is named in the schema, unlike the entry of a map.
    pub(super) is_declared: bool,
}

/// A list of items that have an identity.
#[derive(Clone, Copy)]
pub(super) struct Items<'a> {
    /// The schema of an item.
    pub(super) schema: Option<Node<'a>>,
    /// The fields that identify an item; `None` if its value does.
    keys: Option<&'a [ItemKey]>,
}

/// How a value with the schema `at` is owned; without a schema, as a whole.
pub(super) fn shape(at: Option<Node<'_>>) -> Shape<'_> {
    let Some(at) = at else { return Shape::Leaf };
    let items = |keys| Shape::Items(Items { schema: at.target().items(), keys });
    match at.ownership() {
        Ownership::Whole => Shape::Leaf,
        Ownership::Fields => Shape::Fields(Fields { at }),
        Ownership::Set => items(None),
        Ownership::Items(keys) => items(Some(keys)),
    }
}

impl<'a> Fields<'a> {
    /// The declaration of the field `name`, from the first branch that has one.
    pub(super) fn field(self, name: &str) -> Field<'a> {
        let at = self.at;
        let declared = at.branches().find_map(|branch| branch.property(name));
        let entry = || at.branches().find_map(Branch::others);
        let deduced = || at.branches().any(Branch::is_deduced).then(|| at.deduced());
        let schema = declared.or_else(entry).or_else(deduced);
        Field { schema, is_declared: declared.is_some() }
    }

    /// Whether it has fields that the schema names, unlike a map.
    pub(super) fn is_struct(self) -> bool {
        self.at.branches().any(Branch::is_struct)
    }
}

impl<'a> Items<'a> {
    /// The fields that identify an item; none if its value does.
    pub(super) fn keys(self) -> &'a [ItemKey] {
        self.keys.unwrap_or_default()
    }

    /// The identity of the item in its list; `None` if it has no such key, which validation reports.
    pub(super) fn element(self, item: &Value) -> Option<PathElement> {
        let Some(keys) = self.keys else {
            return match Scalar::from_value(item)? {
                Scalar::Null => None,
                scalar => Some(PathElement::Value(scalar)),
            };
        };
        let item = item.as_object()?;
        let mut key = Vec::with_capacity(keys.len());
        for ItemKey { name, default } in keys {
            let value = item.get(&**name).or(default.as_ref())?;
            key.push((name.to_string(), Scalar::from_value(value)?));
        }
        key.sort();
        Some(PathElement::Key(key))
    }
}

/// The values of an object whose paths are in a set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Members {
    /// All except structs, maps and lists that are not empty, unless they are entries of maps or items of lists.
    Applied,
    /// All.
    All,
}

/// The fields that a manager owns when it applies `object`: leaves, empty
/// structs, maps and lists, entries of maps, and items of lists. (Upstream leaves out
/// empty lists, and so never removes them again.)
pub fn set_of(object: &Value, schema: &Schema) -> FieldSet {
    fields_inside(object, Some(schema.node()), Members::Applied).unwrap_or_default()
}

/// The fields that are set below a value; `None` if it is owned as a whole.
pub(super) fn fields_inside(
    value: &Value,
    at: Option<Node<'_>>,
    members: Members,
) -> Option<FieldSet> {
    match (shape(at), value) {
        (Shape::Fields(of), Value::Object(fields)) => Some(set_of_fields(fields, of, members)),
        (Shape::Items(of), Value::Array(items)) => Some(set_of_items(items, of, members)),
        (Shape::Fields(_) | Shape::Items(_), Value::Null) => Some(FieldSet::new()),
        _ => None,
    }
}

fn set_of_fields(fields: &Map<String, Value>, of: Fields<'_>, members: Members) -> FieldSet {
    let mut set = FieldSet::with_capacity(fields.len());
    for (name, value) in fields {
        let field = of.field(name);
        let inside = fields_inside(value, field.schema, members);
        let is_empty = match value {
            Value::Object(fields) => fields.is_empty(),
            Value::Array(items) => items.is_empty(),
            _ => value.is_null(),
        };
        let is_applied = inside.is_none() || is_empty || !field.is_declared;
        let is_member = is_applied || members == Members::All;
        set.add(PathElement::field(name), is_member, inside.unwrap_or_default());
    }
    set
}

fn set_of_items(items: &[Value], of: Items<'_>, members: Members) -> FieldSet {
    let mut elements: Vec<_> =
        items.iter().filter_map(|item| Some((of.element(item)?, item))).collect();
    elements.sort_by(|left, right| left.0.cmp(&right.0));
    let mut set = FieldSet::new();
    for same in elements.chunk_by(|left, right| left.0 == right.0) {
        let Some((element, item)) = same.first() else { continue };
        // Items with the same element are owned together, as one.
        let inside = (same.len() == 1).then(|| fields_inside(item, of.schema, members)).flatten();
        set.add(element.clone(), true, inside.unwrap_or_default());
    }
    set
}

/// The part of an object that can be owned, as one value: everything but the type and the metadata that the server
/// sets.
pub(super) fn ownable(object: &Object) -> Value {
    let mut fields = object.fields.clone();
    let metadata = ownable_metadata(&object.metadata);
    if !metadata.is_empty() {
        fields.insert("metadata".to_owned(), Value::Object(metadata));
    }
    Value::Object(fields)
}

/// The metadata that can be owned, in its JSON form.
fn ownable_metadata(metadata: &ObjectMeta) -> Map<String, Value> {
    let ObjectMeta { generate_name, labels, annotations, owner_references, finalizers, .. } =
        metadata;
    let texts = |map: &BTreeMap<String, String>| {
        let texts = map.iter().map(|(name, text)| (name.clone(), Value::from(text.as_str())));
        (!map.is_empty()).then(|| texts.collect())
    };
    let prefix = (!generate_name.is_empty()).then(|| Value::from(generate_name.as_str()));
    let mut fields = Map::new();
    for (name, value) in [
        ("generateName", prefix),
        ("labels", texts(labels)),
        ("annotations", texts(annotations)),
        ("ownerReferences", list_value(owner_references)),
        ("finalizers", list_value(finalizers)),
    ] {
        if let Some(value) = value {
            fields.insert(name.to_owned(), value);
        }
    }
    fields
}

/// A list of metadata in its JSON form; `None` if it is empty, because metadata has no empty lists.
pub(super) fn list_value<T: Serialize>(list: &[T]) -> Option<Value> {
    // Texts, and structs of texts, always have a JSON form.
    if list.is_empty() { None } else { serde_json::to_value(list).ok() }
}
