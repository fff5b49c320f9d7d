//! The rules that hold for every kind.

use std::collections::{HashMap, HashSet};

use postern_kinds::{AnyKind, Caller, Context, Layout, NoPrincipals, Verb, all, find};
use postern_meta::object::encoded::merge_status;
use postern_meta::schema::Schema;
use postern_meta::{Object, Timestamp};
use serde_json::{Map, Value, json};

/// An object of a kind that has a name and nothing else.
fn empty(kind: &dyn AnyKind) -> Object {
    Object {
        api_version: kind.info().version.to_string(),
        kind: kind.info().kind.to_owned(),
        metadata: postern_meta::ObjectMeta { name: "a".to_owned(), ..Default::default() },
        fields: Map::new(),
    }
}

#[test]
fn names_are_unique_and_found() {
    let mut seen = HashSet::new();
    for kind in all() {
        let info = kind.info();
        // A stored kind has one version. Others can have several.
        let version = if info.is_stored() { "" } else { info.version.version };
        assert!(seen.insert((info.version.group, version, info.plural)), "{} twice", info.plural);
        let found = find(info.version.group, info.version.version, info.plural).unwrap();
        assert_eq!(found.info().kind, info.kind);
        assert_eq!(info.singular, info.kind.to_lowercase());
        // A stored kind with objects that can be created can be read.
        let is_kept = info.is_stored() && info.serves(Verb::Create);
        assert!(info.serves(Verb::Get) || !is_kept, "{}", info.kind);
    }
    assert!(find("management.platform.sh", "v2", "sharedsecrets").is_none());
}

#[test]
fn every_field_is_described_and_every_reference_resolves() {
    for kind in all() {
        let schema = kind.schema();
        let root = schema.root();
        let of_all = ["apiVersion", "kind", "metadata"];
        let in_layout: &[&str] = match kind.info().layout {
            Layout::SpecAndStatus => &["spec", "status"],
            Layout::TopLevel => &[],
        };
        for field in of_all.iter().chain(in_layout) {
            let found = &root["properties"][*field];
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
    let caller = Caller { user: Some("ada".to_owned()), ..Caller::default() };
    let ctx = Context::of(&caller, Timestamp::from_unix_seconds(0), &NoPrincipals);
    for kind in all() {
        let info = kind.info();
        let mut object = empty(*kind);
        kind.prepare(&mut object, None, &ctx).unwrap();
        let once = object.clone();
        kind.prepare(&mut object, Some(&once), &ctx).unwrap();
        assert_eq!(object.fields, once.fields, "{}", info.kind);
        let mut value = once.into_value();
        assert_eq!(kind.schema().prune_unknown(&mut value), Vec::<String>::new());
        assert!(kind.schema().check_types(&value).is_ok(), "{}", info.kind);
        assert_eq!(kind.cells(&object).len(), kind.info().columns.len(), "{}", info.kind);
    }
}

#[test]
fn no_two_kinds_share_a_name_on_the_command_line() {
    let mut kind_of = HashMap::new();
    for kind in all().iter().filter(|kind| kind.info().on_command_line) {
        let info = kind.info();
        let plural_and_singular = [info.plural, info.singular];
        // A kind may have the same plural and singular, but repeats no other name.
        let names = plural_and_singular.iter().collect::<HashSet<_>>().into_iter();
        for name in names.chain(info.short).chain(info.aliases) {
            let other = kind_of.insert(*name, info.kind);
            assert_eq!(other, None, "`{name}` is a name of {}, too", info.kind);
        }
    }
}

#[test]
fn each_row_of_a_table_of_actions_is_there_once() {
    for kind in all() {
        let mut seen = HashSet::new();
        for action in kind.info().actions {
            let row = (action.subresource, action.verb);
            assert!(seen.insert(row), "{kind:?}: {row:?} is there twice");
            assert!(!action.description.is_empty(), "{kind:?}: {row:?} has no description");
        }
    }
}

#[test]
fn a_kind_with_actions_on_its_own_path_serves_their_verbs_and_no_others() {
    for kind in all() {
        let info = kind.info();
        let actions = info.actions.iter().filter(|action| action.subresource.is_empty());
        let on_own_path: HashSet<_> = actions.map(|action| action.verb).collect();
        let served: HashSet<_> = info.verbs.iter().copied().collect();
        assert_eq!(served.len(), info.verbs.len(), "{kind:?} has a verb twice");
        assert_eq!(info.is_stored(), on_own_path.is_empty(), "{kind:?}");
        if !info.is_stored() {
            assert_eq!(served, on_own_path, "{kind:?}");
        }
    }
}

/// The values that identify the items of a set or a keyed list are in `managedFields`, in conflicts and in errors.
#[test]
fn nothing_that_is_secret_is_a_list_whose_items_are_told_apart() {
    fn has_items(schema: &Schema, at: &Value) -> bool {
        let resolved = schema.resolve(at);
        let list_type = at.get("x-kubernetes-list-type").or(resolved.get("x-kubernetes-list-type"));
        list_type.is_some_and(|list_type| list_type != "atomic")
            || ["items", "additionalProperties"]
                .iter()
                .any(|inner| resolved.get(*inner).is_some_and(|inner| has_items(schema, inner)))
            || resolved
                .get("properties")
                .and_then(Value::as_object)
                .is_some_and(|fields| fields.values().any(|field| has_items(schema, field)))
    }
    let mut checked = 0;
    for kind in all() {
        let schema = kind.schema();
        let write_only = kind.info().write_only.iter().map(|field| field.path);
        for path in kind.info().read_protected.iter().copied().chain(write_only) {
            let field = path.iter().try_fold(schema.root(), |at, name| {
                schema.resolve(at).get("properties")?.get(*name)
            });
            let field = field.unwrap_or_else(|| panic!("{kind:?} has no {path:?}"));
            assert!(!has_items(schema, field), "{kind:?}: {path:?}");
            checked += 1;
        }
    }
    assert!(checked > 3, "no kind has secrets: this test checks nothing");
}

/// The server adds the observed fields to the encoded object, and needs `status` at its end for that.
#[test]
fn a_kind_with_an_observed_status_encodes_status_as_the_last_field() {
    let caller = Caller::default();
    let ctx = Context::of(&caller, Timestamp::from_unix_seconds(0), &NoPrincipals);
    let observed: Vec<_> =
        all().iter().filter(|kind| kind.info().observed_status.is_some()).collect();
    assert!(!observed.is_empty(), "no kind has an observed status: this test checks nothing");
    for kind in observed {
        let mut object = empty(*kind);
        kind.prepare(&mut object, None, &ctx).unwrap();
        let json = object.to_json_bytes();
        let merged = merge_status(&json, &[("observed", json!(true))]);
        let text = String::from_utf8(merged.unwrap_or(json)).unwrap();
        assert!(text.contains("\"observed\":true"), "{kind:?}: status is not last in {text}");
    }
}
