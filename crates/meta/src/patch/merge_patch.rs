//! JSON merge patch (RFC 7386).

use serde_json::Value;

use super::MAX_RESULT_BYTES;
use super::budget::{Size, too_large};
use crate::status::ApiError;

/// Merges a patch into a value: null removes, objects merge, everything else replaces. Returns the
/// patched value.
///
/// The decoder bounds the depth of a patch. The result is as deep as the deeper of the two, and never deeper.
///
/// # Errors
/// 400 when the patch is not an object; 413 when the result is too large.
pub fn apply_merge_patch(mut target: Value, patch: &Value) -> Result<Value, ApiError> {
    if !patch.is_object() {
        return Err(ApiError::bad_request("a merge patch must be a JSON object"));
    }
    json_patch::merge(&mut target, patch);
    if Size::of(&target).bytes > MAX_RESULT_BYTES {
        return Err(too_large());
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decode::MAX_DEPTH;

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

    #[test]
    fn the_result_is_as_deep_as_the_deeper_one() {
        let nest = |depth: usize| (0..depth).fold(json!({}), |inner, _| json!({ "a": inner }));
        for (target, patch) in [(99, 99), (99, 50), (50, 99)] {
            assert_eq!(apply_merge_patch(nest(target), &nest(patch)).unwrap(), nest(99));
        }
        let deeper = serde_json::to_vec(&nest(MAX_DEPTH)).unwrap();
        assert!(crate::decode(&deeper, crate::Format::Json).is_err());
    }
}
