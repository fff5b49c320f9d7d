//! Compiles a schema into its nodes: reads each keyword once.
//!
//! Of the keywords next to a reference, the extensions for lists and maps count before those of the target. All others
//! are read at the target.

use std::collections::HashMap;
use std::ptr;

use serde_json::{Value, json};

use super::Schema;
use super::node::{BranchData, ItemKey, ItemMerge, JsonType, NodeData, Nodes, Ownership};

/// Says that the schema of fields that are not named follows from their values.
const DEDUCED: &str = "x-kubernetes-preserve-unknown-fields";

/// Compiles a schema that is complete.
pub(super) fn compile(schema: &Schema) -> Nodes {
    let deduced = json!({ DEDUCED: true });
    let mut compiler = Compiler { schema, nodes: Queue::default(), branches: Queue::default() };
    let (root, deduced) = (compiler.nodes.id_of(&schema.root), compiler.nodes.id_of(&deduced));
    let mut done = Nodes { places: Vec::new(), branches: Vec::new(), root, deduced };
    loop {
        if let Some(at) = compiler.nodes.get(done.places.len()) {
            done.places.push(compiler.node(at));
        } else if let Some(at) = compiler.branches.get(done.branches.len()) {
            done.branches.push(compiler.branch(at));
        } else {
            return done;
        }
    }
}

struct Compiler<'s> {
    schema: &'s Schema,
    nodes: Queue<'s>,
    branches: Queue<'s>,
}

/// The parts of a schema that are compiled one after the other. The position of each is its index among the nodes, so
/// that a part can refer to one that is not compiled yet.
#[derive(Default)]
struct Queue<'s> {
    parts: Vec<&'s Value>,
    /// By address: the schema does not change meanwhile.
    ids: HashMap<*const Value, usize>,
}

impl<'s> Queue<'s> {
    /// The index of a part, which joins the queue when it is first seen.
    fn id_of(&mut self, part: &'s Value) -> usize {
        *self.ids.entry(ptr::from_ref(part)).or_insert_with(|| {
            self.parts.push(part);
            self.parts.len() - 1
        })
    }

    fn get(&self, id: usize) -> Option<&'s Value> {
        self.parts.get(id).copied()
    }
}

impl<'s> Compiler<'s> {
    fn node(&mut self, at: &'s Value) -> NodeData {
        let target = self.schema.resolve(at);
        let union = target.get("oneOf").or_else(|| target.get("anyOf")).and_then(Value::as_array);
        let branches: Vec<&Value> = match union {
            Some(union) => union.iter().map(|branch| self.schema.resolve(branch)).collect(),
            None => vec![target],
        };
        let extension = |name: &str| at.get(name).or_else(|| target.get(name));
        NodeData {
            target: self.branches.id_of(target),
            ownership: self.ownership(target, &branches, extension),
            item_merge: item_merge(extension),
            branches: branches.into_iter().map(|branch| self.branches.id_of(branch)).collect(),
        }
    }

    fn branch(&mut self, at: &'s Value) -> BranchData {
        let properties = at.get("properties").and_then(Value::as_object);
        let additional = at.get("additionalProperties");
        let is_deduced = is_deduced(at);
        let is_free = is_deduced
            || match additional {
                Some(Value::Bool(true)) => true,
                Some(Value::Object(others)) => others.is_empty(),
                _ => properties.is_none() && at.get("type").is_none(),
            };
        BranchData {
            json_type: json_type(at),
            properties: properties
                .into_iter()
                .flatten()
                .map(|(name, property)| (name.as_str().into(), self.nodes.id_of(property)))
                .collect(),
            others: additional.filter(|of| of.is_object()).map(|of| self.nodes.id_of(of)),
            items: at.get("items").map(|items| self.nodes.id_of(items)),
            is_free,
            has_properties: at.get("properties").is_some(),
            is_struct: at.get("properties").is_some() || (additional.is_none() && !is_deduced),
            is_deduced,
        }
    }

    /// How a value with the schema `target` is owned. See the rules in `apply`.
    fn ownership(
        &self,
        target: &'s Value,
        branches: &[&Value],
        extension: impl Fn(&str) -> Option<&'s Value>,
    ) -> Ownership {
        match target.get("type").and_then(Value::as_str) {
            Some("array") => {
                let list_type = extension("x-kubernetes-list-type").and_then(Value::as_str);
                let keys = extension("x-kubernetes-list-map-keys").and_then(Value::as_array);
                match (list_type, keys) {
                    (Some("set"), _) => Ownership::Set,
                    (Some("map"), Some(keys)) => {
                        let names = keys.iter().filter_map(Value::as_str);
                        Ownership::Items(names.map(|name| self.item_key(target, name)).collect())
                    }
                    _ => Ownership::Whole,
                }
            }
            Some("object") | None => {
                let map_type = extension("x-kubernetes-map-type");
                let is_atomic = map_type.is_some_and(|kind| kind == "atomic");
                if is_atomic || branches.iter().all(|branch| is_free_form(branch)) {
                    Ownership::Whole
                } else {
                    Ownership::Fields
                }
            }
            Some(_) => Ownership::Whole,
        }
    }

    /// A field that identifies the items of a list.
    fn item_key(&self, list: &Value, name: &str) -> ItemKey {
        let properties = list.get("items").map(|items| self.schema.resolve(items));
        let property = properties.and_then(|of| of.get("properties")?.get(name));
        let default = property.and_then(|property| property.get("default")).cloned();
        ItemKey { name: name.into(), default }
    }
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

fn item_merge<'s>(extension: impl Fn(&str) -> Option<&'s Value>) -> Option<ItemMerge> {
    let text = |name: &str| extension(name)?.as_str();
    let strategies = text("x-kubernetes-patch-strategy")?;
    strategies
        .split(',')
        .any(|strategy| strategy == "merge")
        .then(|| ItemMerge { key: text("x-kubernetes-patch-merge-key").map(Into::into) })
}

/// The type that a schema names, if it is only one.
fn json_type(at: &Value) -> Option<JsonType> {
    let format = at.get("format").and_then(Value::as_str);
    match at.get("type")?.as_str()? {
        "string" => Some(JsonType::String { is_time: format == Some("date-time") }),
        "integer" => {
            let (min, max) = integer_bounds(format);
            Some(JsonType::Integer { min, max })
        }
        "number" => Some(JsonType::Number),
        "boolean" => Some(JsonType::Boolean),
        "object" => Some(JsonType::Object),
        "array" => Some(JsonType::Array),
        _ => None,
    }
}

/// The smallest and the largest integer of a format. Without one, an integer has 64 bits.
fn integer_bounds(format: Option<&str>) -> (i64, u64) {
    match format {
        Some("int8") => (i8::MIN.into(), i8::MAX.unsigned_abs().into()),
        Some("uint8") => (0, u8::MAX.into()),
        Some("int16") => (i16::MIN.into(), i16::MAX.unsigned_abs().into()),
        Some("uint16") => (0, u16::MAX.into()),
        Some("int32") => (i32::MIN.into(), i32::MAX.unsigned_abs().into()),
        Some("uint32") => (0, u32::MAX.into()),
        Some("uint64" | "uint") => (0, u64::MAX),
        _ => (i64::MIN, i64::MAX.unsigned_abs()),
    }
}
