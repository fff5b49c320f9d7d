//! Patches of objects that their writer may not read.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;

use super::*;
use crate::patch::{
    apply_json_patch, apply_merge_patch, apply_strategic_merge_patch, json_patch_reads,
};

const DATA: &[&[&str]] = &[&["spec", "data"]];

fn object(data: &Value) -> Value {
    let mut object = json!({
        "metadata": { "name": "a", "managedFields": [{ "fieldsV1": { "f:spec": { "f:data": {} } } }] },
        "spec": { "text": "x", "list": [1, 2], "data": data },
    });
    if data.is_null() {
        object["spec"].as_object_mut().unwrap().remove("data");
    }
    object
}

fn code(object: Value, patch: &Value) -> u16 {
    apply_json_patch_unread(object, patch, DATA).map_or_else(|error| error.code(), |_| 200)
}

/// A writer that may not read learned from 422 and 200 which keys a secret has.
#[test]
fn a_writer_does_not_learn_which_keys_there_are() {
    for (op, path, want) in [
        ("remove", "/spec/data/password", 200),
        ("replace", "/spec/data/password", 200),
        ("add", "/spec/data/password", 200),
        ("remove", "/spec/data", 200),
        ("replace", "/spec/data", 200),
        ("add", "/spec/data/password/x", 422),
        ("replace", "/spec/data/password/0", 422),
        ("remove", "/spec/data/password/x", 422),
        ("remove", "/spec/data/password/", 422),
        ("remove", "/spec/d~0ata", 422),
        ("remove", "/metadata/managedFields", 200),
        ("remove", "/metadata/managedFields/0", 422),
        ("remove", "/metadata/managedFields/0/fieldsV1/f:spec/f:data/f:password", 422),
        ("add", "/metadata/managedFields/-", 422),
        ("test", "/spec/data/password", 422),
        ("test", "/spec/text", 422),
        ("remove", "/spec/text", 200),
        ("remove", "/spec/none", 422),
        ("replace", "/spec/none", 422),
        ("add", "/spec/list/7", 422),
    ] {
        let patch = json!([{ "op": op, "path": path, "value": "djE=" }]);
        for data in [json!(null), json!({}), json!({ "password": "djE=" }), json!({ "b": "" })] {
            assert_eq!(code(object(&data), &patch), want, "{patch} {data}");
        }
    }
    for op in ["copy", "move"] {
        let patch = json!([{ "op": op, "from": "/spec/data/password", "path": "/spec/text" }]);
        assert_eq!(code(object(&json!({ "password": "djE=" })), &patch), 422);
        assert_eq!(code(object(&json!({})), &patch), 422);
    }
}

#[test]
fn what_is_written_is_there_and_the_rest_is_as_it_was() {
    let before = object(&json!({ "a": "1", "b": "2", "c~/d": "3" }));
    let patch = json!([
        { "op": "replace", "path": "/spec/data/a", "value": "x" },
        { "op": "remove", "path": "/spec/data/c~0~1d" },
        { "op": "add", "path": "/spec/data/new", "value": "y" },
        { "op": "remove", "path": "/spec/data/none" },
        { "op": "replace", "path": "/spec/text", "value": "z" },
        { "op": "add", "path": "/metadata/annotations/x.io~1y", "value": "z" },
    ]);
    let after = apply_json_patch_unread(before.clone(), &patch, DATA).unwrap();
    assert_eq!(after["spec"]["data"], json!({ "a": "x", "b": "2", "new": "y" }));
    assert_eq!(after["spec"]["text"], "z");
    assert_eq!(after["metadata"]["annotations"], json!({ "x.io/y": "z" }));
    assert_eq!(after["metadata"]["managedFields"], before["metadata"]["managedFields"]);
    assert!(after["metadata"].get("labels").is_none());
    let whole = json!([
        { "op": "add", "path": "/spec", "value": { "data": { "k": "v" } } },
        { "op": "add", "path": "/spec/data/l", "value": "w" },
    ]);
    let after = apply_json_patch_unread(before.clone(), &whole, DATA).unwrap();
    assert_eq!(after["spec"], json!({ "data": { "k": "v", "l": "w" } }));
    let without = json!([{ "op": "replace", "path": "/spec", "value": { "text": "t" } }]);
    let after = apply_json_patch_unread(before.clone(), &without, DATA).unwrap();
    assert_eq!(after["spec"], json!({ "text": "t" }));
    let gone = json!([{ "op": "remove", "path": "/spec" }]);
    assert!(apply_json_patch_unread(before, &gone, DATA).unwrap().get("spec").is_none());
    let first = json!([{ "op": "add", "path": "/spec/data/k", "value": "v" }]);
    let after = apply_json_patch_unread(object(&Value::Null), &first, DATA).unwrap();
    assert_eq!(after["spec"]["data"], json!({ "k": "v" }));
}

#[test]
fn the_limits_hold() {
    let big = "x".repeat(1024 * 1024);
    let add = |i: usize| json!({ "op": "add", "path": format!("/spec/data/{i}"), "value": big });
    assert_eq!(code(object(&json!({})), &(0..2).map(add).collect()), 200);
    assert_eq!(code(object(&json!({})), &(0..4).map(add).collect()), 413);
    // The existing value does not count, so that its size is not revealed.
    assert_eq!(code(object(&json!({ "a": big.repeat(2) })), &(0..2).map(add).collect()), 200);
    let many =
        vec![json!({ "op": "remove", "path": "/spec/data/a" }); super::super::MAX_OPERATIONS];
    assert_eq!(code(object(&json!({})), &Value::Array(many.clone())), 200);
    let more = many.into_iter().chain([json!({})]).collect();
    assert_eq!(code(object(&json!({})), &more), 413);
}

fn entries() -> impl Strategy<Value = Value> {
    let text = prop_oneof!["[xy]".prop_map(Value::from), Just(json!({ "a": 1 })), Just(json!([1]))];
    prop_oneof![
        6 => btree_map("[abc]", text, 0..4).prop_map(|map| json!(map)),
        1 => Just(Value::Null),
        1 => Just(json!([1, 2])),
        1 => Just(json!("text")),
    ]
}

fn operation() -> impl Strategy<Value = Value> {
    let paths = [
        "",
        "/",
        "/spec",
        "/spec/data",
        "/spec/data/a",
        "/spec/data/b",
        "/spec/data/a/a",
        "/spec/data/0",
        "/spec/data/-",
        "/spec/data/",
        "/spec/text",
        "/spec/none",
        "/spec/list/0",
        "/spec/list/9",
        "/spec/data/a~1b",
        "/metadata",
        "/metadata/name",
        "/metadata/managedFields",
        "/metadata/managedFields/0",
        "/metadata/labels/a",
        "/data/a",
        "spec",
    ];
    let values = [
        json!("x"),
        json!(null),
        json!({}),
        json!({ "a": "x" }),
        json!([]),
        json!({ "data": { "a": "y" } }),
        json!({ "spec": { "data": { "a": "y" } } }),
    ];
    let ops = ["add", "add", "remove", "remove", "replace", "replace", "test", "copy", "move", "x"];
    (select(ops.to_vec()), select(paths.to_vec()), select(paths.to_vec()), select(values.to_vec()))
        .prop_map(|(op, path, from, value)| {
            json!({ "op": op, "path": path, "from": from, "value": value })
        })
}

#[derive(schemars::JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Body {
    spec: Spec,
}

#[derive(schemars::JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Spec {
    text: String,
    list: Vec<i64>,
    data: std::collections::BTreeMap<String, String>,
}

/// A merge patch of the data, perhaps with directives.
fn merged() -> impl Strategy<Value = Value> {
    let leaf = select(vec![
        json!(null),
        json!("x"),
        json!([]),
        json!(["a"]),
        json!({}),
        json!({ "$patch": "delete" }),
        json!({ "$patch": "replace" }),
        json!("delete"),
        json!("replace"),
        json!([{ "$patch": "delete", "a": "x" }]),
    ]);
    let names = select(vec![
        "a",
        "b",
        "$patch",
        "$retainKeys",
        "$deleteFromPrimitiveList/a",
        "$setElementOrder/a",
        "$other",
    ]);
    let entries = btree_map(names, leaf.clone(), 0..4).prop_map(|map| json!(map));
    prop_oneof![4 => entries, 1 => leaf]
}

proptest! {
    /// Neither a merge patch nor a strategic one tells which keys there are.
    #[test]
    fn merge_patches_do_not_tell_either(
        left in btree_map("[abc]", "[xy]", 0..4),
        right in btree_map("[abc]", "[xy]", 0..4),
        patch in merged(),
    ) {
        let (left, right) = (object(&json!(left)), object(&json!(right)));
        let patch = json!({ "spec": { "data": patch } });
        let schema = crate::schema::Schema::of_object::<Body>();
        let text = |error: ApiError| serde_json::to_string(error.status()).unwrap();
        let merge = |object| apply_merge_patch(object, &patch).map(drop).map_err(text);
        prop_assert_eq!(merge(left.clone()), merge(right.clone()));
        let strategic =
            |object| apply_strategic_merge_patch(object, &patch, &schema).map(drop).map_err(text);
        prop_assert_eq!(strategic(left), strategic(right));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Two objects that differ only in protected fields give the same answer to every patch.
    #[test]
    fn the_answer_does_not_depend_on_what_is_protected(
        (left, right) in (entries(), entries()),
        (fields, others) in (entries(), entries()),
        patch in vec(operation(), 0..5),
    ) {
        let patch = Value::Array(patch);
        let (mut left, mut right) = (object(&left), object(&right));
        left["metadata"]["managedFields"] = fields;
        right["metadata"]["managedFields"] = others;
        let of = |object| {
            let patched = apply_json_patch_unread(object, &patch, DATA);
            patched.map(|mut patched| {
                take(&mut patched, DATA[0]);
                take(&mut patched, MANAGED_FIELDS);
                patched
            }).map_err(|error| serde_json::to_string(error.status()).unwrap())
        };
        let unread = of(left.clone());
        // An object that had only protected fields may be empty, or absent.
        prop_assert_eq!(&unread, &of(right));
        if json_patch_reads(&patch) {
            prop_assert!(unread.is_err());
        }
        // It allows all that the strict form does, but what reaches into an entry.
        let strict = apply_json_patch(left.clone(), &patch);
        let reaches_in = patch.as_array().unwrap().iter().any(|operation| {
            let path = operation["path"].as_str().unwrap();
            path.starts_with("/spec/data/a/") || path.starts_with("/metadata/managedFields/")
        });
        if let (Ok(strict), false, false) = (strict, json_patch_reads(&patch), reaches_in) {
            let is_map = left["spec"].get("data").is_none_or(Value::is_object);
            let unread = apply_json_patch_unread(left, &patch, DATA);
            prop_assert!(unread.is_ok() || !is_map);
            let stays_map = strict["spec"].get("data").is_none_or(Value::is_object);
            if is_map && stays_map && !patch.to_string().contains("\"value\":\"x\"") {
                // (A text or a list in place of the map is replaced by a map here. Neither is a valid object.)
                prop_assert_eq!(unread.unwrap(), strict);
            }
        }
    }
}
