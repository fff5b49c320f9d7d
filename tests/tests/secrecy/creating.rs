//! The response to a create contains the key, and no other secret.

use postern_tests::http::Client;
use postern_tests::status::failure;
use serde_json::{Value, json};

use crate::secrecy::leak_check::{KEYS, LeakCheck, collection, key_path};

/// The object as YAML: JSON with a comment is YAML but not JSON.
fn yaml(object: &Value) -> String {
    format!("# one key\n{object}\n")
}

async fn create_every_way(check: &LeakCheck, client: &Client, prefix: &str) {
    let queries = ["", "?fieldValidation=Strict", "?fieldValidation=Ignore", "?pretty=true"];
    for (number, query) in queries.iter().enumerate() {
        let path = format!("{}{query}", collection(KEYS));
        for form in ["json", "yaml"] {
            let secrets = check.new_secrets();
            let name = format!("{prefix}-{form}-{number}");
            let object = secrets.object(&name);
            let request = match form {
                "json" => client.post(&path).json(&object),
                _ => client.post(&path).yaml(&yaml(&object)),
            };
            let made = check.create(request).await;
            assert_eq!(made["spec"]["key"], secrets.key, "returned once");
            check.send(client.get(&key_path(&name))).await.expect(200);
        }
    }
    let mut object = check.new_secrets().object(&format!("{prefix}-unknown"));
    object["spec"]["oidcLogin"]["unknown"] = json!(true);
    object["spec"]["unknown"] = json!({ "more": check.new_secret() });
    // Unknown fields in a key are refused, at its top too, and the refusal contains no part of the
    // request.
    check.send(client.post(&collection(KEYS)).json(&object)).await.expect(422);
    let mut object = check.new_secrets().object(&format!("{prefix}-top"));
    object["unknown"] = json!({ "more": check.new_secret() });
    check.send(client.post(&collection(KEYS)).json(&object)).await.expect(422);
    // Elsewhere they are dropped, and the warning has nothing of it.
    let mut object = check.new_secrets().object(&format!("{prefix}-beyond"));
    object["metadata"]["unknown"] = json!({ "more": check.new_secret() });
    check.create(client.post(&collection(KEYS)).json(&object)).await;
}

#[tokio::test]
async fn a_create_returns_the_key_and_no_other_secret() {
    let check = LeakCheck::new(1).await;
    for (client, prefix) in check.clients().iter().zip(["one", "two"]) {
        create_every_way(&check, client, prefix).await;
    }
    check.finish().await;
}

#[tokio::test]
async fn dry_runs_return_no_key_and_issue_none() {
    let check = LeakCheck::new(2).await;
    let [client, _] = check.clients();
    let path = format!("{}?dryRun=All", collection(KEYS));
    let secrets = check.new_secrets();
    check.send(client.post(&path).json(&secrets.object("dry"))).await.expect(201);
    check.send(client.post(&path).yaml(&yaml(&secrets.object("dry")))).await.expect(201);
    let unauthenticated = client.with_token(&secrets.key);
    let reply = check.send(unauthenticated.get(&collection(KEYS))).await;
    assert!(failure(&reply).contains("access key not found"));
    let mut made = check.create(client.post(&collection(KEYS)).json(&secrets.object("wet"))).await;
    let put = format!("{}?dryRun=All", key_path("wet"));
    made["spec"]["key"] = check.new_secret().into();
    check.send(client.put(&put).json(&made)).await.expect(200);
    let rotation = json!({ "spec": { "key": check.new_secret() } });
    check.send(client.patch(&put, "merge-patch", &rotation)).await.expect(200);
    check.send(client.with_token(&secrets.key).get(&key_path("wet"))).await.expect(200);
    check.send(client.delete(&put)).await.expect(200);
    check.finish().await;
}

/// Bodies that contain secrets and are refused.
fn refused(check: &LeakCheck) -> Vec<(&'static str, String)> {
    let secrets = check.new_secrets();
    let object = secrets.object("refused");
    let text = object.to_string();
    let with = |pointer: &str, value: Value| {
        let mut object = object.clone();
        *object.pointer_mut(pointer).unwrap() = value;
        ("application/json", object.to_string())
    };
    let twice = text.replacen("\"spec\":{", &format!("\"spec\":{{\"key\":\"{}\",", secrets.key), 1);
    vec![
        with("/spec/key", json!([secrets.key])),
        with("/spec/key", json!({ "value": secrets.key })),
        with("/spec/key", json!(format!("{} ", secrets.key))),
        with("/spec/key", json!(format!("{}é", secrets.key))),
        with("/spec/key", json!(secrets.key.repeat(200))),
        with("/spec/key", json!(&secrets.key[..31])),
        with("/spec/identity", json!(secrets.connector_data)),
        with("/spec/identity/connectorData", json!([secrets.connector_data])),
        with("/spec/oidcLogin", json!([secrets.id_token])),
        with("/spec/oidcLogin/idToken", json!({ "value": secrets.id_token })),
        with("/spec/oidcLogin/accessToken", json!([[secrets.access_token]])),
        with("/spec", json!(secrets.key)),
        with("/spec", json!([secrets.object("inner")["spec"]])),
        with("/spec/user", json!(5)),
        with("/spec/user", json!("nobody")),
        with("/metadata/name", json!("Not A Name")),
        ("application/json", text[..text.len() - 3].to_owned()),
        ("application/json", format!("{text}}}")),
        ("application/json", format!("\"{}\"", secrets.key)),
        ("application/json", text.replacen("\",", "\\q\",", 1)),
        ("application/yaml", format!("spec:\n  key: {}\n user: x\n", secrets.key)),
        ("application/yaml", format!("spec: {{key: {}", secrets.key)),
        ("application/yaml", format!("spec: !!binary {}\n", secrets.key)),
        ("application/yaml", format!("spec: *{}\n", secrets.key)),
        ("application/yaml", format!("spec:\n  key: |\n    {0}\n    {0}\n", secrets.key)),
        ("text/plain", text.clone()),
        ("application/vnd.kubernetes.protobuf", text),
        ("application/json", twice),
    ]
}

#[tokio::test]
async fn refusals_repeat_no_secret() {
    let check = LeakCheck::new(3).await;
    for client in check.clients() {
        for validation in ["Strict", "Warn", "Ignore"] {
            let path = format!("{}?dryRun=All&fieldValidation={validation}", collection(KEYS));
            for (content_type, body) in refused(&check) {
                let reply = check.send(client.post(&path).body(content_type, body.clone())).await;
                let code = reply.status;
                assert_ne!(code, 201, "{validation} {body}");
                assert!(code < 500, "{code} {body}: {}", reply.text());
            }
        }
    }
    let [client, _] = check.clients();
    let secrets = check.new_secrets();
    check.create(client.post(&collection(KEYS)).json(&secrets.object("first"))).await;
    let again = check.send(client.post(&collection(KEYS)).json(&secrets.object("second"))).await;
    assert!(failure(&again).starts_with("409 Conflict"));
    let again = check.send(client.post(&collection(KEYS)).json(&secrets.object("first"))).await;
    assert!(failure(&again).starts_with("409 "));
    check.finish().await;
}

#[tokio::test]
async fn credentials_are_repeated_nowhere() {
    let check = LeakCheck::new(4).await;
    for client in check.clients() {
        let value = check.new_secret();
        let path = collection(KEYS);
        for header in [
            format!("Bearer {value}"),
            format!("bearer pst_{value}"),
            format!("Bearer  {value}"),
            format!("Bearer {value} {value}"),
            format!("Bearer {value},{value}"),
            format!("Bearer {value}é"),
            format!("Basic {value}"),
            format!("Bearer {}", value.repeat(200)),
            value.clone(),
        ] {
            let request = client.get(&path).without("authorization");
            let reply = check.send(request.header("authorization", &header)).await;
            assert_eq!(reply.status, 401, "{}", reply.text());
        }
        let doubled = client.get(&path).header("authorization", &format!("Bearer {value}"));
        assert_eq!(check.send(doubled).await.status, 401);
        let query = format!("{path}?access_token={value}&token={value}&limit={value}");
        let reply = check.send(client.get(&query).without("authorization")).await;
        assert_eq!(reply.status, 401);
    }
    check.finish().await;
}
