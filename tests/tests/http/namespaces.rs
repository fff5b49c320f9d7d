//! Namespaces: the two that always exist, and the lifecycle of others.

use insta::assert_snapshot;
use postern_tests::Server;
use postern_tests::objects::{CORE, secret, secrets};
use postern_tests::status::failure;
use postern_tests::wait;
use serde_json::{Value, json};

async fn make(server: &Server, name: &str) -> Value {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    server.client().post(&format!("{CORE}/namespaces")).json(&object).send().await.expect(201)
}

fn path(name: &str) -> String {
    format!("{CORE}/namespaces/{name}")
}

#[tokio::test]
async fn two_namespaces_always_exist() {
    let server = Server::start().await;
    let client = server.client();
    for name in ["default", "platform"] {
        let space = client.get(&path(name)).send().await.expect(200);
        assert_eq!(space["status"]["phase"], "Active");
        let text = failure(&client.delete(&path(name)).send().await);
        assert!(text.starts_with("403 Forbidden\n"), "{text}");
    }
    assert_snapshot!(failure(&client.delete(&path("default")).send().await), @r#"
    403 Forbidden
    namespaces "default" is forbidden: this namespace may not be deleted; if it is corrupt, the next start creates it again
    {"kind":"namespaces","name":"default"}
    "#);
}

#[tokio::test]
async fn a_name_is_a_label() {
    let server = Server::start().await;
    let client = server.client();
    make(&server, &"a".repeat(63)).await;
    for name in ["a.b".to_owned(), "a".repeat(64), "A".into(), "-a".into(), "..".into()] {
        let object = json!({"metadata": {"name": name}});
        let reply = client.post(&format!("{CORE}/namespaces")).json(&object).send().await;
        assert!(failure(&reply).starts_with("422 Invalid\n"), "{name}: {}", reply.text());
    }
}

#[tokio::test]
async fn objects_in_a_namespace_are_deleted_with_it() {
    let server = Server::start().await;
    let client = server.client();
    make(&server, "team-a").await;
    for name in ["one", "two"] {
        client.post(&secrets("team-a")).json(&secret(name, "v")).send().await.expect(201);
    }
    let mut guarded = secret("guarded", "v");
    guarded["metadata"]["finalizers"] = json!(["example.com/hold"]);
    client.post(&secrets("team-a")).json(&guarded).send().await.expect(201);
    let marked = client.delete(&path("team-a")).send().await.expect(200);
    assert_eq!(marked["kind"], "Namespace");
    assert_eq!(marked["status"]["phase"], "Terminating");
    let reply = client.post(&secrets("team-a")).json(&secret("late", "v")).send().await;
    let text = failure(&reply);
    let expected = "403 Forbidden\nsharedsecrets.management.platform.sh \"late\" is forbidden: unable to create new content in namespace team-a because it is being terminated\n";
    assert!(text.starts_with(expected), "{text}");
    assert_eq!(reply.json()["details"]["causes"][0]["reason"], "NamespaceTerminating");
    wait::until("what nothing holds to be gone", async || {
        let list = client.get(&secrets("team-a")).send().await.expect(200);
        (list["items"].as_array().unwrap().len() == 1).then_some(())
    })
    .await;
    assert_eq!(client.get(&path("team-a")).send().await.status, 200, "it is not empty yet");
    let free = json!({"metadata": {"finalizers": null}});
    let one = format!("{}/guarded", secrets("team-a"));
    client.patch(&one, "merge-patch", &free).send().await.expect(200);
    wait::until("the namespace to be gone", async || {
        (client.get(&path("team-a")).send().await.status == 404).then_some(())
    })
    .await;
    make(&server, "team-a").await;
    let list = client.get(&secrets("team-a")).send().await.expect(200);
    assert_eq!(list["items"], json!([]), "a new namespace with the same name is empty");
}
