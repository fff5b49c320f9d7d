//! Tests of the compiled form: which part is read where, next to a reference and in a union.

use serde_json::{Value, json};

use super::node::{Field, Node, Ownership};
use super::{DEFINITIONS_PREFIX, Schema};

/// A schema of these parts. References have only the name of a definition.
fn schema(root: &Value, definitions: &Value) -> Schema {
    let Value::Object(definitions) = with_whole_references(definitions) else { unreachable!() };
    Schema::with_root(with_whole_references(root), definitions)
}

fn with_whole_references(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let whole = |(name, value): (&String, &Value)| {
                let value = match value {
                    Value::String(to) if name == "$ref" => {
                        format!("{DEFINITIONS_PREFIX}{to}").into()
                    }
                    value => with_whole_references(value),
                };
                (name.clone(), value)
            };
            Value::Object(fields.iter().map(whole).collect())
        }
        Value::Array(items) => items.iter().map(with_whole_references).collect(),
        scalar => scalar.clone(),
    }
}

fn field<'a>(at: Node<'a>, name: &str) -> Node<'a> {
    match at.field(name) {
        Field::Known(field) => field,
        Field::Free => panic!("{name} is free"),
        Field::Unknown => panic!("{name} is unknown"),
    }
}

fn item_keys(at: Node<'_>) -> Vec<(&str, Option<&Value>)> {
    match at.ownership() {
        Ownership::Items(keys) => {
            keys.iter().map(|key| (&*key.name, key.default.as_ref())).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_definition_may_refer_to_itself() {
    let schema = schema(
        &json!({ "type": "object", "properties": { "tree": { "$ref": "Tree" } } }),
        &json!({ "Tree": { "type": "object", "properties": {
            "name": { "type": "string" },
            "left": { "$ref": "Tree" },
            "others": { "type": "array", "items": { "$ref": "Tree" } },
        } } }),
    );
    let mut value = json!({ "tree": { "left": { "others": [{ "left": { "nam": 1 } }] } } });
    assert_eq!(schema.prune_unknown(&mut value), ["tree.left.others[0].left.nam"]);
    let value = json!({ "tree": { "left": { "others": [{}, { "left": { "name": 1 } }] } } });
    let mismatch = schema.check_types(&value).unwrap_err();
    assert_eq!(mismatch.path, "tree.left.others[1].left.name");
}

#[test]
fn references_that_lead_nowhere_are_free() {
    let schema = schema(
        &json!({ "type": "object", "properties": {
            "missing": { "$ref": "Missing" }, "round": { "$ref": "Round" },
        } }),
        &json!({ "Round": { "$ref": "Round" } }),
    );
    let mut value = json!({ "missing": { "a": null }, "round": null });
    let before = value.clone();
    assert!(schema.prune_unknown(&mut value).is_empty());
    assert_eq!(value, before);
    assert_eq!(schema.check_types(&value), Ok(()));
}

#[test]
fn a_description_around_a_reference_changes_nothing() {
    let schema = schema(
        &json!({ "type": "object", "properties": {
            "plain": { "$ref": "Point" },
            "described": { "description": "A point.", "allOf": [{ "$ref": "Point" }] },
        } }),
        &json!({ "Point": { "type": "object", "properties": { "x": { "type": "integer" } } } }),
    );
    for name in ["plain", "described"] {
        let at = field(schema.node(), name);
        assert!(matches!(at.field("y"), Field::Unknown), "{name}");
        assert_eq!(at.ownership(), &Ownership::Fields, "{name}");
        let mismatch = schema.check_types(&json!({ name: { "x": "1" } })).unwrap_err();
        assert_eq!(mismatch.to_string(), format!("{name}.x: expected integer, got string"));
    }
}

#[test]
fn extensions_next_to_a_reference_count_before_those_of_its_target() {
    let list = json!({
        "type": "array", "items": { "type": "object", "properties": {
            "name": { "type": "string" }, "port": { "type": "integer", "default": 80 },
        } },
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "name",
    });
    let map = json!({
        "type": "object", "additionalProperties": { "type": "string" },
        "x-kubernetes-map-type": "atomic",
    });
    let schema = schema(
        &json!({ "type": "object", "properties": {
            "same": { "allOf": [{ "$ref": "List" }] },
            "atomic": { "$ref": "List", "x-kubernetes-list-type": "atomic" },
            "by_port": {
                "allOf": [{ "$ref": "List" }],
                "x-kubernetes-list-map-keys": ["port"], "x-kubernetes-patch-merge-key": "port",
            },
            "replaced": { "$ref": "List", "x-kubernetes-patch-strategy": "replace" },
            "no_text": { "$ref": "List", "x-kubernetes-patch-strategy": 1 },
            "whole_map": { "$ref": "Map" },
            "granular_map": { "allOf": [{ "$ref": "Map" }], "x-kubernetes-map-type": "granular" },
            "text": { "$ref": "Map", "type": "string" },
        } }),
        &json!({ "List": list, "Map": map }),
    );
    let at = |name| field(schema.node(), name);
    let merge_key = |name| at(name).item_merge().map(|merge| merge.key.as_deref());
    assert_eq!(item_keys(at("same")), [("name", None)]);
    assert_eq!(merge_key("same"), Some(Some("name")));
    assert_eq!(at("atomic").ownership(), &Ownership::Whole);
    assert_eq!(item_keys(at("by_port")), [("port", Some(&json!(80)))]);
    assert_eq!(merge_key("by_port"), Some(Some("port")));
    assert_eq!(item_keys(at("replaced")), [("name", None)]);
    assert_eq!(merge_key("replaced"), None);
    assert_eq!(merge_key("no_text"), None);
    assert_eq!(at("whole_map").ownership(), &Ownership::Whole);
    assert_eq!(at("granular_map").ownership(), &Ownership::Fields);
    // The other keywords are read at the target only.
    assert_eq!(schema.check_types(&json!({ "text": { "a": "b" } })), Ok(()));
}

#[test]
fn a_union_has_the_fields_of_its_first_branch_that_knows_them() {
    let schema = schema(
        &json!({ "type": "object", "properties": {
            "either": { "anyOf": [
                { "type": "integer" },
                { "$ref": "Named" },
                { "type": "object", "properties": {
                    "name": { "type": "boolean" }, "only": { "type": "boolean" },
                } },
            ] },
            "number": { "oneOf": [{ "type": "integer" }, { "type": "integer", "format": "int8" }] },
            "loose": { "oneOf": [{ "type": "object" }, { "additionalProperties": true }] },
            "none": { "oneOf": [] },
        } }),
        &json!({ "Named": { "type": "object", "properties": { "name": { "type": "string" } } } }),
    );
    let mismatch = |value| schema.check_types(&value).unwrap_err().to_string();
    assert_eq!(mismatch(json!({ "either": true })), "either: expected integer, got boolean");
    let name = json!({ "either": { "name": true } });
    assert_eq!(mismatch(name), "either.name: expected string, got boolean");
    let only = json!({ "either": { "only": 1 } });
    assert_eq!(mismatch(only), "either.only: expected boolean, got number");
    assert_eq!(schema.check_types(&json!({ "either": 5, "number": 1000, "none": [] })), Ok(()));
    let mut value = json!({ "either": 5.0, "number": 5.0, "loose": { "a": null, "b": 5.0 } });
    assert!(schema.prune_unknown(&mut value).is_empty());
    assert_eq!(value, json!({ "either": 5.0, "number": 5, "loose": { "a": null, "b": 5.0 } }));
    assert_eq!(field(schema.node(), "loose").ownership(), &Ownership::Fields);
    assert_eq!(field(schema.node(), "none").ownership(), &Ownership::Whole);
}

#[test]
fn integers_are_within_their_format() {
    let formats = [
        ("int8", i128::from(i8::MIN), i128::from(i8::MAX)),
        ("uint8", 0, u8::MAX.into()),
        ("int16", i16::MIN.into(), i16::MAX.into()),
        ("uint16", 0, u16::MAX.into()),
        ("int32", i32::MIN.into(), i32::MAX.into()),
        ("uint32", 0, u32::MAX.into()),
        ("uint64", 0, u64::MAX.into()),
        ("uint", 0, u64::MAX.into()),
        ("int64", i64::MIN.into(), i64::MAX.into()),
        ("other", i64::MIN.into(), i64::MAX.into()),
    ];
    for (format, min, max) in formats {
        let schema = schema(&json!({ "type": "integer", "format": format }), &json!({}));
        for (value, fits) in [(min, true), (max, true), (min - 1, false), (max + 1, false)] {
            // Beyond 64 bits, JSON text is decoded as a float.
            let Some(value) = serde_json::Number::from_i128(value) else { continue };
            assert_eq!(schema.check_types(&value.clone().into()).is_ok(), fits, "{format} {value}");
        }
    }
}

#[test]
fn a_property_that_is_added_after_a_walk_is_known() {
    let mut schema = schema(&json!({ "type": "object" }), &json!({}));
    assert_eq!(schema.prune_unknown(&mut json!({ "late": 1 })), ["late"]);
    schema.add_property("late", json!({ "type": "integer" }));
    assert!(schema.prune_unknown(&mut json!({ "late": 1 })).is_empty());
}

#[test]
fn names_of_one_length_are_told_apart() {
    let names = ["a", "b", "ab", "ba", "abc", "äb", ""];
    let properties: Value = names.iter().map(|name| (*name, json!({}))).collect();
    let schema = schema(&json!({ "type": "object", "properties": properties }), &json!({}));
    for name in names {
        assert!(matches!(schema.node().field(name), Field::Known(_)), "{name}");
    }
    for name in ["c", "aa", "bb", "abcd", "ä"] {
        assert!(matches!(schema.node().field(name), Field::Unknown), "{name}");
    }
}
