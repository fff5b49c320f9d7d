//! Garbage collection: which dependents are deleted with their owner, which wait, which stay.

use postern_tests::http::Client;
use postern_tests::objects::{secret, secret_path, secrets};
use postern_tests::status::failure;
use postern_tests::wait::until;
use postern_tests::{Home, Random, Server, Setup};
use serde_json::{Value, json};

async fn put(client: &Client, name: &str, owners: &[(&Value, bool)], finalizers: &[&str]) -> Value {
    let mut object = secret(name, "v");
    object["metadata"]["finalizers"] = json!(finalizers);
    let references = owners.iter().map(|(owner, block)| reference(owner, *block));
    object["metadata"]["ownerReferences"] = references.collect();
    client.post(&secrets("platform")).json(&object).send().await.expect(201)
}

fn reference(owner: &Value, block: bool) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"],
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": block,
    })
}

async fn delete(client: &Client, name: &str, policy: &str) {
    let options = json!({ "propagationPolicy": policy });
    client.delete(&secret_path(name)).json(&options).send().await.expect(200);
}

async fn get(client: &Client, name: &str) -> Option<Value> {
    let reply = client.get(&secret_path(name)).send().await;
    (reply.status == 200).then(|| reply.json())
}

async fn gone(client: &Client, name: &str) {
    let check = async || get(client, name).await.is_none().then_some(());
    until(&format!("{name} is gone"), check).await;
}

fn owners_of(object: &Value) -> usize {
    object["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len)
}

/// Waits until the collector has processed everything that was written so far: it processes one
/// object after the other, and this one is the last.
async fn wait_for_collector(client: &Client) {
    let dangling = json!({ "apiVersion": "management.platform.sh/v1", "kind": "SharedSecret",
        "metadata": { "name": "nobody", "uid": "nobody" } });
    put(client, "zz-last", &[(&dangling, false)], &[]).await;
    gone(client, "zz-last").await;
}

#[tokio::test]
async fn in_the_background_dependents_follow_their_last_owner() {
    let server = Server::start().await;
    let client = server.client();
    let one = put(&client, "one", &[], &[]).await;
    let two = put(&client, "two", &[], &[]).await;
    let both = put(&client, "both", &[(&one, false), (&two, false)], &[]).await;
    put(&client, "child", &[(&one, false)], &[]).await;
    put(&client, "grandchild", &[(&both, false)], &[]).await;
    delete(&client, "one", "Background").await;
    assert!(get(&client, "one").await.is_none(), "the owner does not wait");
    gone(&client, "child").await;
    let check = async || get(&client, "both").await.filter(|both| owners_of(both) == 1);
    until("the dangling reference is gone", check).await;
    assert!(get(&client, "grandchild").await.is_some());
    delete(&client, "two", "Background").await;
    gone(&client, "both").await;
    gone(&client, "grandchild").await;
}

#[tokio::test]
async fn orphans_stay() {
    let server = Server::start().await;
    let client = server.client();
    let owner = put(&client, "owner", &[], &[]).await;
    put(&client, "child", &[(&owner, true)], &[]).await;
    delete(&client, "owner", "Orphan").await;
    gone(&client, "owner").await;
    wait_for_collector(&client).await;
    let child = get(&client, "child").await.unwrap();
    assert_eq!(owners_of(&child), 0);
    assert!(child["metadata"].get("deletionTimestamp").is_none());
}

#[tokio::test]
async fn in_the_foreground_the_owner_waits_for_those_that_block_it() {
    let server = Server::start().await;
    let client = server.client();
    let owner = put(&client, "owner", &[], &[]).await;
    put(&client, "blocking", &[(&owner, true)], &["example.com/hold"]).await;
    put(&client, "other", &[(&owner, false)], &["example.com/hold"]).await;
    delete(&client, "owner", "Foreground").await;
    let terminating = async || {
        let child = get(&client, "blocking").await.unwrap();
        child["metadata"].get("deletionTimestamp").map(drop)
    };
    until("the dependent is being deleted", terminating).await;
    wait_for_collector(&client).await;
    let waiting = get(&client, "owner").await.unwrap();
    assert_eq!(waiting["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    release(&client, "blocking").await;
    gone(&client, "blocking").await;
    gone(&client, "owner").await;
    assert!(
        get(&client, "other").await.is_some(),
        "it did not block, and its finalizer blocks its deletion"
    );
    release(&client, "other").await;
    gone(&client, "other").await;
}

async fn release(client: &Client, name: &str) {
    let patch = json!({ "metadata": { "finalizers": null } });
    client.patch(&secret_path(name), "merge-patch", &patch).send().await.expect(200);
}

#[tokio::test]
async fn a_circle_of_owners_can_be_deleted() {
    let server = Server::start().await;
    let client = server.client();
    let a = put(&client, "a", &[], &[]).await;
    let b = put(&client, "b", &[(&a, true)], &[]).await;
    let c = put(&client, "c", &[(&b, true)], &[]).await;
    let patch = json!({ "metadata": { "ownerReferences": [reference(&c, true)] } });
    client.patch(&secret_path("a"), "merge-patch", &patch).send().await.expect(200);
    wait_for_collector(&client).await;
    assert!(get(&client, "a").await.is_some(), "each has an owner");
    delete(&client, "a", "Foreground").await;
    for name in ["a", "b", "c"] {
        gone(&client, name).await;
    }
}

#[tokio::test]
async fn an_object_with_the_same_name_owns_nothing() {
    let server = Server::start().await;
    let client = server.client();
    let first = put(&client, "owner", &[], &[]).await;
    put(&client, "child", &[(&first, false)], &["example.com/hold"]).await;
    delete(&client, "owner", "Background").await;
    put(&client, "owner", &[], &[]).await;
    let check = async || {
        get(&client, "child").await.unwrap()["metadata"].get("deletionTimestamp").map(drop)
    };
    until("the child of the first owner is being deleted", check).await;
    assert!(get(&client, "owner").await.is_some());
}

#[tokio::test]
async fn an_owner_of_an_unknown_kind_keeps_its_dependents() {
    let server = Server::start().await;
    let client = server.client();
    let mut foreign = put(&client, "x", &[], &[]).await;
    foreign["kind"] = "Deployment".into();
    foreign["apiVersion"] = "apps/v1".into();
    put(&client, "child", &[(&foreign, false)], &[]).await;
    wait_for_collector(&client).await;
    assert!(get(&client, "child").await.is_some());
}

#[tokio::test]
async fn block_owner_deletion_requires_the_right_to_delete_the_owner() {
    let server = Server::start().await;
    let admin = server.client();
    let users = secrets("platform").replace("namespaces/platform/sharedsecrets", "users");
    let keys = users.replace("users", "ownedaccesskeys");
    let ada = json!({ "metadata": { "name": "ada" } });
    let ada = admin.post(&users).json(&ada).send().await.expect(201);
    let key = json!({ "metadata": { "name": "k" }, "spec": { "user": "ada" } });
    let key = admin.post(&keys).json(&key).send().await.expect(201);
    let as_ada = admin.with_token(key["spec"]["key"].as_str().unwrap());
    let mut blocking = json!({ "metadata": { "name": "b" } });
    blocking["metadata"]["ownerReferences"] = json!([reference(&ada, true)]);
    let text = failure(&as_ada.post(&keys).json(&blocking).send().await);
    assert!(text.starts_with("422 Invalid") && text.contains("blockOwnerDeletion"), "{text}");
    blocking["metadata"]["ownerReferences"] = json!([reference(&ada, false)]);
    as_ada.post(&keys).json(&blocking).send().await.expect(201);
}

/// Trees of owners are deleted with all three policies while the server is killed again and again.
/// In the end exactly the right objects are deleted.
#[tokio::test]
async fn heavy_kills_lose_and_orphan_nothing() {
    let home = Home::new();
    let mut server = Setup::on(&home).start().await;
    let mut random = Random::new(11);
    for round in 0..8 {
        let client = server.client();
        let name = |what: &str| format!("{what}-{round}");
        let policies = ["Background", "Foreground", "Orphan"];
        let policy = policies[usize::try_from(random.below(3)).unwrap()];
        let owner = put(&client, &name("owner"), &[], &[]).await;
        let keeper = put(&client, &name("keeper"), &[], &[]).await;
        for child in 0..6 {
            let child_name = name(&format!("child{child}"));
            let child = put(&client, &child_name, &[(&owner, child % 2 == 0)], &[]).await;
            put(&client, &format!("{child_name}-leaf"), &[(&child, true)], &[]).await;
        }
        put(&client, &name("shared"), &[(&owner, true), (&keeper, false)], &[]).await;
        let mut graceful = secret(&name("graceful"), "v");
        graceful["metadata"]["ownerReferences"] = json!([reference(&owner, true)]);
        client.post(&secrets("platform")).json(&graceful).send().await.expect(201);
        let slow = json!({ "gracePeriodSeconds": 1 });
        client.delete(&secret_path(&name("graceful"))).json(&slow).send().await.expect(200);
        delete(&client, &name("owner"), policy).await;
        for _ in 0..random.below(3) {
            send_some_requests(&client, &mut random).await;
        }
        server.kill();
        server = Setup::on(&home).start().await;
        let client = server.client();
        gone(&client, &name("owner")).await;
        gone(&client, &name("graceful")).await;
        wait_for_collector(&client).await;
        for child in 0..6 {
            for child in [name(&format!("child{child}")), name(&format!("child{child}")) + "-leaf"]
            {
                if policy == "Orphan" {
                    assert!(get(&client, &child).await.is_some(), "{child} stays");
                } else {
                    gone(&client, &child).await;
                }
            }
        }
        let check = async || get(&client, &name("shared")).await.filter(|one| owners_of(one) == 1);
        until("the shared one has lost its deleted owner", check).await;
        assert!(get(&client, &name("keeper")).await.is_some());
    }
    server.stop().await;
}

/// Sends some requests, so that the server is killed at another moment.
async fn send_some_requests(client: &Client, random: &mut Random) {
    for _ in 0..random.below(20) {
        client.get(&secrets("platform")).send().await.expect(200);
    }
}
