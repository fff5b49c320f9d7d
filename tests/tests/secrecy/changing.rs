//! Responses to changes contain no write-only fields, neither the old values nor the new ones.

use postern_tests::http::Client;
use postern_tests::status::failure;
use serde_json::{Value, json};

use crate::secrecy::leak_check::{KEYS, LeakCheck, Secrets, collection, key_path};

/// The paths of the write-only fields.
const PATHS: [&str; 5] = [
    "/spec/key",
    "/spec/identity/connectorData",
    "/spec/oidcLogin/idToken",
    "/spec/oidcLogin/accessToken",
    "/spec/oidcLogin/refreshToken",
];

async fn patch(check: &LeakCheck, client: &Client, name: &str, operations: &Value) -> u16 {
    check.send(client.patch(&key_path(name), "json-patch", operations)).await.status
}

async fn json_patches(check: &LeakCheck, client: &Client, name: &str) {
    for path in PATHS {
        let value = check.new_secret();
        for (operations, code) in [
            (json!([{ "op": "add", "path": path, "value": value }]), 200),
            (json!([{ "op": "replace", "path": path, "value": value }]), 422),
            (json!([{ "op": "remove", "path": path }]), 422),
            (json!([{ "op": "test", "path": path, "value": value }]), 422),
            (json!([{ "op": "copy", "from": path, "path": "/spec/displayName" }]), 422),
            (json!([{ "op": "move", "from": path, "path": "/spec/description" }]), 422),
            (json!([{ "op": "add", "path": path, "value": [value] }]), 422),
            (json!([{ "op": "shout", "path": path, "value": value }]), 400),
            (json!({ "op": "add", "path": path, "value": value }), 400),
        ] {
            let status = patch(check, client, name, &operations).await;
            // A patch that does not fit the object is 400 or 422.
            let fits = status == code || (code >= 400 && [400, 422].contains(&status));
            assert!(fits, "{status} for {operations}");
        }
    }
}

async fn merge_patches(check: &LeakCheck, client: &Client, name: &str) {
    let secrets = check.new_secrets();
    let whole = json!({ "spec": secrets.object(name)["spec"] });
    check.send(client.patch(&key_path(name), "merge-patch", &whole)).await.expect(200);
    for spec in [
        json!({ "key": [secrets.key] }),
        json!({ "key": format!("{} x", secrets.key) }),
        json!({ "identity": secrets.connector_data }),
        json!({ "oidcLogin": { "idToken": { "is": secrets.id_token } } }),
    ] {
        let changes = json!({ "spec": spec });
        let reply = check.send(client.patch(&key_path(name), "merge-patch", &changes)).await;
        assert!([400, 422].contains(&reply.status), "{changes}: {}", reply.text());
    }
    let text = whole.to_string();
    for (kind, body) in [
        ("merge-patch", text[..text.len() - 2].to_owned()),
        ("merge-patch", format!("\"{}\"", secrets.key)),
        ("strategic-merge-patch", text.clone()),
        ("apply-patch", text),
    ] {
        let kind = format!("application/{kind}+json");
        let request = client.request("PATCH", &key_path(name)).body(&kind, body);
        let reply = check.send(request).await;
        // The patch type may be served or not. Only the absence of secrets matters here.
        assert!(reply.status < 500, "{}", reply.text());
    }
    let strict = format!("{}?fieldValidation=Strict", key_path(name));
    let mut unknown = whole.clone();
    unknown["spec"]["unknown"] = secrets.key.clone().into();
    let reply = check.send(client.patch(&strict, "merge-patch", &unknown)).await;
    assert!([400, 422].contains(&reply.status), "{}", reply.text());
}

#[tokio::test]
async fn changes_repeat_neither_old_nor_new_values() {
    let check = LeakCheck::new(11).await;
    for (client, name) in check.clients().iter().zip(["one", "two"]) {
        let mut object = check.new_secrets().object(name);
        let made = check.create(client.post(&collection(KEYS)).json(&object)).await;
        json_patches(&check, client, name).await;
        merge_patches(&check, client, name).await;
        object = check.new_secrets().object(name);
        let outdated = made["metadata"]["resourceVersion"].clone();
        object["metadata"]["resourceVersion"] = outdated;
        let reply = check.send(client.put(&key_path(name)).json(&object)).await;
        assert!(failure(&reply).starts_with("409 Conflict"));
        let read = check.send(client.get(&key_path(name))).await.expect(200);
        object["metadata"] = read["metadata"].clone();
        check.send(client.put(&key_path(name)).json(&object)).await.expect(200);
        check.send(client.put(&key_path(name)).yaml(&object.to_string())).await;
        check.send(client.get(&key_path(name))).await.expect(200);
    }
    check.finish().await;
}

#[tokio::test]
async fn managed_fields_do_not_name_write_only_fields() {
    let check = LeakCheck::new(12).await;
    let [client, _] = check.clients();
    let object = check.new_secrets().object("managed");
    check.create(client.post(&collection(KEYS)).json(&object)).await;
    let rotated = json!({ "spec": check.new_secrets().object("managed")["spec"] });
    let patch = client.patch(&key_path("managed"), "merge-patch", &rotated);
    check.send(patch).await.expect(200);
    let read = check.send(client.get(&key_path("managed"))).await.expect(200);
    let managed = read["metadata"]["managedFields"].to_string();
    assert!(managed.contains("f:email"), "other fields are named: {managed}");
    for name in ["f:key", "f:connectorData", "f:idToken", "f:accessToken", "f:refreshToken"] {
        assert!(!managed.contains(name), "{name} is in {managed}");
    }
    check.finish().await;
}

#[tokio::test]
async fn kubectl_apply_leaves_no_copy() {
    let check = LeakCheck::new(13).await;
    let [client, _] = check.clients();
    let kubectl = check.server.kubectl();
    for round in ["created", "configured"] {
        let file = kubectl.file("key.json", &check.new_secrets().object("applied").to_string());
        let output = kubectl.ok(&["apply", "-f", &file]).await;
        assert!(output.contains(round), "{output}");
        check.assert_absent("kubectl apply", output.as_bytes());
        let output = kubectl.ok(&["get", "ownedaccesskey", "applied", "-o", "yaml"]).await;
        assert!(output.contains("last-applied-configuration"), "{output}");
        check.assert_absent("kubectl get", output.as_bytes());
    }
    let value = check.new_secret();
    for text in [
        format!("{{\"spec\": {{\"key\": \"{value}\""),
        format!("{{\"spec\":{{\"key\":\"{value}\"}}}} {{\"spec\":1}}"),
        format!("spec: {{key: {value}}}"),
        format!("[\"{value}\"]"),
    ] {
        let annotation = format!("kubectl.kubernetes.io/last-applied-configuration={text}");
        let annotate = ["annotate", "--overwrite", "ownedaccesskey", "applied", &annotation];
        kubectl.ok(&annotate).await;
        let read = check.send(client.get(&key_path("applied"))).await.expect(200);
        assert!(!read.to_string().contains("last-applied"), "dropped as a whole: {read}");
    }
    check.finish().await;
}

async fn works(check: &LeakCheck, client: &Client, value: &str) -> bool {
    let as_bearer = client.with_token(value);
    check.send(as_bearer.get(&collection("selves/me"))).await.status == 200
}

async fn made_by_the_server(check: &LeakCheck, client: &Client) -> String {
    let object = json!({ "metadata": { "name": "made" }, "spec": {} });
    let reply = client.post(&collection(KEYS)).json(&object).send().await.expect(201);
    let value = reply["spec"]["key"].as_str().unwrap().to_owned();
    check.add_secret(&value);
    value
}

#[tokio::test]
async fn a_generated_key_is_returned_only_once() {
    let check = LeakCheck::new(14).await;
    let [client, _] = check.clients();
    let first = made_by_the_server(&check, &client).await;
    let merge = async |spec: Value| {
        let patch = json!({ "spec": spec });
        check.send(client.patch(&key_path("made"), "merge-patch", &patch)).await.expect(200)
    };
    assert!(works(&check, &client, &first).await);
    merge(json!({ "disabled": true })).await;
    assert!(!works(&check, &client, &first).await);
    merge(json!({ "disabled": false })).await;
    assert!(works(&check, &client, &first).await);
    let Secrets { key: second, .. } = check.new_secrets();
    merge(json!({ "key": second })).await;
    assert!(!works(&check, &client, &first).await && works(&check, &client, &second).await);
    merge(json!({ "key": first })).await;
    assert!(works(&check, &client, &first).await && !works(&check, &client, &second).await);
    check.send(client.delete(&key_path("made"))).await.expect(200);
    let third = made_by_the_server(&check, &client).await;
    assert!(!works(&check, &client, &first).await && works(&check, &client, &third).await);
    check.finish().await;
}
