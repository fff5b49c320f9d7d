//! Owners cannot access the keys of other owners, and no value or name is given to two keys.

use postern_tests::Server;
use postern_tests::http::{Client, Response};
use postern_tests::objects::{name_of, version_of};
use postern_tests::status::failure;
use postern_tests::watching::Event;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::secrecy::leak_check::{KEYS, collection, key_path, make, user};

const VALUE: &str = "a-value-of-somebody-0123456789-0123456789";

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(name_of).collect()
}

/// Sends requests about the key of another owner, which all have to be refused.
async fn try_key_of_another_owner(client: &Client, name: &str) -> Vec<(String, Response)> {
    let mut replies = Vec::new();
    for (kind, changes) in [
        ("merge-patch", json!({ "spec": { "user": "ada" } })),
        ("merge-patch", json!({ "spec": { "key": VALUE } })),
        ("merge-patch", json!({ "nonsense": 1 })),
        ("json-patch", json!([{ "op": "test", "path": "/spec/user", "value": "bob" }])),
        ("json-patch", json!([{ "op": "add", "path": "/spec/groups", "value": ["x"] }])),
    ] {
        for query in ["", "?dryRun=All", "?fieldValidation=Strict"] {
            let path = format!("{}{query}", key_path(name));
            let reply = client.patch(&path, kind, &changes).send().await;
            replies.push((format!("{kind} {changes}{query}"), reply));
        }
    }
    let put = json!({ "metadata": { "name": name, "resourceVersion": "1" } });
    replies.push(("PUT".to_owned(), client.put(&key_path(name)).json(&put).send().await));
    for query in ["", "?dryRun=All", "?gracePeriodSeconds=5", "?propagationPolicy=Orphan"] {
        let path = format!("{}{query}", key_path(name));
        replies.push((format!("DELETE {query}"), client.delete(&path).send().await));
        replies.push((format!("GET {query}"), client.get(&key_path(name)).send().await));
    }
    let ask = json!({ "spec": { "accessKey": name } });
    let reply = client.post(&collection("selves")).json(&ask).send().await;
    replies.push(("Self".to_owned(), reply));
    replies
}

#[tokio::test]
async fn no_verb_works_on_the_key_of_another_owner() {
    let server = Server::start().await;
    let admin = server.client();
    let (ada, _bob) = (user(&admin, "ada").await, user(&admin, "bob").await);
    let before = admin.get(&key_path("bob-key")).send().await.expect(200);
    for (what, reply) in try_key_of_another_owner(&ada, "bob-key").await {
        assert_eq!(reply.status, 404, "{what}: {}", reply.text());
        let uid = before["metadata"]["uid"].as_str().unwrap();
        assert!(!reply.text().contains(uid), "{what}: {}", reply.text());
    }
    for (spec, code) in [
        (json!({ "user": "bob" }), 403),
        (json!({ "user": "bob", "key": "short" }), 403),
        (json!({ "user": "nobody" }), 403),
        (json!({ "team": "nobody" }), 403),
        (json!({ "subject": "bob" }), 403),
        (json!({ "groups": ["system:masters"] }), 403),
        (json!({ "groups": ["platform:user:bob"] }), 403),
        (json!({ "user": "ada", "team": "red" }), 422),
    ] {
        for query in ["", "?dryRun=All"] {
            let path = format!("{}{query}", collection(KEYS));
            let reply = ada.post(&path).json(&json!({ "spec": spec })).send().await;
            assert_eq!(reply.status, code, "{spec}: {}", reply.text());
        }
    }
    let after = admin.get(&key_path("bob-key")).send().await.expect(200);
    assert_eq!(version_of(&after), version_of(&before));
}

#[tokio::test]
async fn an_owner_cannot_give_a_key_to_another_owner() {
    let server = Server::start().await;
    let admin = server.client();
    let (ada, _bob) = (user(&admin, "ada").await, user(&admin, "bob").await);
    make(&admin, "teams", "red", json!({})).await;
    let uid = admin.get(&collection("users/admin")).send().await.expect(200);
    let blocking = json!([{
        "apiVersion": "management.platform.sh/v1", "kind": "User", "name": "admin",
        "uid": uid["metadata"]["uid"], "blockOwnerDeletion": true,
    }]);
    for (patch, codes) in [
        (json!({ "spec": { "user": "bob" } }), [403, 422]),
        (json!({ "spec": { "user": null } }), [403, 422]),
        (json!({ "spec": { "user": null, "team": "red" } }), [403, 422]),
        (json!({ "spec": { "user": null, "subject": "bob" } }), [403, 422]),
        (json!({ "spec": { "team": "red" } }), [403, 422]),
        (json!({ "spec": { "groups": ["ops"] } }), [403, 403]),
        (json!({ "metadata": { "name": "bob-key" } }), [400, 400]),
        (json!({ "metadata": { "ownerReferences": blocking } }), [422, 422]),
    ] {
        let reply = ada.patch(&key_path("ada-key"), "merge-patch", &patch).send().await;
        assert!(codes.contains(&reply.status), "{patch}: {}", reply.text());
    }
    let who = ada.get(&collection("selves/me")).send().await.expect(200);
    assert_eq!(who["status"]["user"]["name"], "ada");
    // If a key sets a scope on itself, the scope applies at once, and the key cannot remove it.
    let scope = |scope: Value| json!({ "spec": { "scope": scope } });
    let narrow = ada.patch(&key_path("ada-key"), "merge-patch", &scope(json!({})));
    narrow.send().await.expect(200);
    let widen = ada.patch(&key_path("ada-key"), "merge-patch", &scope(Value::Null));
    assert_eq!(widen.send().await.status, 403);
    for what in ["ownedaccesskeys", "ownedaccesskeys/ada-key", "users/ada/accesskeys"] {
        assert_eq!(ada.get(&collection(what)).send().await.status, 403, "{what}");
    }
    let reply = ada.post(&collection(KEYS)).json(&json!({})).send().await;
    assert_eq!(reply.status, 403);
}

#[tokio::test]
async fn lists_pages_and_old_watches_return_only_own_keys() {
    let server = Server::start().await;
    let admin = server.client();
    let before = admin.get(&collection(KEYS)).send().await.expect(200);
    let ada = user(&admin, "ada").await;
    let start = admin.get(&collection(KEYS)).send().await.expect(200);
    let bob = user(&admin, "bob").await;
    for number in 0..6 {
        for name in ["ada", "bob"] {
            make(&admin, KEYS, &format!("n{number}-{name}"), json!({ "user": name })).await;
        }
    }
    let then = version_of(&admin.get(&collection(KEYS)).send().await.expect(200));
    let deleted = bob.delete(&collection(KEYS)).send().await.expect(200);
    assert_eq!(deleted["items"].as_array().unwrap().len(), 7);
    let mut own = vec!["ada-key".to_owned()];
    own.extend((0..6).map(|number| format!("n{number}-ada")));
    for query in [
        format!("?resourceVersion={then}&resourceVersionMatch=Exact"),
        "?fieldSelector=metadata.name%21%3Dx".to_owned(),
        "?resourceVersion=0".to_owned(),
    ] {
        let list = ada.get(&format!("{}{query}", collection(KEYS))).send().await.expect(200);
        assert_eq!(names(&list), own, "{query}");
    }
    let (mut paged, mut query) = (Vec::new(), "?limit=2".to_owned());
    loop {
        let list = ada.get(&format!("{}{query}", collection(KEYS))).send().await.expect(200);
        paged.extend(names(&list).into_iter().map(str::to_owned));
        assert!(
            list["metadata"].get("remainingItemCount").is_none(),
            "it would count the keys of others"
        );
        let Some(token) = list["metadata"]["continue"].as_str() else { break };
        query = format!("?limit=2&continue={token}");
    }
    assert_eq!(paged, own);
    let since = format!("&resourceVersion={}&timeoutSeconds=1", version_of(&start));
    let events = ada.watch(&collection(KEYS), &since).await.rest().await;
    let mut events: Vec<String> = events.iter().map(Event::summary).collect();
    events.sort();
    let since_start = own.iter().filter(|name| *name != "ada-key");
    let wanted: Vec<String> = since_start.map(|name| format!("ADDED {name}")).collect();
    assert_eq!(events, wanted);
    // Before their key was there it might read nothing: since then, they have to list.
    let since = format!("&resourceVersion={}", version_of(&before));
    let last = ada.watch(&collection(KEYS), &since).await.rest().await.pop().unwrap();
    assert_eq!((last.kind.as_str(), &last.object["code"]), ("ERROR", &json!(410)));
}

#[tokio::test]
async fn a_value_and_a_name_are_unique() {
    let server = Server::start().await;
    let admin = server.client();
    let create_concurrently = async |objects: Vec<Value>| {
        let mut tasks = JoinSet::new();
        for object in objects {
            let client = admin.clone();
            tasks.spawn(
                async move { client.post(&collection(KEYS)).json(&object).send().await.status },
            );
        }
        let mut codes = tasks.join_all().await;
        codes.sort_unstable();
        codes
    };
    let named = |name: String, spec: Value| json!({ "metadata": { "name": name }, "spec": spec });
    let same_value = (0..8).map(|n| named(format!("v{n}"), json!({ "key": VALUE })));
    let once = [201, 409, 409, 409, 409, 409, 409, 409];
    assert_eq!(create_concurrently(same_value.collect()).await, once);
    let who = admin.with_token(VALUE).get(&collection("selves/me")).send().await.expect(200);
    assert!(who["status"]["accessKey"].as_str().unwrap().starts_with('v'));
    let same_name = (0..8).map(|_| named("same".to_owned(), json!({})));
    assert_eq!(create_concurrently(same_name.collect()).await, once);
}

#[tokio::test]
async fn concurrent_rotations_leave_one_valid_value() {
    let server = Server::start().await;
    let admin = server.client();
    make(&admin, KEYS, "rotated", json!({})).await;
    let value = |number: usize| format!("{VALUE}-{number}");
    let mut tasks = JoinSet::new();
    for number in 0..8 {
        let (client, patch) = (admin.clone(), json!({ "spec": { "key": value(number) } }));
        tasks.spawn(async move {
            client.patch(&key_path("rotated"), "merge-patch", &patch).send().await.expect(200);
        });
    }
    tasks.join_all().await;
    let mut working = 0;
    for number in 0..8 {
        let client = admin.with_token(&value(number));
        let reply = client.get(&collection("selves/me")).send().await;
        working += usize::from(reply.status == 200);
        assert!([200, 401].contains(&reply.status));
    }
    assert_eq!(working, 1);
}

#[tokio::test]
async fn watches_end_with_the_key() {
    let server = Server::start().await;
    let admin = server.client();
    make(&admin, "users", "ada", json!({})).await;
    for (name, text) in [
        ("shortened", "access key expired"),
        ("rotated", "access key not found"),
        ("deleted", "access key not found"),
    ] {
        let key = make(&admin, KEYS, name, json!({ "user": "ada", "ttl": 3600 })).await;
        let client = admin.with_token(key["spec"]["key"].as_str().unwrap());
        let mut watch = client.watch(&collection(KEYS), "").await;
        assert_eq!(watch.next().await.unwrap().kind, "ADDED");
        let change = match name {
            "shortened" => json!({ "spec": { "ttl": 1 } }),
            _ => json!({ "spec": { "key": VALUE } }),
        };
        let request = match name {
            "deleted" => admin.delete(&key_path(name)),
            _ => admin.patch(&key_path(name), "merge-patch", &change),
        };
        request.send().await.expect(200);
        let last = watch.rest().await.pop().unwrap();
        assert_eq!((last.kind.as_str(), &last.object["code"]), ("ERROR", &json!(401)), "{name}");
        let reply = client.get(&collection("selves/me")).send().await;
        assert!(failure(&reply).contains(text), "{name}");
    }
}
