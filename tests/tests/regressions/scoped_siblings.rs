//! A key with a scope changes only keys that it or its descendants made.

use postern_tests::Server;
use postern_tests::rights::{merge, user, with_key};
use serde_json::json;

use crate::regressions::scene::{Findings, code_of, key_path};

#[tokio::test]
async fn a_scoped_key_does_not_change_a_key_that_it_did_not_make() {
    let server = Server::start().await;
    let admin = server.client();
    let sibling = user(&admin, "ada").await;
    let everything = json!({ "rules": [{}] });
    let scoped = with_key(&admin, "scoped", json!({ "user": "ada", "scope": everything })).await;
    let other = json!({ "user": "ada", "scope": { "rules": [{}] } });
    with_key(&admin, "other-scoped", other).await;
    let mut found = Findings::new();
    for name in ["ada-key", "other-scoped"] {
        for (what, spec) in [
            ("value", json!({ "key": "canary-0123456789-0123456789-0123456789" })),
            (
                "value and scope",
                json!({ "key": "canary-0123456789-0123456789-0123456780",
                "scope": { "rules": [{}] } }),
            ),
            ("scope", json!({ "scope": { "rules": [{}] } })),
            ("ttl", json!({ "ttl": 9000 })),
            ("displayName", json!({ "displayName": "mine" })),
            ("disabled", json!({ "disabled": true })),
            ("enabled", json!({ "disabled": false })),
        ] {
            let reply = merge(&scoped, &key_path(name), json!({ "spec": spec })).await;
            // Setting a field to the value that it has is no change.
            let same = name == "other-scoped" && what == "scope" || what == "enabled";
            let wanted: &[u16] = if same { &[200, 403] } else { &[403] };
            found.check_code(&reply, wanted, &format!("{what} of {name}"));
        }
        let path = key_path(name);
        let labels = json!({ "metadata": { "labels": { "a": "b" } } });
        found.check_code(
            &merge(&scoped, &path, labels).await,
            &[403],
            &format!("labels of {name}"),
        );
        let mut object = admin.get(&path).send().await.expect(200);
        object["spec"]["displayName"] = "put".into();
        let reply = scoped.put(&path).json(&object).send().await;
        found.check_code(&reply, &[403], &format!("PUT of {name}"));
    }
    found.check(code_of(&sibling).await == 200, "the sibling is gone or has another value");
    found.assert_none();
}

#[tokio::test]
async fn a_scoped_key_changes_what_it_and_its_descendants_made() {
    let server = Server::start().await;
    let admin = server.client();
    user(&admin, "ada").await;
    let everything = json!({ "rules": [{}] });
    let scoped = with_key(&admin, "scoped", json!({ "user": "ada", "scope": everything })).await;
    let child = with_key(&scoped, "child", json!({ "scope": { "rules": [{}] } })).await;
    with_key(&child, "grandchild", json!({ "scope": { "rules": [{}] } })).await;
    for name in ["child", "grandchild"] {
        let change = json!({ "spec": { "displayName": "mine" } });
        merge(&scoped, &key_path(name), change).await.expect(200);
    }
    let change = json!({ "spec": { "displayName": "up" } });
    assert_eq!(merge(&child, &key_path("scoped"), change).await.status, 403);
    scoped.delete(&key_path("grandchild")).send().await.expect(200);
}

#[tokio::test]
async fn a_review_of_a_scoped_key_is_not_that_of_its_owner() {
    let server = Server::start().await;
    let admin = server.client();
    let reviews = "/kubernetes/management/apis/authentication.k8s.io/v1/tokenreviews";
    let scope = json!({ "rules": [{ "verbs": ["list"] }] });
    let scoped = with_key(&admin, "scoped", json!({ "user": "admin", "scope": scope })).await;
    let nothing = with_key(&admin, "nothing", json!({ "user": "admin", "scope": {} })).await;
    let makes = json!({ "rules": [{ "verbs": ["list", "create", "createkey"] }] });
    let middle = with_key(&admin, "maker", json!({ "user": "admin", "scope": makes })).await;
    let child = with_key(&middle, "child", json!({ "scope": scope })).await;
    let ask = async |token: &str, spec: serde_json::Value| {
        let mut spec = spec;
        spec["token"] = token.into();
        admin.post(reviews).json(&json!({ "spec": spec })).send().await.expect(201)["status"]
            .clone()
    };
    let mut found = Findings::new();
    for (name, client) in [("scoped", &scoped), ("nothing", &nothing), ("child", &child)] {
        let status = ask(client.token(), json!({})).await;
        found.check(status["authenticated"] != true, format!("{name}: {status}"));
        found.check(status["user"]["username"].is_null(), format!("{name}: {status}"));
        let error = status["error"].as_str().unwrap_or_default();
        found.check(error.contains("scope"), format!("{name}: no error about the scope: {status}"));
        let audiences = json!({ "audiences": ["platform.sh/scoped"] });
        let status = ask(client.token(), audiences).await;
        found.check(status["authenticated"] == true, format!("{name}, asked for: {status}"));
        found.check(
            status["audiences"] == json!(["platform.sh/scoped"]),
            format!("{name}: {status}"),
        );
        let extra = status["user"]["extra"].to_string();
        found.check(extra.contains(name) && extra.contains("scope"), format!("{name}: {status}"));
    }
    let status = ask(admin.token(), json!({})).await;
    found.check(status["authenticated"] == true, format!("a key without a scope: {status}"));
    found.assert_none();
}
