//! The permissions of a scoped key on keys: to see them, change them and create others.

use postern_tests::Server;
use postern_tests::objects::{collection, make};
use postern_tests::rights::{merge, path, with_key};
use serde_json::{Value, json};

#[tokio::test]
async fn a_scope_holds_on_what_a_user_has_on_their_own_keys() {
    let server = Server::start().await;
    let admin = server.client();
    make(&admin, "users", "ada", json!({})).await;
    with_key(&admin, "other", json!({ "user": "ada" })).await;
    let of_secrets = json!([{ "group": "management.platform.sh", "resources": ["sharedsecrets"] }]);
    let scope = json!({ "rules": [{ "resources": of_secrets }] });
    let key = with_key(&admin, "scoped", json!({ "user": "ada", "scope": scope })).await;
    for what in [
        "ownedaccesskeys",
        "ownedaccesskeys/other",
        "ownedaccesskeys/scoped",
        "users/ada/accesskeys",
        "users/ada",
        "users",
    ] {
        let reply = key.get(&collection(what)).send().await;
        assert!([403, 404].contains(&reply.status), "{what}: {}", reply.text());
    }
    for (name, spec) in
        [("scoped", json!({ "scope": { "rules": [{}] } })), ("other", json!({ "disabled": true }))]
    {
        let reply = merge(&key, &path("ownedaccesskeys", name), json!({ "spec": spec })).await;
        assert!([403, 404].contains(&reply.status), "{name}: {}", reply.text());
    }
}

#[tokio::test]
async fn a_scoped_key_makes_only_keys_whose_scope_its_own_contains() {
    let server = Server::start().await;
    let admin = server.client();
    make(&admin, "users", "ada", json!({})).await;
    let keys =
        json!({ "group": "management.platform.sh", "resources": ["ownedaccesskeys", "users"] });
    let secrets_only = json!({ "group": "management.platform.sh", "resources": ["sharedsecrets"] });
    let scope = json!({ "rules": [{ "resources": [keys, secrets_only] }] });
    let key = with_key(&admin, "parent", json!({ "user": "ada", "scope": scope })).await;
    let post = async |spec: Value| {
        let reply =
            key.post(&collection("ownedaccesskeys")).json(&json!({ "spec": spec })).send().await;
        (reply.status, reply.text())
    };
    for (spec, code) in [
        (json!({}), 403),
        (json!({ "scope": { "rules": [{}] } }), 403),
        (json!({ "scope": { "allowPlatformCli": true } }), 403),
        (json!({ "scope": { "projects": [{ "project": "*" }] } }), 403),
        (json!({ "scope": { "rules": [{ "resources": [secrets_only], "verbs": ["get"] }] } }), 201),
        (json!({ "scope": {} }), 201),
        (json!({ "scope": {}, "user": "admin" }), 403),
    ] {
        let (status, text) = post(spec.clone()).await;
        assert_eq!(status, code, "{spec}: {text}");
    }
}
