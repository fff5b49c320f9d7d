//! Finalizers: a deleted object stays until the last finalizer is removed, and cannot be changed in
//! other ways.

use postern_tests::Server;
use postern_tests::objects::{secret, secret_path, secrets, version_of};
use postern_tests::status::failure;
use postern_tests::watching::Event;
use serde_json::{Value, json};

async fn guarded(server: &Server, finalizers: &[&str]) -> Value {
    let mut object = secret("s1", "v");
    object["metadata"]["finalizers"] = json!(finalizers);
    server.client().post(&secrets("platform")).json(&object).send().await.expect(201)
}

#[tokio::test]
async fn a_finalizer_keeps_the_object_until_it_is_removed() {
    let server = Server::start().await;
    let client = server.client();
    let made = guarded(&server, &["example.com/a", "example.com/b"]).await;
    let query = format!("&resourceVersion={}", version_of(&made));
    let mut watch = client.watch(&secrets("platform"), &query).await;
    let marked = client.delete(&secret_path("s1")).send().await.expect(200);
    assert_eq!(marked["kind"], "SharedSecret");
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(marked["metadata"]["generation"], 2);
    let again = client.delete(&secret_path("s1")).send().await.expect(200);
    assert_eq!(again["metadata"]["deletionTimestamp"], marked["metadata"]["deletionTimestamp"]);
    assert_eq!(again["metadata"]["generation"], 2);
    // Finalizers can be removed in any order: here the first one is removed last.
    let patch = json!([{"op": "remove", "path": "/metadata/finalizers/1"}]);
    let one = client.patch(&secret_path("s1"), "json-patch", &patch).send().await.expect(200);
    assert_eq!(one["metadata"]["finalizers"], json!(["example.com/a"]));
    let patch = json!({"metadata": {"finalizers": null}});
    let last = client.patch(&secret_path("s1"), "merge-patch", &patch).send().await.expect(200);
    assert_eq!(last["kind"], "SharedSecret", "the response is the deleted object");
    assert_eq!(client.get(&secret_path("s1")).send().await.status, 404);
    let events = watch.take(3).await;
    let summaries: Vec<_> = events.iter().map(Event::summary).collect();
    assert_eq!(summaries, ["MODIFIED s1", "MODIFIED s1", "DELETED s1"]);
    assert!(events.is_sorted_by_key(Event::version));
}

#[tokio::test]
async fn the_last_finalizer_can_be_removed_by_a_replace() {
    let server = Server::start().await;
    let client = server.client();
    guarded(&server, &["example.com/a"]).await;
    let mut marked = client.delete(&secret_path("s1")).send().await.expect(200);
    marked["metadata"].as_object_mut().unwrap().remove("finalizers");
    client.put(&secret_path("s1")).json(&marked).send().await.expect(200);
    assert_eq!(client.get(&secret_path("s1")).send().await.status, 404);
}

#[tokio::test]
async fn an_object_being_deleted_gets_no_new_finalizer_and_stays_deleted() {
    let server = Server::start().await;
    let client = server.client();
    guarded(&server, &["example.com/a"]).await;
    let marked = client.delete(&secret_path("s1")).send().await.expect(200);
    let patch = json!({"metadata": {"finalizers": ["example.com/a", "example.com/new"]}});
    let text = failure(&client.patch(&secret_path("s1"), "merge-patch", &patch).send().await);
    assert!(text.starts_with("422 Invalid\n"), "{text}");
    let expected =
        "no new finalizers can be added if the object is being deleted, found new finalizers";
    assert!(text.contains(expected), "{text}");
    let patch = json!({"metadata": {"deletionTimestamp": null}});
    let reply = client.patch(&secret_path("s1"), "merge-patch", &patch).send().await;
    assert_eq!(reply.expect(200), marked, "as upstream, it is put back");
    let read = client.get(&secret_path("s1")).send().await.expect(200);
    assert_eq!(read["metadata"]["deletionTimestamp"], marked["metadata"]["deletionTimestamp"]);
    let patch = json!({"spec": {"displayName": "still changeable"}});
    client.patch(&secret_path("s1"), "merge-patch", &patch).send().await.expect(200);
}

#[tokio::test]
async fn without_a_deletion_finalizers_can_be_added_and_removed() {
    let server = Server::start().await;
    let client = server.client();
    guarded(&server, &["example.com/a"]).await;
    for finalizers in [json!(["example.com/b"]), json!([]), json!(["example.com/c"])] {
        let patch = json!({"metadata": {"finalizers": finalizers}});
        client.patch(&secret_path("s1"), "merge-patch", &patch).send().await.expect(200);
    }
    let bad = json!({"metadata": {"finalizers": ["not a name"]}});
    let text = failure(&client.patch(&secret_path("s1"), "merge-patch", &bad).send().await);
    assert!(text.starts_with("422 Invalid\n") && text.contains("metadata.finalizers"), "{text}");
}

#[tokio::test]
async fn a_policy_does_not_override_a_finalizer() {
    let server = Server::start().await;
    let client = server.client();
    for policy in ["Foreground", "Orphan", "Background"] {
        guarded(&server, &["example.com/a"]).await;
        let body = json!({"propagationPolicy": policy});
        let marked = client.delete(&secret_path("s1")).json(&body).send().await.expect(200);
        let finalizers = marked["metadata"]["finalizers"].as_array().unwrap();
        assert!(finalizers.contains(&json!("example.com/a")), "{policy}: {finalizers:?}");
        let patch = json!({"metadata": {"finalizers": null}});
        client.patch(&secret_path("s1"), "merge-patch", &patch).send().await.expect(200);
        assert_eq!(client.get(&secret_path("s1")).send().await.status, 404);
    }
}

#[tokio::test]
async fn a_collection_with_finalizers_stays() {
    let server = Server::start().await;
    let client = server.client();
    guarded(&server, &["example.com/a"]).await;
    client.post(&secrets("platform")).json(&secret("s2", "v")).send().await.expect(201);
    client.delete(&secrets("platform")).send().await.expect(200);
    let left = client.get(&secrets("platform")).send().await.expect(200);
    let items = left["items"].as_array().unwrap();
    assert_eq!(items.len(), 1);
    assert!(items[0]["metadata"]["deletionTimestamp"].is_string());
}
