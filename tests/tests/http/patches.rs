//! Patches: JSON Patch, JSON merge patch, strategic merge patch, and changes that none of them may make.

use insta::assert_snapshot;
use postern_tests::Server;
use postern_tests::objects::{secret, secret_path, secrets, value_of, version_of};
use postern_tests::status::failure;
use serde_json::{Value, json};

async fn with_one() -> Server {
    let server = Server::start().await;
    let client = server.client();
    client.post(&secrets("platform")).json(&secret("s1", "one")).send().await.expect(201);
    server
}

#[tokio::test]
async fn the_specifications_patch_adds_an_annotation_to_any_object() {
    let server = with_one().await;
    let client = server.client();
    let patch = json!([{"op": "add", "path": "/metadata/annotations/note", "value": "text"}]);
    let patched = client.patch(&secret_path("s1"), "json-patch", &patch).send().await.expect(200);
    assert_eq!(patched["metadata"]["annotations"], json!({"note": "text"}));
    assert_eq!(patched["metadata"]["generation"], 1);
    let slashed =
        json!([{"op": "add", "path": "/metadata/annotations/example.com~1note", "value": "x"}]);
    let patched = client.patch(&secret_path("s1"), "json-patch", &slashed).send().await.expect(200);
    assert_eq!(patched["metadata"]["annotations"]["example.com/note"], "x");
    let label = json!([{"op": "add", "path": "/metadata/labels/app", "value": "shop"}]);
    let patched = client.patch(&secret_path("s1"), "json-patch", &label).send().await.expect(200);
    assert_eq!(patched["metadata"]["labels"], json!({"app": "shop"}));
    let remove = json!([{"op": "remove", "path": "/metadata/labels/app"}]);
    let patched = client.patch(&secret_path("s1"), "json-patch", &remove).send().await.expect(200);
    assert!(patched["metadata"].get("labels").is_none(), "what is empty is dropped again");
}

#[tokio::test]
async fn every_operation_of_json_patch_works() {
    let server = with_one().await;
    let client = server.client();
    let rule = |name| json!({ "name": name, "verbs": ["get"], "users": ["admin"] });
    let patch = json!([
        {"op": "test", "path": "/spec/data/value", "value": "b25l"},
        {"op": "copy", "from": "/spec/data/value", "path": "/spec/data/copied"},
        {"op": "move", "from": "/spec/data/value", "path": "/spec/data/moved"},
        {"op": "add", "path": "/spec/access", "value": [rule("b")]},
        {"op": "add", "path": "/spec/access/0", "value": rule("a")},
        {"op": "add", "path": "/spec/access/-", "value": rule("c")},
        {"op": "replace", "path": "/spec/access/1/name", "value": "B"},
        {"op": "remove", "path": "/spec/access/2"},
    ]);
    let patched = client.patch(&secret_path("s1"), "json-patch", &patch).send().await.expect(200);
    assert_eq!(patched["spec"]["data"], json!({"copied": "b25l", "moved": "b25l"}));
    let names: Vec<_> =
        patched["spec"]["access"].as_array().unwrap().iter().map(|rule| &rule["name"]).collect();
    assert_eq!(names, ["a", "B"]);
}

#[tokio::test]
async fn json_patch_is_strict_and_all_or_nothing() {
    let server = with_one().await;
    let client = server.client();
    let before = client.get(&secret_path("s1")).send().await.expect(200);
    let failing = json!([{"op": "test", "path": "/metadata/name", "value": "other"}]);
    let text = failure(&client.patch(&secret_path("s1"), "json-patch", &failing).send().await);
    assert!(
        text.starts_with(
            "422 Invalid\nthe server rejected our request due to an error in our request"
        ),
        "{text}"
    );
    for operation in [
        json!({"op": "replace", "path": "/spec/description", "value": "x"}),
        json!({"op": "remove", "path": "/spec/description"}),
        json!({"op": "add", "path": "/spec/nowhere/deep", "value": 1}),
        json!({"op": "add", "path": "/spec/access/-1", "value": {}}),
        json!({"op": "test", "path": "/spec/data/value", "value": "Y2FuYXJ5"}),
        json!({"op": "move", "from": "/spec", "path": "/spec/data/x"}),
    ] {
        let patch =
            json!([{"op": "add", "path": "/metadata/labels/first", "value": "x"}, operation]);
        let reply = client.patch(&secret_path("s1"), "json-patch", &patch).send().await;
        let text = failure(&reply);
        assert!(text.starts_with("422 Invalid\n"), "{operation}: {text}");
        assert!(!text.contains("b25l") && !text.contains("Y2Fu"), "a value is repeated: {text}");
    }
    for patch in [
        json!({"op": "add"}),
        json!([{"op": "shout", "path": "/spec"}]),
        json!([{"path": "/spec"}]),
        json!([{"op": "add", "path": "/spec/displayName"}]),
        json!("x"),
        json!([1]),
        json!(null),
        json!([{"op": "add", "path": "no slash", "value": 1}]),
    ] {
        let text = failure(&client.patch(&secret_path("s1"), "json-patch", &patch).send().await);
        assert!(text.starts_with("400 BadRequest\n"), "{patch}: {text}");
    }
    let after = client.get(&secret_path("s1")).send().await.expect(200);
    assert_eq!(after, before);
}

#[tokio::test]
async fn a_merge_patch_merges_and_null_removes() {
    let server = with_one().await;
    let client = server.client();
    let patch = json!({"spec": {"displayName": "D", "data": {"more": "djI="}}, "metadata": {"labels": {"a": "1", "b": "2"}}});
    let patched = client.patch(&secret_path("s1"), "merge-patch", &patch).send().await.expect(200);
    assert_eq!(patched["spec"]["data"], json!({"more": "djI=", "value": "b25l"}));
    assert_eq!(patched["metadata"]["generation"], 2);
    let patch = json!({"spec": {"data": {"more": null}}, "metadata": {"labels": {"a": null}}});
    let patched = client.patch(&secret_path("s1"), "merge-patch", &patch).send().await.expect(200);
    assert_eq!(patched["spec"]["data"], json!({"value": "b25l"}));
    assert_eq!(patched["metadata"]["labels"], json!({"b": "2"}));
    assert_eq!(patched["spec"]["displayName"], "D");
}

#[tokio::test]
async fn a_patch_cannot_change_the_identity_of_an_object() {
    let server = with_one().await;
    let client = server.client();
    let before = client.get(&secret_path("s1")).send().await.expect(200);
    for (patch, expected) in [
        (
            json!({"metadata": {"name": "s2"}}),
            "400 BadRequest\nthe name of the object (s2) does not match the name on the URL (s1)\n",
        ),
        (
            json!({"metadata": {"namespace": "default"}}),
            "400 BadRequest\nthe namespace of the provided object does not match the namespace sent \
             on the request\n",
        ),
        (
            json!({"kind": "Namespace"}),
            "400 BadRequest\nthe kind in the data (Namespace) does not match the expected kind (SharedSecret)\n",
        ),
        (
            json!({"apiVersion": "v1"}),
            "400 BadRequest\nthe API version in the data (v1) does not match the expected API version (management.platform.sh/v1)\n",
        ),
        (
            json!({"metadata": {"uid": "11111111-2222-3333-4444-555555555555"}}),
            "409 Conflict\nOperation cannot be fulfilled on sharedsecrets.management.platform.sh \"s1\": Precondition failed: UID in precondition: 11111111-2222-3333-4444-555555555555, UID in object meta: ",
        ),
    ] {
        let reply = client.patch(&secret_path("s1"), "merge-patch", &patch).send().await;
        let text = failure(&reply);
        assert!(text.starts_with(expected), "{patch}: {text}");
    }
    let ignored = json!({"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 9,
        "deletionTimestamp": "2001-01-01T00:00:00Z"}});
    let reply = client.patch(&secret_path("s1"), "merge-patch", &ignored).send().await;
    assert_eq!(reply.expect(200), before, "as upstream, it is put back");
    let after = client.get(&secret_path("s1")).send().await.expect(200);
    assert_eq!(after, before);
}

#[tokio::test]
async fn a_patch_of_a_missing_object_is_404_and_an_invalid_result_422() {
    let server = with_one().await;
    let client = server.client();
    let patch = json!({"spec": {"displayName": "D"}});
    assert_snapshot!(failure(&client.patch(&secret_path("none"), "merge-patch", &patch).send().await), @r#"
    404 NotFound
    sharedsecrets.management.platform.sh "none" not found
    {"group":"management.platform.sh","kind":"sharedsecrets","name":"none"}
    "#);
    let patch = json!({"spec": {"data": {"a b": "djE="}}});
    let text = failure(&client.patch(&secret_path("s1"), "merge-patch", &patch).send().await);
    assert!(
        text.starts_with("422 Invalid\nSharedSecret.management.platform.sh \"s1\" is invalid: "),
        "{text}"
    );
}

#[tokio::test]
async fn concurrent_patches_without_a_version_all_succeed() {
    let server = with_one().await;
    let client = server.client();
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..12 {
        let client = client.clone();
        writers.spawn(async move {
            let patch =
                json!([{"op": "add", "path": format!("/metadata/labels/l{number}"), "value": "x"}]);
            client.patch(&secret_path("s1"), "json-patch", &patch).send().await.expect(200);
        });
    }
    writers.join_all().await;
    let read = client.get(&secret_path("s1")).send().await.expect(200);
    assert_eq!(read["metadata"]["labels"].as_object().unwrap().len(), 12);
    assert_eq!(value_of(&read), "one");
    let stale = json!({"metadata": {"resourceVersion": "1"}, "spec": {"displayName": "x"}});
    let text = failure(&client.patch(&secret_path("s1"), "merge-patch", &stale).send().await);
    assert!(text.starts_with("409 Conflict\n"), "{text}");
    let current = json!({"metadata": {"resourceVersion": read["metadata"]["resourceVersion"]}, "spec": {"displayName": "x"}});
    let done = client.patch(&secret_path("s1"), "merge-patch", &current).send().await.expect(200);
    assert!(version_of(&done) > version_of(&read));
}

#[tokio::test]
async fn a_strategic_merge_patch_merges_the_lists_that_the_schema_says() {
    let server = with_one().await;
    let client = server.client();
    let rule = |name: &str| json!({ "name": name, "verbs": ["get"], "users": ["admin"] });
    let strategic = "strategic-merge-patch";
    let patch = |changes: Value| {
        let client = client.clone();
        async move { client.patch(&secret_path("s1"), strategic, &changes).send().await }
    };
    let first = patch(json!({
        "metadata": { "finalizers": ["a.io/x"], "labels": { "a": "1", "b": "2" } },
        "spec": { "access": [rule("a"), rule("b")], "data": { "more": "djI=" } },
    }));
    first.await.expect(200);
    let second = patch(json!({
        "metadata": { "finalizers": ["b.io/x"], "labels": { "a": null } },
        "spec": { "access": [rule("c")], "data": { "$patch": "replace", "only": "djM=" } },
    }));
    let second = second.await.expect(200);
    assert_eq!(second["metadata"]["finalizers"], json!(["a.io/x", "b.io/x"]));
    assert_eq!(second["metadata"]["labels"], json!({ "b": "2" }));
    assert_eq!(second["spec"]["access"], json!([rule("c")]), "a list without keys is replaced");
    assert_eq!(second["spec"]["data"], json!({ "only": "djM=" }));
    let third = patch(json!({ "metadata": {
        "$deleteFromPrimitiveList/finalizers": ["a.io/x"],
        "$setElementOrder/finalizers": ["c.io/x", "b.io/x"],
        "finalizers": ["c.io/x"],
    } }));
    let third = third.await.expect(200);
    assert_eq!(third["metadata"]["finalizers"], json!(["c.io/x", "b.io/x"]));
    for (changes, code) in [
        (json!({ "spec": { "data": { "$patch": "merge all" } } }), 400),
        (json!({ "spec": { "$unknown": 1 } }), 400),
        (json!({ "spec": { "$setElementOrder/access": [] } }), 400),
        (json!({ "metadata": { "ownerReferences": [{ "name": "a" }] } }), 422),
        (json!([]), 400),
        (json!({ "metadata": { "resourceVersion": "1" } }), 409),
        (json!({ "metadata": { "name": "other" } }), 400),
    ] {
        let reply = patch(changes.clone()).await;
        assert_eq!(reply.status, code, "{changes}: {}", failure(&reply));
    }
    let after = client.get(&secret_path("s1")).send().await.expect(200);
    assert_eq!(after, third);
}
