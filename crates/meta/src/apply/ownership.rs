//! The ownership that a kind's schema declares: the values that are owned as a whole, those that are owned by their
//! parts, and the keys of the items of a list.
//!
//! Unless the schema says otherwise, lists are owned as a whole, and maps and structs by their parts. A value without a
//! schema is owned as a whole. If the schema preserves unknown fields, the shape of a value follows from the value:
//! objects are owned by their parts, and everything else as a whole, as upstream.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::element::{PathElement, Scalar};
use super::set::FieldSet;
use crate::schema::{Branches, Schema, branches};

/// Says that a field's shape follows from its value.
const DEDUCED: &str = "x-kubernetes-preserve-unknown-fields";

/// The schema of such a field.
static DEDUCED_SCHEMA: LazyLock<Value> = LazyLock::new(|| serde_json::json!({ DEDUCED: true }));

/// How a value is owned.
pub(super) enum Shape<'a> {
    /// As a whole: a scalar, something atomic, or something free-form.
    Leaf,
    /// By its fields, or the entries of a map.
    Fields(Fields<'a>),
    /// By its items.
    Items(Items<'a>),
}

/// The declarations of a struct or map about its fields.
pub(super) struct Fields<'a> {
    branches: Branches<'a>,
}

/// One field.
pub(super) struct Field<'a> {
    /// Its schema; `None` if it is free-form.
    pub(super) schema: Option<&'a Value>,
    /// Whether it is named in the schema, unlike the entry of a map.
    pub(super) is_declared: bool,
}

/// A list whose items have an identity.
pub(super) struct Items<'a> {
    /// The schema of an item.
    pub(super) schema: Option<&'a Value>,
    /// The fields that identify an item; `None` if its value does.
    keys: Option<Vec<&'a str>>,
    /// The declared fields of an item, for the defaults of its keys.
    properties: Option<&'a Value>,
}

/// How a value is owned whose schema is `at`, a part of `schema`.
pub(super) fn shape<'a>(schema: &'a Schema, at: &'a Value) -> Shape<'a> {
    let resolved = schema.resolve(at);
    let extension = |name: &str| at.get(name).or_else(|| resolved.get(name));
    match resolved.get("type").and_then(Value::as_str) {
        Some("array") => {
            let list_type = extension("x-kubernetes-list-type").and_then(Value::as_str);
            items_shape(schema, resolved, list_type, extension("x-kubernetes-list-map-keys"))
        }
        Some("object") | None => {
            let branches = branches(schema, at);
            let is_atomic = extension("x-kubernetes-map-type").is_some_and(|kind| kind == "atomic");
            if is_atomic || branches.iter().all(|branch| is_free_form(branch)) {
                Shape::Leaf
            } else {
                Shape::Fields(Fields { branches })
            }
        }
        Some(_) => Shape::Leaf,
    }
}

fn items_shape<'a>(
    schema: &'a Schema,
    list: &'a Value,
    list_type: Option<&str>,
    keys: Option<&'a Value>,
) -> Shape<'a> {
    let item = list.get("items");
    let properties = item.and_then(|item| schema.resolve(item).get("properties"));
    let keys = match (list_type, keys.and_then(Value::as_array)) {
        (Some("set"), _) => None,
        (Some("map"), Some(keys)) => Some(keys.iter().filter_map(Value::as_str).collect()),
        _ => return Shape::Leaf,
    };
    Shape::Items(Items { schema: item, keys, properties })
}

/// Whether the schema says nothing about fields.
fn is_free_form(branch: &Value) -> bool {
    let has_map_schema = branch
        .get("additionalProperties")
        .is_some_and(|others| matches!(others, Value::Object(schema) if !schema.is_empty()));
    let is_struct = branch.get("properties").is_some();
    let is_empty_struct =
        branch.get("type").is_some() && branch.get("additionalProperties").is_none();
    !(has_map_schema || is_struct || is_empty_struct || is_deduced(branch))
}

fn is_deduced(branch: &Value) -> bool {
    branch.get(DEDUCED) == Some(&Value::Bool(true))
}

impl<'a> Fields<'a> {
    /// The declaration of the field `name`, from the first branch that has one.
    pub(super) fn field(&self, name: &str) -> Field<'a> {
        let declared = self.branches.iter().find_map(|branch| branch.get("properties")?.get(name));
        let entry = || {
            let mut others =
                self.branches.iter().filter_map(|branch| branch.get("additionalProperties"));
            others.find(|others| others.is_object())
        };
        let deduced = || {
            let is_deduced = self.branches.iter().any(|branch| is_deduced(branch));
            is_deduced.then_some(&*DEDUCED_SCHEMA)
        };
        let schema = declared.or_else(entry).or_else(deduced);
        Field { schema, is_declared: declared.is_some() }
    }

    /// Whether it has fields that the schema names, unlike a map.
    pub(super) fn is_struct(&self) -> bool {
        self.branches.iter().any(|branch| {
            branch.get("properties").is_some()
                || (branch.get("additionalProperties").is_none() && !is_deduced(branch))
        })
    }
}

impl Items<'_> {
    /// The fields that identify an item; none if its value does.
    pub(super) fn keys(&self) -> &[&str] {
        self.keys.as_deref().unwrap_or_default()
    }

    /// The identity of the item in its list; `None` if it has no such key, which validation reports.
    pub(super) fn element(&self, item: &Value) -> Option<PathElement> {
        let Some(keys) = &self.keys else {
            return match Scalar::from_value(item)? {
                Scalar::Null => None,
                scalar => Some(PathElement::Value(scalar)),
            };
        };
        let item = item.as_object()?;
        let mut key = Vec::with_capacity(keys.len());
        for name in keys {
            let value = item.get(*name).or_else(|| self.properties?.get(name)?.get("default"))?;
            key.push(((*name).to_owned(), Scalar::from_value(value)?));
        }
        key.sort();
        Some(PathElement::Key(key))
    }
}

/// The fields that a manager owns when it applies `object`: leaves, empty
/// structs, maps and lists, entries of maps, and items of lists. (Upstream leaves out
/// empty lists, and so never removes them again.)
pub fn set_of(object: &Value, schema: &Schema) -> FieldSet {
    let set = Collector { schema }.inside(object, Some(schema.root()));
    set.unwrap_or_default()
}

struct Collector<'a> {
    schema: &'a Schema,
}

impl<'a> Collector<'a> {
    /// The fields that are set below a value; `None` if it is owned as a whole.
    fn inside(&self, value: &Value, at: Option<&'a Value>) -> Option<FieldSet> {
        match (shape(self.schema, at?), value) {
            (Shape::Fields(of), Value::Object(fields)) => Some(self.fields(fields, &of)),
            (Shape::Items(of), Value::Array(items)) => Some(self.items(items, &of)),
            (Shape::Fields(_) | Shape::Items(_), Value::Null) => Some(FieldSet::new()),
            _ => None,
        }
    }

    fn fields(&self, fields: &Map<String, Value>, of: &Fields<'a>) -> FieldSet {
        let mut set = FieldSet::new();
        for (name, value) in fields {
            let field = of.field(name);
            let inside = self.inside(value, field.schema);
            let is_empty = match value {
                Value::Object(fields) => fields.is_empty(),
                Value::Array(items) => items.is_empty(),
                _ => value.is_null(),
            };
            let is_member = inside.is_none() || is_empty || !field.is_declared;
            set.add(PathElement::field(name), is_member, inside.unwrap_or_default());
        }
        set
    }

    fn items(&self, items: &[Value], of: &Items<'a>) -> FieldSet {
        let mut elements: Vec<_> =
            items.iter().filter_map(|item| Some((of.element(item)?, item))).collect();
        elements.sort_by(|left, right| left.0.cmp(&right.0));
        let mut set = FieldSet::new();
        for same in elements.chunk_by(|left, right| left.0 == right.0) {
            let Some((element, item)) = same.first() else { continue };
            // Items with the same element are owned together, as one.
            let inside = if same.len() == 1 { self.inside(item, of.schema) } else { None };
            set.add(element.clone(), true, inside.unwrap_or_default());
        }
        set
    }
}
