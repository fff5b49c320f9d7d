//! Properties of walks along any schema, also one that no type has: references that lead nowhere
//! or to themselves, unions, and keywords that do not fit together.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::Map;

use super::*;
use crate::patch::apply_strategic_merge_patch;

fn name() -> impl Strategy<Value = String> {
    prop_oneof![8 => "[abc]", 1 => Just("metadata".to_owned()), 1 => Just("spec.a".to_owned())]
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..300).prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        Just(Value::from(5.0)),
        Just(Value::from(0.5)),
        "[xy]".prop_map(Value::from),
        Just(Value::from("2006-01-02T15:04:05Z")),
    ]
}

fn any_value() -> impl Strategy<Value = Value> {
    let directive = prop_oneof!["merge", "replace", "delete"].prop_map(Value::from);
    scalar().prop_recursive(4, 40, 5, move |inner| {
        let fields =
            (btree_map(name(), inner.clone(), 0..5), option::weighted(0.1, directive.clone()));
        prop_oneof![
            2 => fields.prop_map(|(fields, directive)| {
                let directive = directive.map(|value| ("$patch".to_owned(), value));
                Value::Object(fields.into_iter().chain(directive).collect())
            }),
            1 => vec(inner, 0..4).prop_map(Value::from),
        ]
    })
}

fn any_object() -> impl Strategy<Value = Value> {
    btree_map(name(), any_value(), 0..5).prop_map(|map| Value::Object(map.into_iter().collect()))
}

fn words(words: &'static [&'static str]) -> BoxedStrategy<Value> {
    proptest::sample::select(words).prop_map(Value::from).boxed()
}

/// Keywords that have no schemas in them.
fn keywords() -> impl Strategy<Value = Vec<(&'static str, Option<Value>)>> {
    let keyword = |name: &'static str, value: BoxedStrategy<Value>| {
        option::weighted(0.4, value).prop_map(move |value| (name, value))
    };
    let keys = vec(name(), 0..3).prop_map(Value::from).boxed();
    (
        keyword("type", words(&["object", "array", "string", "integer", "number", "null"])),
        keyword("format", words(&["date-time", "int8", "uint64"])),
        keyword("default", scalar().boxed()),
        keyword(
            "x-kubernetes-preserve-unknown-fields",
            any::<bool>().prop_map(Value::from).boxed(),
        ),
        keyword("x-kubernetes-map-type", words(&["atomic", "granular"])),
        keyword("x-kubernetes-list-type", words(&["atomic", "set", "map"])),
        keyword("x-kubernetes-list-map-keys", keys),
        keyword("x-kubernetes-patch-strategy", words(&["merge", "retainKeys,merge", "replace"])),
        keyword("x-kubernetes-patch-merge-key", name().prop_map(Value::from).boxed()),
    )
        .prop_map(|(a, b, c, d, e, f, g, h, i)| vec![a, b, c, d, e, f, g, h, i])
}

fn reference() -> impl Strategy<Value = Value> {
    "[ABCD]".prop_map(|name| json!(format!("#/components/schemas/{name}")))
}

fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        8 => (keywords(), option::weighted(0.2, reference())).prop_map(|(mut keywords, reference)| {
            keywords.push(("$ref", reference));
            object_of(keywords)
        }),
        1 => scalar(),
    ];
    leaf.prop_recursive(3, 30, 4, |inner| {
        let properties = btree_map(name(), inner.clone(), 0..4)
            .prop_map(|map| Value::Object(map.into_iter().collect()));
        let schemas = || vec(inner.clone(), 0..3).prop_map(Value::from);
        (
            keywords(),
            option::weighted(0.8, properties),
            option::weighted(0.3, inner.clone()),
            option::weighted(0.6, inner.clone()),
            option::weighted(0.1, reference()),
            (option::weighted(0.1, schemas()), option::weighted(0.1, schemas())),
        )
            .prop_map(|(mut keywords, properties, others, items, around, (one, any))| {
                keywords.extend([
                    ("properties", properties),
                    ("additionalProperties", others),
                    ("items", items),
                    ("allOf", around.map(|to| json!([{ "$ref": to }]))),
                    ("oneOf", one),
                    ("anyOf", any),
                ]);
                object_of(keywords)
            })
    })
}

fn object_of(keywords: Vec<(&'static str, Option<Value>)>) -> Value {
    let present = keywords.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(present.collect())
}

fn schemas() -> impl Strategy<Value = Schema> {
    (any_schema(), btree_map("[ABC]", any_schema(), 0..4))
        .prop_map(|(root, definitions)| Schema::with_root(root, definitions.into_iter().collect()))
}

fn as_object(value: &Value) -> Object {
    let mut object = value.clone();
    object["metadata"] = json!({ "name": "a", "labels": { "a": "b" } });
    Object::from_value(object).unwrap()
}

proptest! {
    #[test]
    fn pruning_twice_is_pruning_once(schema in schemas(), mut value in any_object()) {
        let misplaced = schema.misplaced(&value, "spec");
        let nulls = schema.nulls_below(&value, "a");
        let below = schema.unknown_below(&value, "a");
        let unknown = schema.prune_unknown(&mut value);
        prop_assert!(below.iter().all(|path| unknown.contains(path)));
        prop_assert!(misplaced.iter().all(|name| unknown.contains(name)));
        prop_assert!(nulls.iter().all(|path| path.starts_with('a')));
        let pruned = value.clone();
        prop_assert!(schema.prune_unknown(&mut value).is_empty());
        prop_assert_eq!(&value, &pruned);
        prop_assert!(schema.unknown_below(&value, "a").is_empty());
        if let Err(mismatch) = schema.check_types(&value) {
            prop_assert_ne!(mismatch.expected, mismatch.found);
        }
    }

    #[test]
    fn walks_for_ownership_end(schema in schemas(), old in any_object(), new in any_object()) {
        let ignored = FieldSet::new();
        prop_assert!(compare(&old, &old, &schema).is_empty());
        let changes = compare(&old, &new, &schema);
        let back = compare(&new, &old, &schema);
        prop_assert_eq!(changes.is_empty(), back.is_empty());
        let nulls = nulls_of(&new, &schema);
        check_lists(&new, &schema);
        let _ = apply_strategic_merge_patch(old.clone(), &new, &schema);
        let kind = TrackedKind { schema: &schema, ignored: &ignored };
        let (old, new) = (as_object(&old), as_object(&new));
        let mut live = old.clone();
        track_update(None, &mut live, &kind, &manager("a"), at(1));
        for (configuration, name) in [(&new, "a"), (&old, "b"), (&old, "a"), (&new, "b")] {
            let (manager, now) = (&manager(name), at(2));
            let force = name == "a";
            let apply = Apply { configuration, manager, force, now };
            if let Ok(merged) = apply_with_nulls(Some(&live), &apply, &nulls, &kind) {
                live = merged;
            }
        }
    }

    #[test]
    fn a_set_has_no_path_of_an_empty_object(schema in schemas()) {
        let empty = Value::Object(Map::new());
        prop_assert!(set_of(&empty, &schema).is_empty());
        prop_assert!(nulls_of(&empty, &schema).is_empty());
    }
}
