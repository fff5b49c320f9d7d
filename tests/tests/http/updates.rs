//! Replacing: the preserved fields, the effective changes, and the writer that wins.

use postern_tests::Server;
use postern_tests::objects::{CORE, secret, secret_path, secrets, value_of, version_of};
use postern_tests::rights::path;
use postern_tests::status::failure;
use serde_json::{Value, json};

async fn made(server: &Server) -> Value {
    let request =
        server.client().post(&secrets("platform")).json(&secret("s1", "one")).send().await;
    request.expect(201)
}

#[tokio::test]
async fn a_replace_changes_the_spec_and_keeps_the_identity() {
    let server = Server::start().await;
    let client = server.client();
    let first = made(&server).await;
    let mut object = first.clone();
    object["spec"] = secret("s1", "two")["spec"].clone();
    object["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z".into();
    object["metadata"]["generation"] = 99.into();
    let second = client.put(&secret_path("s1")).json(&object).send().await.expect(200);
    assert_eq!(value_of(&second), "two");
    for field in ["uid", "creationTimestamp", "name", "namespace"] {
        assert_eq!(second["metadata"][field], first["metadata"][field], "{field}");
    }
    assert_eq!(second["metadata"]["generation"], 2);
    assert!(version_of(&second) > version_of(&first));
    let read = client.get(&secret_path("s1")).send().await.expect(200);
    assert_eq!(read, second);
}

#[tokio::test]
async fn yaml_that_was_read_can_be_put_back() {
    let server = Server::start().await;
    let client = server.client();
    made(&server).await;
    let reply = client.get(&secret_path("s1")).accept("application/yaml").send().await;
    assert_eq!(reply.header("content-type"), Some("application/yaml"));
    let text = reply.expect_text(200).replace("spec:\n", "spec:\n  displayName: from yaml\n");
    let second = client.put(&secret_path("s1")).yaml(&text).send().await.expect(200);
    assert_eq!(second["spec"]["displayName"], "from yaml");
}

#[tokio::test]
async fn a_change_of_metadata_is_no_new_generation() {
    let server = Server::start().await;
    let client = server.client();
    let mut object = made(&server).await;
    object["metadata"]["labels"] = json!({"app": "shop"});
    let second = client.put(&secret_path("s1")).json(&object).send().await.expect(200);
    assert_eq!(second["metadata"]["generation"], 1);
    assert!(version_of(&second) > version_of(&object));
}

#[tokio::test]
async fn a_replace_that_changes_nothing_writes_nothing() {
    let server = Server::start().await;
    let client = server.client();
    let object = made(&server).await;
    let mut watch = client
        .watch(&secrets("platform"), &format!("&resourceVersion={}", version_of(&object)))
        .await;
    let same = client.put(&secret_path("s1")).json(&object).send().await.expect(200);
    assert_eq!(same, object);
    let same = client.patch(&secret_path("s1"), "merge-patch", &json!({})).send().await.expect(200);
    assert_eq!(same, object);
    let patch = json!([{"op": "test", "path": "/metadata/name", "value": "s1"}]);
    let same = client.patch(&secret_path("s1"), "json-patch", &patch).send().await.expect(200);
    assert_eq!(same, object);
    client.post(&secrets("platform")).json(&secret("s2", "v")).send().await.expect(201);
    assert_eq!(watch.summaries(1).await, ["ADDED s2"], "the writes of nothing sent no event");
}

#[tokio::test]
async fn the_uid_is_a_condition() {
    let server = Server::start().await;
    let client = server.client();
    let first = made(&server).await;
    let mut object = first.clone();
    object["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555".into();
    let text = failure(&client.put(&secret_path("s1")).json(&object).send().await);
    assert!(text.starts_with("409 Conflict\n"), "{text}");
    assert!(text.contains("Precondition failed: UID in precondition: 11111111-"), "{text}");
    object["metadata"].as_object_mut().unwrap().remove("uid");
    object["spec"]["displayName"] = "no uid given".into();
    let second = client.put(&secret_path("s1")).json(&object).send().await.expect(200);
    assert_eq!(second["metadata"]["uid"], first["metadata"]["uid"]);
}

#[tokio::test]
async fn a_replace_does_not_create() {
    let server = Server::start().await;
    let client = server.client();
    let mut object = made(&server).await;
    client.delete(&secret_path("s1")).send().await.expect(200);
    let text = failure(&client.put(&secret_path("s1")).json(&object).send().await);
    assert!(text.starts_with("404 NotFound\n"), "{text}");
    object["metadata"]["name"] = "other".into();
    let text = failure(&client.put(&secret_path("other")).json(&object).send().await);
    assert!(text.starts_with("404 NotFound\n"), "{text}");
}

/// As in a create: the client can send the same manifest again.
#[tokio::test]
async fn a_namespace_on_a_kind_without_namespaces_means_nothing() {
    let server = Server::start().await;
    let client = server.client();
    let one = path("teams", "t1");
    let sent = |display: &str| {
        json!({
            "apiVersion": "management.platform.sh/v1", "kind": "Team",
            "metadata": { "name": "t1", "namespace": "default" },
            "spec": { "displayName": display },
        })
    };
    let apply = |object: Value| {
        let request = client.request("PATCH", &format!("{one}?fieldManager=m"));
        request.body("application/apply-patch+yaml", object.to_string())
    };
    let made = apply(sent("One")).send().await.expect(201);
    assert_eq!(made["metadata"].get("namespace"), None);
    let again = apply(sent("One")).send().await.expect(200);
    assert_eq!(again, made);
    let elsewhere = json!({ "metadata": { "namespace": "x" } });
    for kind in ["merge-patch", "strategic-merge-patch"] {
        let patched = client.patch(&one, kind, &elsewhere).send().await.expect(200);
        assert_eq!(patched, made, "{kind}");
    }
    let mut replacement = sent("Two");
    replacement["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"].clone();
    let replaced = client.put(&one).json(&replacement).send().await.expect(200);
    assert_eq!(replaced["spec"]["displayName"], "Two");
    assert_eq!(replaced["metadata"].get("namespace"), None);
}

/// As in Kubernetes, where helm relies on it.
#[tokio::test]
async fn a_core_secret_is_replaced_without_a_version() {
    let server = Server::start().await;
    let client = server.client();
    let all = format!("{CORE}/namespaces/platform/secrets");
    let one = format!("{all}/s1");
    let object = |value: &str| json!({ "metadata": { "name": "s1" }, "data": { "v": value } });
    let made = client.post(&all).json(&object("b25l")).send().await.expect(201);
    let replaced = client.put(&one).json(&object("dHdv")).send().await.expect(200);
    assert_eq!(replaced["data"], json!({ "v": "dHdv" }));
    assert_eq!(replaced["metadata"]["uid"], made["metadata"]["uid"]);
    // As in Kubernetes, 0 is no version.
    let mut at_zero = object("dGhyZWU=");
    at_zero["metadata"]["resourceVersion"] = "0".into();
    let replaced = client.put(&one).json(&at_zero).send().await.expect(200);
    assert_eq!(replaced["data"], json!({ "v": "dGhyZWU=" }));
    // A version is still checked if there is one, and a replace creates nothing.
    client.put(&one).json(&made).send().await.expect(409);
    client.put(&format!("{all}/s2")).json(&object("dHdv")).send().await.expect(404);
    client.delete(&one).send().await.expect(200);
    client.put(&one).json(&object("dHdv")).send().await.expect(404);
}

#[tokio::test]
async fn one_of_many_writers_wins_each_version() {
    let server = Server::start().await;
    let client = server.client();
    let object = made(&server).await;
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..12 {
        let (client, mut object) = (client.clone(), object.clone());
        writers.spawn(async move {
            object["spec"]["displayName"] = format!("writer {number}").into();
            client.put(&secret_path("s1")).json(&object).send().await.status
        });
    }
    let mut codes = writers.join_all().await;
    codes.sort_unstable();
    assert_eq!(codes, [[200].as_slice(), &[409; 11]].concat());
}

#[tokio::test]
async fn owners_are_checked_and_kept() {
    let server = Server::start().await;
    let client = server.client();
    let owner = made(&server).await;
    let reference = json!({
        "apiVersion": "management.platform.sh/v1", "kind": "SharedSecret", "name": "s1",
        "uid": owner["metadata"]["uid"], "controller": true,
    });
    let mut child = secret("child", "v");
    child["metadata"]["ownerReferences"] = json!([reference]);
    let made = client.post(&secrets("platform")).json(&child).send().await.expect(201);
    assert_eq!(made["metadata"]["ownerReferences"], json!([reference]));
    child["metadata"]["name"] = "second".into();
    let mut other = reference.clone();
    other["uid"] = "11111111-2222-3333-4444-555555555555".into();
    other["name"] = "other".into();
    child["metadata"]["ownerReferences"] = json!([reference, other]);
    let text = failure(&client.post(&secrets("platform")).json(&child).send().await);
    let expected = "Only one reference can have Controller set to true. Found \"true\" in \
                    references for s1 and other";
    assert!(text.starts_with("422 Invalid\n") && text.contains(expected), "{text}");
    for missing in ["apiVersion", "kind", "name", "uid"] {
        let mut broken = reference.clone();
        broken[missing] = "".into();
        child["metadata"]["ownerReferences"] = json!([broken]);
        let text = failure(&client.post(&secrets("platform")).json(&child).send().await);
        assert!(text.starts_with("422 Invalid\n"), "{missing}: {text}");
        assert!(text.contains("metadata.ownerReferences"), "{missing}: {text}");
    }
}
