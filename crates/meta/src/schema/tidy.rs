//! Making generated schemas look as clients of this protocol expect them: no
//! `null`, no defaults that say nothing, enumerations of words in one list.

use schemars::Schema;
use schemars::transform::{Transform, transform_subschemas};
use serde_json::{Map, Value};

/// Removes `null` as an alternative: an absent field and `null` are the same
/// here, so no type needs to say it.
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
    if let Some(Value::Array(words)) = schema.get_mut("enum") {
        words.retain(|word| !word.is_null());
    }
}

/// `"anyOf": [X, {"type": "null"}]` becomes `X`, in the place of the whole.
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

/// The last step: what the generator says and nobody needs.
#[derive(Debug, Clone)]
pub(super) struct Tidy;

impl Transform for Tidy {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(object) = schema.as_object_mut() else { return };
        object.remove("title");
        if object.get("default").is_some_and(says_nothing) {
            object.remove("default");
        }
        join_words(object);
    }
}

/// The value that a field has anyway when it is absent. Written down, it would
/// make clients that compare believe that the server sets it.
fn says_nothing(default: &Value) -> bool {
    match default {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// An enumeration whose words are documented one by one comes as `oneOf` with
/// a branch for each; the protocol wants one list.
fn join_words(schema: &mut Map<String, Value>) {
    let Some(Value::Array(branches)) = schema.get("oneOf") else { return };
    let words: Option<Vec<Value>> = branches
        .iter()
        .map(|branch| {
            let is_text = branch.get("type").is_some_and(|name| name == "string");
            branch.get("enum").filter(|_| is_text)?.as_array().cloned()
        })
        .collect::<Option<Vec<_>>>()
        .map(|lists| lists.concat());
    let Some(words) = words.filter(|words| !words.is_empty()) else { return };
    schema.remove("oneOf");
    schema.insert("type".to_owned(), Value::from("string"));
    schema.insert("enum".to_owned(), Value::Array(words));
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
