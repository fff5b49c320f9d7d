//! Secret values are in no response to callers without the right to get them, in no error, and in
//! neither log.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_tests::http::{Client, Response};
use postern_tests::objects::{BASE, based, make};
use serde_json::json;

use crate::matrix::fixture::{Fixture, OURS, Target};
use crate::matrix::hidden::may_get;
use crate::matrix::tables::Answered;
use crate::matrix::world::World;

/// The answers with a secret value of an object that the caller may not get.
pub(crate) fn leaking(world: &World, table: &[Answered]) -> Vec<String> {
    let mut leaking = Vec::new();
    for target in world.fixture.targets() {
        let canary = world.fixture.canary(target);
        for (at, identity) in world.identities.iter().enumerate() {
            if may_get(table, target, at) {
                continue;
            }
            let with = table.iter().filter(|one| one.answers[at].body.contains(&canary));
            leaking.extend(with.filter(|one| !is_of_new(one)).map(|one| {
                let ask = &one.row.ask;
                format!("{} sees {}: {} {}", identity.code, target.word(), ask.method, ask.path)
            }));
        }
    }
    leaking
}

/// Whether the response is about an object that the caller has just made.
fn is_of_new(answered: &Answered) -> bool {
    answered.row.operation.method == "POST"
}

/// A value that no caller may read. It is searched for in plain text and in base64.
const PLAIN: &str = "the-canary-that-nobody-may-ever-read";

fn is_there(text: &str) -> bool {
    let half = &PLAIN[..PLAIN.len() / 2];
    text.contains(half) || text.contains(&STANDARD.encode(PLAIN)[..PLAIN.len() / 2])
}

/// Bodies with the value, each of which has something wrong.
fn malformed() -> Vec<(&'static str, String)> {
    let encoded = STANDARD.encode(PLAIN);
    vec![
        ("application/json", format!(r#"{{"spec":{{"data":{{"value":"{encoded}""#)),
        ("application/json", format!(r#"{{"spec":{{"data":{{"value":"{PLAIN}!"}}}}}}"#)),
        ("application/json", format!(r#"{{"spec":{{"data":["{encoded}"]}}}}"#)),
        ("application/json", format!(r#"{{"spec":{{"data":"{encoded}"}}}}"#)),
        (
            "application/json",
            format!(r#"{{"spec":{{"data":{{"a":"{encoded}","a":"{encoded}"}}}}}}"#),
        ),
        (
            "application/json",
            format!(r#"{{"data":{{"value":["{encoded}"]}},"stringData":"{PLAIN}"}}"#),
        ),
        (
            "application/json",
            format!(r#"{{"spec":{{"key":["{PLAIN}"],"user":{{"x":"{PLAIN}"}}}}}}"#),
        ),
        (
            "application/json",
            format!(r#"{{"metadata":{{"name":"x"}},"spec":{{"key":"{PLAIN}","ttl":-1}}}}"#),
        ),
        ("application/yaml", format!("spec:\n  data:\n    value: [{encoded}\n")),
        ("application/yaml", format!("spec: {{data: {{value: *{PLAIN}}}}}\n")),
        (
            "application/json-patch+json",
            format!(r#"[{{"op":"add","path":"/spec/data/x/y","value":"{encoded}"}}]"#),
        ),
        (
            "application/json-patch+json",
            format!(r#"[{{"op":"test","path":"/spec/data/value","value":"{encoded}"}}]"#),
        ),
        (
            "application/json-patch+json",
            format!(r#"[{{"op":"add","path":"/spec/data","value":"{encoded}"}}]"#),
        ),
        ("application/merge-patch+json", format!(r#"{{"spec":{{"data":["{encoded}"]}}}}"#)),
        ("application/merge-patch+json", format!(r#"{{"spec":{{"data":{{"value":"{encoded}""#)),
        (
            "application/strategic-merge-patch+json",
            format!(r#"{{"spec":{{"data":{{"$patch":"{encoded}"}},"$retainKeys":["{PLAIN}"]}}}}"#),
        ),
        (
            "application/apply-patch+yaml",
            format!("{{apiVersion: {APPLIED}, spec: {{data: [{encoded}], key: [{PLAIN}]}}}}"),
        ),
        (
            "application/apply-patch+yaml",
            format!("{{apiVersion: {APPLIED}, spec: {{data: {{value: {encoded}!}}}}}}"),
        ),
        ("application/apply-patch+yaml", format!("{{apiVersion: {APPLIED}, spec: {{data: {PLAIN}")),
        ("text/plain", encoded),
    ]
}

/// The type of an apply, for a shared secret.
const APPLIED: &str = "management.platform.sh/v1, kind: SharedSecret";

async fn send(client: &Client, method: &str, path: &str, kind: &str, body: &str) -> Response {
    client.request(method, path).body(kind, body.to_owned()).send().await
}

#[tokio::test]
async fn malformed_bodies_leave_no_secret_values_anywhere() {
    let world = World::of(Fixture::of("sharedsecrets")).await;
    let admin = world.admin();
    let kinds = ["sharedsecrets", "projectsecrets", "secrets", "ownedaccesskeys"];
    for plural in kinds {
        let fixture = Fixture::of(plural);
        if plural != "sharedsecrets" {
            crate::matrix::world::make_target(&admin, &fixture, Target::Theirs).await;
        }
        let object = based(&fixture.path(Target::Theirs));
        let collection = based(&fixture.collection(fixture.namespace(Target::Theirs)));
        for (kind, body) in malformed() {
            let requests: &[(&str, &str)] = if kind.contains("patch") {
                &[("PATCH", &object)]
            } else {
                &[("POST", &collection), ("PUT", &object)]
            };
            for code in ["admin", "owner", "other", "member", "maker", "read"] {
                let who = world.identities.iter().find(|one| one.code == code).expect("a column");
                for (method, path) in requests {
                    for query in ["", "?dryRun=All", "?fieldValidation=Strict", "?fieldManager=m"] {
                        let path = format!("{path}{query}");
                        let reply = send(&who.client, method, &path, kind, &body).await;
                        let what = format!("{code} {method} {path} {body}: {}", reply.text());
                        assert!(!is_there(&reply.text()), "{what}");
                    }
                }
            }
        }
    }
    let marker = format!("{BASE}/the-last-request");
    admin.get(&marker).send().await;
    let audit = postern_tests::wait::until("the audit log", async || {
        let text = std::fs::read_to_string(world.server.home().audit_log()).unwrap_or_default();
        text.contains(&marker).then_some(text)
    })
    .await;
    assert!(!is_there(&audit), "the audit log has a secret value");
    assert!(!is_there(&world.server.home().logged()), "the server's log has a secret value");
    assert!(!is_there(&json!(world.server.home().records()).to_string()));
}

/// Makes a user that holds verbs on resources of the platform's group in a namespace. The result is
/// a client with a key of that user.
async fn holder(admin: &Client, namespace: &str, resources: &[&str], verbs: &[&str]) -> Client {
    let name = "holder";
    make(admin, "users", name, json!({})).await;
    let key = make(admin, "ownedaccesskeys", "key-of-holder", json!({ "user": name })).await;
    let group = "rbac.authorization.k8s.io";
    let roles = based(&format!("/apis/{group}/v1/namespaces/{namespace}"));
    let role = json!({
        "metadata": { "name": name },
        "rules": [{ "apiGroups": [OURS, ""], "resources": resources, "verbs": verbs }],
    });
    admin.post(&format!("{roles}/roles")).json(&role).send().await.expect(201);
    let binding = json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": group, "kind": "Role", "name": name },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": name }],
    });
    admin.post(&format!("{roles}/rolebindings")).json(&binding).send().await.expect(201);
    admin.with_token(key["spec"]["key"].as_str().unwrap())
}

/// Requests that a caller without `get` may send: about the object, or (`false`) its collection.
fn requests_without_get() -> Vec<(&'static str, bool, &'static str, String)> {
    let label = json!({ "metadata": { "labels": { "x": "y" } } }).to_string();
    let add = json!([{ "op": "add", "path": "/metadata/labels/z", "value": "y" }]);
    let copy = json!([{ "op": "copy", "from": "/spec/data/value", "path": "/metadata/labels/a" }]);
    let moved = json!([{ "op": "move", "from": "/spec/data/value", "path": "/spec/data/other" }]);
    let test = json!([{ "op": "test", "path": "/spec/data/value", "value": "eA==" }]);
    let replaced = json!([{ "op": "replace", "path": "/spec/displayName", "value": "new" }]);
    let mut requests = vec![
        ("GET", true, "", String::new()),
        ("GET", false, "", String::new()),
        ("PATCH", true, "merge-patch", label),
        ("DELETE", true, "", String::new()),
    ];
    for patch in [add, copy, moved, test, replaced] {
        requests.push(("PATCH", true, "json-patch", patch.to_string()));
    }
    requests
}

/// Sends all requests, with real deletions last. The result is the requests with the secret value
/// in their response.
async fn showing(client: &Client, collection: &str, object: &str, canary: &str) -> Vec<String> {
    let mut showing = Vec::new();
    for query in ["?dryRun=All", ""] {
        for (method, is_object, kind, body) in requests_without_get() {
            let query = if method == "GET" { "" } else { query };
            let path = format!("{}{query}", if is_object { object } else { collection });
            let mut request = client.request(method, &path);
            if !kind.is_empty() {
                request = request.body(&format!("application/{kind}+json"), body.clone());
            }
            let reply = request.send().await;
            if reply.text().contains(canary) {
                showing.push(format!("{method} {path} {body}: {} {}", reply.status, reply.text()));
            }
        }
    }
    showing
}

/// Sends requests as a caller with every right but `get`, about an object that a finalizer keeps:
/// the response to a DELETE is then the object.
async fn check_without_get(plural: &str) {
    let world = World::of(Fixture::of(plural)).await;
    let (admin, fixture) = (world.admin(), &world.fixture);
    let namespace = fixture.namespace(Target::Theirs);
    let object = based(&fixture.path(Target::Theirs));
    let kept = json!({ "metadata": { "finalizers": ["example.com/kept"] } });
    admin.patch(&object, "merge-patch", &kept).send().await.expect(200);
    let verbs = ["create", "update", "patch", "delete", "list", "watch"];
    let client = holder(&admin, namespace, &[plural], &verbs).await;
    let canary = fixture.canary(Target::Theirs);
    let seen = showing(&client, &based(&fixture.collection(namespace)), &object, &canary).await;
    assert!(seen.is_empty(), "{}", seen.join("\n"));
}

#[tokio::test]
async fn who_may_write_but_not_read_shared_secrets_sees_no_values() {
    check_without_get("sharedsecrets").await;
}

#[tokio::test]
async fn who_may_write_but_not_read_project_secrets_sees_no_values() {
    check_without_get("projectsecrets").await;
}

#[tokio::test]
async fn who_may_delete_a_collection_but_not_read_it_sees_no_values() {
    let world = World::of(Fixture::of("sharedsecrets")).await;
    let (admin, fixture) = (world.admin(), &world.fixture);
    let namespace = fixture.namespace(Target::Theirs);
    let client =
        holder(&admin, namespace, &["sharedsecrets"], &["delete", "deletecollection"]).await;
    for query in ["?dryRun=All", ""] {
        let path = format!("{}{query}", based(&fixture.collection(namespace)));
        let reply = client.delete(&path).send().await;
        assert!(!reply.text().contains(&fixture.canary(Target::Theirs)), "{}", reply.text());
    }
}

#[tokio::test]
async fn a_right_to_the_status_alone_shows_no_values() {
    let world = World::of(Fixture::of("projectsecrets")).await;
    let (admin, fixture) = (world.admin(), &world.fixture);
    let namespace = fixture.namespace(Target::Theirs);
    let client = holder(&admin, namespace, &["projectsecrets/status"], &["get", "patch"]).await;
    let object = based(&format!("{}/status", fixture.path(Target::Theirs)));
    let canary = fixture.canary(Target::Theirs);
    let seen = showing(&client, &based(&fixture.collection(namespace)), &object, &canary).await;
    assert!(seen.is_empty(), "{}", seen.join("\n"));
}
