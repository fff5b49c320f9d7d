//! The objects that an access key ends with: its user, and the owners that a client has named. The
//! first is in `status` alone.

use postern_tests::Server;
use postern_tests::http::Client;
use postern_tests::objects::{collection, make};
use postern_tests::rights::{path, user};
use postern_tests::wait::until;
use serde_json::{Value, json};

const KEYS: &str = "ownedaccesskeys";

/// A reference to a user, as version 0.2 wrote it.
async fn reference(client: &Client, name: &str) -> Value {
    let owner = client.get(&path("users", name)).send().await.expect(200);
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"],
        "name": name, "uid": owner["metadata"]["uid"],
    })
}

fn key(name: &str, references: &[&Value]) -> Value {
    json!({
        "apiVersion": "management.platform.sh/v1", "kind": "OwnedAccessKey",
        "metadata": { "name": name, "ownerReferences": references },
        "spec": { "user": "ada", "displayName": name },
    })
}

async fn read(client: &Client, name: &str) -> Value {
    client.get(&path(KEYS, name)).send().await.expect(200)
}

async fn is_gone(client: &Client, name: &str) {
    let check = async || (client.get(&path(KEYS, name)).send().await.status == 404).then_some(());
    until(&format!("{name} is gone"), check).await;
}

#[tokio::test]
async fn a_key_is_deleted_with_the_last_owner_that_its_client_named() {
    let server = Server::start().await;
    let admin = server.client();
    for name in ["ada", "bob", "carl"] {
        make(&admin, "users", name, json!({})).await;
    }
    let [ada, bob, carl] = [
        reference(&admin, "ada").await,
        reference(&admin, "bob").await,
        reference(&admin, "carl").await,
    ];
    for (name, references) in [
        ("of-bob", &[&bob][..]),
        ("of-both", &[&bob, &carl]),
        ("of-bob-and-ada", &[&bob, &ada]),
        ("no-references", &[]),
    ] {
        admin.post(&collection(KEYS)).json(&key(name, references)).send().await.expect(201);
    }
    admin.delete(&path("users", "bob")).send().await.expect(200);
    is_gone(&admin, "of-bob").await;
    // The client may have read the reference to ada from an earlier version. The server ignores it.
    is_gone(&admin, "of-bob-and-ada").await;
    let check = async || {
        let references = read(&admin, "of-both").await["metadata"]["ownerReferences"].clone();
        (references == json!([carl])).then_some(())
    };
    until("the reference to bob is removed", check).await;
    read(&admin, "no-references").await;
    for name in ["of-both", "no-references"] {
        assert!(read(&admin, name).await["status"]["ownerUid"] == ada["uid"]);
    }
    admin.delete(&path("users", "ada")).send().await.expect(200);
    is_gone(&admin, "of-both").await;
    is_gone(&admin, "no-references").await;
}

#[tokio::test]
async fn a_key_is_deleted_with_its_user_by_every_policy() {
    let server = Server::start().await;
    let admin = server.client();
    make(&admin, "users", "bob", json!({})).await;
    let bob = reference(&admin, "bob").await;
    for policy in ["Background", "Foreground", "Orphan"] {
        make(&admin, "users", "ada", json!({})).await;
        for (name, references) in [("plain", &[][..]), ("of-bob", &[&bob])] {
            admin.post(&collection(KEYS)).json(&key(name, references)).send().await.expect(201);
        }
        let options = json!({ "propagationPolicy": policy });
        admin.delete(&path("users", "ada")).json(&options).send().await.expect(200);
        for name in ["plain", "of-bob"] {
            is_gone(&admin, name).await;
        }
        let check =
            async || (admin.get(&path("users", "ada")).send().await.status == 404).then_some(());
        until(&format!("the user is gone, {policy}"), check).await;
    }
}

#[tokio::test]
async fn the_manager_of_a_key_owns_only_the_references_that_it_sent() {
    let server = Server::start().await;
    let admin = server.client();
    for name in ["ada", "bob"] {
        make(&admin, "users", name, json!({})).await;
    }
    let (ada, bob) = (reference(&admin, "ada").await, reference(&admin, "bob").await);
    for (name, sent, kept) in [
        ("none", vec![], vec![]),
        ("bob", vec![&bob], vec![&bob]),
        ("ada", vec![&ada], vec![]),
        ("both", vec![&ada, &bob], vec![&bob]),
    ] {
        let mut configuration = key(name, &sent);
        if sent.is_empty() {
            configuration["metadata"].as_object_mut().unwrap().remove("ownerReferences");
        }
        let apply = || {
            let at = format!("{}?fieldManager=me", path(KEYS, name));
            admin
                .request("PATCH", &at)
                .body("application/apply-patch+yaml", configuration.to_string())
        };
        let made = apply().send().await.expect(201);
        let again = apply().send().await.expect(200);
        for object in [made, again.clone(), read(&admin, name).await] {
            let metadata = &object["metadata"];
            let references = metadata["ownerReferences"].as_array().cloned().unwrap_or_default();
            assert_eq!(json!(references), json!(kept), "{name}");
            assert_eq!(object["status"]["ownerUid"], ada["uid"], "{name}");
            let entries = metadata["managedFields"].as_array().unwrap();
            let owned =
                entries.iter().map(|entry| &entry["fieldsV1"]["f:metadata"]["f:ownerReferences"]);
            let owned: Vec<&Value> = owned.filter(|fields| !fields.is_null()).collect();
            assert_eq!(owned.len(), kept.len(), "{name}: {owned:?}");
        }
        assert_eq!(again, read(&admin, name).await, "the second apply changes nothing");
    }
}

#[tokio::test]
async fn no_client_changes_what_a_key_ends_with() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    make(&admin, "users", "bob", json!({})).await;
    let bob = reference(&admin, "bob").await["uid"].clone();
    let status = json!({ "ownerUid": bob, "maker": { "name": "x", "uid": bob } });
    let mut forged = key("forged", &[]);
    forged["status"] = status.clone();
    let made = admin.post(&collection(KEYS)).json(&forged).send().await.expect(201);
    assert_eq!(made["status"]["ownerUid"], reference(&admin, "ada").await["uid"]);
    let before = read(&admin, "ada-key").await["status"]["ownerUid"].clone();
    for writer in [&ada, &admin] {
        let change = json!({ "status": status, "metadata": { "ownerReferences": null } });
        writer.patch(&path(KEYS, "ada-key"), "merge-patch", &change).send().await.expect(200);
        let mut put = read(&admin, "ada-key").await;
        put["status"] = status.clone();
        writer.put(&path(KEYS, "ada-key")).json(&put).send().await.expect(200);
        let after = read(&admin, "ada-key").await;
        assert_eq!(after["status"]["ownerUid"], before);
        assert!(after["status"]["maker"].is_null(), "{after}");
    }
    ada.get(&path("selves", "me")).send().await.expect(200);
}
