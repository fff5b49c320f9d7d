//! Migration of a virtual cluster instance: the objects that move, and every reason to refuse it
//! (`docs/reference/projects.md#migration`).

use postern_tests::Server;
use postern_tests::http::{Client, Response};
use postern_tests::objects::{GROUP, collection, create, version_of};
use postern_tests::rights::{allow, merge, path, rbac, rule, rule_on, set, user, with_key};
use serde_json::{Value, json};

use crate::projects::scene::{core_secrets, instances, migrate, on_cluster, two_projects};

const V: (&str, &str) = ("p-a", "v");

/// Checks a refusal: its code, its reason, and words in its message.
fn assert_refused(reply: &Response, code: u16, reason: &str, words: &[&str]) {
    assert_eq!(reply.status, code, "{}", reply.text());
    let status = reply.json();
    assert_eq!(status["reason"], reason, "{status}");
    for word in words {
        assert!(status["message"].as_str().unwrap().contains(word), "{word}: {status}");
    }
}

/// Checks that the instance is where it was, as it was.
async fn assert_stayed(admin: &Client, before: &Value) {
    let now = admin.get(&format!("{}/v", instances("a"))).send().await.expect(200);
    assert_eq!(&now, before);
    assert_eq!(admin.get(&format!("{}/v", instances("b"))).send().await.status, 404);
}

async fn names_in(admin: &Client, collection: &str) -> Vec<String> {
    let list = admin.get(collection).send().await.expect(200);
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn an_instance_moves_with_its_secret_its_roles_and_all_that_it_says() {
    let server = Server::start().await;
    let admin = server.client();
    two_projects(&admin).await;
    user(&admin, "ada").await;
    create(&admin, &core_secrets("p-a"), "kc", json!({ "data": { "other": "eA==" } })).await;
    let at = format!("{}/w", instances("a"));
    let mut instance = on_cluster("c1", "w");
    instance["metadata"] = json!({ "labels": { "l": "1" }, "annotations": { "a": "2" } });
    instance["spec"]["owner"] = json!({ "user": "ada" });
    instance["spec"]["access"] = json!([{ "verbs": ["use"], "users": ["*"] }]);
    create(&admin, &instances("a"), "w", instance).await;
    // The kubeconfig is created after the reference, so that it has not been checked.
    admin.delete(&format!("{}/kc", core_secrets("p-a"))).send().await.expect(200);
    set(&admin, &at, json!({ "config": { "secretName": "kc", "secretNamespace": "p-a" } })).await;
    create(&admin, &core_secrets("p-a"), "kc", json!({ "data": { "config": "eA==" } })).await;
    let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True",
        "reason": "Up", "message": "" }] } });
    merge(&admin, &format!("{at}/status"), status).await.expect(200);
    let before = admin.get(&at).send().await.expect(200);
    let roles = |project: &str| rbac(Some(&format!("p-{project}")), "role");
    let roles_before = names_in(&admin, &roles("a")).await;
    assert!(roles_before.iter().any(|name| name.ends_with(":w:0")), "{roles_before:?}");
    let all = format!("{GROUP}/virtualclusterinstances");
    let from = format!("&resourceVersion={}", version_of(&before));
    let mut watch = admin.watch(&all, &from).await;
    let dry = migrate(&admin, ("p-a", "w"), "b", "?dryRun=All").await.expect(201);
    assert_eq!(dry["kind"], "ProjectMigrateVirtualClusterInstance");
    assert_eq!(admin.get(&at).send().await.expect(200), before, "a dry run moves nothing");

    let done = migrate(&admin, ("p-a", "w"), "b", "").await.expect(201);
    assert_eq!(done["sourceVirtualClusterInstance"], json!({ "name": "w", "namespace": "p-a" }));
    assert_eq!(admin.get(&at).send().await.status, 404);
    let after = admin.get(&format!("{}/w", instances("b"))).send().await.expect(200);
    let (old, new) = (&before["metadata"], &after["metadata"]);
    assert_ne!(old["uid"], new["uid"]);
    assert_eq!(old["labels"], new["labels"]);
    let annotations = json!({ "a": "2", "platform.sh/migrated-from": "p-a/w" });
    assert_eq!((&old["annotations"], &new["annotations"]), (&json!({ "a": "2" }), &annotations));
    assert_eq!(before["status"], after["status"]);
    let mut spec = before["spec"].clone();
    spec["config"]["secretNamespace"] = "p-b".into();
    assert_eq!(after["spec"], spec);
    assert_eq!(names_in(&admin, &core_secrets("p-b")).await, ["kc"]);
    assert!(names_in(&admin, &core_secrets("p-a")).await.is_empty());
    let roles_after = names_in(&admin, &roles("b")).await;
    let of_w = |names: &[String]| names.iter().filter(|one| one.contains(":w:")).count();
    assert_eq!((of_w(&roles_before), of_w(&roles_after)), (1, 1));
    assert_eq!(of_w(&names_in(&admin, &roles("a")).await), 0);
    let events = watch.take(2).await;
    let of = |index: usize| {
        let event = &events[index];
        (event.kind.as_str(), event.object["metadata"]["namespace"].as_str().unwrap())
    };
    assert_eq!((of(0), of(1)), (("DELETED", "p-a"), ("ADDED", "p-b")));
    assert!(events[0].version() < events[1].version(), "a watch can begin between the two");
    let from_between = format!("&resourceVersion={}", events[0].version());
    let resumed = admin.watch(&all, &from_between).await.take(1).await;
    assert_eq!(resumed[0].kind, "ADDED");
    // Its place is still its own, and it can go back.
    let mut other = on_cluster("c1", "w");
    other["metadata"] = json!({ "name": "other" });
    let taken = admin.post(&instances("a")).json(&other).send().await;
    assert_refused(&taken, 409, "Conflict", &["spec.clusterRef: another object is at c1/"]);
    migrate(&admin, ("p-b", "w"), "a", "").await.expect(201);
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    let server = Server::start().await;
    let admin = server.client();
    let before = two_projects(&admin).await;
    assert_refused(&migrate(&admin, V, "ghost", "").await, 404, "NotFound", &["\"ghost\""]);
    let none = migrate(&admin, ("p-a", "none"), "b", "").await;
    assert_refused(&none, 404, "NotFound", &["virtualclusterinstances", "\"none\""]);
    let nowhere = migrate(&admin, ("p-ghost", "v"), "b", "").await;
    assert_refused(&nowhere, 404, "NotFound", &["\"v\""]);
    assert_stayed(&admin, &before).await;
}

#[tokio::test]
async fn a_body_that_names_no_instance_of_a_project_is_invalid() {
    let server = Server::start().await;
    let admin = server.client();
    let before = two_projects(&admin).await;
    for (of, field) in [
        (("", "v"), "sourceVirtualClusterInstance.namespace: Required"),
        (("p-a", ""), "sourceVirtualClusterInstance.name: Required"),
        (("p-a", "a/b"), "sourceVirtualClusterInstance.name: Invalid"),
        (("platform", "v"), "must be the namespace of a project"),
        (("nowhere", "v"), "must be the namespace of a project"),
    ] {
        assert_refused(&migrate(&admin, of, "b", "").await, 422, "Invalid", &[field]);
        let dry = migrate(&admin, of, "b", "?dryRun=All").await;
        assert_refused(&dry, 422, "Invalid", &[field]);
    }
    assert_refused(&migrate(&admin, V, "b", "?dryRun=none").await, 422, "Invalid", &["dryRun"]);
    assert_stayed(&admin, &before).await;
}

#[tokio::test]
async fn the_states_that_are_in_the_way_are_conflicts_that_name_them() {
    let server = Server::start().await;
    let admin = server.client();
    let instance = two_projects(&admin).await;
    let at = format!("{}/v", instances("a"));
    assert_refused(
        &migrate(&admin, V, "a", "").await,
        409,
        "Conflict",
        &["already in the project \"a\""],
    );
    create(&admin, &instances("b"), "v", json!({ "spec": {} })).await;
    for query in ["", "?dryRun=All"] {
        assert_refused(&migrate(&admin, V, "b", query).await, 409, "AlreadyExists", &["\"v\""]);
    }
    admin.delete(&format!("{}/v", instances("b"))).send().await.expect(200);

    let owner = json!([{ "apiVersion": "management.platform.sh/v1",
        "kind": "VirtualClusterInstance", "name": "v", "uid": instance["metadata"]["uid"] }]);
    let dependent = json!({ "metadata": { "ownerReferences": owner } });
    create(&admin, &core_secrets("p-a"), "owned", dependent).await;
    let words = ["Secret \"owned\""];
    assert_refused(&migrate(&admin, V, "b", "").await, 409, "Conflict", &words);
    admin.delete(&format!("{}/owned", core_secrets("p-a"))).send().await.expect(200);

    let held = json!({ "metadata": { "finalizers": ["example.com/held"] } });
    merge(&admin, &at, held).await.expect(200);
    let words = ["example.com/held"];
    assert_refused(&migrate(&admin, V, "b", "").await, 409, "Conflict", &words);
    admin.delete(&at).send().await.expect(200);
    let words = ["is being deleted", "example.com/held"];
    for query in ["", "?dryRun=All"] {
        assert_refused(&migrate(&admin, V, "b", query).await, 409, "Conflict", &words);
    }
}

#[tokio::test]
async fn the_limits_of_the_target_hold() {
    let server = Server::start().await;
    let admin = server.client();
    let before = two_projects(&admin).await;
    let b = path("projects", "b");
    set(&admin, &b, json!({ "allowedClusters": [{ "name": "c2" }] })).await;
    for query in ["", "?dryRun=All"] {
        let reply = migrate(&admin, V, "b", query).await;
        assert_refused(&reply, 403, "Forbidden", &["project \"b\"", "cluster \"c1\""]);
    }
    let one = json!({ "project": { "virtualclusterinstances": "1" } });
    set(&admin, &b, json!({ "allowedClusters": [{ "name": "*" }], "quotas": one })).await;
    create(&admin, &instances("b"), "other", json!({ "spec": {} })).await;
    let words = ["exceeded quota: project of b", "used: virtualclusterinstances=1", "limited:"];
    for query in ["", "?dryRun=All"] {
        assert_refused(&migrate(&admin, V, "b", query).await, 403, "Forbidden", &words);
    }
    assert_stayed(&admin, &before).await;
    admin.delete(&format!("{}/other", instances("b"))).send().await.expect(200);
    migrate(&admin, V, "b", "").await.expect(201);
}

#[tokio::test]
async fn each_right_that_is_lacking_is_named() {
    let server = Server::start().await;
    let admin = server.client();
    let before = two_projects(&admin).await;
    let ada = user(&admin, "ada").await;
    let group = "platform:user:ada";
    let reads = json!([rule(&["projects", "virtualclusterinstances"], &["get"])]);
    allow(&admin, "reads", None, reads, group).await;
    let words = ["create", "projects/migratevirtualclusterinstance"];
    assert_refused(&migrate(&ada, V, "b", "").await, 403, "Forbidden", &words);
    let asks = json!([rule_on("projects/migratevirtualclusterinstance", &["b"], &["create"])]);
    allow(&admin, "asks", None, asks, group).await;
    let words = ["cannot delete resource", "p-a"];
    assert_refused(&migrate(&ada, V, "b", "").await, 403, "Forbidden", &words);
    let deletes = json!([rule(&["virtualclusterinstances"], &["delete"])]);
    allow(&admin, "deletes", Some("p-a"), deletes, group).await;
    let words = ["cannot create resource", "p-b"];
    for query in ["", "?dryRun=All"] {
        assert_refused(&migrate(&ada, V, "b", query).await, 403, "Forbidden", &words);
    }
    assert_stayed(&admin, &before).await;
    let creates = json!([rule(&["virtualclusterinstances"], &["create"])]);
    allow(&admin, "creates", Some("p-b"), creates, group).await;
    // A scope that covers one of both is not enough.
    for project in ["a", "b"] {
        let scope = json!({ "projects": [{ "project": project }] });
        let key = json!({ "user": "ada", "scope": scope });
        let scoped = with_key(&admin, &format!("only-{project}"), key).await;
        let reply = migrate(&scoped, V, "b", "").await;
        assert_refused(&reply, 403, "Forbidden", &["cannot"]);
    }
    assert_stayed(&admin, &before).await;
    let both = json!({ "projects": [{ "project": "a" }, { "project": "b" }] });
    let both = with_key(&admin, "both", json!({ "user": "ada", "scope": both })).await;
    migrate(&both, V, "b", "?dryRun=All").await.expect(201);
    migrate(&ada, V, "b", "").await.expect(201);
}

#[tokio::test]
async fn a_secret_goes_only_with_those_who_may_read_it_and_stays_for_others() {
    let server = Server::start().await;
    let admin = server.client();
    two_projects(&admin).await;
    let ada = user(&admin, "ada").await;
    let all = json!([rule(&["*"], &["*"])]);
    allow(&admin, "all", None, all, "platform:user:ada").await;
    let config = json!({ "config": { "secretName": "kc" } });
    set(&admin, &format!("{}/v", instances("a")), config.clone()).await;
    create(&admin, &core_secrets("p-a"), "kc", json!({ "data": { "config": "eA==" } })).await;
    let words = ["cannot get resource", "secrets"];
    assert_refused(&migrate(&ada, V, "b", "").await, 403, "Forbidden", &words);
    // A cluster refers to it as well.
    let config = json!({ "config": { "secretName": "kc", "secretNamespace": "p-a", "key": "k" } });
    let bad = merge(&admin, &path("clusters", "c2"), json!({ "spec": config })).await;
    assert_eq!(bad.status, 422, "it has no such key: {}", bad.text());
    admin.delete(&format!("{}/kc", core_secrets("p-a"))).send().await.expect(200);
    set(&admin, &path("clusters", "c2"), config).await;
    create(&admin, &core_secrets("p-a"), "kc", json!({ "data": { "config": "eA==" } })).await;
    migrate(&admin, V, "b", "").await.expect(201);
    for namespace in ["p-a", "p-b"] {
        assert_eq!(names_in(&admin, &core_secrets(namespace)).await, ["kc"], "{namespace}");
    }
    let back = migrate(&admin, ("p-b", "v"), "a", "").await;
    assert_refused(&back, 409, "AlreadyExists", &["secrets \"kc\""]);
}

#[tokio::test]
async fn the_action_is_described_and_served_as_create_alone() {
    let server = Server::start().await;
    let admin = server.client();
    let resources = admin.get(GROUP).send().await.expect(200);
    let action = "projects/migratevirtualclusterinstance";
    let found = resources["resources"].as_array().unwrap().iter().find(|one| one["name"] == action);
    let found = found.expect("discovery lists it");
    assert_eq!(found["kind"], "ProjectMigrateVirtualClusterInstance");
    assert_eq!(found["verbs"], json!(["create"]));
    let at = format!("{}/a/migratevirtualclusterinstance", collection("projects"));
    assert_eq!(admin.get(&at).send().await.status, 405);
}
