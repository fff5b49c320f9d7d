//! A field that a client applies is stored and belongs to it: values that are sent as text, and
//! explicit zero values.

use postern_tests::Server;
use postern_tests::http::{Client, Request};
use postern_tests::objects::{GROUP, create, secret_path, secrets};
use postern_tests::status::failure;
use serde_json::{Value, json};

const APPLY: &str = "application/apply-patch+yaml";

fn apply<'a>(client: &'a Client, path: &str, kind: &str, object: &Value) -> Request<'a> {
    let mut object = object.clone();
    object["apiVersion"] = "management.platform.sh/v1".into();
    object["kind"] = kind.into();
    client.request("PATCH", &format!("{path}?fieldManager=me")).body(APPLY, object.to_string())
}

/// The fields that the only manager of an object owns in its spec.
fn owned(object: &Value) -> &Value {
    let managers = object["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(managers.len(), 1, "{managers:?}");
    &managers[0]["fieldsV1"]["f:spec"]
}

#[tokio::test]
async fn text_of_a_secret_is_encoded_into_its_data_and_never_returned() {
    let server = Server::start().await;
    let client = server.client();
    create(&client, &format!("{GROUP}/projects"), "web", json!({})).await;
    let spec =
        json!({ "data": { "a": "MQ==", "b": "Mg==" }, "stringData": { "b": "two\n", "c": "" } });
    let data = json!({ "a": "MQ==", "b": "dHdvCg==", "c": "" });
    for (kind, list) in [
        ("SharedSecret", secrets("platform")),
        ("ProjectSecret", format!("{GROUP}/namespaces/p-web/projectsecrets")),
    ] {
        // helm 3 creates with POST, helm 4 and Flux apply.
        let made = create(&client, &list, "posted", json!({ "spec": spec })).await;
        assert_eq!(made["spec"]["data"], data, "{kind}");
        assert!(made["spec"].get("stringData").is_none(), "{made}");
        let path = format!("{list}/applied");
        let object = json!({ "metadata": { "name": "applied" }, "spec": spec });
        let made = apply(&client, &path, kind, &object).send().await.expect(201);
        assert_eq!(made["spec"]["data"], data, "{kind}");
        assert!(made["spec"].get("stringData").is_none(), "{made}");
        // As in kube-apiserver: the manager owns the fields that it sent.
        let fields = owned(&made);
        assert_eq!(fields["f:stringData"], json!({ "f:b": {}, "f:c": {} }), "{fields}");
        assert_eq!(fields["f:data"], json!({ "f:a": {}, "f:b": {} }), "{fields}");
        let again = apply(&client, &path, kind, &object).send().await.expect(200);
        assert_eq!(again, made, "{kind}: an apply that changes nothing");
        let change = json!({ "spec": { "stringData": { "c": "three" } } });
        let patched = client.patch(&path, "merge-patch", &change).send().await.expect(200);
        assert_eq!(patched["spec"]["data"]["c"], "dGhyZWU=");
        assert_eq!(patched["spec"]["data"]["a"], "MQ==");
        let read = client.get(&path).send().await;
        assert!(!read.text().contains("\"stringData\":{\"b"), "{}", read.text());
        let long =
            json!({ "metadata": { "name": "long" }, "spec": { "stringData": { "a b": "x" } } });
        let text = failure(&client.post(&list).json(&long).send().await);
        assert!(text.starts_with("422 Invalid\n") && text.contains("spec.data[a b]"), "{text}");
    }
    // Line breaks in base64 are read as kube-apiserver reads them.
    let broken = json!({ "spec": { "data": { "a": "MQ\n==\r\n" } } });
    let made = create(&client, &secrets("platform"), "broken", broken).await;
    assert_eq!(made["spec"]["data"]["a"], "MQ==");
}

#[tokio::test]
async fn a_synced_secret_takes_no_text() {
    let server = Server::start().await;
    let client = server.client();
    create(&client, &format!("{GROUP}/projects"), "web", json!({})).await;
    create(&client, &secrets("platform"), "source", json!({ "spec": { "data": { "a": "MQ==" } } }))
        .await;
    let list = format!("{GROUP}/namespaces/p-web/projectsecrets");
    let labels = json!({ "platform.sh/sharedsecret-name": "source" });
    let synced =
        |spec: Value| json!({ "metadata": { "name": "copy", "labels": labels }, "spec": spec });
    let with_text = synced(json!({ "stringData": { "b": "two" } }));
    let text = failure(&client.post(&list).json(&with_text).send().await);
    assert!(
        text.starts_with("422 Invalid\n") && text.contains("\"field\":\"spec.stringData\""),
        "{text}"
    );
    client.post(&list).json(&synced(json!({}))).send().await.expect(201);
    let change = json!({ "spec": { "stringData": { "b": "two" } } });
    let path = format!("{list}/copy");
    let text = failure(&client.patch(&path, "merge-patch", &change).send().await);
    assert!(
        text.starts_with("422 Invalid\n") && text.contains("\"field\":\"spec.stringData\""),
        "{text}"
    );
    // The same of a core Secret, which takes its data from a ProjectSecret.
    let core = "/kubernetes/management/api/v1/namespaces/p-web/secrets";
    let labels = json!({ "platform.sh/project-secret-name": "copy" });
    let object =
        json!({ "metadata": { "name": "core", "labels": labels }, "stringData": { "b": "two" } });
    let text = failure(&client.post(core).json(&object).send().await);
    assert!(
        text.starts_with("422 Invalid\n") && text.contains("\"field\":\"stringData\""),
        "{text}"
    );
}

/// Terraform says "provider produced inconsistent result after apply" for a value that it sent and does not read.
#[tokio::test]
async fn an_explicit_zero_is_there_until_its_owner_removes_it() {
    let server = Server::start().await;
    let client = server.client();
    let path = format!("{GROUP}/users/ada");
    let zeros =
        json!({ "disabled": false, "displayName": "", "groups": [], "email": "a@example.com" });
    let user = |spec: &Value| json!({ "metadata": { "name": "ada" }, "spec": spec });
    let made = apply(&client, &path, "User", &user(&zeros)).send().await.expect(201);
    assert_eq!(made["spec"], zeros);
    assert_eq!(
        *owned(&made),
        json!({ "f:disabled": {}, "f:displayName": {}, "f:groups": {}, "f:email": {} })
    );
    let read = client.get(&path).send().await.expect(200);
    assert_eq!(read["spec"], zeros);
    let left = json!({ "email": "a@example.com" });
    let applied = apply(&client, &path, "User", &user(&left)).send().await.expect(200);
    assert_eq!(applied["spec"], left);
    // PUT and PATCH are of the same kind.
    let mut put = applied;
    put["spec"]["disabled"] = false.into();
    let put = client.put(&path).json(&put).send().await.expect(200);
    assert_eq!(put["spec"]["disabled"], false);
    let change = json!({ "spec": { "groups": [], "displayName": "" } });
    let patched = client.patch(&path, "merge-patch", &change).send().await.expect(200);
    assert_eq!(
        patched["spec"],
        json!({ "disabled": false, "displayName": "", "groups": [], "email": "a@example.com" })
    );
    let access = json!({ "spec": { "access": [{ "verbs": ["get"], "users": ["ada"], "teams": [] }], "data": {} } });
    let made = create(&client, &secrets("platform"), "s1", access.clone()).await;
    assert_eq!(made["spec"]["access"], access["spec"]["access"]);
    assert_eq!(made["spec"]["data"], json!({}));
    client.get(&secret_path("s1")).send().await.expect(200);
}
