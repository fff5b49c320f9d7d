//! The entries of a secret: a client can show a secret without its values, and read one value at a time.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_tests::http::Client;
use postern_tests::objects::{GROUP, based, create, make, name_of, secret_path, secrets};
use postern_tests::rights::{allow, rule, rule_on, user, with_key};
use postern_tests::status::failure;
use postern_tests::{Server, wait};
use serde_json::{Value, json};

const VALUE: &str = "canary-of-the-entries";

/// A secret with a text, an empty value and a binary one.
fn three() -> Value {
    let data = json!({ "password": STANDARD.encode(VALUE), "empty": "", "bin": "/w==" });
    let applied = json!({ "spec": { "data": data } }).to_string();
    json!({
        "metadata": { "annotations": { "kubectl.kubernetes.io/last-applied-configuration": applied } },
        "spec": { "displayName": "A database", "data": data },
    })
}

fn entries(name: &str) -> String {
    format!("{}/entries", secret_path(name))
}

fn entry(name: &str, key: &str) -> String {
    format!("{}/entry?name={key}", secret_path(name))
}

async fn status(client: &Client, path: &str) -> u16 {
    client.get(path).send().await.status
}

#[tokio::test]
async fn the_entries_have_names_and_sizes_and_no_values() {
    let server = Server::start().await;
    let admin = server.client();
    let made = create(&admin, &secrets("platform"), "db", three()).await;
    let reply = admin.get(&entries("db")).send().await;
    let read = reply.expect(200);
    assert_eq!((read["kind"].as_str(), name_of(&read)), (Some("SecretEntries"), "db"));
    assert_eq!(read["metadata"]["uid"], made["metadata"]["uid"]);
    assert_eq!(read["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
    assert_eq!(read["spec"], json!({ "displayName": "A database", "owner": { "user": "admin" } }));
    assert_eq!(
        read["entries"],
        json!([
            { "name": "bin", "bytes": 1, "isText": false },
            { "name": "empty", "bytes": 0, "isText": true },
            { "name": "password", "bytes": VALUE.len(), "isText": true },
        ])
    );
    // The copy of `kubectl apply` is not in the response either.
    assert!(!reply.text().contains(&STANDARD.encode(VALUE)), "{}", reply.text());
    let one = admin.get(&entry("db", "password")).send().await.expect(200);
    assert_eq!(
        (one["kind"].as_str(), one["name"].as_str()),
        (Some("SecretEntry"), Some("password"))
    );
    assert_eq!(
        (&one["value"], &one["bytes"]),
        (&json!(STANDARD.encode(VALUE)), &json!(VALUE.len()))
    );
    let warned = admin.get(&entry("db", "password")).send().await;
    assert_eq!(warned.header("warning"), None, "the parameter is known");
    let empty = create(&admin, &secrets("platform"), "none", json!({ "spec": {} })).await;
    assert_eq!(name_of(&empty), "none");
    let read = admin.get(&entries("none")).send().await.expect(200);
    assert_eq!(read["entries"], json!([]));
}

#[tokio::test]
async fn project_secrets_have_entries_and_a_status() {
    let server = Server::start().await;
    let admin = server.client();
    make(&admin, "projects", "shop", json!({})).await;
    let collection = format!("{GROUP}/namespaces/p-shop/projectsecrets");
    create(&admin, &collection, "db", three()).await;
    let read = admin.get(&format!("{collection}/db/entries")).send().await.expect(200);
    assert_eq!(read["entries"].as_array().unwrap().len(), 3);
    assert!(read["status"].is_object());
    let one = admin.get(&format!("{collection}/db/entry?name=bin")).send().await.expect(200);
    assert_eq!((&one["value"], &one["isText"]), (&json!("/w=="), &json!(false)));
}

#[tokio::test]
async fn a_missing_entry_is_404_that_names_the_field() {
    let server = Server::start().await;
    let admin = server.client();
    create(&admin, &secrets("platform"), "db", three()).await;
    let missing = admin.get(&entry("db", "pasword")).send().await;
    insta::assert_snapshot!(failure(&missing), @r#"
    404 NotFound
    the secret db has no entry "pasword"
    {"causes":[{"field":"spec.data[pasword]","message":"the secret db has no entry \"pasword\"","reason":"FieldValueNotFound"}]}
    "#);
    // The response does not repeat a text that is not a name.
    let odd = admin.get(&entry("db", "a%20value%20of%20a%20secret")).send().await;
    insta::assert_snapshot!(failure(&odd), @r#"
    404 NotFound
    the secret db has no such entry
    {"causes":[{"field":"spec.data","message":"the secret db has no such entry","reason":"FieldValueNotFound"}]}
    "#);
    let unnamed = admin.get(&format!("{}/entry", secret_path("db"))).send().await;
    insta::assert_snapshot!(failure(&unnamed), @r#"
    400 BadRequest
    the query parameter name is missing: pass the name of an entry
    "#);
    let none = admin.get(&entry("nothing", "password")).send().await;
    insta::assert_snapshot!(failure(&none), @r#"
    404 NotFound
    sharedsecrets.management.platform.sh "nothing" not found
    {"group":"management.platform.sh","kind":"sharedsecrets","name":"nothing"}
    "#);
    let twice = format!("{}&name=bin", entry("db", "password"));
    assert_eq!(status(&admin, &twice).await, 400);
    let post = admin.post(&entries("db")).json(&json!({})).send().await;
    assert_eq!(post.status, 405);
}

#[tokio::test]
async fn entries_need_get_on_the_secret_and_nothing_else_gives_them() {
    let server = Server::start().await;
    let admin = server.client();
    create(&admin, &secrets("platform"), "db", three()).await;
    create(&admin, &secrets("platform"), "other", three()).await;
    let (reader, writer, deceived) = (
        user(&admin, "reader").await,
        user(&admin, "writer").await,
        user(&admin, "deceived").await,
    );
    let namespace = Some("platform");
    let get = json!([rule_on("sharedsecrets", &["db"], &["get"])]);
    allow(&admin, "read", namespace, get, "platform:user:reader").await;
    let update = json!([rule_on("sharedsecrets", &["db"], &["update", "patch"])]);
    allow(&admin, "write", namespace, update, "platform:user:writer").await;
    // Roles see no subresource: these rules give nothing.
    let of_parts = json!([rule(&["sharedsecrets/entries", "sharedsecrets/entry"], &["*"])]);
    allow(&admin, "parts", namespace, of_parts, "platform:user:deceived").await;
    for (client, name, code) in [
        (&reader, "db", 200),
        (&reader, "other", 404),
        (&writer, "db", 404),
        (&deceived, "db", 404),
    ] {
        assert_eq!(status(client, &entries(name)).await, code, "{name}");
        assert_eq!(status(client, &entry(name, "password")).await, code, "{name}");
        // A missing entry tells nothing either.
        let missing = if code == 200 { 404 } else { code };
        assert_eq!(status(client, &entry(name, "x")).await, missing, "{name}");
    }
    // The same for scopes.
    for (index, (resource, code)) in
        [("sharedsecrets", 200), ("sharedsecrets/entries", 404), ("projects", 403)]
            .into_iter()
            .enumerate()
    {
        let group = json!([{ "group": "management.platform.sh", "resources": [resource] }]);
        let scope = json!({ "rules": [{ "verbs": ["get"], "resources": group }] });
        let key = json!({ "user": "reader", "scope": scope });
        // A key that can have no object of the kind gets 403 for every name.
        let scoped = with_key(&admin, &format!("scoped-{index}"), key).await;
        assert_eq!(status(&scoped, &entries("db")).await, code, "{resource}");
        assert_eq!(status(&scoped, &entry("db", "password")).await, code, "{resource}");
    }
    let review = json!({ "spec": { "resourceAttributes": {
        "verb": "get", "group": "management.platform.sh", "resource": "sharedsecrets",
        "subresource": "entries", "namespace": "platform", "name": "db" } } });
    let path = based("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
    for (client, allowed) in [(&reader, true), (&deceived, false)] {
        let answer = client.post(&path).json(&review).send().await.expect(201)["status"].clone();
        assert_eq!(answer["allowed"].as_bool().unwrap_or_default(), allowed, "{answer}");
        let says = if allowed { "RoleBinding \"read" } else { "resources: [\"sharedsecrets\"]" };
        assert!(answer["reason"].as_str().unwrap().contains(says), "{answer}");
    }
}

#[tokio::test]
async fn the_audit_log_tells_which_value_was_read() {
    let server = Server::start().await;
    let admin = server.client();
    create(&admin, &secrets("platform"), "db", three()).await;
    admin.get(&entries("db")).send().await.expect(200);
    admin.get(&entry("db", "password")).send().await.expect(200);
    admin.get(&entry("db", "x")).send().await.expect(404);
    let of_parts = || {
        let records = server.home().records();
        let is_part = |record: &Value| {
            let part = record["objectRef"]["subresource"].as_str().unwrap_or_default();
            record["stage"] == "ResponseComplete" && part.starts_with("entr")
        };
        records.into_iter().filter(is_part).collect::<Vec<_>>()
    };
    wait::until("three records", async || (of_parts().len() == 3).then_some(())).await;
    let seen: Vec<_> = of_parts()
        .iter()
        .map(|record| {
            let annotation = &record["annotations"]["platform.sh/entry"];
            let code = record["responseStatus"]["code"].clone();
            json!([record["objectRef"]["subresource"], code, annotation])
        })
        .collect();
    assert_eq!(
        json!(seen),
        json!([["entries", 200, null], ["entry", 200, "password"], ["entry", 404, null]])
    );
    let text = std::fs::read_to_string(server.home().audit_log()).unwrap();
    assert!(!text.contains(&STANDARD.encode(VALUE)), "no value is in the log");
}
