//! Fields that clients write and no client reads back. See `docs/reference/access-keys.md#write-only-fields`.
//!
//! They are removed from an object before anything else uses it. So they are in no managed field
//! set, no comparison, no event and no stored object. [`AtRest`] is the form in which the server
//! stores them.

use std::collections::BTreeMap;

use postern_meta::field::{BadValue, FieldError, FieldErrors};
use postern_meta::object::Object;
use serde_json::{Map, Value};

use crate::secret_text::SecretText;

/// The annotation in which `kubectl apply` stores a copy of the object it sent.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The form in which the server stores a write-only field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtRest {
    /// A digest, which recognizes the value and cannot be turned back into it.
    Digest,
    /// The value, for the server's own use.
    Value,
}

/// A write-only field.
#[derive(Clone, Copy, Debug)]
pub struct WriteOnlyField {
    /// Its path, from the root of the object.
    pub path: &'static [&'static str],
    /// The form in which it is stored.
    pub at_rest: AtRest,
    /// Checks the value, beyond that it is text.
    pub check: Option<ValueCheck>,
}

/// Checks a value. Its error is the detail of a field error, and never contains the value.
pub type ValueCheck = fn(&str) -> Result<(), String>;

impl WriteOnlyField {
    /// A field of which the value is stored.
    pub const fn value(path: &'static [&'static str]) -> Self {
        Self { path, at_rest: AtRest::Value, check: None }
    }
}

/// The values that a client sent for such fields, by their dotted paths. `Debug` has only the paths.
#[derive(Clone, Debug, Default)]
pub struct WriteOnlyValues(BTreeMap<String, SecretText>);

impl WriteOnlyValues {
    /// Removes the values from an object and from its annotation of `kubectl apply`, and returns them.
    /// Absent, null and empty mean the same: no value was sent.
    pub fn take(object: &mut Object, fields: &[WriteOnlyField]) -> Self {
        let mut taken = BTreeMap::new();
        for field in fields {
            if let Some(Value::String(text)) = remove(&mut object.fields, field.path)
                && !text.is_empty()
            {
                taken.insert(field.path.join("."), SecretText::from(text));
            }
        }
        if !fields.is_empty() {
            clean_last_applied(object, fields);
        }
        Self(taken)
    }

    /// The value that was sent for a path.
    pub fn get(&self, path: &[&str]) -> Option<&SecretText> {
        self.0.get(&path.join("."))
    }

    /// Adds an error for each value that is invalid. Errors never contain the value.
    pub fn validate(&self, fields: &[WriteOnlyField], errors: &mut FieldErrors) {
        for field in fields {
            let (Some(check), Some(value)) = (field.check, self.get(field.path)) else { continue };
            errors.check(check(value.expose()), |detail| {
                FieldError::invalid(field.path.join("."), BadValue::Omitted, detail)
            });
        }
    }

    /// Whether no value was sent.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn remove(fields: &mut Map<String, Value>, path: &[&str]) -> Option<Value> {
    match path {
        [] => None,
        [last] => fields.remove(*last),
        [first, rest @ ..] => remove(fields.get_mut(*first)?.as_object_mut()?, rest),
    }
}

/// Removes the fields from the annotation of `kubectl apply`. If it cannot be parsed, it could contain
/// anything, and is removed.
fn clean_last_applied(object: &mut Object, fields: &[WriteOnlyField]) {
    let Some(text) = object.metadata.annotations.remove(LAST_APPLIED) else { return };
    let text = SecretText::from(text);
    let decoded = postern_meta::decode::decode_typed::<Value>(text.expose().as_bytes());
    let Ok(Value::Object(mut applied)) = decoded else { return };
    let removed = fields.iter().filter(|field| remove(&mut applied, field.path).is_some()).count();
    // Without anything to remove, the text stays as it is: kubectl compares it byte by byte.
    let mut cleaned = text.expose().to_owned();
    if removed > 0 {
        cleaned = Value::Object(applied).to_string();
        if text.expose().ends_with('\n') {
            cleaned.push('\n');
        }
    }
    object.metadata.annotations.insert(LAST_APPLIED.to_owned(), cleaned);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FIELDS: &[WriteOnlyField] = &[
        WriteOnlyField { path: &["spec", "key"], at_rest: AtRest::Digest, check: None },
        WriteOnlyField::value(&["spec", "identity", "connectorData"]),
    ];

    fn object(value: Value) -> Object {
        Object::from_value(value).unwrap()
    }

    #[test]
    fn values_that_are_taken_are_nowhere_in_the_object() {
        let applied = json!({ "spec": { "key": "canary-1", "user": "ada" } }).to_string();
        let mut sent = object(json!({
            "apiVersion": "v1", "kind": "K",
            "metadata": { "annotations": { LAST_APPLIED: applied } },
            "spec": { "key": "canary-1", "identity": { "connectorData": "canary-2", "email": "e" } },
        }));
        let taken = WriteOnlyValues::take(&mut sent, FIELDS);
        assert_eq!(taken.get(&["spec", "key"]).unwrap().expose(), "canary-1");
        assert_eq!(taken.get(&["spec", "identity", "connectorData"]).unwrap().expose(), "canary-2");
        assert!(!format!("{taken:?}").contains("canary"));
        let left = sent.into_value();
        assert!(!left.to_string().contains("canary"), "{left}");
        assert_eq!(left["spec"]["identity"]["email"], "e");
        assert_eq!(left["metadata"]["annotations"][LAST_APPLIED], "{\"spec\":{\"user\":\"ada\"}}");
    }

    #[test]
    fn absent_null_and_empty_are_no_value() {
        for spec in [json!({}), json!({ "key": null }), json!({ "key": "" })] {
            let mut sent = object(json!({ "apiVersion": "v1", "kind": "K", "spec": spec }));
            assert!(WriteOnlyValues::take(&mut sent, FIELDS).is_empty());
            assert_eq!(sent.into_value()["spec"], json!({}));
        }
    }

    #[test]
    fn an_annotation_without_write_only_fields_stays_byte_by_byte() {
        let text = "{\"spec\":{ \"user\":\"\\u003ca\"}}\n";
        let mut sent = object(json!({
            "apiVersion": "v1", "kind": "K",
            "metadata": { "annotations": { LAST_APPLIED: text } },
        }));
        let _ = WriteOnlyValues::take(&mut sent, FIELDS);
        assert_eq!(sent.metadata.annotations[LAST_APPLIED], text);
    }

    #[test]
    fn an_annotation_that_cannot_be_parsed_is_removed() {
        for text in ["{\"spec\":{\"key\":\"canary\"", "[]", "\"canary\"", "", "{\"a\":1,\"a\":2}"] {
            let mut sent = object(json!({
                "apiVersion": "v1", "kind": "K",
                "metadata": { "annotations": { LAST_APPLIED: text, "other": "stays" } },
            }));
            let _ = WriteOnlyValues::take(&mut sent, FIELDS);
            let annotations = &sent.metadata.annotations;
            assert!(!annotations.values().any(|value| value.contains("canary")), "{text}");
            assert_eq!(annotations["other"], "stays");
        }
    }
}
