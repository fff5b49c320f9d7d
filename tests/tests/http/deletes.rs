//! Deleting: the response, preconditions, grace periods, and whole collections.

use insta::assert_snapshot;
use postern_tests::Server;
use postern_tests::cli::CliUser;
use postern_tests::objects::{GROUP, make, name_of, secret, secret_path, secrets, version_of};
use postern_tests::status::failure;
use postern_tests::wait;
use serde_json::{Value, json};

async fn create(server: &Server, name: &str) -> Value {
    let request = server.client().post(&secrets("platform")).json(&secret(name, "v")).send().await;
    request.expect(201)
}

#[tokio::test]
async fn a_deletion_of_a_record_warns_about_what_stays() {
    let server = Server::start().await;
    let client = server.client();
    let admin = CliUser::new().with("KUBECONFIG", server.home().kubeconfig().to_str().unwrap());
    make(&client, "clusters", "east", json!({})).await;
    make(&client, "projects", "p", json!({ "allowedClusters": [{ "name": "*" }] })).await;
    let at = |kind: &str| format!("{GROUP}/namespaces/p-p/{kind}");
    for (kind, collection, stays) in [
        ("virtualcluster", at("virtualclusterinstances"), "the virtual cluster itself stays"),
        ("space", at("spaceinstances"), "the namespace of the space stays"),
        ("cluster", format!("{GROUP}/clusters"), "the cluster and its agent go on"),
    ] {
        for name in ["one", "two"] {
            let mut at = json!({ "cluster": "east", "namespace": format!("{kind}-{name}") });
            if kind == "virtualcluster" {
                at["virtualCluster"] = json!(name);
            }
            let spec = if kind == "cluster" { json!({}) } else { json!({ "clusterRef": at }) };
            let object = json!({ "metadata": { "name": name }, "spec": spec });
            client.post(&collection).json(&object).send().await.expect(201);
        }
        let reply = client.delete(&format!("{collection}/one")).send().await;
        let warning = reply.header("warning").unwrap_or_default();
        assert!(reply.status == 200 && warning.contains(stays), "{kind}: {warning:?}");
        let namespace = if kind == "cluster" { &[][..] } else { &["-n", "p-p"] };
        let output = admin.run(&[&["delete", kind, "two"], namespace].concat()).await;
        assert!(output.code == 0 && output.err.contains(stays), "{}", output.all_output());
    }
    let spaces = client.delete(&at("spaceinstances")).send().await;
    assert!(spaces.header("warning").is_some_and(|text| text.contains("stays")));
    create(&server, "s").await;
    assert_eq!(client.delete(&secret_path("s")).send().await.header("warning"), None);
}

#[tokio::test]
async fn the_response_names_the_deleted_object() {
    let server = Server::start().await;
    let client = server.client();
    let made = create(&server, "s1").await;
    let gone = client.delete(&secret_path("s1")).send().await.expect(200);
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {
            "name": "s1", "group": "management.platform.sh", "kind": "sharedsecrets",
            "uid": made["metadata"]["uid"],
        },
    });
    assert_eq!(gone, expected);
    assert_eq!(client.get(&secret_path("s1")).send().await.status, 404);
    assert_eq!(client.delete(&secret_path("s1")).send().await.status, 404);
    let again = create(&server, "s1").await;
    assert_ne!(again["metadata"]["uid"], made["metadata"]["uid"]);
}

#[tokio::test]
async fn preconditions_are_checked() {
    let server = Server::start().await;
    let client = server.client();
    let made = create(&server, "s1").await;
    let wrong = json!({"preconditions": {"uid": "11111111-2222-3333-4444-555555555555"}});
    let text = failure(&client.delete(&secret_path("s1")).json(&wrong).send().await);
    let uid = made["metadata"]["uid"].as_str().unwrap();
    assert_snapshot!(text.replace(uid, "<uid>"), @r#"
    409 Conflict
    Operation cannot be fulfilled on sharedsecrets.management.platform.sh "s1": the UID in the precondition (11111111-2222-3333-4444-555555555555) does not match the UID in record (<uid>). The object might have been deleted and then recreated
    {"group":"management.platform.sh","kind":"sharedsecrets","name":"s1"}
    "#);
    let wrong = json!({"preconditions": {"resourceVersion": "1"}});
    let text = failure(&client.delete(&secret_path("s1")).json(&wrong).send().await);
    assert!(text.starts_with("409 Conflict\n"), "{text}");
    let right = json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions",
        "preconditions": {"uid": uid, "resourceVersion": made["metadata"]["resourceVersion"]},
    });
    client.delete(&secret_path("s1")).json(&right).send().await.expect(200);
}

#[tokio::test]
async fn options_are_read_from_the_body_in_every_version() {
    let server = Server::start().await;
    let client = server.client();
    for body in [
        json!({"propagationPolicy": "Background"}),
        json!({"apiVersion": "v1", "kind": "DeleteOptions"}),
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions"}),
        json!({"apiVersion": "management.platform.sh/v1", "kind": "DeleteOptions"}),
    ] {
        create(&server, "s1").await;
        client.delete(&secret_path("s1")).json(&body).send().await.expect(200);
    }
    create(&server, "s1").await;
    for (body, code) in [
        (json!({"propagationPolicy": "Sideways"}), 422),
        (json!({"propagationPolicy": "Orphan", "orphanDependents": true}), 422),
        (json!({"dryRun": ["Some"]}), 422),
        (json!({"gracePeriodSeconds": "long"}), 400),
        (json!([]), 400),
    ] {
        let text = failure(&client.delete(&secret_path("s1")).json(&body).send().await);
        assert!(text.starts_with(&code.to_string()), "{body}: {text}");
    }
    let query = format!("{}?propagationPolicy=Background&gracePeriodSeconds=0", secret_path("s1"));
    client.delete(&query).send().await.expect(200);
}

#[tokio::test]
async fn a_grace_period_keeps_the_object_until_it_has_passed() {
    let server = Server::start().await;
    let client = server.client();
    let made = create(&server, "s1").await;
    let lingering =
        client.delete(&secret_path("s1")).json(&json!({"gracePeriodSeconds": 3600})).send().await;
    let lingering = lingering.expect(200);
    assert_eq!(lingering["kind"], "SharedSecret");
    assert_eq!(lingering["metadata"]["deletionGracePeriodSeconds"], 3600);
    assert!(lingering["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(lingering["metadata"]["generation"], 2);
    let read = client.get(&secret_path("s1")).send().await.expect(200);
    assert_eq!(read, lingering);
    let again = client.post(&secrets("platform")).json(&secret("s1", "w")).send().await;
    let text = failure(&again);
    assert!(
        text.starts_with("409 AlreadyExists\nobject is being deleted: sharedsecrets"),
        "{text}"
    );
    let longer =
        client.delete(&secret_path("s1")).json(&json!({"gracePeriodSeconds": 7200})).send().await;
    assert_eq!(
        longer.expect(200)["metadata"]["deletionTimestamp"],
        lingering["metadata"]["deletionTimestamp"]
    );
    let mut watch = client
        .watch(&secrets("platform"), &format!("&resourceVersion={}", version_of(&lingering)))
        .await;
    client
        .delete(&secret_path("s1"))
        // Counted from the first deletion: long enough that the object is still there now.
        .json(&json!({"gracePeriodSeconds": 8}))
        .send()
        .await
        .expect(200);
    wait::until("the object to be gone", async || {
        (client.get(&secret_path("s1")).send().await.status == 404).then_some(())
    })
    .await;
    let events = watch.take(2).await;
    let summaries: Vec<_> = events.iter().map(postern_tests::watching::Event::summary).collect();
    assert_eq!(summaries, ["MODIFIED s1", "DELETED s1"]);
    assert_eq!(events[1].object["metadata"]["uid"], made["metadata"]["uid"]);
}

#[tokio::test]
async fn deletecollection_deletes_what_is_selected() {
    let server = Server::start().await;
    let client = server.client();
    for (name, app) in [("a", "shop"), ("b", "shop"), ("c", "billing")] {
        let mut object = secret(name, "v");
        object["metadata"]["labels"] = json!({"app": app});
        client.post(&secrets("platform")).json(&object).send().await.expect(201);
    }
    client.post(&secrets("default")).json(&secret("d", "v")).send().await.expect(201);
    let gone = client
        .delete(&format!("{}?labelSelector=app%3Dshop", secrets("platform")))
        .send()
        .await
        .expect(200);
    assert_eq!(gone["kind"], "SharedSecretList");
    let names: Vec<_> = gone["items"].as_array().unwrap().iter().map(name_of).collect();
    assert_eq!(names, ["a", "b"]);
    let left = client.get(&secrets("platform")).send().await.expect(200);
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
    client.delete(&secrets("platform")).send().await.expect(200);
    let all = client.get(&format!("{GROUP}/sharedsecrets")).send().await.expect(200);
    let names: Vec<_> = all["items"].as_array().unwrap().iter().map(name_of).collect();
    assert_eq!(names, ["d"]);
}
