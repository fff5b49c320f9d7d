//! The server's own events about an object, as the readers of that object see them.

use postern_tests::Server;
use postern_tests::http::Client;
use postern_tests::objects::{CORE, GROUP, make, secret, secret_path, secrets};
use postern_tests::rights::{rbac, set, user};
use postern_tests::wait;
use serde_json::{Value, json};

/// Waits for an event with a reason, and returns it.
async fn event(admin: &Client, namespace: &str, reason: &str) -> Value {
    let path = format!("{CORE}/namespaces/{namespace}/events");
    wait::until("the event", async || {
        let list = admin.get(&path).send().await.expect(200);
        list["items"].as_array().unwrap().iter().find(|one| one["reason"] == reason).cloned()
    })
    .await
}

#[tokio::test]
async fn a_role_that_is_put_back_is_told_of_and_described() {
    let server = Server::start().await;
    let admin = server.client();
    user(&admin, "ada").await;
    admin.post(&secrets("platform")).json(&secret("s1", "hidden-value")).send().await.expect(201);
    let access = json!([{ "verbs": ["get"], "users": ["ada"] }]);
    set(&admin, &secret_path("s1"), json!({ "access": access })).await;
    let role = format!("{}/platform:access:sharedsecrets:s1:0", rbac(Some("platform"), "role"));
    admin.delete(&role).send().await.expect(200);
    let event = event(&admin, "platform", "RolePutBack").await;
    assert_eq!(event["involvedObject"]["kind"], "SharedSecret");
    assert_eq!(event["involvedObject"]["name"], "s1");
    assert_eq!((&event["type"], &event["count"]), (&json!("Warning"), &json!(1)));
    assert!(event["message"].as_str().unwrap().contains("platform:access:sharedsecrets:s1:0"));
    admin.get(&role).send().await.expect(200);
    assert!(!event.to_string().contains("hidden"));
    let kubectl = server.kubectl();
    let described = kubectl.ok(&["describe", "sharedsecret", "s1", "-n", "platform"]).await;
    assert!(described.contains("RolePutBack"), "{described}");
    let listed = kubectl.ok(&["events", "-n", "platform", "--for", "sharedsecret/s1"]).await;
    assert!(listed.contains("RolePutBack"), "{listed}");
}

#[tokio::test]
async fn a_quota_that_is_exceeded_is_told_of_but_not_by_a_dry_run() {
    let server = Server::start().await;
    let admin = server.client();
    for project in ["full", "dry"] {
        let quotas = json!({ "quotas": { "project": { "projectsecrets": "0" } } });
        make(&admin, "projects", project, quotas).await;
    }
    let create = async |project: &str, query: &str| {
        let path = format!("{GROUP}/namespaces/p-{project}/projectsecrets");
        let object = json!({ "metadata": { "name": "one" }, "spec": {} });
        admin.post(&format!("{path}{query}")).json(&object).send().await.expect(403)
    };
    create("dry", "?dryRun=All").await;
    let refused = create("full", "").await;
    let event = event(&admin, "default", "ExceededQuota").await;
    assert_eq!(event["involvedObject"]["kind"], "Project");
    assert_eq!(event["involvedObject"]["name"], "full", "a dry run has no effect");
    let message = event["message"].as_str().unwrap();
    assert!(refused["message"].as_str().unwrap().contains(message), "{message}");
    let described = server.kubectl().ok(&["describe", "project", "full"]).await;
    assert!(described.contains("ExceededQuota"), "{described}");
    let bob = user(&admin, "bob").await;
    let reply = bob.get(&format!("{CORE}/namespaces/default/events")).send().await;
    assert_eq!(reply.status, 403, "{}", reply.text());
}
