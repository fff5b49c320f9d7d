//! What must hold for every kind, whichever it is.

use std::collections::HashSet;

use postern_kinds::{Caller, Context, NoPrincipals, Verb, all, find};
use postern_meta::{Object, Timestamp};
use serde_json::{Map, json};

#[test]
fn names_are_unique_and_found() {
    let mut seen = HashSet::new();
    for kind in all() {
        let info = kind.info();
        assert!(seen.insert((info.version.group, info.plural)), "{} twice", info.plural);
        let found = find(info.version.group, info.version.version, info.plural).unwrap();
        assert_eq!(found.info().kind, info.kind);
        assert_eq!(info.singular, info.kind.to_lowercase());
        assert!(info.serves(Verb::Get));
    }
    assert!(find("management.platform.sh", "v2", "sharedsecrets").is_none());
}

#[test]
fn every_field_is_described_and_every_reference_resolves() {
    for kind in all() {
        let schema = kind.schema();
        let root = schema.root();
        for field in ["apiVersion", "kind", "metadata", "spec", "status"] {
            let found = &root["properties"][field];
            assert!(found.is_object(), "{}: {field}", kind.info().kind);
            assert!(found["description"].is_string(), "{}: {field}", kind.info().kind);
        }
        for (name, definition) in schema.definitions() {
            let Some(properties) = definition["properties"].as_object() else { continue };
            for (field, schema) in properties {
                assert!(schema["description"].is_string(), "{name}.{field} has no description");
            }
        }
        let text = format!("{root}{}", json!(schema.definitions()));
        for reference in text.split("#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(schema.definitions().contains_key(name), "{name} is not defined");
        }
    }
}

#[test]
fn preparing_twice_changes_nothing_more() {
    let caller = Caller { user: Some("ada".to_owned()), team: None };
    let ctx = Context::of(&caller, Timestamp::from_unix_seconds(0), &NoPrincipals);
    for kind in all() {
        let info = kind.info();
        let mut object = Object {
            api_version: info.version.to_string(),
            kind: info.kind.to_owned(),
            metadata: postern_meta::ObjectMeta { name: "a".to_owned(), ..Default::default() },
            fields: Map::new(),
        };
        kind.prepare(&mut object, None, &ctx).unwrap();
        let once = object.clone();
        kind.prepare(&mut object, Some(&once), &ctx).unwrap();
        assert_eq!(object.fields, once.fields, "{}", info.kind);
        let mut value = once.into_value();
        assert_eq!(kind.schema().prune_unknown(&mut value), Vec::<String>::new());
        assert!(kind.schema().check_types(&value).is_ok(), "{}", info.kind);
        assert_eq!(kind.cells(&object).len(), kind.columns().len(), "{}", info.kind);
    }
}
