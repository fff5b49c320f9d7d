//! Twice the input costs at most 2.5 times as much, for every list-like field of the kinds, and for
//! the parts that are read of stored objects.

#[path = "../../../meta/tests/it/measured/mod.rs"]
mod measured;

use std::hint::black_box;

use crate::common::whole;
use measured::{check, check_input};
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::shared_secret::SharedSecret;
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_kinds::write_only::{LAST_APPLIED, WriteOnlyValues};
use postern_kinds::{AnyKind, Caller, Context, NoPrincipals};
use postern_meta::object::Object;
use postern_meta::time::Timestamp;
// The file that is included needs it.
use rustix as _;
use serde_json::{Map, Value, json};

/// Far more entries than any limit allows, and more than a body has room for.
const ENTRIES: usize = 16_384;

fn names(n: usize, prefix: &str) -> Value {
    (0..n).map(|number| format!("{prefix}{number}")).collect()
}

fn object(kind: &dyn AnyKind, metadata: &Value, spec: &Value) -> Object {
    let mut metadata = metadata.clone();
    metadata["name"] = "a".into();
    whole(kind, &metadata, &json!({ "spec": spec }))
}

/// Checks the preparation of a new object and of one that replaces another, for a spec of a size. The
/// argument after the size is another for the other object, so that no entry is in both.
fn check_spec(kind: &'static dyn AnyKind, field: &str, spec: fn(usize, &str) -> Value) {
    check(&format!("{kind:?} {field}"), ENTRIES, |n| {
        let [old, new] = ["old", "new"].map(|prefix| object(kind, &json!({}), &spec(n, prefix)));
        Box::new(move || {
            let caller = Caller::default();
            let context = Context::of(&caller, Timestamp::from_unix_seconds(0), &NoPrincipals);
            for old in [None, Some(&old)] {
                // An object over a limit is still prepared, and the verdict has the error.
                drop(black_box(kind.prepare(&mut new.clone(), old, &context)));
            }
        })
    });
}

#[test]
fn identities() {
    check_spec(&User, "groups", |n, prefix| json!({ "groups": names(n, prefix) }));
    check_spec(&Team, "groups", |n, prefix| json!({ "groups": names(n, prefix) }));
    check_spec(&Team, "users", |n, prefix| json!({ "users": names(n, prefix) }));
    check_spec(
        &OwnedAccessKey,
        "groups",
        |n, prefix| json!({ "user": "ada", "groups": names(n, prefix) }),
    );
    check_spec(
        &OwnedAccessKey,
        "identity.groups",
        |n, prefix| json!({ "user": "ada", "identity": { "groups": names(n, prefix) } }),
    );
}

#[test]
fn scopes() {
    fn scope(field: &str, n: usize, entry: impl Fn(usize) -> Value) -> Value {
        let entries: Vec<_> = (0..n).map(entry).collect();
        json!({ "user": "ada", "scope": { field: entries } })
    }
    let key = &OwnedAccessKey;
    check_spec(key, "scope.projects", |n, prefix| {
        scope("projects", n, |number| json!({ "project": format!("{prefix}{number}") }))
    });
    check_spec(key, "scope.spaces", |n, prefix| {
        scope("spaces", n, |number| json!({ "project": prefix, "space": number.to_string() }))
    });
    check_spec(key, "scope.virtualClusters", |n, prefix| {
        scope(
            "virtualClusters",
            n,
            |number| json!({ "project": prefix, "virtualCluster": number.to_string() }),
        )
    });
    check_spec(key, "scope.rules", |n, prefix| {
        scope(
            "rules",
            n,
            |number| json!({ "verbs": ["get"], "namespaces": [prefix, number.to_string()] }),
        )
    });
    check_spec(key, "scope.rules.verbs", |n, prefix| {
        scope("rules", 1, |_| json!({ "verbs": names(n, prefix) }))
    });
}

#[test]
fn secrets() {
    check_spec(&SharedSecret, "data", |n, prefix| {
        let entry = |number| (format!("{prefix}{number}"), json!("aGk="));
        json!({ "data": (0..n).map(entry).collect::<Map<_, _>>() })
    });
    check_spec(&SharedSecret, "a value", |n, _| json!({ "data": { "a": "aGkh".repeat(n * 16) } }));
    check_spec(&SharedSecret, "access", |n, prefix| {
        let entry = |number| json!({ "name": format!("{prefix}{number}"), "verbs": ["get"] });
        json!({ "access": (0..n).map(entry).collect::<Vec<_>>() })
    });
    check_spec(
        &SharedSecret,
        "access.users",
        |n, prefix| json!({ "access": [{ "name": "a", "verbs": ["get"], "users": names(n, prefix) }] }),
    );
}

/// References to users of the same name, as only an attacker would have them.
fn references(n: usize) -> Value {
    let reference = |number| {
        json!({
            "apiVersion": "management.platform.sh/v1",
            "kind": "User", "name": "ada", "uid": format!("u{number}"),
        })
    };
    (0..n).map(reference).collect()
}

#[test]
fn references_to_owners() {
    check("ownerReferences", ENTRIES, |n| {
        let spec = json!({ "user": "ada" });
        let many = object(&OwnedAccessKey, &json!({ "ownerReferences": references(n) }), &spec);
        let one = object(&OwnedAccessKey, &json!({ "ownerReferences": references(1) }), &spec);
        Box::new(move || {
            let caller = Caller::default();
            let context = Context::of(&caller, Timestamp::from_unix_seconds(0), &NoPrincipals);
            for old in [None, Some(&one)] {
                drop(black_box(OwnedAccessKey.prepare(&mut many.clone(), old, &context)));
            }
        })
    });
}

#[test]
fn stored_objects() {
    let stored = |n: usize| {
        let spec = json!({ "user": "ada", "groups": names(n, "g") });
        let metadata = json!({ "ownerReferences": references(n) });
        object(&OwnedAccessKey, &metadata, &spec).to_json_bytes()
    };
    check_input("a key's owner", ENTRIES, stored, |json| {
        assert!(OwnedAccessKey.owned_by(json).is_some());
    });
    check_input("a key's facts", ENTRIES, stored, |json| {
        assert!(OwnedAccessKey.access_change(Some(json)).is_some());
    });
    let team = |n| object(&Team, &json!({}), &json!({ "users": names(n, "u") })).to_json_bytes();
    check_input("a team's facts", ENTRIES, team, |json| {
        assert!(Team.access_change(Some(json)).is_some());
    });
}

#[test]
fn write_only_fields() {
    check("last-applied-configuration", ENTRIES, |n| {
        let applied = json!({ "spec": { "key": "k", "groups": names(n, "g") } }).to_string();
        let annotations = json!({ "annotations": { LAST_APPLIED: applied } });
        let sent = object(&OwnedAccessKey, &annotations, &json!({ "key": "k".repeat(n) }));
        Box::new(move || {
            let taken = WriteOnlyValues::take(&mut sent.clone(), OwnedAccessKey.info().write_only);
            assert!(!taken.is_empty());
        })
    });
}
