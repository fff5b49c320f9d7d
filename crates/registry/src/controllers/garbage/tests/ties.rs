//! Tests: access keys and workload identities are deleted with the objects that they end with, and
//! otherwise by their owner references.

use std::sync::Arc;

use postern_auth::bearer::Refusal;
use postern_auth::digest::Digest;
use postern_kinds::AnyKind;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::trusted_issuer::TrustedIssuer;
use postern_kinds::user::User;
use postern_kinds::workload_identity::WorkloadIdentity;
use postern_meta::object::Object;
use postern_meta::options::{DeleteOptions, Propagation};
use serde_json::{Value, json};

use super::super::Collector;
use crate::cache::to_stored;
use crate::registry::tests::{Fixture, at, fixture};

/// A server with the users ada, bob and carl, and its collector.
struct Scene {
    fixture: Fixture,
    collector: Collector,
}

impl Scene {
    async fn new() -> Self {
        let fixture = fixture().await;
        for name in ["ada", "bob", "carl"] {
            fixture.user(name).await;
        }
        let collector = Collector::new(fixture.registry.clone());
        Self { fixture, collector }
    }

    /// Lets the collector work until nothing changes any more.
    async fn collect(&mut self) {
        for _ in 0..4 {
            self.collector.catch_up().await;
            assert!(self.collector.work().await.is_none());
        }
        self.fixture.current().await;
    }

    async fn get(&self, kind: &'static dyn AnyKind, name: &str) -> Option<Object> {
        self.fixture.current().await;
        self.fixture.read(at(kind, name)).await.ok()
    }

    async fn key(&self, name: &str) -> Option<Object> {
        self.get(&OwnedAccessKey, name).await
    }

    /// An owner reference to a user, as a client writes it.
    async fn reference(&self, user: &str) -> Value {
        let uid = self.get(&User, user).await.unwrap().metadata.uid;
        let api_version = User.info().version.to_string();
        json!({ "apiVersion": api_version, "kind": "User", "name": user, "uid": uid })
    }

    /// Makes a key of ada with owner references to other users.
    async fn key_with(&self, name: &str, owners: &[&str]) -> Digest {
        let digest = self.fixture.key_of(name, "ada", json!({})).await;
        let mut references = Vec::new();
        for owner in owners {
            references.push(self.reference(owner).await);
        }
        self.write(name, |key| key["metadata"]["ownerReferences"] = references.clone().into())
            .await;
        digest
    }

    async fn write(&self, name: &str, change: impl Fn(&mut Value)) {
        self.fixture.change(at(&OwnedAccessKey, name), change).await;
        self.fixture.current().await;
    }

    /// Stores a key as version 0.2 would: its ties are owner references.
    async fn store_as_before(&self, name: &str) {
        let ada = self.reference("ada").await;
        let mut value = self.key(name).await.unwrap().into_value();
        value["status"].as_object_mut().unwrap().remove("ownerUid");
        let references = value["metadata"].as_object_mut().unwrap().entry("ownerReferences");
        references.or_insert_with(|| json!([])).as_array_mut().unwrap().push(ada);
        let stored = to_stored(Object::from_value(value).unwrap());
        self.fixture.put(storage_of(name), stored).await;
    }

    async fn delete_user(&self, name: &str, how: Propagation) {
        let options = DeleteOptions { propagation: Some(how), ..DeleteOptions::default() };
        self.fixture.try_delete(at(&User, name), options).await.unwrap();
    }
}

fn storage_of(key: &str) -> Arc<str> {
    at(&OwnedAccessKey, key).key()
}

const POLICIES: [Propagation; 3] =
    [Propagation::Background, Propagation::Foreground, Propagation::Orphan];

#[tokio::test]
async fn the_owner_references_of_a_client_alone_decide() {
    for is_old in [false, true] {
        let mut scene = Scene::new().await;
        let cases: [(&str, &[&str], bool); 4] = [
            ("none", &[], true),
            ("gone", &["bob"], false),
            ("one-left", &["bob", "carl"], true),
            ("other", &["carl"], true),
        ];
        for (name, owners, _) in cases {
            scene.key_with(name, owners).await;
            if is_old {
                scene.store_as_before(name).await;
            }
        }
        scene.collect().await;
        scene.delete_user("bob", Propagation::Background).await;
        scene.collect().await;
        for (name, _, stays) in cases {
            assert_eq!(scene.key(name).await.is_some(), stays, "{name}, {is_old}");
        }
        let left = scene.key("one-left").await.unwrap().metadata.owner_references;
        assert_eq!(left.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["carl"]);
    }
}

#[tokio::test]
async fn a_key_is_deleted_with_its_user_whatever_it_names_as_owner() {
    for (how, is_old) in POLICIES.into_iter().flat_map(|how| [(how, false), (how, true)]) {
        let mut scene = Scene::new().await;
        for (name, owners) in [("plain", &[][..]), ("owned", &["carl"])] {
            scene.key_with(name, owners).await;
            if is_old {
                scene.store_as_before(name).await;
            }
        }
        scene.fixture.key_of("of-bob", "bob", json!({})).await;
        scene.collect().await;
        scene.delete_user("ada", how).await;
        scene.collect().await;
        assert!(scene.get(&User, "ada").await.is_none(), "{how:?}");
        assert!(scene.key("plain").await.is_none(), "{how:?}, {is_old}");
        assert!(scene.key("owned").await.is_none(), "{how:?}, {is_old}");
        assert!(scene.key("of-bob").await.is_some(), "{how:?}");
    }
}

#[tokio::test]
async fn a_workload_identity_is_deleted_with_its_user() {
    for how in POLICIES {
        let mut scene = Scene::new().await;
        let issuer = json!({ "type": "Generic", "issuer": "https://ci.example.com" });
        scene.fixture.make(at(&TrustedIssuer, "ci"), json!({ "spec": issuer })).await;
        let spec = json!({
            "issuer": "ci", "owner": { "user": "ada" }, "scope": {},
            "match": [{ "claim": "sub", "values": ["job"] }],
        });
        scene.fixture.make(at(&WorkloadIdentity, "build"), json!({ "spec": spec })).await;
        let made = scene.get(&WorkloadIdentity, "build").await.unwrap();
        assert!(made.metadata.owner_references.is_empty());
        scene.collect().await;
        scene.delete_user("ada", how).await;
        scene.collect().await;
        assert!(scene.get(&WorkloadIdentity, "build").await.is_none(), "{how:?}");
    }
}

#[tokio::test]
async fn a_stored_key_of_an_earlier_version_works_and_is_stored_in_the_new_form() {
    let scene = Scene::new().await;
    let digest = scene.key_with("k", &["carl"]).await;
    scene.store_as_before("k").await;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    assert!(!text(&scene.fixture.stored(&storage_of("k")).await).contains("ownerUid"));
    let ada = scene.reference("ada").await["uid"].clone();
    for is_written in [false, true] {
        assert_eq!(scene.fixture.refusal(&digest), None, "{is_written}");
        let key = scene.key("k").await.unwrap();
        assert_eq!(key.fields["status"]["ownerUid"], ada, "{is_written}");
        let owners = key.metadata.owner_references.iter().map(|one| one.name.as_str());
        assert_eq!(owners.collect::<Vec<_>>(), ["carl"], "{is_written}");
        let label = |key: &mut Value| key["metadata"]["labels"] = json!({ "a": "b" });
        scene.write("k", label).await;
    }
    let stored = text(&scene.fixture.stored(&storage_of("k")).await);
    assert!(stored.contains("ownerUid") && !stored.contains("\"name\":\"ada\""), "{stored}");
}

#[tokio::test]
async fn a_stored_key_of_an_earlier_version_is_not_that_of_a_later_user() {
    let scene = Scene::new().await;
    let digest = scene.key_with("k", &[]).await;
    scene.store_as_before("k").await;
    assert_eq!(scene.fixture.refusal(&digest), None);
    scene.delete_user("ada", Propagation::Background).await;
    scene.fixture.user("ada").await;
    scene.fixture.current().await;
    assert_eq!(scene.fixture.refusal(&digest), Some(Refusal::Unknown));
    // A write of it does not make it the key of the later user.
    scene.write("k", |key| key["metadata"]["labels"] = json!({ "a": "b" })).await;
    assert_eq!(scene.fixture.refusal(&digest), Some(Refusal::Unknown));
}
