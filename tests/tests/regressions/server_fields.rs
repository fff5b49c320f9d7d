//! No client writes the fields that only the server may write, regardless of its permissions. They
//! are the origin of a key, the time of its use, the status of an object, and the metadata of the
//! system.

use postern_tests::Server;
use postern_tests::http::{Client, Request, Response};
use postern_tests::objects::{BASE, based, collection, make};
use postern_tests::rights::{merge, path, user, with_key};
use serde_json::{Value, json};

use crate::matrix::fixture::{Fixture, Target};
use crate::regressions::scene::{Findings, KEYS, key_path};

const SESSION: &str = "/auth/session";
const LABEL: &str = "platform.sh/session";

/// A browser with a session: the name of its key, and its cookie.
struct Session {
    key: String,
    cookie: String,
}

impl Session {
    async fn begin(client: &Client) -> Self {
        let reply = client.post(SESSION).send().await;
        let key = reply.expect(201)["status"]["accessKey"].as_str().unwrap().to_owned();
        let cookie = reply.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        Self { key, cookie }
    }

    /// A request that a page of the console sends.
    fn request<'a>(&self, client: &'a Client, method: &str, path: &str) -> Request<'a> {
        let request = client.request(method, path).without("authorization");
        request.header("cookie", &self.cookie).header("x-postern-console", "1")
    }
}

#[tokio::test]
async fn a_session_does_not_prolong_hide_or_reveal_itself() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let session = Session::begin(&ada).await;
    let key = key_path(&session.key);
    let before = admin.get(&key).send().await.expect(200);
    let chosen = "canary-0123456789-0123456789-0123456789";
    let mut found = Findings::new();
    for change in [
        json!({ "spec": { "ttl": 0 } }),
        json!({ "spec": { "ttl": 999_999 } }),
        json!({ "spec": { "key": chosen } }),
        json!({ "spec": { "ttlAfterLastActivity": true } }),
        json!({ "spec": { "type": "Login" } }),
        json!({ "spec": { "groups": ["ops"] } }),
        json!({ "spec": { "identity": { "connector": "corp", "email": "chief@example.com" } } }),
        json!({ "spec": { "identity": { "connectorData": "forged" } } }),
        json!({ "spec": { "identityRefresh": "2020-01-01T00:00:00Z" } }),
        json!({ "spec": { "oidcProvider": { "clientId": "forged" } } }),
        json!({ "metadata": { "labels": { LABEL: null } } }),
        json!({ "metadata": { "labels": { LABEL: "login-code" } } }),
    ] {
        let by_session = session.request(&ada, "PATCH", &key);
        let body = change.to_string();
        let reply = by_session.body("application/merge-patch+json", body).send().await;
        found.check_code(&reply, &[403, 422], &format!("the session: {change}"));
        for (who, client) in [("the owner", &ada), ("an administrator", &admin)] {
            let reply = merge(client, &key, change.clone()).await;
            found.check_code(&reply, &[403, 422], &format!("{who}: {change}"));
        }
    }
    let after = admin.get(&key).send().await.expect(200);
    found.check(after["spec"] == before["spec"], "the session has changed");
    found.check(
        ada.with_token(chosen).get(&collection("selves/me")).send().await.status == 401,
        "a chosen value is accepted",
    );
    // Fields that say nothing false about the session can be written, and the session can be ended.
    let named =
        json!({ "spec": { "displayName": "laptop" }, "metadata": { "labels": { "a": "b" } } });
    found.check_code(&merge(&ada, &key, named).await, &[200], "a name and a label");
    let disabled = json!({ "spec": { "disabled": true } });
    found.check_code(&merge(&ada, &key, disabled).await, &[200], "disabling it");
    found.assert_none();
}

#[tokio::test]
async fn only_the_server_says_that_a_key_is_of_a_session_or_of_a_provider() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let mut found = Findings::new();
    let label = json!({ LABEL: "console" });
    let labelled =
        json!({ "metadata": { "name": "l", "labels": label }, "spec": { "user": "ada" } });
    for (who, client) in [("the owner", &ada), ("an administrator", &admin)] {
        let reply = client.post(&collection(KEYS)).json(&labelled).send().await;
        found.check_code(&reply, &[422], &format!("{who} creates a key with the label"));
        let change = json!({ "metadata": { "labels": label } });
        let reply = merge(client, &key_path("ada-key"), change).await;
        found.check_code(&reply, &[422], &format!("{who} adds the label"));
    }
    for (name, spec) in [
        ("identity", json!({ "identity": { "connector": "corp", "email": "chief@example.com" } })),
        ("data", json!({ "identity": { "connectorData": "forged" } })),
        ("refresh", json!({ "identityRefresh": "2020-01-01T00:00:00Z" })),
        ("provider", json!({ "oidcProvider": { "clientId": "forged" } })),
    ] {
        let mut key = json!({ "metadata": { "name": name }, "spec": spec });
        key["spec"]["user"] = "ada".into();
        let reply = ada.post(&collection(KEYS)).json(&key).send().await;
        found.check_code(&reply, &[403], &format!("the owner creates a key with {name}"));
        let reply = merge(&ada, &key_path("ada-key"), json!({ "spec": spec })).await;
        found.check_code(&reply, &[403], &format!("the owner adds {name}"));
        let reply = admin.post(&collection(KEYS)).json(&key).send().await;
        found.check_code(&reply, &[201], &format!("an administrator restores a key with {name}"));
    }
    found.assert_none();
}

/// The metadata that only the system writes.
const METADATA: [(&str, &str); 5] = [
    ("uid", "00000000-0000-4000-8000-000000000000"),
    ("creationTimestamp", "2020-01-01T00:00:00Z"),
    ("deletionTimestamp", "2020-01-01T00:00:00Z"),
    ("generation", "77"),
    ("selfLink", "/forged"),
];

#[tokio::test]
async fn no_client_writes_the_status_or_the_metadata_of_the_system() {
    let server = Server::start().await;
    let admin = server.client();
    make(&admin, "users", "host", json!({})).await;
    make(&admin, "projects", "alpha", json!({})).await;
    let ci = json!({ "type": "Generic", "issuer": "https://ci.example.com" });
    make(&admin, "trustedissuers", "ci", ci).await;
    let document = "/openapi/v3/apis/management.platform.sh/v1";
    let document = admin.get(&based(document)).send().await.expect(200);
    let (mut found, mut kinds_with_status) = (Findings::new(), 0);
    // Both groups of Events have the same objects.
    let is_own =
        |fixture: &Fixture| fixture.has(Target::Theirs) && fixture.group != "events.k8s.io";
    for fixture in Fixture::all().into_iter().filter(is_own) {
        let collection = format!("{BASE}{}", fixture.collection(fixture.namespace(Target::Theirs)));
        let mut object = fixture.object(Target::Theirs, "forged");
        let status = forged_status(&document, fixture.plural);
        kinds_with_status += usize::from(status.is_some());
        if let Some(status) = &status {
            object["status"] = status.clone();
        }
        for (field, value) in METADATA {
            object["metadata"][field] = forged(field, value);
        }
        let reply = admin.post(&collection).json(&object).send().await;
        // A create of an object that has a uid, or is being deleted, may be refused.
        if reply.status != 201 {
            object["metadata"] = json!({ "name": "forged" });
            admin.post(&collection).json(&object).send().await.expect(201);
        }
        let at = format!("{collection}/forged");
        let before = settled(&admin, &at).await;
        check_created(&mut found, fixture.plural, &before);
        for change in METADATA
            .map(|(field, value)| json!({ "metadata": { field: forged(field, value) } }))
            .into_iter()
            .chain(status.map(|status| json!({ "status": status })))
        {
            let reply: Response = merge(&admin, &at, change.clone()).await;
            found.check(reply.status < 500, format!("{at}: {change}: {}", reply.status));
            let after = settled(&admin, &at).await;
            let is_same = of_server(&before) == of_server(&after);
            found.check(is_same, format!("{at}: {change} was written: {after}"));
        }
    }
    assert!(kinds_with_status >= 6, "{kinds_with_status} kinds have a status");
    found.assert_none();
}

fn forged(field: &str, value: &str) -> Value {
    if field == "generation" { 77.into() } else { value.into() }
}

/// An object when no controller writes its status any more: with two equal reads.
async fn settled(client: &Client, path: &str) -> Value {
    let mut known = client.get(path).send().await.expect(200);
    loop {
        let again = client.get(path).send().await.expect(200);
        if again == known {
            return again;
        }
        known = again;
    }
}

fn check_created(found: &mut Findings, plural: &str, created: &Value) {
    let text = created.to_string();
    // The status of each kind that has one was sent with this text.
    found.check(!text.contains("forged-status"), format!("{plural}: {text}"));
    for (field, value) in METADATA {
        let is_forged = created["metadata"][field] == forged(field, value);
        found.check(!is_forged, format!("{plural}: {field} of the client"));
    }
}

/// The fields of an object that the server alone writes, without those that each write changes.
fn of_server(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let of_system = ["uid", "creationTimestamp", "deletionTimestamp", "generation", "selfLink"];
    let of_system: Vec<&Value> = of_system.iter().map(|field| &metadata[field]).collect();
    json!([of_system, object["status"]])
}

/// A status with a value for each field that the kind has; `None` for a kind of another group, or without a status.
fn forged_status(document: &Value, plural: &str) -> Option<Value> {
    let schemas = document["components"]["schemas"].as_object()?;
    let of_kind = schemas.iter().find(|(_, schema)| {
        let kind =
            schema["x-kubernetes-group-version-kind"][0]["kind"].as_str().unwrap_or_default();
        kind.to_lowercase() + "s" == plural
            || kind.to_lowercase().replace("identity", "identities") == plural
    });
    let status = &of_kind?.1["properties"]["status"];
    let sample = sample(document, status, 0);
    sample.as_object().is_some_and(|fields| !fields.is_empty()).then_some(sample)
}

/// A value of a schema, with each of its fields.
fn sample(document: &Value, schema: &Value, depth: usize) -> Value {
    let reference = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
    if let Some(reference) = reference {
        let pointer = reference.strip_prefix('#').unwrap_or_default();
        let target = document.pointer(pointer).unwrap_or(&Value::Null);
        return sample(document, target, depth);
    }
    match schema["type"].as_str().unwrap_or_default() {
        "object" if depth < 6 => {
            let fields = schema["properties"].as_object().into_iter().flatten();
            let fields =
                fields.map(|(name, field)| (name.clone(), sample(document, field, depth + 1)));
            Value::Object(fields.collect())
        }
        "array" if depth < 6 => json!([sample(document, &schema["items"], depth + 1)]),
        "string" if schema["format"] == "date-time" => "2020-01-01T00:00:00Z".into(),
        "string" => schema["enum"].get(0).cloned().unwrap_or_else(|| "forged-status".into()),
        "integer" => 77.into(),
        "boolean" => true.into(),
        _ => Value::Null,
    }
}

/// A key without a scope begins a session, and one with a scope does not. Otherwise a key without
/// rights could take all sessions of its owner.
#[tokio::test]
async fn a_key_with_a_scope_begins_no_session() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let scoped = with_key(&admin, "scoped", json!({ "user": "ada", "scope": {} })).await;
    let mut found = Findings::new();
    for _ in 0..3 {
        found.check_code(&scoped.post(SESSION).send().await, &[403], "a session");
        let link = scoped.post(&collection("consolelogincodes")).json(&json!({})).send().await;
        found.check_code(&link, &[403, 404], "a login link");
    }
    found.check_code(&ada.post(SESSION).send().await, &[201], "a session of the owner's own key");
    let listed = ada.get(&format!("{}?labelSelector={LABEL}", path(KEYS, ""))).send().await;
    found.check(listed.status < 500, "the list of sessions");
    found.assert_none();
}
