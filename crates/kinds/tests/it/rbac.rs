//! Roles and bindings as the server works with them: fields at the top level, reserved names, the
//! permissions that a write gives to others, and the facts that a policy is made from.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::whole;
use postern_kinds::cluster_role::ClusterRole;
use postern_kinds::cluster_role_binding::ClusterRoleBinding;
use postern_kinds::rbac::{Granted, PolicyChange, PolicyRule};
use postern_kinds::role::Role;
use postern_kinds::role_binding::RoleBinding;
use postern_kinds::{AnyKind, Caller, Context, Layout, NoPrincipals, Prepared, WriterKind};
use postern_meta::object::Object;
use postern_meta::time::Timestamp;
use serde_json::{Value, json};

const KINDS: [&dyn AnyKind; 4] = [&Role, &RoleBinding, &ClusterRole, &ClusterRoleBinding];

fn object(kind: &dyn AnyKind, name: &str, fields: &Value) -> Object {
    let namespace = if kind.info().is_namespaced() { "ns" } else { "" };
    whole(kind, &json!({ "name": name, "namespace": namespace }), fields)
}

/// Fields that are valid for every one of the four kinds.
fn valid(kind: &dyn AnyKind) -> Value {
    if kind.info().plural.ends_with("bindings") {
        json!({ "roleRef": { "kind": "ClusterRole", "name": "view" }, "subjects": [] })
    } else {
        json!({ "rules": [rule()] })
    }
}

fn rule() -> Value {
    json!({ "verbs": ["get"], "apiGroups": [""], "resources": ["secrets"] })
}

fn context<'a>(caller: &'a Caller, as_whom: &str) -> Context<'a> {
    let writer = match as_whom {
        "server" => WriterKind::Server,
        "master" => WriterKind::Master,
        _ => WriterKind::Client,
    };
    Context { writer, ..Context::of(caller, Timestamp::from_unix_seconds(0), &NoPrincipals) }
}

fn prepare(kind: &dyn AnyKind, new: &mut Object, old: Option<&Object>, as_whom: &str) -> Prepared {
    kind.prepare(new, old, &context(&Caller::default(), as_whom)).unwrap()
}

#[test]
fn fields_are_at_the_top_level_and_nothing_is_added() {
    for kind in KINDS {
        assert_eq!(kind.info().layout, Layout::TopLevel);
        let mut new = object(kind, "a", &valid(kind));
        prepare(kind, &mut new, None, "user").verdict.unwrap().into_result().unwrap();
        let fields: Vec<_> = new.fields.keys().map(String::as_str).collect();
        let is_binding = kind.info().plural.ends_with("bindings");
        assert_eq!(fields, if is_binding { ["roleRef"] } else { ["rules"] }, "{kind:?}");
        let value =
            json!({ "apiVersion": "a", "kind": "b", "metadata": {}, "spec": {}, "rules": [] });
        let mut pruned = value.clone();
        let unknown = kind.schema().prune_unknown(&mut pruned);
        assert!(unknown.contains(&"spec".to_owned()), "{kind:?}: {unknown:?}");
    }
}

#[test]
fn names_are_path_segments_and_those_of_the_server_are_reserved() {
    for kind in KINDS {
        for (name, as_whom, allowed) in [
            ("system:node", "user", true),
            ("platform", "user", true),
            ("platform-user", "user", true),
            ("platform:access:x", "user", false),
            ("platform:access:x", "master", true),
            ("platform:access:x", "server", true),
        ] {
            let mut new = object(kind, name, &valid(kind));
            assert!(kind.info().name_rule.check(name).is_ok());
            for old in [None, Some(new.clone())] {
                let verdict = prepare(kind, &mut new, old.as_ref(), as_whom).verdict;
                assert_eq!(verdict.is_ok(), allowed, "{kind:?} {name} as {as_whom}");
                assert!(verdict.is_ok() || verdict.unwrap_err().code() == 403);
            }
            let deleted = kind.check_delete(&new.metadata, &context(&Caller::default(), as_whom));
            assert_eq!(deleted.is_ok(), allowed, "{kind:?} {name} as {as_whom}");
        }
    }
}

#[test]
fn a_write_of_a_role_gives_all_of_it_unless_it_is_for_the_garbage_collector() {
    for kind in [&Role as &dyn AnyKind, &ClusterRole] {
        let old = object(kind, "a", &valid(kind));
        let mut old_prepared = old.clone();
        let rules: Vec<PolicyRule> = serde_json::from_value(json!([rule()])).unwrap();
        let whole = Some(Granted::Rules(rules));
        assert_eq!(prepare(kind, &mut old_prepared, None, "user").granted, whole);
        let changed = |change: fn(&mut Object)| {
            let mut new = old_prepared.clone();
            change(&mut new);
            prepare(kind, &mut new, Some(&old_prepared), "user").granted
        };
        let labelled: fn(&mut Object) = |object| {
            object.metadata.labels.insert("a".to_owned(), "b".to_owned());
        };
        assert_eq!(changed(labelled), whole);
        assert_eq!(changed(|object| object.metadata.finalizers.push("a/b".to_owned())), None);
        assert_eq!(changed(|_| {}), None);
        let less = changed(|object| drop(object.fields.insert("rules".to_owned(), json!([]))));
        assert_eq!(less, Some(Granted::Rules(Vec::new())));
    }
}

#[test]
fn whoever_gathers_rules_must_hold_everything() {
    let selectors = json!([{ "matchLabels": { "a": "b" } }]);
    let gathering =
        json!({ "aggregationRule": { "clusterRoleSelectors": selectors }, "rules": [] });
    let plain = json!({ "rules": [] });
    for (old, new, everything) in [
        (None, &gathering, true),
        (None, &plain, false),
        (Some(&plain), &gathering, true),
        (Some(&gathering), &plain, true),
    ] {
        let old = old.map(|fields| object(&ClusterRole, "a", fields));
        let mut new = object(&ClusterRole, "a", new);
        new.metadata.labels.insert("new".to_owned(), String::new());
        let prepared = prepare(&ClusterRole, &mut new, old.as_ref(), "user");
        let Some(Granted::Rules(rules)) = prepared.granted else { panic!("it gives rules") };
        assert_eq!(rules.iter().any(|rule| rule.verbs == ["*"]), everything);
        assert!(prepared.verdict.unwrap().is_empty());
    }
    let mut none = object(&ClusterRole, "a", &json!({ "aggregationRule": {} }));
    let errors = prepare(&ClusterRole, &mut none, None, "user").verdict.unwrap();
    let text = "at least one clusterRoleSelector required if aggregationRule is non-nil";
    assert!(errors.to_string().contains(text), "{errors}");
}

#[test]
fn facts_are_read_from_the_top_level_and_what_cannot_be_read_gives_nothing() {
    for kind in KINDS {
        assert!(kind.has_policy_part());
        let mut stored = object(kind, "a", &valid(kind));
        prepare(kind, &mut stored, None, "user").verdict.unwrap();
        let json = stored.to_json_bytes();
        let change = kind.policy_change(Some(&json), None).unwrap();
        let nothing = kind.policy_change(None, None).unwrap();
        assert_ne!(change, nothing, "{kind:?}");
        let is_role = matches!(change, PolicyChange::Role(_));
        assert_eq!(is_role, !kind.info().plural.ends_with("bindings"));
        let wrong = object(kind, "a", &json!({ "rules": 1, "roleRef": 1 })).to_json_bytes();
        for unreadable in [&json[..json.len() - 1], b"", &wrong] {
            assert_eq!(
                kind.policy_change(Some(unreadable), None),
                Some(nothing.clone()),
                "{kind:?}"
            );
        }
    }
}
