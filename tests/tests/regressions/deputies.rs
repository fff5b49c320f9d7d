//! The server does nothing for a client that the client may not do: not by its collector, and not by its sync.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_tests::http::Client;
use postern_tests::objects::{create, make, secret_path, secrets};
use postern_tests::rights::{RBAC, allow, disallow, merge, path, rule, set, user, with_key};
use postern_tests::{Server, wait};
use serde_json::{Value, json};

use crate::regressions::scene::{
    Findings, acting, comes_true, core_rule, core_secret, core_secrets, dead_owner, in_namespace,
    is_refused_soon, key_path, may_impersonate, namespace, remove, until_gone, wait_for_collector,
};

#[tokio::test]
async fn a_dead_owner_reference_does_not_delete_the_namespace_of_a_project() {
    let server = Server::start().await;
    let admin = server.client();
    let eve = user(&admin, "eve").await;
    let rules = json!([core_rule(&["namespaces"], &["get", "update", "patch"])]);
    allow(&admin, "labels", None, rules, "platform:user:eve").await;
    make(&admin, "projects", "x", json!({})).await;
    create(&admin, &core_secrets("p-x"), "s", core_secret("x")).await;
    let at = namespace("p-x");
    let references = json!([dead_owner()]);
    let mut found = Findings::new();
    for (name, client) in [("eve", &eve), ("the administrator", &admin)] {
        let dead = json!({ "metadata": { "ownerReferences": references } });
        for kind in ["merge-patch", "strategic-merge-patch"] {
            let reply = client.patch(&at, kind, &dead).send().await;
            found.check_code(&reply, &[403, 422], &format!("{kind} of {name}"));
        }
        let add =
            json!([{ "op": "add", "path": "/metadata/ownerReferences", "value": references }]);
        let reply = client.patch(&at, "json-patch", &add).send().await;
        found.check_code(&reply, &[403, 422], &format!("JSON Patch of {name}"));
        let mut object = admin.get(&at).send().await.json();
        object["metadata"]["ownerReferences"] = references.clone();
        let reply = client.put(&at).json(&object).send().await;
        found.check_code(&reply, &[403, 422], &format!("PUT of {name}"));
        let apply = json!({ "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": "p-x", "ownerReferences": references } });
        let request =
            client.request("PATCH", &format!("{at}?fieldManager={}&force=true", name.len()));
        let request = request.body("application/apply-patch+yaml", apply.to_string());
        found.check_code(&request.send().await, &[403, 422], &format!("apply of {name}"));
    }
    wait_for_collector(&admin).await;
    let secret = admin.get(&format!("{}/s", core_secrets("p-x"))).send().await;
    found.check_code(&secret, &[200], "the Secret in the namespace");
    let now = admin.get(&at).send().await;
    found.check_code(&now, &[200], "the namespace");
    let terminating = now.json()["metadata"]["deletionTimestamp"].is_string();
    found.check(!terminating, "the namespace is being deleted");
    found.assert_none();
}

#[tokio::test]
async fn a_dead_owner_reference_deletes_nothing_that_its_writer_may_not_delete() {
    let server = Server::start().await;
    let admin = server.client();
    let eve = user(&admin, "eve").await;
    let rbac = json!({ "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"],
        "verbs": ["get", "update", "patch", "escalate", "bind"] });
    let leases = json!({ "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
        "verbs": ["get", "update", "patch"] });
    let own = rule(
        &[
            "sharedsecrets",
            "users",
            "teams",
            "projects",
            "clusters",
            "ownedaccesskeys",
            "projectsecrets",
        ],
        &["get", "update", "patch"],
    );
    let rules = json!([
        core_rule(&["namespaces", "secrets"], &["get", "update", "patch"]),
        rbac,
        leases,
        own
    ]);
    allow(&admin, "changes", None, rules, "platform:user:eve").await;
    user(&admin, "ada").await;
    make(&admin, "teams", "red", json!({})).await;
    make(&admin, "clusters", "c", json!({})).await;
    make(&admin, "projects", "x", json!({})).await;
    create(&admin, namespace("").trim_end_matches('/'), "web", json!({})).await;
    create(&admin, &core_secrets("platform"), "s", core_secret("x")).await;
    create(&admin, &secrets("platform"), "s", json!({})).await;
    create(&admin, &in_namespace("p-x", "projectsecrets"), "s", json!({})).await;
    create(&admin, &format!("{RBAC}/namespaces/platform/roles"), "r", json!({ "rules": [] })).await;
    let leases = "/kubernetes/management/apis/coordination.k8s.io/v1/namespaces/platform/leases";
    create(&admin, leases, "l", json!({ "spec": {} })).await;
    let objects = [
        namespace("web"),
        namespace("default"),
        namespace("platform"),
        format!("{}/s", core_secrets("platform")),
        secret_path("s"),
        format!("{}/s", in_namespace("p-x", "projectsecrets")),
        format!("{RBAC}/namespaces/platform/roles/r"),
        format!("{RBAC}/clusterroles/platform-user"),
        format!("{leases}/l"),
        path("users", "ada"),
        path("teams", "red"),
        path("clusters", "c"),
        path("projects", "x"),
        key_path("ada-key"),
    ];
    let mut found = Findings::new();
    let dead = json!({ "metadata": { "ownerReferences": [dead_owner()] } });
    for object in &objects {
        found.check_code(&merge(&eve, object, dead.clone()).await, &[403, 422], object);
    }
    wait_for_collector(&admin).await;
    for object in &objects {
        let reply = admin.get(object).send().await;
        let deleted =
            reply.status != 200 || reply.json()["metadata"]["deletionTimestamp"].is_string();
        found.check(!deleted, format!("{object} is deleted"));
    }
    found.assert_none();
}

#[tokio::test]
async fn the_collector_does_not_delete_what_cannot_be_deleted() {
    let server = Server::start().await;
    let admin = server.client();
    let dead = json!({ "metadata": { "ownerReferences": [dead_owner()] } });
    let mut found = Findings::new();
    let kept = [
        namespace("default"),
        namespace("platform"),
        format!("{RBAC}/clusterroles/platform-user"),
        format!("{RBAC}/clusterroles/system:masters"),
    ];
    let mut there = Vec::new();
    for object in &kept {
        if admin.get(object).send().await.status == 200 {
            // For the administrator, DELETE is refused; otherwise the collector may.
            let dry = admin.delete(&format!("{object}?dryRun=All")).send().await;
            if dry.status != 200 {
                merge(&admin, object, dead.clone()).await;
                there.push(object);
            }
        }
    }
    assert!(!there.is_empty());
    wait_for_collector(&admin).await;
    for object in there {
        let reply = admin.get(object).send().await;
        let deleted =
            reply.status != 200 || reply.json()["metadata"]["deletionTimestamp"].is_string();
        found.check(!deleted, format!("{object} is deleted"));
    }
    found.assert_none();
}

const NAME: &str = "platform.sh/sharedsecret-name";
const NAMESPACE: &str = "platform.sh/sharedsecret-namespace";

fn project_secret(name: &str) -> String {
    format!("{}/{name}", in_namespace("p-web", "projectsecrets"))
}

fn follower() -> Value {
    json!({ "metadata": { "labels": { NAME: "db", NAMESPACE: "platform" } } })
}

async fn set_source(admin: &Client, value: &str) {
    let data = json!({ "data": { "value": STANDARD.encode(value) } });
    set(admin, &secret_path("db"), data).await;
}

async fn value_at(admin: &Client, path: &str) -> Value {
    let object = admin.get(path).send().await.expect(200);
    object["spec"]["data"]["value"].clone()
}

/// Waits until the copy of the administrator, which always follows, has this value.
async fn until_synced(admin: &Client, value: &str) {
    let value = Value::from(STANDARD.encode(value));
    wait::until("the administrator's copy", async || {
        (value_at(admin, &project_secret("reference")).await == value).then_some(())
    })
    .await;
}

/// A project, the source `db`, the user ada, and a copy that the administrator made. ada may read
/// the source and write secrets of the project.
async fn project(admin: &Client) -> Client {
    make(admin, "projects", "web", json!({})).await;
    create(admin, &secrets("platform"), "db", json!({})).await;
    set_source(admin, "one").await;
    create(admin, &in_namespace("p-web", "projectsecrets"), "reference", follower()).await;
    let ada = user(admin, "ada").await;
    writes_in_project(admin, "ada", "platform:user:ada").await;
    ada
}

async fn writes_in_project(admin: &Client, name: &str, group: &str) {
    let rules = json!([rule(&["projectsecrets"], &["*"])]);
    allow(admin, &format!("{name}-works"), Some("p-web"), rules, group).await;
    let rules = json!([rule(&["sharedsecrets"], &["get"])]);
    allow(admin, &format!("{name}-reads"), Some("platform"), rules, group).await;
}

/// Checks that a copy stops following its source: its value stays, and its condition says why.
async fn check_ended(found: &mut Findings, admin: &Client, copy: &str, what: &str) {
    let told = comes_true(async || {
        let object = admin.get(&project_secret(copy)).send().await.expect(200);
        object["status"]["conditions"].to_string().contains("NotAuthorized")
    })
    .await;
    found.check(told, format!("{what}: no condition says that the copy ended"));
    let value = format!("after-{copy}");
    set_source(admin, &value).await;
    until_synced(admin, &value).await;
    let now = value_at(admin, &project_secret(copy)).await;
    found.check(now != STANDARD.encode(&value).as_str(), format!("{what}: the copy goes on"));
}

#[tokio::test]
async fn a_copy_ends_with_the_key_that_asked_for_it() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = project(&admin).await;
    let mut found = Findings::new();
    let ends = [
        "deleted",
        "expired",
        "disabled",
        "disabled and deleted",
        "scoped away",
        "login disabled and deleted",
        "login deleted by an administrator",
        "login scoped away and deleted by its owner",
        "login scoped away and expired",
        "login disabled and expired",
    ];
    for (number, end) in ends.into_iter().enumerate() {
        let (name, copy) = (format!("key-{number}"), format!("copy-{number}"));
        let kind = if end.starts_with("login") { "Login" } else { "User" };
        let key = with_key(&admin, &name, json!({ "user": "ada", "type": kind })).await;
        create(&key, &in_namespace("p-web", "projectsecrets"), &copy, follower()).await;
        let at = project_secret(&copy);
        let first = value_at(&admin, &project_secret("reference")).await;
        wait::until("the copy", async || (value_at(&admin, &at).await == first).then_some(()))
            .await;
        if end.contains("scoped away") {
            let scope =
                json!({ "rules": [{ "resources": [{ "group": "", "resources": ["secrets"] }] }] });
            set(&admin, &key_path(&name), json!({ "scope": scope })).await;
        }
        if end.contains("disabled") {
            set(&admin, &key_path(&name), json!({ "disabled": true })).await;
        }
        if end.ends_with("expired") {
            // The key has not expired yet when the time to live is set.
            set(&admin, &key_path(&name), json!({ "ttl": 4 })).await;
            assert!(is_refused_soon(&key).await);
            tokio::time::sleep(Duration::from_secs(4)).await;
        }
        if end.ends_with("by its owner") {
            ada.delete(&key_path(&name)).send().await.expect(200);
            until_gone(&admin, &key_path(&name)).await;
        } else if end.contains("deleted") {
            remove(&admin, &key_path(&name)).await;
        }
        check_ended(&mut found, &admin, &copy, &format!("the key is {end}")).await;
    }
    found.assert_none();
}

#[tokio::test]
async fn a_copy_of_a_person_outlives_their_logout() {
    let server = Server::start().await;
    let admin = server.client();
    project(&admin).await;
    let key = with_key(&admin, "login", json!({ "user": "ada", "type": "Login" })).await;
    create(&key, &in_namespace("p-web", "projectsecrets"), "copy", follower()).await;
    key.delete(&key_path("login")).send().await.expect(200);
    until_gone(&admin, &key_path("login")).await;
    set_source(&admin, "two").await;
    wait::until("the copy", async || {
        (value_at(&admin, &project_secret("copy")).await == STANDARD.encode("two").as_str())
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_copy_of_an_impersonator_follows_by_the_impersonated_groups_alone() {
    let server = Server::start().await;
    let admin = server.client();
    project(&admin).await;
    let deputy = user(&admin, "deputy").await;
    let rules = json!([
        may_impersonate("users", &["admin", "ada"]),
        may_impersonate("groups", &["helpers"])
    ]);
    allow(&admin, "acting", None, rules, "platform:user:deputy").await;
    writes_in_project(&admin, "helpers", "helpers").await;
    let mut found = Findings::new();
    let copies = in_namespace("p-web", "projectsecrets");
    for name in ["admin", "ada"] {
        let mut object = follower();
        object["metadata"]["name"] = name.into();
        acting(deputy.post(&copies), name, &["helpers"]).json(&object).send().await.expect(201);
    }
    wait::until("the copies", async || {
        let first = Value::from(STANDARD.encode("one"));
        for name in ["admin", "ada"] {
            if value_at(&admin, &project_secret(name)).await != first {
                return None;
            }
        }
        Some(())
    })
    .await;
    disallow(&admin, "helpers-reads", Some("platform")).await;
    for name in ["admin", "ada"] {
        let what = format!("as {name} with groups, the group's right is gone");
        check_ended(&mut found, &admin, name, &what).await;
    }
    found.assert_none();
}

#[tokio::test]
async fn a_copy_of_an_impersonator_ends_with_the_right_to_impersonate() {
    let server = Server::start().await;
    let admin = server.client();
    project(&admin).await;
    let deputy = user(&admin, "deputy").await;
    let rules = json!([may_impersonate("users", &["ada"])]);
    allow(&admin, "acting", None, rules, "platform:user:deputy").await;
    let mut object = follower();
    object["metadata"]["name"] = "copy".into();
    let copies = in_namespace("p-web", "projectsecrets");
    acting(deputy.post(&copies), "ada", &[]).json(&object).send().await.expect(201);
    disallow(&admin, "acting", None).await;
    let mut found = Findings::new();
    check_ended(&mut found, &admin, "copy", "the right to impersonate is gone").await;
    found.assert_none();
}

#[tokio::test]
async fn annotations_tell_nothing_of_the_writers_key() {
    let server = Server::start().await;
    let admin = server.client();
    project(&admin).await;
    let scope = json!({ "rules": [{ "verbs": ["get", "create"] }] });
    let spec = json!({ "user": "ada", "scope": scope });
    let key = with_key(&admin, "key-with-a-telling-name", spec).await;
    create(&key, &in_namespace("p-web", "projectsecrets"), "copy", follower()).await;
    let key = admin.get(&key_path("key-with-a-telling-name")).send().await.expect(200);
    let uid = key["metadata"]["uid"].as_str().unwrap();
    let copy = admin.get(&project_secret("copy")).send().await.expect(200);
    let text = copy["metadata"]["annotations"].to_string();
    let mut found = Findings::new();
    for secret in ["key-with-a-telling-name", uid, "verbs", "scope", "rules"] {
        found.check(!text.contains(secret), format!("{secret}: {text}"));
    }
    found.assert_none();
}

#[tokio::test]
async fn sync_and_mirror_labels_outside_of_a_project_are_refused() {
    let server = Server::start().await;
    let admin = server.client();
    create(&admin, namespace("").trim_end_matches('/'), "web", json!({})).await;
    create(&admin, &secrets("platform"), "db", json!({})).await;
    let mut found = Findings::new();
    for home in ["web", "default", "platform"] {
        let path = in_namespace(home, "projectsecrets");
        for (index, labels) in
            [follower()["metadata"]["labels"].clone(), json!({ "platform.sh/mirror": "true" })]
                .into_iter()
                .enumerate()
        {
            let object = json!({ "metadata": { "name": format!("s{index}"), "labels": labels } });
            let reply = admin.post(&path).json(&object).send().await;
            found.check_code(&reply, &[422], &format!("POST in {home} with {labels}"));
            let plain = json!({ "metadata": { "name": format!("plain{index}") } });
            let made = admin.post(&path).json(&plain).send().await;
            if made.status == 201 {
                let change = json!({ "metadata": { "labels": labels } });
                let reply = merge(&admin, &format!("{path}/plain{index}"), change).await;
                found.check_code(&reply, &[422], &format!("PATCH in {home} with {labels}"));
            }
        }
    }
    found.assert_none();
}

#[tokio::test]
async fn a_core_secret_ends_following_with_the_key_that_asked_for_it() {
    let server = Server::start().await;
    let admin = server.client();
    project(&admin).await;
    let rules = json!([core_rule(&["secrets"], &["create", "get"])]);
    allow(&admin, "ada-core", Some("p-web"), rules, "platform:user:ada").await;
    let labels =
        json!({ "metadata": { "labels": { "platform.sh/project-secret-name": "reference" } } });
    let mut found = Findings::new();
    for end in ["deleted", "disabled and deleted"] {
        let name = end.replace(' ', "-");
        let key = with_key(&admin, &name, json!({ "user": "ada" })).await;
        create(&key, &core_secrets("p-web"), &name, labels.clone()).await;
        let value = async |name: &str| {
            let path = format!("{}/{name}", core_secrets("p-web"));
            admin.get(&path).send().await.expect(200)["data"]["value"].clone()
        };
        let first = value_at(&admin, &project_secret("reference")).await;
        wait::until("the copy", async || (value(&name).await == first).then_some(())).await;
        if end != "deleted" {
            set(&admin, &key_path(&name), json!({ "disabled": true })).await;
        }
        remove(&admin, &key_path(&name)).await;
        let next = format!("after-{name}");
        set_source(&admin, &next).await;
        until_synced(&admin, &next).await;
        let next = Value::from(STANDARD.encode(&next));
        let of_admin = format!("of-admin-{name}");
        create(&admin, &core_secrets("p-web"), &of_admin, labels.clone()).await;
        let followed = async || (value(&of_admin).await == next).then_some(());
        wait::until("the administrator's copy", followed).await;
        wait_for_collector(&admin).await;
        found.check(value(&name).await != next, format!("the key is {end}: the copy goes on"));
    }
    found.assert_none();
}
