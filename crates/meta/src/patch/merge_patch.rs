//! JSON merge patch (RFC 7386).

use serde_json::{Map, Value};

use super::MAX_RESULT_BYTES;
use crate::status::ApiError;

/// Merges a patch into a value: null removes, objects merge, everything else replaces. Returns the
/// patched value.
///
/// # Errors
/// 400 when the patch is not an object; 413 when the result is too large.
pub fn apply_merge_patch(mut target: Value, patch: &Value) -> Result<Value, ApiError> {
    if !patch.is_object() {
        return Err(ApiError::bad_request("a merge patch must be a JSON object"));
    }
    merge(&mut target, patch);
    if super::json_patch::size_of(&target) > MAX_RESULT_BYTES {
        return Err(ApiError::request_entity_too_large("the patched object would be too large"));
    }
    Ok(target)
}

/// The depth of a patch is bounded by the decoder, so this may recurse.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else { return };
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.as_str()).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_rfcs_examples() {
        for (target, patch, want) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            assert_eq!(apply_merge_patch(target, &patch).unwrap(), want, "{patch}");
        }
        assert_eq!(apply_merge_patch(json!({}), &json!([1])).unwrap_err().code(), 400);
    }
}
