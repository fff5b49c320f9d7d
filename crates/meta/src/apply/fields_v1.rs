//! Decoding and encoding of field sets in the FieldsV1 format.
//!
//! Each path element is a field with an object as its value. An empty object
//! means that the path is in the set; one with fields, only if `.` is one of them.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

#[cfg(doc)]
use super::element::MAX_ELEMENT_BYTES;
use super::element::{InvalidFields, PathElement};
use super::set::{FieldSet, Node};

/// Maximum number of path elements in one set: as many as a body may have values.
pub const MAX_ELEMENTS: usize = crate::decode::MAX_JSON_NODES;

/// Maximum depth of a set. It bounds the stack of everything that walks sets.
pub const MAX_SET_DEPTH: usize = 64;

/// In the object of an element: the path that ends there is in the set.
const SELF: &str = ".";

impl FieldSet {
    /// Decodes a set from its FieldsV1 format.
    ///
    /// # Errors
    /// If the value is not in that format, or exceeds [`MAX_ELEMENT_BYTES`], [`MAX_ELEMENTS`] or
    /// [`MAX_SET_DEPTH`].
    pub fn from_fields_v1(value: &Value) -> Result<Self, InvalidFields> {
        let mut budget = MAX_ELEMENTS;
        read(value, MAX_SET_DEPTH, &mut budget).map(|(set, _)| set)
    }

    /// The set in its FieldsV1 format.
    pub fn to_fields_v1(&self) -> Value {
        Value::Object(self.to_fields(Map::new()))
    }

    /// Whether a value is the encoding of the set. It is not recognized if the texts of the elements have another order
    /// than the elements, as those of numbers can.
    pub(super) fn is_encoded_as(&self, value: &Value) -> bool {
        Below { set: self, with_self: false }.is_encoded_as(value)
    }

    /// The elements of the set, added to `fields`.
    fn to_fields(&self, mut fields: Map<String, Value>) -> Map<String, Value> {
        for node in self.nodes() {
            let mut below = Map::new();
            if node.is_member && !node.children.is_empty() {
                below.insert(SELF.to_owned(), Value::Object(Map::new()));
            }
            fields.insert(node.element.to_text(), Value::Object(node.children.to_fields(below)));
        }
        fields
    }
}

/// Reads the paths below a value, and whether the path itself is in the set.
fn read(
    value: &Value,
    depth: usize,
    budget: &mut usize,
) -> Result<(FieldSet, bool), InvalidFields> {
    let Value::Object(fields) = value else {
        return Err(InvalidFields::new("a field set is not an object"));
    };
    if depth == 0 {
        return Err(InvalidFields::new("a field set nests too deep"));
    }
    *budget = budget
        .checked_sub(fields.len())
        .ok_or_else(|| InvalidFields::new("a field set has too many elements"))?;
    let mut nodes = Vec::with_capacity(fields.len());
    for (text, below) in fields.iter().filter(|(text, _)| *text != SELF) {
        let Some(element) = PathElement::parse(text)? else { continue };
        let (children, is_member) = read(below, depth - 1, budget)?;
        nodes.push(Node { element, is_member, children });
    }
    // The order of the texts is not that of the elements, such as numbers.
    let set = FieldSet::from_nodes(nodes);
    let is_member = set.is_empty() || fields.contains_key(SELF);
    Ok((set, is_member))
}

/// The FieldsV1 format, with `.` first and then the elements in their order.
impl Serialize for FieldSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Below { set: self, with_self: false }.serialize(serializer)
    }
}

struct Below<'a> {
    set: &'a FieldSet,
    with_self: bool,
}

impl Below<'_> {
    fn is_encoded_as(&self, value: &Value) -> bool {
        let (Value::Object(fields), nodes) = (value, self.set.nodes()) else { return false };
        let mut fields = fields.iter();
        if self.with_self && !nodes.is_empty() {
            let is_self = |(text, below): (&String, &Value)| {
                text == SELF && below.as_object().is_some_and(Map::is_empty)
            };
            if !fields.next().is_some_and(is_self) {
                return false;
            }
        }
        fields.len() == nodes.len()
            && nodes.iter().zip(fields).all(|(node, (text, below))| {
                let inside = Below { set: &node.children, with_self: node.is_member };
                node.element.has_text(text) && inside.is_encoded_as(below)
            })
    }
}

impl Serialize for Below<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if self.with_self && !self.set.is_empty() {
            map.serialize_entry(SELF, &Below { set: &FieldSet::new(), with_self: false })?;
        }
        for node in self.set.nodes() {
            let below = Below { set: &node.children, with_self: node.is_member };
            map.serialize_entry(&node.element.to_text(), &below)?;
        }
        map.end()
    }
}
