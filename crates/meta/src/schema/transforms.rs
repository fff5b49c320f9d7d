//! Transforms of generated schemas into the form that clients of this protocol
//! expect: no `null`, no defaults that are zero values, one list of the values of
//! an enumeration.

use schemars::Schema;
use schemars::transform::{Transform, transform_subschemas};
use serde_json::{Map, Value};

/// Removes `null` as an alternative: an absent field and `null` are the same
/// here, so no type needs to have it.
#[derive(Debug, Clone)]
pub(super) struct DropNull;

impl Transform for DropNull {
    fn transform(&mut self, schema: &mut Schema) {
        if let Some(object) = schema.as_object_mut() {
            drop_null_type(object);
            drop_null_branch(object, "anyOf");
            drop_null_branch(object, "oneOf");
        }
        transform_subschemas(self, schema);
    }
}

/// `"type": ["string", "null"]` becomes `"type": "string"`.
fn drop_null_type(schema: &mut Map<String, Value>) {
    let Some(Value::Array(types)) = schema.get_mut("type") else { return };
    types.retain(|name| name != "null");
    if let [only] = &mut types[..] {
        let only = only.take();
        schema.insert("type".to_owned(), only);
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
}

/// `"anyOf": [X, {"type": "null"}]` becomes `X`.
fn drop_null_branch(schema: &mut Map<String, Value>, keyword: &str) {
    let Some(Value::Array(branches)) = schema.get_mut(keyword) else { return };
    branches.retain(|branch| branch.get("type").is_none_or(|name| name != "null"));
    let [Value::Object(only)] = &mut branches[..] else { return };
    let only = std::mem::take(only);
    schema.remove(keyword);
    for (key, value) in only {
        schema.entry(key).or_insert(value);
    }
}

/// The last transform: removes the parts that the generator writes and no client needs.
#[derive(Debug, Clone)]
pub(super) struct Simplify;

impl Transform for Simplify {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(object) = schema.as_object_mut() else { return };
        object.remove("title");
        if object.get("default").is_some_and(is_zero_value) {
            object.remove("default");
        }
        merge_enum_branches(object);
    }
}

/// Whether the default is the value that an absent field has anyway. As
/// a default in the schema, it would make clients believe that the server sets it.
fn is_zero_value(default: &Value) -> bool {
    match default {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        // An object without required parts is written with the zero values of its fields.
        Value::Object(fields) => fields.values().all(is_zero_value),
    }
}

/// Merges the branches of an enumeration into one list: the generator writes `oneOf` with a branch
/// for each value that has its own description.
fn merge_enum_branches(schema: &mut Map<String, Value>) {
    let Some(Value::Array(branches)) = schema.get("oneOf") else { return };
    let values: Option<Vec<Value>> = branches
        .iter()
        .map(|branch| {
            let is_text = branch.get("type").is_some_and(|name| name == "string");
            branch.get("enum").filter(|_| is_text)?.as_array().cloned()
        })
        .collect::<Option<Vec<_>>>()
        .map(|lists| lists.concat());
    let Some(values) = values.filter(|values| !values.is_empty()) else { return };
    schema.remove("oneOf");
    schema.insert("type".to_owned(), Value::from("string"));
    schema.insert("enum".to_owned(), Value::Array(values));
}

/// Whether any part of `schema` is a reference to `reference`.
pub(super) fn refers_to(schema: &Value, reference: &str) -> bool {
    match schema {
        Value::Object(fields) => fields.iter().any(|(key, value)| {
            (key == "$ref" && value == reference) || refers_to(value, reference)
        }),
        Value::Array(items) => items.iter().any(|item| refers_to(item, reference)),
        _ => false,
    }
}
