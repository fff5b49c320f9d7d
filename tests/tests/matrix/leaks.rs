//! Facts that a caller must not learn in passing: from counts, continue tokens, events, and from
//! names that they put into requests.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use postern_tests::Server;
use postern_tests::http::Client;
use postern_tests::objects::{collection, make, name_of, secrets, version_of};
use serde_json::{Value, json};

/// Makes a user with a key.
async fn user(admin: &Client, name: &str) -> Client {
    make(admin, "users", name, json!({})).await;
    let key =
        make(admin, "ownedaccesskeys", &format!("key-of-{name}"), json!({ "user": name })).await;
    admin.with_token(key["spec"]["key"].as_str().unwrap())
}

async fn secret(admin: &Client, name: &str, owner: &str) {
    let object = json!({ "metadata": { "name": name }, "spec": { "owner": { "user": owner } } });
    admin.post(&secrets("platform")).json(&object).send().await.expect(201);
}

async fn list(client: &Client, query: &str) -> Value {
    client.get(&format!("{}{query}", secrets("platform"))).send().await.expect(200)
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(name_of).collect()
}

/// A token as text, as far as it is text in some form of base64.
fn decoded(token: &str) -> String {
    let forms =
        [STANDARD.decode(token), STANDARD_NO_PAD.decode(token), URL_SAFE_NO_PAD.decode(token)];
    let texts =
        forms.into_iter().flatten().map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    texts.chain([token.to_owned()]).collect()
}

#[tokio::test]
async fn pages_and_tokens_tell_nothing_of_what_is_hidden() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    user(&admin, "bob").await;
    for name in ["b-mine", "d-mine", "f-mine"] {
        secret(&admin, name, "ada").await;
    }
    for letter in ["a", "c", "e", "g", "h", "i"] {
        secret(&admin, &format!("{letter}-hidden"), "bob").await;
    }
    let (mut seen, mut query) = (Vec::new(), "?limit=1".to_owned());
    loop {
        let page = list(&ada, &query).await;
        assert_eq!(names(&page).len(), 1, "pages are filled: {page}");
        assert!(page["metadata"].get("remainingItemCount").is_none(), "{page}");
        seen.extend(names(&page).into_iter().map(str::to_owned));
        let Some(token) = page["metadata"]["continue"].as_str() else { break };
        assert!(!decoded(token).contains("hidden"), "{}", decoded(token));
        query = format!("?limit=1&continue={token}");
    }
    assert_eq!(seen, ["b-mine", "d-mine", "f-mine"]);
    for query in ["?limit=3", "?limit=100", ""] {
        let page = list(&ada, query).await;
        assert_eq!(
            page["metadata"]["continue"],
            Value::Null,
            "{query}: only hidden ones would follow"
        );
        assert!(page["metadata"].get("remainingItemCount").is_none());
    }
    for query in ["?fieldSelector=metadata.name%3Da-hidden", "?labelSelector=x%3Dy"] {
        let (hidden, query) = (list(&ada, query).await, query.replace("a-hidden", "a-absent"));
        let absent = list(&ada, &query).await;
        assert_eq!(hidden, absent, "{query}");
    }
}

#[tokio::test]
async fn watches_show_no_event_of_what_is_hidden() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    user(&admin, "bob").await;
    let start = version_of(&list(&ada, "").await);
    secret(&admin, "hidden", "bob").await;
    let mut watch = ada.watch(&secrets("platform"), &format!("&resourceVersion={start}")).await;
    let path = format!("{}/hidden", secrets("platform"));
    let label = json!({ "metadata": { "labels": { "x": "y" } } });
    admin.patch(&path, "merge-patch", &label).send().await.expect(200);
    admin.delete(&path).send().await.expect(200);
    secret(&admin, "hidden", "bob").await;
    secret(&admin, "mine", "ada").await;
    // If ada owns a further object, the objects that ada may read change, so informers list anew.
    let mut events = Vec::new();
    while let Some(event) = watch.next().await {
        assert!(!event.object.to_string().contains("hidden"), "{event:?}");
        let is_last = event.kind == "ERROR" || event.object["metadata"]["name"] == "mine";
        events.push(event.kind);
        if is_last {
            break;
        }
    }
    assert_eq!(events.len(), 1, "{events:?}");
}

/// Requests that name an object: with the word NAME in its place.
fn naming() -> Vec<(&'static str, String, Value)> {
    let keys = collection("ownedaccesskeys");
    let secrets = secrets("platform");
    let spec = |spec: Value| json!({ "metadata": { "name": "new" }, "spec": spec });
    let everything = ["*"];
    vec![
        ("POST", keys.clone(), json!({ "spec": { "user": "NAME" } })),
        ("POST", keys.clone(), json!({ "spec": { "team": "NAME" } })),
        ("POST", keys.clone(), json!({ "spec": { "subject": "NAME" } })),
        ("POST", keys, json!({ "spec": { "groups": ["platform:team:NAME"] } })),
        ("POST", collection("selves"), json!({ "spec": { "accessKey": "NAME" } })),
        ("POST", secrets.clone(), spec(json!({ "owner": { "user": "NAME" } }))),
        ("POST", secrets.clone(), spec(json!({ "owner": { "team": "NAME" } }))),
        (
            "POST",
            secrets.clone(),
            spec(json!({ "access": [{ "name": "a", "verbs": everything, "users": ["NAME"] }] })),
        ),
        ("POST", secrets, json!({ "metadata": { "name": "NAME" }, "spec": {} })),
        ("POST", collection("namespaces/NAME/sharedsecrets"), spec(json!({}))),
        ("POST", collection("users"), json!({ "metadata": { "name": "NAME" } })),
        ("POST", collection("projects"), json!({ "metadata": { "name": "NAME" } })),
        ("POST", collection("clusters"), json!({ "metadata": { "name": "NAME" } })),
        ("GET", collection("namespaces/NAME/sharedsecrets/some"), json!({})),
        ("GET", collection("namespaces/p-NAME/virtualclusterinstances/some"), json!({})),
        ("GET", collection("users/NAME/accesskeys"), json!({})),
        ("GET", collection("teams/NAME/accesskeys"), json!({})),
    ]
}

#[tokio::test]
async fn names_in_unauthenticated_requests_tell_nothing() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    for (resource, name) in [("users", "known0"), ("teams", "known0"), ("projects", "known0")] {
        make(&admin, resource, name, json!({})).await;
    }
    make(&admin, "clusters", "known0", json!({})).await;
    make(&admin, "ownedaccesskeys", "known0", json!({ "user": "known0" })).await;
    secret(&admin, "known0", "known0").await;
    let namespaces = postern_tests::objects::based("/api/v1/namespaces");
    admin
        .post(&namespaces)
        .json(&json!({ "metadata": { "name": "known0" } }))
        .send()
        .await
        .expect(201);
    let mut telling = Vec::new();
    for (method, path, body) in naming() {
        for query in ["", "?dryRun=All"] {
            let ask = async |name: &str| {
                let path = format!("{}{query}", path.replace("NAME", name));
                let body = body.to_string().replace("NAME", name);
                let reply = ada.request(method, &path).body("application/json", body).send().await;
                (reply.status, reply.text().replace(name, "NAME"))
            };
            let (there, absent) = (ask("known0").await, ask("absent").await);
            if there != absent {
                telling.push(format!("{method} {path}{query} {body}\n  {there:?}\n  {absent:?}"));
            }
        }
    }
    for user in ["known0", "absent"] {
        let who = ada.get(&collection("selves/me")).header("impersonate-user", user).send().await;
        assert_eq!(who.status, 403, "{}", who.text());
    }
    assert!(telling.is_empty(), "{}", telling.join("\n"));
}
