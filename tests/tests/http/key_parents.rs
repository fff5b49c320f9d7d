//! Parents of access keys, and the fields of keys that have no effect.

use postern_tests::Server;
use postern_tests::objects::{collection, make};
use postern_tests::rights::{merge, path, set, user, with_key};
use serde_json::{Value, json};

const KEYS: &str = "ownedaccesskeys";

#[tokio::test]
async fn a_key_ends_with_its_parent() {
    let server = Server::start().await;
    let admin = server.client();
    user(&admin, "ada").await;
    let parent = with_key(&admin, "parent", json!({ "user": "ada" })).await;
    let child = with_key(&admin, "child", json!({ "user": "ada", "parent": "parent" })).await;
    let selves = collection("selves");
    let ask = || child.post(&selves).json(&json!({}));
    ask().send().await.expect(201);
    let stored = admin.get(&path(KEYS, "child")).send().await.expect(200);
    let of_parent = admin.get(&path(KEYS, "parent")).send().await.expect(200);
    assert_eq!(stored["status"]["parentUid"], of_parent["metadata"]["uid"]);

    set(&admin, &path(KEYS, "parent"), json!({ "disabled": true })).await;
    ask().send().await.expect(401);
    set(&admin, &path(KEYS, "parent"), json!({ "disabled": false })).await;
    ask().send().await.expect(201);

    // The key cannot free itself. Its owner can, as with the creation of a key.
    let free = json!({ "spec": { "parent": null } });
    merge(&child, &path(KEYS, "child"), free.clone()).await.expect(403);
    merge(&parent, &path(KEYS, "child"), free).await.expect(200);
    set(&admin, &path(KEYS, "parent"), json!({ "disabled": true })).await;
    ask().send().await.expect(201);
    set(&admin, &path(KEYS, "child"), json!({ "parent": "parent" })).await;
    ask().send().await.expect(401);
    set(&admin, &path(KEYS, "parent"), json!({ "disabled": false })).await;
    ask().send().await.expect(201);

    // A later key of the same name is another one.
    admin.delete(&path(KEYS, "parent")).send().await.expect(200);
    ask().send().await.expect(401);
    with_key(&admin, "parent", json!({ "user": "ada" })).await;
    ask().send().await.expect(401);
}

#[tokio::test]
async fn a_parent_is_another_key_of_the_same_owner() {
    let server = Server::start().await;
    let admin = server.client();
    for name in ["ada", "bob"] {
        user(&admin, name).await;
    }
    make(&admin, KEYS, "of-bob", json!({ "user": "bob" })).await;
    for parent in ["of-bob", "none", "own"] {
        let spec = json!({ "user": "ada", "parent": parent });
        let key = json!({ "metadata": { "name": "own" }, "spec": spec });
        let reply = admin.post(&collection(KEYS)).json(&key).send().await.expect(422);
        let message = reply["message"].as_str().unwrap();
        assert!(message.contains("another access key of the same owner"), "{message}");
    }
    make(&admin, KEYS, "own", json!({ "user": "ada" })).await;
    for parent in ["own", "of-bob"] {
        let body = json!({ "spec": { "parent": parent } });
        merge(&admin, &path(KEYS, "own"), body).await.expect(422);
    }
}

#[tokio::test]
async fn what_has_no_effect_gets_a_warning_when_it_is_created() {
    let server = Server::start().await;
    let admin = server.client();
    user(&admin, "ada").await;
    let create = async |resource: &str, name: &str, spec: Value| {
        let object = json!({ "metadata": { "name": name }, "spec": spec });
        let reply = admin.post(&collection(resource)).json(&object).send().await;
        assert_eq!(reply.status, 201, "{name}");
        let text = |one: String| one.replacen("299 - ", "", 1).replace(['\\', '"'], "");
        reply.warnings().into_iter().map(text).collect::<Vec<_>>()
    };
    for kind in ["Other", "Reset", "OIDCRefreshToken", "NetworkPeer", "Workspace"] {
        let name = kind.to_lowercase();
        let warnings = create(KEYS, &name, json!({ "user": "ada", "type": kind })).await;
        let expected = format!("spec.type: the value {kind} is kept and has no effect");
        assert_eq!(warnings, [expected]);
    }
    let spec = json!({ "user": "ada", "oidcLogin": { "idToken": "t" }, "type": "Login" });
    assert_eq!(create(KEYS, "sso", spec).await, ["spec.oidcLogin is kept and has no effect"]);
    let access = json!([{ "verbs": ["get"], "subresources": ["charts"], "users": ["ada"] }]);
    let warnings = create("projects", "p", json!({ "access": access })).await;
    let expected = "spec.access[0].subresources: the value charts is kept and has no effect";
    assert_eq!(warnings, [expected]);
    assert_eq!(create(KEYS, "plain", json!({ "user": "ada" })).await, [""; 0]);
    // A change that leaves it as it is gets none.
    let body = json!({ "spec": { "displayName": "x" } });
    assert_eq!(merge(&admin, &path(KEYS, "sso"), body).await.warnings(), [""; 0]);
}

/// With circles and chains, a user could make changes of a key cost more and more. A session acts as the key that began it,
/// so a parent of the session alone would end nothing that it creates.
#[tokio::test]
async fn circles_of_parents_and_parents_of_sessions_are_refused() {
    let server = Server::start().await;
    let admin = server.client();
    user(&admin, "ada").await;
    let one = with_key(&admin, "one", json!({ "user": "ada" })).await;
    with_key(&admin, "two", json!({ "user": "ada", "parent": "one" })).await;
    with_key(&admin, "three", json!({ "user": "ada", "parent": "two" })).await;
    let parent = |name: &str| json!({ "spec": { "parent": name } });
    let refused = merge(&admin, &path(KEYS, "one"), parent("three")).await.expect(422);
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("which does not end with this key"), "{message}");
    one.post(&collection("selves")).json(&json!({})).send().await.expect(201);

    one.post("/auth/session").send().await.expect(201);
    let sessions = format!("{}?labelSelector=platform.sh/session", collection(KEYS));
    let listed = admin.get(&sessions).send().await.expect(200);
    let session = listed["items"][0]["metadata"]["name"].as_str().unwrap();
    let refused = merge(&admin, &path(KEYS, session), parent("two")).await.expect(422);
    assert!(refused["message"].as_str().unwrap().contains("have no parent"), "{refused}");
}
