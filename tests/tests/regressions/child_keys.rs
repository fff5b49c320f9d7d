//! A key that a scoped key made ends with its maker. It does not matter how the maker ends, or how
//! a client changes the reference to it.

use std::time::Duration;

use postern_tests::http::Client;
use postern_tests::objects::{make, secret, secret_path, secrets};
use postern_tests::rights::{merge, set, user, with_key};
use postern_tests::{Home, Server, Setup};
use serde_json::{Value, json};

use crate::regressions::scene::{
    Findings, KEYS, code_of, comes_true, comes_true_within, is_refused_soon, key_path, remove,
    until_gone, wait_for_collector,
};

/// A scope that allows everything that the owner may do.
fn everything() -> Value {
    json!({ "rules": [{}] })
}

/// Creates a key of ada's with a scope, and a key that it makes. Both have the suffix in their names.
async fn family(admin: &Client, suffix: &str) -> (Client, Client) {
    let spec = json!({ "user": "ada", "scope": everything() });
    let parent = with_key(admin, &format!("parent{suffix}"), spec).await;
    let child =
        with_key(&parent, &format!("child{suffix}"), json!({ "scope": everything() })).await;
    assert_eq!(code_of(&child).await, 200);
    (parent, child)
}

#[tokio::test]
async fn a_key_whose_maker_is_deleted_stays_invalid() {
    let server = Server::start().await;
    let admin = server.client();
    user(&admin, "ada").await;
    let mut found = Findings::new();
    for policy in ["", "Background", "Foreground", "Orphan"] {
        let suffix = format!("-{}", policy.to_lowercase());
        let (_, child) = family(&admin, suffix.trim_end_matches('-')).await;
        let suffix = suffix.trim_end_matches('-');
        let query =
            if policy.is_empty() { String::new() } else { format!("?propagationPolicy={policy}") };
        let path = format!("{}{query}", key_path(&format!("parent{suffix}")));
        admin.delete(&path).send().await.expect(200);
        wait_for_collector(&admin).await;
        until_gone(&admin, &key_path(&format!("parent{suffix}"))).await;
        let code = code_of(&child).await;
        found.check(code == 401, format!("{policy:?}: the child's code is {code}"));
        let path = key_path(&format!("child{suffix}"));
        let gone = async || admin.get(&path).send().await.status == 404;
        found.check(comes_true(gone).await, format!("{policy:?}: the collector keeps the child"));
    }
    found.assert_none();
}

#[tokio::test]
async fn a_key_of_a_team_whose_maker_is_deleted_stays_invalid() {
    let server = Server::start().await;
    let admin = server.client();
    make(&admin, "teams", "red", json!({})).await;
    let parent = with_key(&admin, "parent", json!({ "team": "red", "scope": everything() })).await;
    let child = with_key(&parent, "child", json!({ "scope": everything() })).await;
    assert_eq!(code_of(&child).await, 200);
    remove(&admin, &key_path("parent")).await;
    wait_for_collector(&admin).await;
    assert_eq!(code_of(&child).await, 401);
}

#[tokio::test]
async fn a_key_whose_maker_was_disabled_or_narrowed_and_then_deleted_stays_invalid() {
    let server = Server::start().await;
    let admin = server.client();
    user(&admin, "ada").await;
    let mut found = Findings::new();
    for (suffix, change) in [
        ("-disabled", json!({ "disabled": true })),
        ("-narrowed", json!({ "scope": { "rules": [{ "verbs": ["list"] }] } })),
    ] {
        let (_, child) = family(&admin, suffix).await;
        set(&admin, &key_path(&format!("parent{suffix}")), change).await;
        let write = child.post(&secrets("platform")).json(&secret("s", "x")).send().await;
        assert!([401, 403].contains(&write.status), "{suffix}: {}", write.text());
        remove(&admin, &key_path(&format!("parent{suffix}"))).await;
        wait_for_collector(&admin).await;
        let code = code_of(&child).await;
        found.check(code == 401, format!("{suffix}: the child's code is {code}"));
    }
    found.assert_none();
}

#[tokio::test]
async fn a_grandchild_of_a_deleted_key_stays_invalid() {
    let server = Server::start().await;
    let admin = server.client();
    user(&admin, "ada").await;
    let mut found = Findings::new();
    for (suffix, removed) in [("-1", "parent-1"), ("-2", "child-2")] {
        let (_, child) = family(&admin, suffix).await;
        let name = format!("grandchild{suffix}");
        let grandchild = with_key(&child, &name, json!({ "scope": everything() })).await;
        assert_eq!(code_of(&grandchild).await, 200);
        for policy in ["Orphan", ""] {
            let query = if policy.is_empty() { "" } else { "?propagationPolicy=Orphan" };
            let path = format!("{}{query}", key_path(removed));
            let status = admin.delete(&path).send().await.status;
            assert!([200, 404].contains(&status), "{status}");
            wait_for_collector(&admin).await;
            let code = code_of(&grandchild).await;
            found.check(code == 401, format!("{removed} deleted: the grandchild's code is {code}"));
        }
    }
    found.assert_none();
}

#[tokio::test]
async fn a_key_whose_expired_maker_is_removed_by_the_server_stays_invalid() {
    let setup = Setup::on(&Home::new()).argument("--expired-key-retention=1s");
    let mut server = setup.clone().start().await;
    let admin = server.client();
    user(&admin, "ada").await;
    let (parent, child) = family(&admin, "").await;
    // The maker's life is shortened afterwards, and the child's own has no end.
    set(&admin, &key_path("parent"), json!({ "ttl": 1 })).await;
    assert!(is_refused_soon(&parent).await);
    assert_eq!(code_of(&child).await, 401, "its maker has expired");
    // The server looks for expired keys when it starts, and then once a minute.
    let limit = Duration::from_secs(2);
    for _ in 0..30 {
        server.stop().await;
        server = setup.clone().start().await;
        let admin = server.client();
        let gone = async || admin.get(&key_path("parent")).send().await.status == 404;
        if comes_true_within(limit, gone).await {
            wait_for_collector(&admin).await;
            let child = admin.with_token(child.token());
            assert_eq!(code_of(&child).await, 401, "its maker was removed");
            return;
        }
    }
    panic!("the server does not remove the expired maker");
}

#[tokio::test]
async fn a_key_stays_invalid_when_a_namesake_of_its_maker_is_made() {
    let server = Server::start().await;
    let admin = server.client();
    user(&admin, "ada").await;
    let (_, child) = family(&admin, "").await;
    remove(&admin, &key_path("parent")).await;
    with_key(&admin, "parent", json!({ "user": "ada", "scope": everything() })).await;
    wait_for_collector(&admin).await;
    assert_eq!(code_of(&child).await, 401);
}

#[tokio::test]
async fn a_key_whose_maker_is_gone_is_invalid_after_a_restart_and_cannot_be_enabled_or_replaced() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    let admin = server.client();
    user(&admin, "ada").await;
    let (_, child) = family(&admin, "").await;
    // A finalizer keeps the object of the child from being collected.
    let hold = json!({ "metadata": { "finalizers": ["example.com/hold"] } });
    merge(&admin, &key_path("child"), hold).await.expect(200);
    remove(&admin, &key_path("parent")).await;
    wait_for_collector(&admin).await;
    let mut found = Findings::new();
    found.check(code_of(&child).await == 401, "the maker is deleted");
    let value = "canary-0123456789-0123456789-0123456789";
    merge(&admin, &key_path("child"), json!({ "spec": { "disabled": false } })).await;
    found.check(code_of(&child).await == 401, "enabled by the administrator");
    merge(&admin, &key_path("child"), json!({ "spec": { "key": value } })).await;
    found.check(code_of(&child.with_token(value)).await == 401, "a new value");
    server.stop().await;
    let server = Setup::on(&home).start().await;
    for token in [child.token(), value] {
        let code = code_of(&server.client().with_token(token)).await;
        found.check(code == 401, format!("{code} after a restart"));
    }
    found.assert_none();
}

/// The bodies that try to take a key away from its maker.
fn attempts(object: &Value, stranger: &Value) -> Vec<(&'static str, String, Value)> {
    let reference = json!([{ "apiVersion": "management.platform.sh/v1", "kind": "OwnedAccessKey",
        "name": "stranger", "uid": stranger["metadata"]["uid"] }]);
    let with = |references: Value| {
        let mut object = object.clone();
        object["metadata"]["ownerReferences"] = references;
        object
    };
    vec![
        ("merge-patch", "merge: null".into(), json!({ "metadata": { "ownerReferences": null } })),
        ("merge-patch", "merge: empty".into(), json!({ "metadata": { "ownerReferences": [] } })),
        (
            "merge-patch",
            "merge: another".into(),
            json!({ "metadata": { "ownerReferences": reference } }),
        ),
        (
            "json-patch",
            "JSON Patch: remove".into(),
            json!([{ "op": "remove", "path": "/metadata/ownerReferences" }]),
        ),
        (
            "strategic-merge-patch",
            "strategic: replace".into(),
            json!({ "metadata": { "ownerReferences": [{ "$patch": "replace" }] } }),
        ),
        ("put", "PUT without".into(), with(Value::Null)),
        ("put", "PUT with another".into(), with(reference)),
    ]
}

#[tokio::test]
async fn no_write_takes_a_key_away_from_its_maker() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let stranger = make(&admin, KEYS, "stranger", json!({ "user": "ada" })).await;
    let mut found = Findings::new();
    let count = attempts(&json!({ "metadata": {} }), &stranger).len();
    for index in 0..count {
        let suffix = format!("-{index}");
        let (_, child) = family(&admin, &suffix).await;
        let path = key_path(&format!("child{suffix}"));
        for writer in [&child, &ada, &admin] {
            let object = admin.get(&path).send().await.expect(200);
            let (kind, _, body) = attempts(&object, &stranger).swap_remove(index);
            // Whether it is refused or ignored, the child stays the maker's.
            if kind == "put" {
                writer.put(&path).json(&body).send().await;
            } else {
                writer.patch(&path, kind, &body).send().await;
            }
        }
        let what = attempts(&json!({ "metadata": {} }), &stranger).swap_remove(index).1;
        set(&admin, &key_path(&format!("parent{suffix}")), json!({ "disabled": true })).await;
        let code = code_of(&child).await;
        found.check(
            code == 401,
            format!("{what}: with a disabled maker, the child's code is {code}"),
        );
        remove(&admin, &key_path(&format!("parent{suffix}"))).await;
        wait_for_collector(&admin).await;
        let code = code_of(&child).await;
        found.check(
            code == 401,
            format!("{what}: with a deleted maker, the child's code is {code}"),
        );
    }
    found.assert_none();
}

#[tokio::test]
async fn an_apply_does_not_take_a_key_away_from_its_maker() {
    let server = Server::start().await;
    let admin = server.client();
    user(&admin, "ada").await;
    let spec = json!({ "user": "ada", "scope": everything() });
    let parent = with_key(&admin, "parent", spec).await;
    let value = "canary-0123456789-0123456789-0123456789";
    let object = json!({ "apiVersion": "management.platform.sh/v1", "kind": "OwnedAccessKey",
        "metadata": { "name": "child" },
        "spec": { "user": "ada", "key": value, "scope": everything() } });
    let apply = |client: &Client, object: &Value, manager: &str| {
        let path = format!("{}?fieldManager={manager}&force=true", key_path("child"));
        let body = object.to_string();
        let client = client.clone();
        async move {
            client.request("PATCH", &path).body("application/apply-patch+yaml", body).send().await
        }
    };
    apply(&parent, &object, "mine").await.expect(201);
    let child = admin.with_token(value);
    assert_eq!(code_of(&child).await, 200);
    let mut emptied = object.clone();
    emptied["metadata"]["ownerReferences"] = json!([]);
    apply(&admin, &emptied, "other").await;
    apply(&admin, &object, "mine").await;
    set(&admin, &key_path("parent"), json!({ "disabled": true })).await;
    assert_eq!(code_of(&child).await, 401, "its maker is disabled");
    remove(&admin, &key_path("parent")).await;
    wait_for_collector(&admin).await;
    assert_eq!(code_of(&child).await, 401, "its maker is deleted");
}

#[tokio::test]
async fn a_child_of_a_narrowed_key_is_narrow_whatever_references_it_has() {
    let server = Server::start().await;
    let admin = server.client();
    user(&admin, "admin-two").await;
    let masters = json!({ "groups": ["system:masters"] });
    set(&admin, &postern_tests::rights::path("users", "admin-two"), masters).await;
    let spec = json!({ "user": "admin-two", "scope": everything() });
    let parent = with_key(&admin, "parent", spec).await;
    let child = with_key(&parent, "child", json!({ "scope": everything() })).await;
    admin.post(&secrets("platform")).json(&secret("s", "x")).send().await.expect(201);
    child.get(&secret_path("s")).send().await.expect(200);
    let narrow = json!({ "scope": { "rules": [{ "verbs": ["list"] }] } });
    set(&admin, &key_path("parent"), narrow).await;
    let none = json!({ "metadata": { "ownerReferences": null } });
    merge(&admin, &key_path("child"), none).await;
    wait_for_collector(&admin).await;
    // An object that the key may not read is reported as 404.
    assert_eq!(child.get(&secret_path("s")).send().await.status, 404);
    remove(&admin, &key_path("parent")).await;
    wait_for_collector(&admin).await;
    assert_eq!(child.get(&secret_path("s")).send().await.status, 401);
}

#[tokio::test]
async fn a_watch_of_a_key_ends_with_the_maker_of_the_key() {
    let server = Server::start().await;
    let admin = server.client();
    user(&admin, "ada").await;
    let mut found = Findings::new();
    for change in ["deleted", "disabled", "expired"] {
        let suffix = format!("-{change}");
        let (_, child) = family(&admin, &suffix).await;
        let mut watch = child.watch(&secrets("platform"), "").await;
        let parent = key_path(&format!("parent{suffix}"));
        match change {
            "deleted" => remove(&admin, &parent).await,
            "disabled" => drop(set(&admin, &parent, json!({ "disabled": true })).await),
            _ => drop(set(&admin, &parent, json!({ "ttl": 1 })).await),
        }
        let ended = tokio::time::timeout(Duration::from_secs(10), watch.rest()).await;
        let last = ended.ok().and_then(|events| Some(events.last()?.object["code"].clone()));
        found.check(last == Some(json!(401)), format!("the maker is {change}: {last:?}"));
    }
    found.assert_none();
}
