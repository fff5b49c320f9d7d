//! Zero values that a client sent: `false`, `0`, `""`, and empty lists and maps.
//!
//! A typed field with a zero value equals an absent one, so its encoding leaves it out. But its
//! manager owns the fields it sent, and compares them with those it reads. So the zero values that
//! only the encoding leaves out are put back. A zero value that the kind replaces, by a default or
//! in another form, stays as the kind has it.

use serde_json::{Map, Value};

/// A field that is written into another one, and never stored itself.
const NEVER_STORED: &str = "stringData";

/// The zero values that the encoding of a sent value leaves out.
#[derive(Debug, PartialEq)]
pub(super) enum LeftOut {
    /// The whole value.
    Value(Value),
    /// Some fields of an object.
    Fields(Vec<(String, LeftOut)>),
    /// Some items of a list: the index and the encoding of each, and the zero values that the
    /// encoding leaves out.
    Items(Vec<(usize, Value, LeftOut)>),
}

/// Whether a value equals absence: `false`, `0`, an empty text, list or map, or an object of such fields.
pub fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_zero),
    }
}

/// Whether a value is zero, or has a zero in it: most have none.
pub(super) fn has_zero(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty() || items.iter().any(has_zero),
        Value::Object(fields) => fields.is_empty() || fields.values().any(has_zero),
        other => is_zero(other),
    }
}

/// The zero values that the encoding of a sent value leaves out; `None` if it has everything.
pub(super) fn left_out(sent: &Value, encoded: &Value) -> Option<LeftOut> {
    match (sent, encoded) {
        (Value::Object(sent), Value::Object(encoded)) => {
            let of = |(name, sent): (&String, &Value)| {
                let left = match encoded.get(name) {
                    Some(encoded) => left_out(sent, encoded)?,
                    None if is_zero(sent) && name != NEVER_STORED => LeftOut::Value(sent.clone()),
                    None => return None,
                };
                Some((name.clone(), left))
            };
            let fields: Vec<_> = sent.iter().filter_map(of).collect();
            (!fields.is_empty()).then_some(LeftOut::Fields(fields))
        }
        (Value::Array(sent), Value::Array(encoded)) if sent.len() == encoded.len() => {
            let of = |(index, (sent, encoded)): (usize, (&Value, &Value))| {
                Some((index, encoded.clone(), left_out(sent, encoded)?))
            };
            let items: Vec<_> = sent.iter().zip(encoded).enumerate().filter_map(of).collect();
            (!items.is_empty()).then_some(LeftOut::Items(items))
        }
        _ => None,
    }
}

impl LeftOut {
    /// Puts the values back where the final value has nothing else.
    pub(super) fn restore(self, into: &mut Value) {
        match (self, into) {
            (Self::Fields(left), Value::Object(fields)) => restore_fields(left, fields),
            (Self::Items(left), Value::Array(items)) => {
                for (index, encoded, left) in left {
                    // The kind may have sorted the list.
                    if let Some(item) = items.get_mut(index).filter(|item| **item == encoded) {
                        left.restore(item);
                    }
                }
            }
            _ => {}
        }
    }
}

fn restore_fields(left: Vec<(String, LeftOut)>, fields: &mut Map<String, Value>) {
    for (name, left) in left {
        match (left, fields.get_mut(&name)) {
            (LeftOut::Value(zero), None) => {
                fields.insert(name, zero);
            }
            (left, Some(value)) => left.restore(value),
            (_, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_the_encoding_leaves_out_is_put_back() {
        let sent = json!({
            "off": false, "text": "", "none": null, "empty": [], "default": "", "stringData": {},
            "inner": { "zero": 0, "set": 1 }, "gone": { "a": "" }, "full": { "a": 1 },
            "list": [{ "name": "a", "users": [] }, { "name": "b", "users": [] }],
        });
        let encoded = json!({ "inner": { "set": 1 }, "list": [{ "name": "a" }, { "name": "b" }] });
        let mut stored = json!({
            "default": "x", "inner": { "set": 1 }, "list": [{ "name": "a" }, { "name": "changed" }],
        });
        left_out(&sent, &encoded).unwrap().restore(&mut stored);
        assert_eq!(
            stored,
            json!({
                "off": false, "text": "", "empty": [], "default": "x",
                "inner": { "zero": 0, "set": 1 }, "gone": { "a": "" },
                "list": [{ "name": "a", "users": [] }, { "name": "changed" }],
            })
        );
    }

    #[test]
    fn most_values_have_no_zero() {
        assert!(!has_zero(&json!({ "a": [{ "b": 1, "c": "x", "d": null }], "e": true })));
        for zero in [json!({}), json!([]), json!([{ "a": false }]), json!({ "a": { "b": 0 } })] {
            assert!(has_zero(&zero), "{zero}");
        }
        assert!(left_out(&json!({ "a": 1 }), &json!({ "a": 1 })).is_none());
    }
}
