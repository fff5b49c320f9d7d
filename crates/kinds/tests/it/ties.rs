//! The ties of a credential: the server writes them in `status`, and a client's owner references are its own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::shared_secret::SharedSecret;
use postern_kinds::workload_identity::WorkloadIdentity;
use postern_kinds::{AnyKind, Caller, CallerKey, Context, Principal, Principals};
use postern_meta::object::{Object, OwnerReference};
use postern_meta::time::Timestamp;
use serde_json::{Value, json};

const GROUP: &str = "management.platform.sh/v1";

/// The user ada with the uid `u1`.
struct Ada;

impl Principals for Ada {
    fn uid(&self, principal: Principal<'_>) -> Option<String> {
        (principal == Principal::User("ada")).then(|| "u1".to_owned())
    }

    fn teams_of(&self, _: &str) -> Vec<String> {
        Vec::new()
    }
}

fn reference(kind: &str, name: &str, uid: &str) -> Value {
    json!({ "apiVersion": GROUP, "kind": kind, "name": name, "uid": uid })
}

/// A reference with which a foreground deletion of the owner waits.
fn blocking(mut reference: Value) -> Value {
    reference["blockOwnerDeletion"] = json!(true);
    reference
}

/// A key or a workload identity of ada.
fn object(references: &[Value], status: &Value) -> Object {
    Object::from_value(json!({
        "apiVersion": GROUP, "kind": "Any",
        "metadata": { "name": "k", "uid": "uid-k", "ownerReferences": references },
        "spec": { "user": "ada", "owner": { "user": "ada" }, "issuer": "ci", "scope": {} },
        "status": status,
    }))
    .unwrap()
}

/// Prepares a write by a client with a scoped key, so that the key is the maker of the created
/// objects.
fn prepare(kind: &dyn AnyKind, new: &mut Object, old: Option<&Object>) {
    let key = CallerKey {
        name: "maker".to_owned(),
        uid: "m1".to_owned(),
        is_scoped: true,
        ..CallerKey::default()
    };
    let caller = Caller::default();
    let of = Context::of(&caller, Timestamp::from_unix_seconds(1000), &Ada);
    kind.prepare(new, old, &Context { caller_key: Some(&key), ..of }).unwrap();
}

fn references(object: &Object) -> Value {
    let references = object.metadata.owner_references.iter();
    references.map(|one| serde_json::to_value(one).unwrap()).collect()
}

/// The uids of the objects that an object ends with.
fn ties(kind: &dyn AnyKind, object: &Object) -> Vec<String> {
    kind.ties(object).into_iter().map(|one| one.uid).collect()
}

fn status_of(kind: &dyn AnyKind) -> Value {
    let mut status = json!({ "ownerUid": "u1", "maker": { "name": "maker", "uid": "m1" } });
    if kind.info().kind == "OwnedAccessKey" {
        status["workload"] = json!({ "identity": "deploy", "uid": "w1" });
    }
    status
}

const KINDS: [&dyn AnyKind; 2] = [&OwnedAccessKey, &WorkloadIdentity];

#[test]
fn a_new_object_has_ties_and_only_the_owner_references_of_its_client() {
    let (ada, secret) = (reference("User", "ada", "u1"), reference("SharedSecret", "s", "s1"));
    let forged = json!({ "ownerUid": "u9", "maker": { "name": "x", "uid": "x9" } });
    let foreign = json!({ "apiVersion": "x/v1", "kind": "Foo", "name": "x", "uid": "u1" });
    for (sent, kept) in [
        (vec![], vec![]),
        (vec![&secret], vec![&secret]),
        // An earlier version showed this reference to clients.
        (vec![&ada], vec![]),
        (vec![&ada, &secret], vec![&secret]),
        (vec![&reference("User", "ada", "u7"), &secret], vec![&secret]),
        (vec![&reference("OwnedAccessKey", "maker", "m1")], vec![]),
        (
            vec![&reference("OwnedAccessKey", "maker", "m2")],
            vec![&reference("OwnedAccessKey", "maker", "m2")],
        ),
        (vec![&reference("Team", "ada", "t1")], vec![&reference("Team", "ada", "t1")]),
        (vec![&foreign], vec![&foreign]),
        (vec![&blocking(ada.clone())], vec![&blocking(ada.clone())]),
    ] {
        for kind in KINDS {
            let sent: Vec<Value> = sent.iter().map(|one| (*one).clone()).collect();
            let mut new = object(&sent, &forged);
            prepare(kind, &mut new, None);
            assert_eq!(references(&new), json!(kept), "{kind:?}: {sent:?}");
            assert_eq!(ties(kind, &new), ["u1", "m1"], "{kind:?}: {sent:?}");
        }
    }
}

#[test]
fn no_write_changes_the_ties() {
    let (ada, bob) = (reference("User", "ada", "u1"), reference("User", "bob", "u2"));
    let forged = json!({ "ownerUid": "u9", "workload": { "identity": "x", "uid": "x9" } });
    for kind in KINDS {
        let stored = object(&[], &status_of(kind));
        let expected = ties(kind, &stored);
        for status in [&forged, &json!({})] {
            let mut new = object(&[ada.clone(), bob.clone()], status);
            prepare(kind, &mut new, Some(&stored));
            assert_eq!(ties(kind, &new), expected);
            assert_eq!(references(&new), json!([bob]));
        }
        // It does not come back to a later owner of the name.
        let mut new = object(std::slice::from_ref(&ada), &json!({ "ownerUid": "u1" }));
        prepare(kind, &mut new, Some(&object(&[], &json!({}))));
        assert!(ties(kind, &new).is_empty());
    }
}

/// Each stored object of an earlier version: with each subset of these references, and with ties in its status or without.
#[test]
fn a_stored_object_of_an_earlier_version_keeps_its_ties_and_loses_their_references() {
    let all = [
        reference("User", "ada", "u1"),
        reference("User", "ada", "u7"),
        reference("OwnedAccessKey", "maker", "m1"),
        reference("WorkloadIdentity", "deploy", "w1"),
        reference("SharedSecret", "s", "s1"),
        blocking(reference("Team", "ada", "t1")),
    ];
    for kind in KINDS {
        let is_key = kind.info().kind == "OwnedAccessKey";
        for subset in 0..1_usize << all.len() {
            let has = |index: usize| subset & (1 << index) != 0;
            let given: Vec<_> = (0..all.len())
                .filter(|index| has(*index))
                .map(|index| all[index].clone())
                .collect();
            let mut status = status_of(kind);
            status.as_object_mut().unwrap().remove("ownerUid");
            let old = object(&given, &status);
            let upgraded = kind.upgraded(&old.to_json_bytes());
            let is_old_form = has(0) || has(1) || has(2) || (has(3) && is_key);
            assert_eq!(upgraded.is_some(), is_old_form, "{given:?}");
            let new = upgraded.unwrap_or(old);
            // Of two references with the name, it cannot be told which was the server's.
            let owner = match (has(0), has(1)) {
                (true, false) => Some("u1"),
                (false, true) => Some("u7"),
                _ => None,
            };
            let others = ["m1", "w1"].into_iter().take(if is_key { 2 } else { 1 });
            let expected: Vec<&str> = owner.into_iter().chain(others).collect();
            assert_eq!(ties(kind, &new), expected, "{given:?}");
            assert_eq!(kind.owned_by(&new.to_json_bytes()).unwrap().uid, owner.unwrap_or_default());
            let kept = given.iter().filter(|one| {
                one["uid"] == "s1" || one["uid"] == "t1" || one["uid"] == "w1" && !is_key
            });
            assert_eq!(references(&new), kept.cloned().collect::<Value>(), "{given:?}");
            assert!(kind.upgraded(&new.to_json_bytes()).is_none(), "it has the new form");
        }
    }
}

#[test]
fn the_manager_of_a_removed_reference_no_longer_owns_it() {
    let field = |uid: &str| format!("k:{}", json!({ "uid": uid }));
    let managed = |references: Value| {
        let entry =
            |fields: Value| json!([{ "manager": "m", "operation": "Apply", "fieldsV1": fields }]);
        if references.is_null() {
            entry(json!({ "f:spec": { "f:user": {} } }))
        } else {
            let metadata = json!({ "f:ownerReferences": references });
            entry(json!({ "f:metadata": metadata, "f:spec": { "f:user": {} } }))
        }
    };
    let (ada, secret) = (reference("User", "ada", "u1"), reference("SharedSecret", "s", "s1"));
    for (stored, before, after) in [
        (vec![&ada], json!({ ".": {}, field("u1"): {} }), Value::Null),
        (
            vec![&ada, &secret],
            json!({ ".": {}, field("u1"): {}, field("s1"): {} }),
            json!({ ".": {}, field("s1"): {} }),
        ),
    ] {
        let stored: Vec<Value> = stored.into_iter().cloned().collect();
        let mut old = object(&stored, &json!({})).into_value();
        old["metadata"]["managedFields"] = managed(before);
        let upgraded = OwnedAccessKey.upgraded(old.to_string().as_bytes()).unwrap().into_value();
        assert_eq!(upgraded["metadata"]["managedFields"], managed(after));
    }
}

#[test]
fn other_kinds_have_no_ties() {
    let object = object(&[reference("User", "ada", "u1")], &json!({ "ownerUid": "u1" }));
    assert_eq!(SharedSecret.ties(&object), Vec::<OwnerReference>::new());
    assert!(SharedSecret.upgraded(&object.to_json_bytes()).is_none());
    assert!(OwnedAccessKey.upgraded(b"{}").is_none(), "a corrupt object stays as it is");
}
