//! Fields that clients of the platform send and that this server does not have. Such a field with a value asks for
//! something that would not happen, so the write is refused with the reason. Without a value it asks for nothing: typed
//! clients always send some of them.

use postern_meta::field::{FieldError, FieldErrors};
use serde_json::Value;

/// A field of the spec that this server does not have.
#[derive(Clone, Copy, Debug)]
pub struct UnservedField {
    /// Its name in the spec.
    pub name: &'static str,
    /// Why it is refused, and what to do instead.
    pub why: &'static str,
}

impl UnservedField {
    /// A field that is refused for a reason.
    pub(crate) const fn new(name: &'static str, why: &'static str) -> Self {
        Self { name, why }
    }
}

/// Removes such fields from an object if they have no value. Returns an error for each that has one.
pub(super) fn take(fields: &[UnservedField], object: &mut Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let Some(Value::Object(spec)) = object.get_mut("spec") else { return errors };
    for UnservedField { name, why } in fields {
        match spec.get(*name) {
            None => {}
            Some(value) if is_empty(value) => {
                spec.remove(*name);
            }
            Some(_) => errors.push(FieldError::forbidden(format!("spec.{name}"), *why)),
        }
    }
    errors
}

/// Whether a value is empty: the empty value of its type, or an object of such values.
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_with_a_value_is_refused_and_one_without_is_removed() {
        let fields =
            [UnservedField::new("template", "no templates"), UnservedField::new("external", "no")];
        for (spec, left, refused) in [
            (json!({ "template": { "name": "x" } }), json!({ "template": { "name": "x" } }), 1),
            (json!({ "template": { "pro": { "enabled": false } }, "a": 1 }), json!({ "a": 1 }), 0),
            (json!({ "template": null, "external": false }), json!({}), 0),
            (json!({ "template": [], "external": true }), json!({ "external": true }), 1),
            (json!({ "template": [{}], "external": 0 }), json!({ "template": [{}] }), 1),
        ] {
            let mut object = json!({ "spec": spec });
            let errors = take(&fields, &mut object);
            assert_eq!(errors.iter().count(), refused, "{spec}");
            assert_eq!(object["spec"], left, "{spec}");
        }
        let errors = take(&fields, &mut json!({ "spec": { "external": true } }));
        let text: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["spec.external: Forbidden: no"]);
    }
}
