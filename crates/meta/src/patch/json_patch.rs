//! JSON Patch (RFC 6902), strict. Some input that upstream accepts fails here: a `replace` of an absent field, a
//! missing `value`, negative indices. See `docs/reference/api.md#patches`.

use json_patch::{PatchOperation, patch_unsafe};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::MAX_OPERATIONS;
use super::budget::Budget;
use crate::status::ApiError;

/// The maps that are present for a patch even if they are empty, so that adding an annotation works on every object.
const IMPLICIT_MAPS: [&str; 2] = ["annotations", "labels"];

/// Maximum bytes of a pointer in an error.
const MAX_POINTER_BYTES: usize = 256;

/// Applies a patch to an object: all of it or nothing. Returns the patched object.
///
/// # Errors
/// 400 for anything else than a JSON Patch. 413 for one that is too large, makes the object too
/// large, or moves too much of it. 422 for one that does not apply to the object. They name the
/// operation, never a value.
pub fn apply_json_patch(mut target: Value, patch: &Value) -> Result<Value, ApiError> {
    let operations = operations_of(patch)?;
    add_empty_maps(&mut target);
    let mut budget = Budget::new(&target);
    for (index, operation) in operations.iter().enumerate() {
        let operation = read(index, operation)?;
        apply_one(&mut target, index, &operation, &mut budget)?;
    }
    drop_empty_maps(&mut target);
    Ok(target)
}

/// The operations of a patch, not decoded yet.
pub(super) fn operations_of(patch: &Value) -> Result<&[Value], ApiError> {
    let Value::Array(operations) = patch else {
        return Err(ApiError::bad_request("a JSON Patch must be an array of operations"));
    };
    if operations.len() > MAX_OPERATIONS {
        return Err(ApiError::request_entity_too_large(format_args!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    Ok(operations)
}

/// Whether a JSON Patch reveals something about the object to a caller that may write it and not
/// read it. `test` answers questions; `copy` and `move` put a value where the caller may see it.
/// See `docs/reference/api.md#write-without-read`.
///
/// Only `add`, `remove` and `replace` reveal nothing. Any other operation counts as a read, also one that
/// [`apply_json_patch`] refuses: nothing depends on how an operation is spelled. A patch that is no list of operations
/// has none.
pub fn json_patch_reads(patch: &Value) -> bool {
    let only_writes = |operation: &Value| {
        let name = operation.get("op").and_then(Value::as_str);
        matches!(name, Some("add" | "remove" | "replace"))
    };
    !patch.as_array().is_none_or(|operations| operations.iter().all(only_writes))
}

/// Decodes one operation.
pub(super) fn read(index: usize, operation: &Value) -> Result<PatchOperation, ApiError> {
    let typed = PatchOperation::deserialize(operation).ok();
    typed.filter(|typed| has_value(typed, operation)).ok_or_else(|| {
        ApiError::bad_request(format!(
            "invalid operation {index} of the JSON Patch: op (add, remove, replace, move, copy or \
             test) and path are required, and value or from for some operations"
        ))
    })
}

pub(super) fn apply_one(
    target: &mut Value,
    index: usize,
    operation: &PatchOperation,
    budget: &mut Budget,
) -> Result<(), ApiError> {
    if tests_for_absence(operation, target) {
        return Ok(());
    }
    budget.charge(operation, target)?;
    // Nothing is undone on failure: the caller drops the whole value.
    patch_unsafe(target, std::slice::from_ref(operation))
        .map_err(|_| does_not_apply(index, operation))
}

pub(super) fn does_not_apply(index: usize, operation: &PatchOperation) -> ApiError {
    ApiError::unprocessable(format!(
        "operation {index} ({}) does not apply at {}",
        name_of(operation),
        crate::quote::cut(operation.path().as_str(), MAX_POINTER_BYTES),
    ))
}

/// Whether the operation has the value that it requires. The library reads a missing value
/// as null; the RFC does not.
fn has_value(typed: &PatchOperation, raw: &Value) -> bool {
    match typed {
        PatchOperation::Add(_) | PatchOperation::Replace(_) | PatchOperation::Test(_) => {
            raw.get("value").is_some()
        }
        PatchOperation::Remove(_) | PatchOperation::Move(_) | PatchOperation::Copy(_) => true,
    }
}

/// Whether the operation tests for null a field that is absent. Clients do so for fields that
/// they expect to be absent (kube-rs before it adds the first finalizer), and upstream accepts it;
/// this is the one deviation from the RFC.
fn tests_for_absence(operation: &PatchOperation, target: &Value) -> bool {
    let PatchOperation::Test(test) = operation else { return false };
    let path = test.path.as_str();
    let parent = path.rsplit_once('/').and_then(|(parent, _)| target.pointer(parent));
    test.value.is_null() && parent.is_some_and(Value::is_object) && target.pointer(path).is_none()
}

fn name_of(operation: &PatchOperation) -> &'static str {
    match operation {
        PatchOperation::Add(_) => "add",
        PatchOperation::Remove(_) => "remove",
        PatchOperation::Replace(_) => "replace",
        PatchOperation::Move(_) => "move",
        PatchOperation::Copy(_) => "copy",
        PatchOperation::Test(_) => "test",
    }
}

fn metadata(target: &mut Value) -> Option<&mut Map<String, Value>> {
    target.get_mut("metadata")?.as_object_mut()
}

pub(super) fn add_empty_maps(target: &mut Value) {
    let Some(metadata) = metadata(target) else { return };
    for name in IMPLICIT_MAPS {
        metadata.entry(name).or_insert_with(|| json!({}));
    }
}

pub(super) fn drop_empty_maps(target: &mut Value) {
    let Some(metadata) = metadata(target) else { return };
    for name in IMPLICIT_MAPS {
        if metadata.get(name).and_then(Value::as_object).is_some_and(Map::is_empty) {
            metadata.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decode::MAX_DEPTH;

    fn object() -> Value {
        json!({ "metadata": { "name": "a" }, "spec": { "list": [1, 2], "text": "hunter2" } })
    }

    fn code(patch: &Value) -> u16 {
        match apply_json_patch(object(), patch) {
            Ok(_) => 200,
            Err(error) => {
                let status = serde_json::to_string(error.status()).unwrap();
                assert!(!status.contains("hunter2"), "{status}");
                error.code()
            }
        }
    }

    #[test]
    fn an_annotation_can_be_added_to_an_object_without_any() {
        let patch = json!([{ "op": "add", "path": "/metadata/annotations/x.io~1y", "value": "z" }]);
        let patched = apply_json_patch(object(), &patch).unwrap();
        assert_eq!(patched["metadata"]["annotations"], json!({ "x.io/y": "z" }));
        assert!(patched["metadata"].get("labels").is_none(), "what is empty is dropped again");
    }

    #[test]
    fn status_codes_of_patches() {
        for (patch, want) in [
            (json!([]), 200),
            (json!([{ "op": "test", "path": "/spec/text", "value": "hunter2" }]), 200),
            (json!([{ "op": "add", "path": "/spec/list/-", "value": 3 }]), 200),
            (json!([{ "op": "add", "path": "/spec/new", "value": null }]), 200),
            (json!([{ "op": "test", "path": "/metadata/finalizers", "value": null }]), 200),
            (json!([{ "op": "test", "path": "/spec/text", "value": "other" }]), 422),
            (json!([{ "op": "test", "path": "/spec/text", "value": null }]), 422),
            (json!([{ "op": "test", "path": "/none/deep", "value": null }]), 422),
            (json!([{ "op": "replace", "path": "/spec/none", "value": 1 }]), 422),
            (json!([{ "op": "remove", "path": "/spec/none" }]), 422),
            (json!([{ "op": "add", "path": "/spec/list/-1", "value": 1 }]), 422),
            (json!([{ "op": "remove", "path": "/spec/list/-1" }]), 422),
            (json!([{ "op": "add", "path": "/spec/list/7", "value": 1 }]), 422),
            (json!([{ "op": "add", "path": "/none/deep", "value": 1 }]), 422),
            (json!([{ "op": "add", "path": "/spec/x" }]), 400),
            (json!([{ "op": "replace", "path": "/spec/text" }]), 400),
            (json!([{ "op": "test", "path": "/spec/text" }]), 400),
            (json!([{ "op": "shout", "path": "/spec/text" }]), 400),
            (json!([{ "op": "add", "path": "spec", "value": 1 }]), 400),
            (json!([{ "op": "copy", "path": "/spec/x" }]), 400),
            (json!({}), 400),
            (json!([1]), 400),
        ] {
            assert_eq!(code(&patch), want, "{patch}");
        }
    }

    #[test]
    fn which_patches_read() {
        for (patch, want) in [
            ("[]", false),
            ("{}", false),
            (r#"{"op": "test", "path": "/a", "value": 1}"#, false),
            (r#"[{"op": "add", "path": "/a", "value": 1}]"#, false),
            (r#"[{"op": "replace", "path": "/a", "value": "test"}]"#, false),
            (r#"[{"op": "remove", "path": "/test"}]"#, false),
            (r#"[{"op": "add", "path": "/a", "value": {"op": "test"}}]"#, false),
            (r#"[{"op": "test", "path": "/a", "value": 1}]"#, true),
            (r#"[{"op": "copy", "from": "/a", "path": "/b"}]"#, true),
            (r#"[{"op": "move", "from": "/a", "path": "/b"}]"#, true),
            (r#"[{"op": "remove", "path": "/a"}, {"op": "test", "path": "", "value": 1}]"#, true),
            (r#"[{"op": "\u0074est", "path": "/a", "value": 1}]"#, true),
            (r#"[{"o\u0070": "test", "path": "/a", "value": 1}]"#, true),
            (r#"[{"op": "add", "op": "test", "path": "/a", "value": 1}]"#, true),
            (r#"[{"op": "TEST", "path": "/a", "value": 1}]"#, true),
            (r#"[{"op": "test ", "path": "/a", "value": 1}]"#, true),
            (r#"[{"op": ["test"], "path": "/a", "value": 1}]"#, true),
            (r#"[{"Op": "add", "path": "/a", "value": 1}]"#, true),
            (r#"[{"path": "/a"}]"#, true),
            ("[null]", true),
            (r#"[[{"op": "add", "path": "/a", "value": 1}]]"#, true),
        ] {
            let decoded = crate::decode(patch.as_bytes(), crate::Format::Json).unwrap();
            assert_eq!(json_patch_reads(&decoded.value), want, "{patch}");
        }
    }

    #[test]
    fn limits() {
        let test = json!({ "op": "test", "path": "/spec/text", "value": "hunter2" });
        assert_eq!(code(&Value::Array(vec![test.clone(); MAX_OPERATIONS])), 200);
        assert_eq!(code(&Value::Array(vec![test; MAX_OPERATIONS + 1])), 413);
        // Each copy doubles the object.
        let double =
            |i: usize| json!({ "op": "copy", "from": "/spec", "path": format!("/spec/{i}") });
        assert_eq!(code(&(0..64).map(double).collect()), 413);
    }

    #[test]
    fn items_of_lists_are_shifted_within_a_limit() {
        let object = || json!({ "list": vec![0; 190_000], "spec": {} });
        let at_front = [
            json!({ "op": "add", "path": "/list/0", "value": 1 }),
            json!({ "op": "remove", "path": "/list/0" }),
            json!({ "op": "move", "from": "/list/0", "path": "/list/1" }),
            json!({ "op": "move", "from": "/list/0", "path": "/list/-" }),
            json!({ "op": "copy", "from": "/list/0", "path": "/list/0" }),
        ];
        for operation in at_front {
            let apply = |count| {
                let patch = Value::Array(vec![operation.clone(); count]);
                apply_json_patch(object(), &patch).map_or_else(|error| error.code(), |_| 200)
            };
            assert_eq!((apply(20), apply(1000)), (200, 413), "{operation}");
        }
        let at_end = json!({ "op": "add", "path": "/list/-", "value": 1 });
        let patch = Value::Array(vec![at_end; MAX_OPERATIONS]);
        assert!(apply_json_patch(object(), &patch).is_ok());
    }

    #[test]
    fn values_are_moved_within_a_limit() {
        let object = json!({ "a": { "large": vec![0; 100_000] } });
        let moves = |count| -> Value {
            let step = |i| match i % 2 {
                0 => json!({ "op": "move", "from": "/a", "path": "/b" }),
                _ => json!({ "op": "move", "from": "/b", "path": "/a" }),
            };
            (0..count).map(step).collect()
        };
        assert!(apply_json_patch(object.clone(), &moves(8)).is_ok());
        assert_eq!(apply_json_patch(object, &moves(20)).unwrap_err().code(), 413);
    }

    #[test]
    fn the_result_is_not_nested_deeper_than_a_body() {
        let nest = |depth: usize| (0..depth).fold(json!({}), |inner, _| json!({ "a": inner }));
        let at = |depth: usize| "/a".repeat(depth);
        // The deepest that the decoder lets through: the result may be stored and sent back.
        let deepest = nest(MAX_DEPTH - 1);
        let text = serde_json::to_vec(&deepest).unwrap();
        assert!(crate::decode(&text, crate::Format::Json).is_ok());
        assert!(apply_json_patch(deepest.clone(), &json!([])).is_ok());
        let deeper = at(MAX_DEPTH);
        for operation in [
            json!({ "op": "add", "path": deeper, "value": {} }),
            json!({ "op": "add", "path": "/a/a/b", "value": nest(MAX_DEPTH - 3) }),
            json!({ "op": "replace", "path": "/a/a", "value": nest(MAX_DEPTH - 2) }),
            json!({ "op": "copy", "from": "/a", "path": "/a/a/b" }),
            json!({ "op": "copy", "from": "", "path": "/a/a/b" }),
        ] {
            let error = apply_json_patch(deepest.clone(), &json!([operation])).unwrap_err();
            assert_eq!(error.code(), 422, "{operation}");
        }
        // Each copy doubles the depth: without the limit, the stack ends after a few.
        let doubled: Value =
            (0..16).map(|i| json!({ "op": "copy", "from": "", "path": at(1 << i) })).collect();
        assert_eq!(apply_json_patch(nest(1), &doubled).unwrap_err().code(), 422);
        // By moves, it grows as well.
        let moved = json!([
            { "op": "add", "path": "/b", "value": nest(60) },
            { "op": "move", "from": "/b", "path": at(61) },
        ]);
        assert_eq!(apply_json_patch(nest(60), &moved).unwrap_err().code(), 422);
    }

    proptest! {
        /// The response to a patch that does not read does not show whether a guessed value is the right one.
        #[test]
        fn what_does_not_read_tells_no_value(ops in proptest::collection::vec("(add|remove|replace|move|copy|test)", 0..4), path in "/spec/(text|list/[0-9]|list|new)", guess in "(hunter2|other)") {
            let operation = |op: String| json!({ "op": op, "path": path, "from": "/spec/text", "value": guess });
            let patch: Value = ops.into_iter().map(operation).collect();
            if !json_patch_reads(&patch) {
                let mut other = object();
                other["spec"]["text"] = json!("other");
                let of = |object| apply_json_patch(object, &patch).map_err(|error| error.code()).map(drop);
                prop_assert_eq!(of(object()), of(other));
            }
        }

        #[test]
        fn never_panics(op in "(add|remove|replace|move|copy|test)", path in "(/[a-z0-9~-]{0,6}){0,4}", from in "(/spec|/spec/list/[0-9-]{1,20}|)") {
            let patch = json!([{ "op": op, "path": path, "from": from, "value": 1 }]);
            let code = code(&patch);
            prop_assert!(code == 200 || code == 400 || code == 422, "{}", code);
        }
    }
}
