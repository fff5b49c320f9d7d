//! Secret sync: the data that flows, the user it flows for, and the reasons that stop it
//! (`docs/reference/shared-secrets.md#secret-sync`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_tests::Server;
use postern_tests::http::Client;
use postern_tests::objects::{CORE, create, make, secret_path, secrets};
use postern_tests::rights::{allow, merge, path, rule, set, user, with_key};
use postern_tests::wait;
use serde_json::{Value, json};

use crate::projects::scene::{core_secrets, in_namespace};

const NAME: &str = "platform.sh/sharedsecret-name";
const NAMESPACE: &str = "platform.sh/sharedsecret-namespace";
const MIRROR: &str = "platform.sh/mirror";

fn project_secrets() -> String {
    in_namespace("p-web", "projectsecrets")
}

fn at(name: &str) -> String {
    format!("{}/{name}", project_secrets())
}

fn labelled(labels: Value) -> Value {
    let mut object = json!({ "metadata": {} });
    object["metadata"]["labels"] = labels;
    object
}

async fn set_shared(admin: &Client, value: &str) {
    let data = json!({ "data": { "value": STANDARD.encode(value) } });
    set(admin, &secret_path("db"), data).await;
}

/// Waits until a secret has a value, and a condition this reason.
async fn until(admin: &Client, name: &str, value: &str, of: &str, reason: &str) {
    let value = STANDARD.encode(value);
    let what = format!("{name} has {of} {reason}");
    wait::until(&what, async || {
        let now = admin.get(&at(name)).send().await.expect(200);
        let conditions = now["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let said = conditions.iter().any(|one| one["type"] == of && one["reason"] == reason);
        (said && now["spec"]["data"]["value"] == value.as_str()).then_some(())
    })
    .await;
}

/// A project, a shared secret `db` with the value `one`, and the user `ada` with every right to the
/// secrets of the project.
async fn scene(admin: &Client) -> Client {
    make(admin, "projects", "web", json!({})).await;
    let data = json!({ "data": { "value": STANDARD.encode("one") } });
    create(admin, &secrets("platform"), "db", json!({ "spec": data })).await;
    let ada = user(admin, "ada").await;
    let rules = json!([
        rule(&["projectsecrets"], &["*"]),
        { "apiGroups": [""], "resources": ["secrets"], "verbs": ["*"] },
    ]);
    allow(admin, "works", Some("p-web"), rules, "platform:user:ada").await;
    ada
}

async fn share(admin: &Client, with: Value) {
    set(admin, &secret_path("db"), json!({ "access": with })).await;
}

#[tokio::test]
async fn data_follows_its_source_and_clients_write_none() {
    let server = Server::start().await;
    let admin = server.client();
    scene(&admin).await;
    let labels = labelled(json!({ NAME: "db", NAMESPACE: "platform" }));
    let mut with_data = labels.clone();
    with_data["metadata"]["name"] = "s".into();
    with_data["spec"] = json!({ "data": { "value": "eA==" } });
    let reply = admin.post(&project_secrets()).json(&with_data).send().await;
    assert_eq!(reply.status, 422, "{}", reply.text());
    assert!(reply.text().contains("must be empty"), "{}", reply.text());
    create(&admin, &project_secrets(), "s", labels).await;
    until(&admin, "s", "one", "Synced", "Synced").await;
    let table =
        admin.get(&project_secrets()).accept("application/json;as=Table;g=meta.k8s.io;v=v1");
    let table = table.send().await.expect(200);
    let columns: Vec<_> = table["columnDefinitions"].as_array().unwrap().iter().collect();
    let at_column = columns.iter().position(|column| column["name"] == "Synced").unwrap();
    assert_eq!(table["rows"][0]["cells"][at_column], "True", "{table}");
    set_shared(&admin, "two").await;
    until(&admin, "s", "two", "Synced", "Synced").await;
    let own = json!({ "spec": { "data": { "value": "eA==" } } });
    assert_eq!(merge(&admin, &at("s"), own.clone()).await.status, 422);
    // Other changes are possible, and a whole object is written back as it was read.
    merge(&admin, &at("s"), json!({ "spec": { "description": "d" } })).await.expect(200);
    let read = admin.get(&at("s")).send().await.expect(200);
    admin.put(&at("s")).json(&read).send().await.expect(200);
    // No other user can be made the writer.
    let forged = json!({ "metadata": { "annotations": { "platform.sh/synced-for": "{}" } } });
    let after = merge(&admin, &at("s"), forged).await.expect(200);
    assert_eq!(
        after["metadata"]["annotations"]["platform.sh/synced-for"],
        read["metadata"]["annotations"]["platform.sh/synced-for"]
    );
    let half = labelled(json!({ NAME: Value::Null }));
    assert_eq!(merge(&admin, &at("s"), half).await.status, 422, "a namespace and no name");
    // The source goes: the last data stays, until a later source replaces it.
    admin.delete(&secret_path("db")).send().await.expect(200);
    until(&admin, "s", "two", "Synced", "SourceNotFound").await;
    let data = json!({ "spec": { "data": { "value": STANDARD.encode("three") } } });
    create(&admin, &secrets("platform"), "db", data).await;
    until(&admin, "s", "three", "Synced", "Synced").await;
    // Without labels the secret can have other data.
    let none = labelled(json!({ NAME: Value::Null, NAMESPACE: Value::Null }));
    merge(&admin, &at("s"), none).await.expect(200);
    merge(&admin, &at("s"), own).await.expect(200);
}

#[tokio::test]
async fn who_may_not_read_the_source_cannot_have_it_brought() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = scene(&admin).await;
    let labels = labelled(json!({ NAME: "db" }));
    let mut object = labels.clone();
    object["metadata"]["name"] = "s".into();
    for source in ["db", "none"] {
        object["metadata"]["labels"][NAME] = source.into();
        let reply = ada.post(&project_secrets()).json(&object).send().await;
        assert_eq!(reply.status, 403, "{}", reply.text());
        assert!(reply.text().contains("sharedsecrets"), "{}", reply.text());
    }
    create(&ada, &project_secrets(), "s", json!({})).await;
    assert_eq!(merge(&ada, &at("s"), labels.clone()).await.status, 403);
    let add = json!([{ "op": "add", "path": "/metadata/labels", "value": { NAME: "db" } }]);
    assert_eq!(ada.patch(&at("s"), "json-patch", &add).send().await.status, 403);
    // A key that reaches the project alone has no right to the source, regardless of its owner's
    // rights.
    share(&admin, json!([{ "verbs": ["get"], "users": ["ada"] }])).await;
    let scope = json!({ "projects": [{ "project": "web" }] });
    let scoped = with_key(&admin, "scoped", json!({ "user": "ada", "scope": scope })).await;
    assert_eq!(merge(&scoped, &at("s"), labels.clone()).await.status, 403);
    merge(&ada, &at("s"), labels).await.expect(200);
    until(&admin, "s", "one", "Synced", "Synced").await;
}

#[tokio::test]
async fn a_right_that_is_taken_away_stops_what_flows_and_the_condition_says_so() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = scene(&admin).await;
    share(&admin, json!([{ "verbs": ["get"], "users": ["ada"] }])).await;
    create(&ada, &project_secrets(), "s", labelled(json!({ NAME: "db" }))).await;
    until(&admin, "s", "one", "Synced", "Synced").await;
    share(&admin, json!([])).await;
    set_shared(&admin, "two").await;
    until(&admin, "s", "one", "Synced", "NotAuthorized").await;
    let events = format!("{CORE}/namespaces/p-web/events");
    wait::until("there is an event", async || {
        let list = admin.get(&events).send().await.expect(200);
        let items = list["items"].as_array().unwrap().clone();
        items
            .into_iter()
            .find(|one| one["reason"] == "NotAuthorized" && one["involvedObject"]["name"] == "s")
    })
    .await;
    // A user that changes another field does not become the writer.
    merge(&admin, &at("s"), json!({ "spec": { "description": "d" } })).await.expect(200);
    until(&admin, "s", "one", "Synced", "NotAuthorized").await;
    share(&admin, json!([{ "verbs": ["get"], "users": ["ada"] }])).await;
    until(&admin, "s", "two", "Synced", "Synced").await;
    // If the writer's key is deleted, the sync ends. If the writer logs out, it goes on until their
    // user is deleted, even if a new user has the name since.
    admin.delete(&path("ownedaccesskeys", "ada-key")).send().await.expect(200);
    set_shared(&admin, "three").await;
    until(&admin, "s", "two", "Synced", "NotAuthorized").await;
    let login = with_key(&admin, "login", json!({ "user": "ada", "type": "Login" })).await;
    for source in [Value::Null, "db".into()] {
        let mut change = labelled(json!({ NAME: source }));
        change["spec"] = json!({ "data": null });
        merge(&login, &at("s"), change).await.expect(200);
    }
    until(&admin, "s", "three", "Synced", "Synced").await;
    login.delete(&path("ownedaccesskeys", "login")).send().await.expect(200);
    set_shared(&admin, "four").await;
    until(&admin, "s", "four", "Synced", "Synced").await;
    let reads = json!([rule(&["sharedsecrets"], &["get"])]);
    allow(&admin, "reads", Some("platform"), reads, "platform:user:ada").await;
    admin.delete(&path("users", "ada")).send().await.expect(200);
    user(&admin, "ada").await;
    set_shared(&admin, "five").await;
    until(&admin, "s", "four", "Synced", "NotAuthorized").await;
}

/// Waits until a core Secret has a value; `None` until it is gone.
async fn until_core(admin: &Client, name: &str, value: Option<&str>) -> Value {
    let path = format!("{}/{name}", core_secrets("p-web"));
    wait::until(&format!("{name} is {value:?}"), async || {
        let reply = admin.get(&path).send().await;
        match value {
            None => (reply.status == 404).then_some(Value::Null),
            Some(value) if reply.status == 200 => Some(reply.json())
                .filter(|secret| secret["data"]["value"] == STANDARD.encode(value).as_str()),
            Some(_) => None,
        }
    })
    .await
}

#[tokio::test]
async fn a_mirror_is_kept_and_another_secret_stays_as_it_is() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = scene(&admin).await;
    let one = json!({ "value": STANDARD.encode("one") });
    let mut wanted = labelled(json!({ MIRROR: "true", "l": "1" }));
    wanted["metadata"]["annotations"] = json!({ "a": "1" });
    wanted["spec"] = json!({ "data": one });
    create(&ada, &project_secrets(), "s", wanted.clone()).await;
    let mirror = until_core(&admin, "s", Some("one")).await;
    assert_eq!(mirror["metadata"]["labels"], json!({ "platform.sh/project-secret": "true" }));
    assert!(mirror["metadata"].get("annotations").is_none(), "{mirror}");
    until(&admin, "s", "one", "Mirrored", "Mirrored").await;
    // A hand edit is put back, and a deletion.
    let edited = json!({ "data": { "value": STANDARD.encode("edited") } });
    merge(&admin, &format!("{}/s", core_secrets("p-web")), edited).await.expect(200);
    until_core(&admin, "s", Some("one")).await;
    admin.delete(&format!("{}/s", core_secrets("p-web"))).send().await.expect(200);
    until_core(&admin, "s", Some("one")).await;
    set(&admin, &at("s"), json!({ "data": { "value": STANDARD.encode("two") } })).await;
    until_core(&admin, "s", Some("two")).await;
    merge(&admin, &at("s"), labelled(json!({ MIRROR: Value::Null }))).await.expect(200);
    until_core(&admin, "s", None).await;
    merge(&admin, &at("s"), labelled(json!({ MIRROR: "true" }))).await.expect(200);
    until_core(&admin, "s", Some("two")).await;
    admin.delete(&at("s")).send().await.expect(200);
    until_core(&admin, "s", None).await;

    let other = json!({ "data": { "value": STANDARD.encode("other") } });
    create(&admin, &core_secrets("p-web"), "taken", other).await;
    create(&ada, &project_secrets(), "taken", wanted.clone()).await;
    until(&admin, "taken", "one", "Mirrored", "SecretExists").await;
    until_core(&admin, "taken", Some("other")).await;
    admin.delete(&format!("{}/taken", core_secrets("p-web"))).send().await.expect(200);
    until_core(&admin, "taken", Some("one")).await;

    // A user without the right to create Secrets, or without the right to read the secret, has none
    // mirrored.
    let bob = user(&admin, "bob").await;
    let some = json!([rule(&["projectsecrets"], &["create", "patch"])]);
    allow(&admin, "some", Some("p-web"), some, "platform:user:bob").await;
    wanted["metadata"]["name"] = "of-bob".into();
    assert_eq!(bob.post(&project_secrets()).json(&wanted).send().await.status, 403);
    create(&admin, &project_secrets(), "hidden", json!({ "spec": { "data": one } })).await;
    let rules = json!([{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["*"] }]);
    allow(&admin, "core", Some("p-web"), rules, "platform:user:bob").await;
    let label = labelled(json!({ MIRROR: "true" }));
    assert_eq!(merge(&bob, &at("hidden"), label).await.status, 403);
}

/// Waits until there is an event about a secret.
async fn until_event(admin: &Client, of: &str, reason: &str) {
    let events = format!("{CORE}/namespaces/p-web/events");
    wait::until(&format!("{of} has an event {reason}"), async || {
        let list = admin.get(&events).send().await.expect(200);
        let is = |one: &&Value| one["reason"] == reason && one["involvedObject"]["name"] == of;
        list["items"].as_array().unwrap().iter().find(is).map(drop)
    })
    .await;
}

#[tokio::test]
async fn data_that_a_secret_cannot_take_is_said_and_not_tried_again() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = scene(&admin).await;
    let mut mirrored = labelled(json!({ MIRROR: "true" }));
    mirrored["spec"] = json!({ "data": { "value": STANDARD.encode("one") } });
    create(&ada, &project_secrets(), "s", mirrored).await;
    let filled = labelled(json!({ "platform.sh/project-secret-name": "s" }));
    create(&ada, &core_secrets("p-web"), "c", filled).await;
    let immutable = json!({ "immutable": true });
    for name in ["s", "c"] {
        until_core(&admin, name, Some("one")).await;
        let path = format!("{}/{name}", core_secrets("p-web"));
        merge(&admin, &path, immutable.clone()).await.expect(200);
    }
    set(&admin, &at("s"), json!({ "data": { "value": STANDARD.encode("two") } })).await;
    until(&admin, "s", "two", "Mirrored", "Invalid").await;
    let secret = admin.get(&at("s")).send().await.expect(200);
    let conditions = secret["status"]["conditions"].as_array().unwrap();
    let said = conditions.iter().find(|one| one["type"] == "Mirrored").unwrap();
    assert_eq!(said["status"], "False");
    assert!(said["message"].as_str().unwrap().contains("immutable"), "{said}");
    for name in ["s", "c"] {
        until_event(&admin, name, "Invalid").await;
        until_core(&admin, name, Some("one")).await;
    }
    // A failure that is tried again would be in the log.
    let logged = server.home().logged();
    assert!(!logged.contains("the data could not be copied"), "{logged}");
    admin.delete(&format!("{}/s", core_secrets("p-web"))).send().await.expect(200);
    until_core(&admin, "s", Some("two")).await;
    until(&admin, "s", "two", "Mirrored", "Mirrored").await;
}

#[tokio::test]
async fn a_core_secret_of_a_type_is_filled_and_has_the_keys_of_its_type() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = scene(&admin).await;
    let pair = json!({ "tls.crt": "Yw==", "tls.key": "aw==" });
    create(&admin, &project_secrets(), "pair", json!({ "spec": { "data": pair } })).await;
    let half = json!({ "spec": { "data": { "tls.crt": "Yw==" } } });
    create(&admin, &project_secrets(), "half", half).await;
    for source in ["pair", "half"] {
        let mut object = labelled(json!({ "platform.sh/project-secret-name": source }));
        object["type"] = "kubernetes.io/tls".into();
        create(&ada, &core_secrets("p-web"), source, object).await;
    }
    wait::until("the pair", async || {
        let path = format!("{}/pair", core_secrets("p-web"));
        let now = admin.get(&path).send().await.expect(200);
        (now["data"] == pair).then_some(())
    })
    .await;
    // The server brings nothing that is none.
    until_event(&admin, "half", "Invalid").await;
    let path = format!("{}/half", core_secrets("p-web"));
    assert!(admin.get(&path).send().await.expect(200)["data"].is_null());
    // Without a source it needs its keys, and others do.
    let own = labelled(json!({ "platform.sh/project-secret-name": Value::Null }));
    assert_eq!(merge(&ada, &path, own).await.status, 422);
    let plain = json!({ "metadata": { "name": "plain" }, "type": "kubernetes.io/tls" });
    assert_eq!(ada.post(&core_secrets("p-web")).json(&plain).send().await.status, 422);
}

#[tokio::test]
async fn a_core_secret_of_a_project_is_filled_under_the_same_checks() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = scene(&admin).await;
    let data = json!({ "spec": { "data": { "value": STANDARD.encode("one") } } });
    create(&admin, &project_secrets(), "s", data).await;
    let labels = labelled(json!({ "platform.sh/project-secret-name": "s" }));
    let mut with_data = labels.clone();
    with_data["metadata"]["name"] = "c".into();
    with_data["data"] = json!({ "x": "eA==" });
    let reply = ada.post(&core_secrets("p-web")).json(&with_data).send().await;
    assert_eq!(reply.status, 422, "{}", reply.text());
    create(&ada, &core_secrets("p-web"), "c", labels.clone()).await;
    until_core(&admin, "c", Some("one")).await;
    set(&admin, &at("s"), json!({ "data": { "value": STANDARD.encode("two") } })).await;
    until_core(&admin, "c", Some("two")).await;
    let bob = user(&admin, "bob").await;
    let rules = json!([{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["*"] }]);
    allow(&admin, "core", None, rules, "platform:user:bob").await;
    let mut object = labels.clone();
    object["metadata"]["name"] = "of-bob".into();
    assert_eq!(bob.post(&core_secrets("p-web")).json(&object).send().await.status, 403);
    // Elsewhere the label means nothing.
    with_data["metadata"]["name"] = "plain".into();
    bob.post(&core_secrets("platform")).json(&with_data).send().await.expect(201);
}
