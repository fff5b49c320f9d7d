//! Regression tests: each mistake was made once.

use postern_tests::http::Client;
use postern_tests::objects::{based, version_of};
use postern_tests::slow::slow_body;
use postern_tests::{Home, Server, Setup, wait};
use serde_json::{Value, json};

use crate::secrecy::leak_check::{KEYS, collection, key_path, make, user};

async fn who(client: &Client) -> (u16, Value) {
    let reply = client.get(&collection("selves/me")).send().await;
    (reply.status, reply.json())
}

#[tokio::test]
async fn a_deleted_key_is_invalid_at_once_despite_a_finalizer() {
    let server = Server::start().await;
    let admin = server.client();
    for (number, query) in
        ["", "?gracePeriodSeconds=3600", "?propagationPolicy=Foreground"].iter().enumerate()
    {
        let name = format!("user-{number}");
        let client = user(&admin, &name).await;
        let key = key_path(&format!("{name}-key"));
        let finalizers = json!({ "metadata": { "finalizers": ["example.com/held"] } });
        client.patch(&key, "merge-patch", &finalizers).send().await.expect(200);
        admin.delete(&format!("{key}{query}")).send().await.expect(200);
        assert_eq!(who(&client).await.0, 401, "{query}");
    }
}

#[tokio::test]
async fn keys_of_a_deleted_user_are_invalid_at_once_despite_a_finalizer() {
    let server = Server::start().await;
    let admin = server.client();
    let client = user(&admin, "ada").await;
    let finalizers = json!({ "metadata": { "finalizers": ["example.com/held"] } });
    let path = collection("users/ada");
    admin.patch(&path, "merge-patch", &finalizers).send().await.expect(200);
    admin.delete(&path).send().await.expect(200);
    assert_eq!(who(&client).await.0, 401);
}

#[tokio::test]
async fn a_new_user_with_an_old_name_is_in_no_team() {
    let server = Server::start().await;
    let admin = server.client();
    user(&admin, "ada").await;
    make(&admin, "teams", "red", json!({ "users": ["ada"], "groups": ["ops"] })).await;
    admin.delete(&collection("users/ada")).send().await.expect(200);
    make(&admin, "users", "ada", json!({})).await;
    let key = make(&admin, KEYS, "new", json!({ "user": "ada" })).await;
    let client = admin.with_token(key["spec"]["key"].as_str().unwrap());
    let groups = who(&client).await.1["status"]["groups"].to_string();
    assert!(!groups.contains("ops") && !groups.contains("platform:team:red"), "{groups}");
}

#[tokio::test]
async fn preconditions_reveal_nothing_about_the_keys_of_others() {
    let server = Server::start().await;
    let admin = server.client();
    let (ada, _bob) = (user(&admin, "ada").await, user(&admin, "bob").await);
    for preconditions in [json!({ "uid": "x" }), json!({ "resourceVersion": "1" })] {
        let options = json!({ "preconditions": preconditions });
        let reply = ada.delete(&key_path("bob-key")).json(&options).send().await;
        assert_eq!(reply.status, 404, "{}", reply.text());
    }
}

#[tokio::test]
async fn an_old_list_does_not_have_the_last_use_of_a_newer_key() {
    let server = Server::start().await;
    let admin = server.client();
    let bob = user(&admin, "bob").await;
    make(&admin, KEYS, "shared", json!({ "user": "bob" })).await;
    let then = version_of(&admin.get(&collection(KEYS)).send().await.expect(200));
    admin.delete(&key_path("shared")).send().await.expect(200);
    let key = make(&admin, KEYS, "shared", json!({})).await;
    who(&admin.with_token(key["spec"]["key"].as_str().unwrap())).await;
    let past = format!("{}?resourceVersion={then}&resourceVersionMatch=Exact", collection(KEYS));
    let list = bob.get(&past).send().await.expect(200);
    let items = list["items"].as_array().unwrap();
    let shared = items.iter().find(|item| item["metadata"]["name"] == "shared").unwrap();
    assert!(shared["status"]["lastActivity"].is_null(), "it was never used");
}

#[tokio::test]
async fn a_too_long_subject_is_a_client_error() {
    let server = Server::start().await;
    let object = json!({ "metadata": { "name": "ada" }, "spec": { "subject": "x".repeat(5000) } });
    let reply = server.client().post(&collection("users")).json(&object).send().await;
    assert_eq!(reply.status, 422, "{}", reply.text());
    assert!(reply.text().contains("spec.subject"), "{}", reply.text());
}

#[tokio::test]
async fn errors_name_invalid_times() {
    let server = Server::start().await;
    for (spec, field) in [
        (json!({ "identityRefresh": "x" }), "spec.identityRefresh"),
        (json!({ "identity": { "identityRefresh": "x" } }), "spec.identity.identityRefresh"),
        (json!({ "oidcLogin": { "lastRefresh": "x" } }), "spec.oidcLogin.lastRefresh"),
    ] {
        let object = json!({ "spec": spec });
        let reply = server.client().post(&collection(KEYS)).json(&object).send().await;
        assert_eq!(reply.status, 400, "{}", reply.text());
        assert!(reply.text().contains(field), "{}", reply.text());
    }
}

#[tokio::test]
async fn the_list_of_an_owners_keys_supports_limit_and_selectors() {
    let server = Server::start().await;
    let client = server.client();
    make(&client, KEYS, "second", json!({})).await;
    let of_owner = collection("users/admin/accesskeys");
    for (query, count) in [("?limit=1", 1), ("?labelSelector=none", 0)] {
        let list = client.get(&format!("{of_owner}{query}")).send().await.expect(200);
        assert_eq!(list["items"].as_array().unwrap().len(), count, "{query}");
    }
}

#[tokio::test]
async fn write_only_fields_are_removed_from_sent_managed_fields() {
    let server = Server::start().await;
    let fields = json!({ "f:spec": { "f:key": {}, "f:displayName": {} } });
    let object = json!({
        "metadata": { "managedFields": [{
            "manager": "somebody", "operation": "Update", "fieldsType": "FieldsV1",
            "apiVersion": "management.platform.sh/v1", "fieldsV1": fields,
        }] },
        "spec": { "displayName": "d" },
    });
    let made = server.client().post(&collection(KEYS)).json(&object).send().await.expect(201);
    assert!(!made["metadata"]["managedFields"].to_string().contains("f:key"), "{made}");
}

#[tokio::test]
async fn applying_the_same_object_again_is_unchanged() {
    let server = Server::start().await;
    let kubectl = server.kubectl();
    let object = json!({
        "apiVersion": "management.platform.sh/v1", "kind": "OwnedAccessKey",
        "metadata": { "name": "applied" }, "spec": { "user": "admin", "displayName": "one" },
    });
    let file = kubectl.file("key.json", &object.to_string());
    kubectl.ok(&["apply", "-f", &file]).await;
    let again = kubectl.ok(&["apply", "-f", &file]).await;
    assert!(again.contains("unchanged"), "{again}");
}

#[tokio::test]
async fn a_key_disabled_during_a_request_cannot_create_a_key() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let object = json!({ "metadata": { "name": "successor" }, "spec": { "user": "ada" } });
    let (finish, body) = slow_body(&object);
    let request = tokio::spawn(async move {
        ada.post(&collection(KEYS)).streamed("application/json", body).try_send().await
    });
    wait::until("the body to be on its way", async || {
        let metrics = admin.get(&based("/metrics")).send().await.text();
        (!metrics.contains("\npostern_request_body_bytes 0\n")).then_some(())
    })
    .await;
    let disabled = json!({ "spec": { "disabled": true } });
    // Only afterwards: another write would change the metric above.
    admin.patch(&key_path("ada-key"), "merge-patch", &disabled).send().await.expect(200);
    finish.send(()).unwrap();
    let reply = request.await.unwrap().unwrap();
    assert_eq!(reply.status, 401, "{}", reply.text());
    admin.get(&key_path("successor")).send().await.expect(404);
}

#[tokio::test]
async fn a_key_with_a_comma_works() {
    let server = Server::start().await;
    let admin = server.client();
    let value = "given,0123456789,abcdefghijklmnopqrstuvwxyz";
    make(&admin, KEYS, "comma", json!({ "user": "admin", "key": value })).await;
    assert_eq!(who(&admin.with_token(value)).await.0, 200);
}

#[tokio::test]
async fn a_maximum_ttl_does_not_affect_older_keys_without_ttl() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    make(&server.client(), KEYS, "ever", json!({ "user": "admin" })).await;
    make(&server.client(), KEYS, "short", json!({ "user": "admin", "ttl": 600 })).await;
    server.stop().await;
    let server = Setup::on(&home).argument("--access-key-max-ttl=1h").start().await;
    let admin = server.client();
    let label = json!({ "metadata": { "labels": { "a": "b" } } });
    let ever = admin.patch(&key_path("ever"), "merge-patch", &label).send().await.expect(200);
    assert_eq!(ever["spec"]["ttl"], Value::Null, "{ever}");
    let none = json!({ "spec": { "ttl": 0 } });
    let short = admin.patch(&key_path("short"), "merge-patch", &none).send().await.expect(200);
    assert_eq!(short["spec"]["ttl"], 3600, "a key cannot become one without ttl");
    let new = make(&admin, KEYS, "new", json!({ "user": "admin" })).await;
    assert_eq!(new["spec"]["ttl"], 3600);
}

#[tokio::test]
async fn a_foreign_owner_reference_does_not_replace_the_owner() {
    let server = Server::start().await;
    let admin = server.client();
    user(&admin, "ada").await;
    let uid =
        admin.get(&collection("users/ada")).send().await.expect(200)["metadata"]["uid"].clone();
    let elsewhere = json!([{ "apiVersion": "x/v1", "kind": "Foo", "name": "x", "uid": uid }]);
    let patch = json!({ "metadata": { "ownerReferences": elsewhere } });
    admin.patch(&key_path("ada-key"), "merge-patch", &patch).send().await.expect(200);
    let object = json!({
        "metadata": { "name": "ada-other", "ownerReferences": elsewhere }, "spec": { "user": "ada" },
    });
    admin.post(&collection(KEYS)).json(&object).send().await.expect(201);
    admin.delete(&collection("users/ada")).send().await.expect(200);
    for name in ["ada-key", "ada-other"] {
        wait::until("the key to be deleted with its owner", async || {
            (admin.get(&key_path(name)).send().await.status == 404).then_some(())
        })
        .await;
    }
}
