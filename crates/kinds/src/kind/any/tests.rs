//! Tests of kinds behind [`AnyKind`]: the parts that are read of stored JSON, and the rights on
//! owners.

use crate::Right;
use crate::Verb;
use serde_json::json;

use super::*;
use crate::owned_access_key::OwnedAccessKey;
use crate::principal::{KeyFacts, KeyUse, Lifetime, TeamFacts, UserFacts};
use crate::shared_secret::SharedSecret;
use crate::team::Team;
use crate::user::User;
use crate::workload_identity::WorkloadIdentity;

fn text(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

#[test]
fn an_object_that_gives_no_access_is_a_change_without_facts() {
    let object = text(&json!({ "metadata": { "name": "a", "uid": "u" }, "spec": {} }));
    let terminating = text(&json!({
        "metadata": { "name": "a", "uid": "u", "deletionTimestamp": "2024-01-01T00:00:00Z" },
        "spec": {},
    }));
    let wrong_type = text(&json!({ "metadata": { "name": "a" }, "spec": { "groups": "ops" } }));
    let cut_off = &object[..object.len() - 1];
    let kinds: [(&dyn AnyKind, AccessChange); 3] = [
        (&User, AccessChange::User(None)),
        (&Team, AccessChange::Team(None)),
        (&OwnedAccessKey, AccessChange::Key(None)),
    ];
    for (kind, without_facts) in kinds {
        assert!(kind.has_access_role());
        let change = kind.access_change(Some(&object)).unwrap();
        assert_ne!(change, without_facts, "{kind:?} gives access");
        let none = [None, Some(&terminating[..]), Some(&wrong_type), Some(cut_off), Some(b"")];
        for json in none {
            let change = kind.access_change(json).unwrap();
            assert_eq!(change, without_facts, "{kind:?}: {:?}", json.map(String::from_utf8_lossy));
        }
    }
    assert!(!SharedSecret.has_access_role());
    assert_eq!(SharedSecret.access_change(Some(&object)), None);
    assert_eq!(SharedSecret.access_change(None), None);
}

#[test]
fn a_change_has_the_facts_of_the_object() {
    let change = |kind: &dyn AnyKind, spec: Value| {
        let metadata = json!({
            "name": "a", "uid": "u", "creationTimestamp": "1970-01-01T00:01:40Z",
        });
        let status = json!({ "ownerUid": "uid-ada" });
        let object = json!({ "metadata": metadata, "spec": spec, "status": status });
        kind.access_change(Some(&text(&object))).unwrap()
    };
    let (uid, groups) = ("u".to_owned(), vec!["ops".to_owned()]);
    let user = json!({ "subject": "s", "groups": ["ops"], "disabled": true });
    let facts = UserFacts {
        uid: uid.clone(),
        subject: "s".to_owned(),
        groups: groups.clone(),
        disabled: true,
        ..UserFacts::default()
    };
    assert_eq!(change(&User, user), AccessChange::User(Some(facts)));
    let team = json!({ "users": ["ada"], "groups": ["ops"] });
    let users = vec!["ada".to_owned()];
    let facts =
        TeamFacts { uid: uid.clone(), users, groups: groups.clone(), ..TeamFacts::default() };
    assert_eq!(change(&Team, team), AccessChange::Team(Some(facts)));
    let key = json!({
        "user": "ada", "groups": ["ops"], "ttl": 300, "ttlAfterLastActivity": true, "scope": {},
        "type": "Login",
    });
    let facts = KeyFacts {
        uid,
        owner: Some(Owner::User("ada".to_owned())),
        owner_uid: "uid-ada".to_owned(),
        groups,
        lifetime: Lifetime {
            created_unix_seconds: 100,
            ttl_seconds: 300,
            after_last_activity: true,
            idle_seconds: 0,
        },
        is_login: true,
        scope: Some(std::sync::Arc::default()),
        ..KeyFacts::default()
    };
    assert_eq!(change(&OwnedAccessKey, key), AccessChange::Key(Some(facts)));
}

#[test]
fn the_session_of_a_key_says_what_the_key_is_used_as() {
    let line = json!({ "host": "laptop" });
    for (session, used_as, is_session, is_code, is_command_line) in [
        (Value::Null, KeyUse::Key, false, false, false),
        (json!({}), KeyUse::Session, true, false, false),
        (json!({ "loginCode": true }), KeyUse::LoginCode, true, true, false),
        (json!({ "commandLine": line }), KeyUse::CommandLine, true, false, true),
        (
            json!({ "loginCode": true, "commandLine": line }),
            KeyUse::CommandLineCode,
            true,
            true,
            true,
        ),
    ] {
        let key = json!({ "metadata": { "name": "k" }, "status": { "session": session } });
        let change = OwnedAccessKey.access_change(Some(&text(&key)));
        let Some(AccessChange::Key(Some(facts))) = change else { panic!("{key}: {change:?}") };
        assert_eq!(facts.used_as, used_as, "{key}");
        let answers = (used_as.is_session(), used_as.is_code(), used_as.is_command_line());
        assert_eq!(answers, (is_session, is_code, is_command_line), "{used_as:?}");
    }
}

#[test]
fn the_owner_is_read_from_the_json_of_a_kind_with_delegated_rights() {
    let name = || "a".to_owned();
    let key: &dyn AnyKind = &OwnedAccessKey;
    let rows: [(&dyn AnyKind, Value, Option<Owner>); 7] = [
        (key, json!({ "user": "a" }), Some(Owner::User(name()))),
        (key, json!({ "team": "a" }), Some(Owner::Team(name()))),
        (key, json!({ "subject": "a" }), Some(Owner::Subject(name()))),
        (key, json!({}), None),
        (key, json!({ "user": 1 }), None),
        (&SharedSecret, json!({ "owner": { "user": "a" } }), None),
        (&User, json!({ "subject": "a" }), None),
    ];
    for (kind, spec, owner) in rows {
        let json = text(&json!({ "metadata": { "name": "k" }, "spec": spec }));
        assert_eq!(kind.owner(&json), owner, "{kind:?}: {spec}");
        assert_eq!(kind.owner(&json[..json.len() - 1]), None, "broken JSON");
    }
}

#[test]
fn an_object_is_its_owners_under_the_uid_that_the_server_recorded() {
    let reference = json!({
        "apiVersion": "management.platform.sh/v1", "kind": "User", "name": "ada", "uid": "u2",
    });
    for kind in [&OwnedAccessKey as &dyn AnyKind, &WorkloadIdentity] {
        let user = json!({ "user": "ada", "owner": { "user": "ada" } });
        for (status, uid) in
            [(json!({ "ownerUid": "u1" }), "u1"), (json!({}), ""), (Value::Null, "")]
        {
            let metadata = json!({ "name": "k", "ownerReferences": [reference] });
            let mut object = json!({ "metadata": metadata, "spec": user });
            if !status.is_null() {
                object["status"] = status;
            }
            let owned = kind.owned_by(&text(&object)).unwrap();
            assert_eq!((owned.owner, owned.uid.as_str()), (Owner::User("ada".to_owned()), uid));
        }
    }
}

#[test]
fn the_delegated_right_is_on_a_user_or_team_and_never_on_a_raw_subject() {
    let (user, team) = (Owner::User("ada".to_owned()), Owner::Team("red".to_owned()));
    for (verb, on_owner) in [
        (Verb::Create, "createkey"),
        (Verb::Get, "getkey"),
        (Verb::List, "getkey"),
        (Verb::Watch, "getkey"),
        (Verb::Update, "updatekey"),
        (Verb::Patch, "updatekey"),
        (Verb::Delete, "deletekey"),
        (Verb::DeleteCollection, "deletekey"),
    ] {
        let right = |resource, name| {
            Some(Right::cluster(on_owner, "management.platform.sh", resource, name))
        };
        assert_eq!(OwnedAccessKey.delegated_right(verb, &user), right("users", "ada"));
        assert_eq!(OwnedAccessKey.delegated_right(verb, &team), right("teams", "red"));
        let subject = Owner::Subject("ada".to_owned());
        assert_eq!(OwnedAccessKey.delegated_right(verb, &subject), None);
        assert_eq!(User.delegated_right(verb, &user), None, "not a delegated kind");
    }
}
