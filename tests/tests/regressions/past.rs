//! Reads of the past show nothing of another namespace or project of the same name, and nothing of before a right.

use postern_tests::http::Client;
use postern_tests::objects::{create, make, secret_path, secrets, version_of};
use postern_tests::rights::{RBAC, allow, path, rule, set, user};
use postern_tests::{Server, wait};
use serde_json::{Value, json};

use crate::regressions::scene::{
    Findings, acting, core_rule, core_secret, core_secrets, in_namespace, may_impersonate,
    namespace, until_gone,
};

/// The base64 of the value that must not be seen.
const CANARY: &str = "Y2FuYXJ5";

/// Reads the past of a collection in every way, and checks that it has no text that must not be seen.
/// `last` is the name of an object that exists now, and ends the watches.
async fn read_the_past(
    found: &mut Findings,
    client: &Client,
    collection: &str,
    past: &Value,
    last: &str,
    secret: &[&str],
) {
    let version = version_of(&past["list"]);
    let next = past["page"]["metadata"]["continue"].as_str().unwrap_or_default();
    let hidden = |text: &str| secret.iter().all(|secret| !text.contains(secret));
    let tables = "application/json;as=Table;g=meta.k8s.io;v=v1";
    for query in [
        format!("resourceVersion={version}&resourceVersionMatch=Exact"),
        format!("resourceVersion={version}&resourceVersionMatch=NotOlderThan"),
        format!("resourceVersion={version}&resourceVersionMatch=Exact&limit=1"),
        format!("continue={next}"),
        format!("continue={next}&limit=1"),
    ] {
        for accept in ["application/json", tables, "application/vnd.kubernetes.protobuf"] {
            let request = client.get(&format!("{collection}?{query}")).accept(accept);
            let reply = request.send().await;
            found.check(
                hidden(&reply.text()),
                format!("list {query} as {accept}: {}", reply.status),
            );
        }
    }
    for query in [
        "",
        "&allowWatchBookmarks=true",
        "&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan",
    ] {
        let path =
            format!("{collection}?watch=true&resourceVersion={version}{query}&timeoutSeconds=20");
        let reply = client.get(&path);
        let events = wait::within("a watch from before", watched(reply, last)).await;
        found.check(hidden(&events), format!("watch from before{query}: {events}"));
    }
}

/// Everything that a watch shows until it has an event about the object `last`, ends or is refused.
async fn watched(request: postern_tests::http::Request<'_>, last: &str) -> String {
    let Ok(mut lines) = request.try_stream().await else { return String::new() };
    let mut text = String::new();
    while let Ok(Some(line)) = lines.next().await {
        text.push_str(&line);
        if line.contains(&format!("\"{last}\"")) || line.contains("\"ERROR\"") {
            break;
        }
    }
    text
}

async fn past_of(client: &Client, collection: &str) -> Value {
    let list = client.get(collection).send().await.expect(200);
    let page = client.get(&format!("{collection}?limit=1")).send().await.expect(200);
    assert!(page["metadata"]["continue"].is_string());
    json!({ "list": list, "page": page })
}

/// Leases of the project.
const LEASES: &str = "/kubernetes/management/apis/coordination.k8s.io/v1/namespaces/p-foo/leases";

/// An object of a collection, with the canary where it can have one.
fn content(collection: &str) -> Value {
    match collection.rsplit('/').next().unwrap() {
        "roles" => json!({ "rules": [] }),
        "leases" => json!({ "spec": {} }),
        "secrets" => core_secret("canary"),
        _ => json!({ "spec": { "data": { "value": CANARY } } }),
    }
}

#[tokio::test]
async fn the_past_of_an_earlier_project_of_the_same_name_is_not_shown() {
    let server = Server::start().await;
    let admin = server.client();
    let bob = user(&admin, "bob").await;
    let rules = json!([
        core_rule(&["secrets", "namespaces"], &["get", "list", "watch"]),
        rule(&["projectsecrets", "sharedsecrets"], &["get", "list", "watch"]),
        { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "list", "watch"] },
        { "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"],
            "verbs": ["get", "list", "watch"] },
    ]);
    make(&admin, "projects", "foo", json!({})).await;
    let kinds = [
        in_namespace("p-foo", "sharedsecrets"),
        LEASES.to_owned(),
        format!("{RBAC}/namespaces/p-foo/roles"),
        core_secrets("p-foo"),
        in_namespace("p-foo", "projectsecrets"),
    ];
    let mut past = Vec::new();
    for kind in &kinds {
        for name in ["canary-a", "canary-b"] {
            let object = content(kind);
            create(&admin, kind, name, object).await;
        }
        past.push(past_of(&admin, kind).await);
    }
    admin.delete(&path("projects", "foo")).send().await.expect(200);
    until_gone(&admin, &path("projects", "foo")).await;
    until_gone(&admin, &namespace("p-foo")).await;
    make(&admin, "projects", "foo", json!({})).await;
    allow(&admin, "of-bob", Some("p-foo"), rules, "platform:user:bob").await;
    let mut found = Findings::new();
    for (kind, past) in kinds.iter().zip(&past) {
        let object = if kind.contains("roles") || kind.contains("leases") {
            content(kind)
        } else {
            json!({})
        };
        create(&admin, kind, "last", object).await;
        read_the_past(&mut found, &bob, kind, past, "last", &[CANARY, "canary-a", "canary-b"])
            .await;
    }
    found.assert_none();
}

#[tokio::test]
async fn the_past_of_an_earlier_namespace_of_the_same_name_is_not_shown() {
    let server = Server::start().await;
    let admin = server.client();
    let bob = user(&admin, "bob").await;
    let namespaces = namespace("").trim_end_matches('/').to_owned();
    create(&admin, &namespaces, "web", json!({})).await;
    let rules = json!([core_rule(&["secrets"], &["get", "list", "watch"])]);
    // The same binding in both: bob had the right then, and has it now.
    allow(&admin, "of-bob", Some("web"), rules.clone(), "platform:user:bob").await;
    let secrets = core_secrets("web");
    for name in ["canary-a", "canary-b"] {
        create(&admin, &secrets, name, core_secret("canary")).await;
    }
    let past = past_of(&admin, &secrets).await;
    admin.delete(&namespace("web")).send().await.expect(200);
    until_gone(&admin, &namespace("web")).await;
    create(&admin, &namespaces, "web", json!({})).await;
    allow(&admin, "of-bob", Some("web"), rules, "platform:user:bob").await;
    create(&admin, &secrets, "last", core_secret("x")).await;
    let mut found = Findings::new();
    let hidden = [CANARY, "canary-a", "canary-b"];
    read_the_past(&mut found, &bob, &secrets, &past, "last", &hidden).await;
    found.assert_none();
}

#[tokio::test]
async fn what_a_secret_was_before_the_right_to_list_it_is_not_shown() {
    let server = Server::start().await;
    let admin = server.client();
    let bob = user(&admin, "bob").await;
    let secrets = core_secrets("platform");
    for name in ["rotated", "deleted"] {
        create(&admin, &secrets, name, core_secret("canary")).await;
    }
    let past = past_of(&admin, &secrets).await;
    let change = core_secret("new");
    let rotated = format!("{secrets}/rotated");
    admin.patch(&rotated, "merge-patch", &change).send().await.expect(200);
    admin.delete(&format!("{secrets}/deleted")).send().await.expect(200);
    let rules = json!([core_rule(&["secrets"], &["get", "list", "watch"])]);
    allow(&admin, "of-bob", Some("platform"), rules.clone(), "platform:user:bob").await;
    create(&admin, &secrets, "last", core_secret("x")).await;
    let mut found = Findings::new();
    let hidden = [CANARY, "canary"];
    read_the_past(&mut found, &bob, &secrets, &past, "last", &hidden).await;
    // The same by the whole cluster's collection.
    allow(&admin, "of-bob", None, rules, "platform:user:bob").await;
    create(&admin, &secrets, "later", core_secret("x")).await;
    let all = secrets.replace("/namespaces/platform", "");
    read_the_past(&mut found, &bob, &all, &past, "later", &hidden).await;
    found.assert_none();
}

#[tokio::test]
async fn an_impersonated_user_reads_no_past_from_before_they_were_in_the_team() {
    let server = Server::start().await;
    let admin = server.client();
    let deputy = user(&admin, "deputy").await;
    for name in ["eve", "old"] {
        make(&admin, "users", name, json!({})).await;
    }
    make(&admin, "teams", "red", json!({ "users": ["old"] })).await;
    let team = "platform:team:red";
    let rules =
        json!([may_impersonate("users", &["eve", "old"]), may_impersonate("groups", &[team])]);
    allow(&admin, "acting", None, rules, "platform:user:deputy").await;
    let list = json!([rule(&["sharedsecrets"], &["get", "list", "watch"])]);
    allow(&admin, "listing", None, list, team).await;
    for name in ["canary-a", "canary-b"] {
        create(&admin, &secrets("platform"), name, content("sharedsecrets")).await;
    }
    let past = past_of(&admin, &secrets("platform")).await;
    for name in ["canary-a", "canary-b"] {
        admin.delete(&secret_path(name)).send().await.expect(200);
    }
    set(&admin, &path("teams", "red"), json!({ "users": ["old", "eve"] })).await;
    create(&admin, &secrets("platform"), "last", json!({ "spec": {} })).await;
    let (version, next) = (version_of(&past["list"]), &past["page"]["metadata"]["continue"]);
    let next = next.as_str().unwrap();
    let mut found = Findings::new();
    for query in [
        format!("resourceVersion={version}&resourceVersionMatch=Exact"),
        format!("continue={next}"),
        format!("watch=true&resourceVersion={version}&timeoutSeconds=2"),
    ] {
        for (user, may_see) in [("old", true), ("eve", false)] {
            let path = format!("{}?{query}", secrets("platform"));
            let reply = deputy.get(&path).header("impersonate-user", user).send().await;
            let text = reply.text();
            let sees = text.contains(CANARY);
            found.check(sees == may_see, format!("{user} {query}: {} {text}", reply.status));
        }
    }
    let now = deputy.get(&secrets("platform")).header("impersonate-user", "eve").send().await;
    found.check_code(&now, &[200], "a list of now");
    found.assert_none();
}

#[tokio::test]
async fn an_impersonator_reads_no_past_from_before_the_right_to_impersonate() {
    let server = Server::start().await;
    let admin = server.client();
    let deputy = user(&admin, "deputy").await;
    let list = json!([rule(&["sharedsecrets"], &["get", "list", "watch"])]);
    allow(&admin, "listing", None, list, "helpers").await;
    create(&admin, &secrets("platform"), "canary", content("sharedsecrets")).await;
    let version = version_of(&admin.get(&secrets("platform")).send().await.expect(200));
    admin.delete(&secret_path("canary")).send().await.expect(200);
    let rules =
        json!([may_impersonate("users", &["robot"]), may_impersonate("groups", &["helpers"])]);
    allow(&admin, "acting", None, rules, "platform:user:deputy").await;
    let mut found = Findings::new();
    for query in [
        format!("resourceVersion={version}&resourceVersionMatch=Exact"),
        format!("watch=true&resourceVersion={version}&timeoutSeconds=2"),
    ] {
        let path = format!("{}?{query}", secrets("platform"));
        let text = acting(deputy.get(&path), "robot", &["helpers"]).send().await.text();
        found.check(!text.contains(CANARY), format!("{query}: {text}"));
    }
    let now = acting(deputy.get(&secrets("platform")), "robot", &["helpers"]).send().await;
    found.check_code(&now, &[200], "a list of now");
    found.assert_none();
}

#[tokio::test]
async fn who_could_always_list_reads_the_past() {
    let server = Server::start().await;
    let admin = server.client();
    let bob = user(&admin, "bob").await;
    let rules = json!([core_rule(&["secrets"], &["get", "list", "watch"])]);
    allow(&admin, "of-bob", Some("platform"), rules, "platform:user:bob").await;
    let secrets = core_secrets("platform");
    for name in ["a", "b"] {
        create(&admin, &secrets, name, core_secret("old")).await;
    }
    let past = past_of(&bob, &secrets).await;
    admin.delete(&format!("{secrets}/b")).send().await.expect(200);
    let version = version_of(&past["list"]);
    let exact = format!("{secrets}?resourceVersion={version}&resourceVersionMatch=Exact");
    assert_eq!(bob.get(&exact).send().await.expect(200)["items"].as_array().unwrap().len(), 2);
    let next = past["page"]["metadata"]["continue"].as_str().unwrap();
    let rest = bob.get(&format!("{secrets}?continue={next}")).send().await.expect(200);
    assert_eq!(rest["items"][0]["metadata"]["name"], "b");
    let mut watch = bob.watch(&secrets, &format!("&resourceVersion={version}")).await;
    assert_eq!(watch.next().await.unwrap().summary(), "DELETED b");
}
