//! The changes of writes, compared with those of the objects' JSON.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Map;

use super::properties::{any_object, paths, set_of_paths};
use super::*;
use crate::apply::ownership::ownable;
use crate::apply::track::changes;

/// Metadata with lists that may have an item twice.
fn any_metadata() -> impl Strategy<Value = Value> {
    let texts = || proptest::collection::btree_map("[abc]", "[xy]", 0..3);
    let owner = ("[ab]", "[xy]", proptest::option::of(any::<bool>())).prop_map(|(uid, name, is)| {
        json!({"apiVersion": "v1", "kind": "K", "name": name, "uid": uid, "controller": is})
    });
    (texts(), texts(), vec("[ab]", 0..3), vec(owner, 0..3), "[xy]?").prop_map(
        |(labels, annotations, finalizers, owners, prefix)| {
            json!({
                "labels": labels, "annotations": annotations, "finalizers": finalizers,
                "ownerReferences": owners, "generateName": prefix, "name": "n", "uid": "u",
            })
        },
    )
}

fn any_written() -> impl Strategy<Value = Object> {
    let odd = prop_oneof![Just(json!(null)), Just(json!([])), Just(json!("x")), Just(json!({}))];
    let odd = proptest::option::weighted(0.1, ("spec|data|status|other", odd));
    (any_object(), any_metadata(), odd).prop_map(|(mut value, metadata, odd)| {
        value["metadata"] = metadata;
        if let Some((name, odd)) = odd {
            value[name] = odd;
        }
        object(&value)
    })
}

/// The part of an object that can be owned, from its whole JSON.
fn ownable_json(object: Object) -> Value {
    let mut value = object.into_value();
    for name in ["name", "uid"] {
        value["metadata"].as_object_mut().unwrap().remove(name);
    }
    value
}

/// The changes, found by a comparison of the whole objects as JSON. The first one of a create is the empty structs that
/// the type has.
fn changes_of_json(live: Option<&Object>, new: &Object, ignored: &FieldSet) -> Comparison {
    let json = |object: &Object| {
        let mut object = object.clone();
        object.metadata.annotations.retain(|name, _| {
            !ignored.contains(&["metadata", "annotations", name].map(PathElement::field))
        });
        ownable_json(object)
    };
    let structs = new.fields.keys().filter(|name| ["spec", "status"].contains(&name.as_str()));
    let structs = structs.map(String::as_str).chain(["metadata"]);
    let empty = || structs.map(|name| (name.to_owned(), json!({}))).collect::<Map<_, _>>();
    let old = live.map_or_else(|| Value::Object(empty()), json);
    let mut changes = compare(&old, &json(new), schema());
    changes.ignore(ignored);
    changes
}

proptest! {
    #[test]
    fn changes_are_those_of_the_json(
        live in proptest::option::of(any_written()),
        new in any_written(),
        is_ignored in any::<bool>(),
    ) {
        let all: [&[&str]; 3] = [&["status"], &["metadata", "annotations", "a"], &["spec", "data"]];
        let ignored = FieldSet::of_fields(if is_ignored { &all } else { &all[..1] });
        let kind = TrackedKind { schema: schema(), ignored: &ignored };
        let found = changes(live.as_ref(), &new, &kind);
        prop_assert_eq!(found, changes_of_json(live.as_ref(), &new, &ignored));
        let mut owned = ownable(&new);
        owned.as_object_mut().unwrap().entry("metadata").or_insert_with(|| json!({}));
        prop_assert_eq!(owned, ownable_json(new));
    }

    /// An encoding that is recognized is that of the set. All sets of fields are recognized.
    #[test]
    fn an_encoding_is_recognized(a in paths(), b in paths(), is_same in any::<bool>()) {
        let (a, b) = (set_of_paths(&a), set_of_paths(if is_same { &a } else { &b }));
        let encoded = b.to_fields_v1();
        if a.is_encoded_as(&encoded) {
            prop_assert_eq!(&a.to_fields_v1(), &encoded);
        }
        let mut only_fields = true;
        b.for_each(&mut |path| {
            only_fields &= path.iter().all(|step| matches!(step, PathElement::Field(_)));
        });
        prop_assert!(b.is_encoded_as(&encoded) || !only_fields);
        let with_self = json!({"f:a": {".": {"f:x": {}}, "f:b": {}}});
        prop_assert!(!b.is_encoded_as(&with_self));
    }
}
