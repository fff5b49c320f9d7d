//! Tables of strategic merge patches, with upstream's directives.

use std::sync::LazyLock;

use proptest::prelude::*;
use schemars::JsonSchema;
use serde_json::json;

use super::*;

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only the schema is used")]
struct Body {
    spec: Spec,
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only the schema is used")]
struct Spec {
    text: String,
    data: std::collections::BTreeMap<String, String>,
    owner: Owner,
    atomic: Vec<Owner>,
    #[schemars(extend("x-kubernetes-patch-strategy" = "merge"))]
    tags: Vec<String>,
    #[schemars(extend(
        "x-kubernetes-patch-strategy" = "merge,retainKeys",
        "x-kubernetes-patch-merge-key" = "name"
    ))]
    items: Vec<Item>,
    free: Value,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is used")]
struct Owner {
    user: String,
    team: String,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is used")]
struct Item {
    name: String,
    value: String,
    inner: Owner,
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(Schema::of_object::<Body>);
    &SCHEMA
}

fn apply(target: Value, patch: &Value) -> Result<Value, ApiError> {
    apply_strategic_merge_patch(target, patch, schema())
}

/// Patches specs.
fn check(cases: &[(Value, Value, Value)]) {
    for (target, patch, want) in cases {
        let patched = apply(json!({ "spec": target }), &json!({ "spec": patch }));
        assert_eq!(patched.unwrap(), json!({ "spec": want }), "{target} {patch}");
    }
}

#[test]
fn fields_and_maps_merge_and_null_removes() {
    check(&[
        (json!({"text": "a"}), json!({"text": "b"}), json!({"text": "b"})),
        (json!({"text": "a"}), json!({"text": null}), json!({})),
        (json!({}), json!({"data": {"a": "1", "b": null}}), json!({"data": {"a": "1"}})),
        (
            json!({"data": {"a": "1", "b": "1"}, "text": "a"}),
            json!({"data": {"b": null, "c": "1"}}),
            json!({"data": {"a": "1", "c": "1"}, "text": "a"}),
        ),
        (json!({"owner": "x"}), json!({"owner": {"user": "u"}}), json!({"owner": {"user": "u"}})),
        (json!({"owner": {"user": "u"}}), json!({"owner": "x"}), json!({"owner": "x"})),
    ]);
}

#[test]
fn lists_are_replaced_unless_the_schema_merges_them() {
    check(&[
        (
            json!({"atomic": [{"user": "a"}, {"user": "b"}]}),
            json!({"atomic": [{"user": "c"}]}),
            json!({"atomic": [{"user": "c"}]}),
        ),
        (
            json!({"tags": ["a", "b"]}),
            json!({"tags": ["b", "c"]}),
            json!({"tags": ["a", "b", "c"]}),
        ),
        (json!({}), json!({"tags": ["a", "a"]}), json!({"tags": ["a"]})),
        (json!({"tags": ["a"]}), json!({"tags": null}), json!({})),
        (
            json!({"items": [{"name": "a", "value": "1"}, {"name": "b", "value": "1"}]}),
            json!({"items": [{"name": "b", "value": "2"}, {"name": "c"}]}),
            json!({"items": [
                {"name": "a", "value": "1"}, {"name": "b", "value": "2"}, {"name": "c"},
            ]}),
        ),
        (
            json!({"items": [{"name": "a", "inner": {"user": "u", "team": "t"}}]}),
            json!({"items": [{"name": "a", "inner": {"team": null}, "value": null}]}),
            json!({"items": [{"name": "a", "inner": {"user": "u"}}]}),
        ),
        (json!({"free": [1, 2]}), json!({"free": [3]}), json!({"free": [3]})),
        (json!({"free": {"a": 1}}), json!({"free": {"b": 2}}), json!({"free": {"a": 1, "b": 2}})),
    ]);
}

#[test]
fn directives_replace_and_delete() {
    check(&[
        (
            json!({"owner": {"user": "u"}}),
            json!({"owner": {"$patch": "replace", "team": "t"}}),
            json!({"owner": {"team": "t"}}),
        ),
        (
            json!({"owner": {"user": "u"}}),
            json!({"owner": {"$patch": "delete"}}),
            json!({"owner": {}}),
        ),
        (json!({}), json!({"owner": {"$patch": "delete"}}), json!({})),
        (
            json!({"owner": {"user": "u"}}),
            json!({"owner": {"$patch": "merge", "team": "t"}}),
            json!({"owner": {"user": "u", "team": "t"}}),
        ),
        (
            json!({"items": [{"name": "a"}, {"name": "b"}]}),
            json!({"items": [{"$patch": "delete", "name": "a"}, {"$patch": "delete", "name": "x"}]}),
            json!({"items": [{"name": "b"}]}),
        ),
        (
            json!({"items": [{"name": "a"}, {"name": "b"}]}),
            json!({"items": [{"$patch": "replace"}, {"name": "c"}]}),
            json!({"items": [{"name": "c"}]}),
        ),
        (
            json!({"items": [{"name": "a"}]}),
            json!({"items": [{"$patch": "merge", "name": "a", "value": "1"}]}),
            json!({"items": [{"name": "a", "value": "1"}]}),
        ),
        (
            json!({"tags": ["a", "b", "c"]}),
            json!({"$deleteFromPrimitiveList/tags": ["a", "x"], "tags": ["d"]}),
            json!({"tags": ["b", "c", "d"]}),
        ),
        (
            json!({"tags": ["a", "b"]}),
            json!({"$deleteFromPrimitiveList/tags": ["a", "b"]}),
            json!({"tags": []}),
        ),
        (json!({}), json!({"$deleteFromPrimitiveList/tags": ["a"]}), json!({})),
        (
            json!({"text": "a", "data": {"a": "1"}, "owner": {"user": "u"}}),
            json!({"$retainKeys": ["data", "text"], "text": "b", "owner": null}),
            json!({"text": "b", "data": {"a": "1"}}),
        ),
    ]);
}

#[test]
fn directives_order() {
    check(&[
        (
            json!({"tags": ["a", "b", "c"]}),
            json!({"$setElementOrder/tags": ["c", "d", "a"], "tags": ["d"]}),
            json!({"tags": ["b", "c", "d", "a"]}),
        ),
        (
            json!({"tags": ["a", "b"]}),
            json!({"$setElementOrder/tags": ["b", "a"]}),
            json!({"tags": ["b", "a"]}),
        ),
        (
            json!({"items": [{"name": "a"}, {"name": "s"}, {"name": "b"}]}),
            json!({
                "$setElementOrder/items": [{"name": "b"}, {"name": "new"}, {"name": "a"}],
                "items": [{"name": "new", "value": "1"}],
            }),
            json!({"items": [
                {"name": "s"}, {"name": "b"}, {"name": "new", "value": "1"}, {"name": "a"},
            ]}),
        ),
        (json!({}), json!({"$setElementOrder/tags": ["b"]}), json!({})),
    ]);
}

#[test]
fn what_is_not_understood_is_refused() {
    for (patch, code) in [
        (json!({"owner": {"$patch": "s3cr3t"}}), 400),
        (json!({"owner": {"$patch": 1}}), 400),
        (json!({"owner": {"$remove": "s3cr3t"}}), 400),
        (json!({"$setElementOrder/atomic": ["s3cr3t"]}), 400),
        (json!({"$setElementOrder/text": ["s3cr3t"]}), 400),
        (json!({"$setElementOrder/none": ["s3cr3t"]}), 400),
        (json!({"$setElementOrder/atomic": ["s3cr3t"], "atomic": []}), 400),
        (json!({"$setElementOrder/tags": "s3cr3t"}), 400),
        (json!({"$setElementOrder/tags": ["a"], "tags": ["s3cr3t"]}), 400),
        (json!({"$deleteFromPrimitiveList/atomic": ["s3cr3t"]}), 400),
        (json!({"$deleteFromPrimitiveList/tags": [{"a": "s3cr3t"}]}), 422),
        (json!({"$retainKeys": "s3cr3t"}), 400),
        (json!({"$retainKeys": [1]}), 400),
        (json!({"$retainKeys": ["data"], "text": "s3cr3t"}), 400),
        (json!({"items": [{"value": "s3cr3t"}]}), 422),
        (json!({"items": ["s3cr3t"]}), 422),
        (json!({"items": [{"name": {"a": "s3cr3t"}}]}), 422),
        (json!({"items": [{"name": "a", "$patch": "s3cr3t"}]}), 400),
        (json!({"tags": [{"a": "s3cr3t"}]}), 422),
        (json!({"atomic": [{"$patch": "delete", "user": "s3cr3t"}]}), 400),
    ] {
        let error =
            apply(json!({"spec": {"text": "hunter2"}}), &json!({"spec": patch})).unwrap_err();
        assert_eq!(error.code(), code, "{patch}: {error}");
        let text = serde_json::to_string(error.status()).unwrap();
        assert!(!text.contains("s3cr3t") && !text.contains("hunter2"), "{text}");
    }
    for patch in [json!([]), json!("x"), json!(null)] {
        assert_eq!(apply(json!({}), &patch).unwrap_err().code(), 400);
    }
    // A free-form field, or the key of a map, may begin with a dollar.
    let free = json!({"spec": {"free": {"$ref": "x"}, "data": {"$key": "x"}}});
    assert_eq!(apply(json!({}), &free).unwrap(), free);
}

#[test]
fn metadata_is_merged_as_upstream() {
    let target = json!({"metadata": {
        "finalizers": ["a.io/x", "b.io/x"],
        "ownerReferences": [{"uid": "1", "name": "a"}, {"uid": "2", "name": "b"}],
        "labels": {"a": "1"},
    }});
    let patch = json!({"metadata": {
        "finalizers": ["c.io/x"],
        "$deleteFromPrimitiveList/finalizers": ["a.io/x"],
        "ownerReferences": [{"uid": "2", "controller": true}, {"uid": "1", "$patch": "delete"}],
        "labels": {"b": "2"},
    }});
    assert_eq!(
        apply(target, &patch).unwrap()["metadata"],
        json!({
            "finalizers": ["b.io/x", "c.io/x"],
            "ownerReferences": [{"uid": "2", "name": "b", "controller": true}],
            "labels": {"a": "1", "b": "2"},
        })
    );
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        "[ab]".prop_map(Value::from),
        Just(json!("replace")),
        Just(json!("delete")),
        (0..3_i64).prop_map(Value::from),
    ];
    let name = prop_oneof![
        "[ab]",
        Just("name".to_owned()),
        Just("tags".to_owned()),
        Just("items".to_owned()),
        Just("$patch".to_owned()),
        Just("$retainKeys".to_owned()),
        Just("$setElementOrder/tags".to_owned()),
        Just("$setElementOrder/items".to_owned()),
        Just("$deleteFromPrimitiveList/tags".to_owned()),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name.clone(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn never_panics(target in any_value(), patch in any_value()) {
        match apply(json!({ "spec": target }), &json!({ "spec": patch })) {
            Ok(patched) => prop_assert!(patched.is_object()),
            Err(error) => prop_assert!(matches!(error.code(), 400 | 422)),
        }
    }
}
