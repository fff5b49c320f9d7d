//! The readers of secrets, as several servers store them.

use postern_auth::digest::Digest;
use postern_auth::identity::Identity;
use postern_kinds::Impersonation;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::user::User;
use postern_meta::options::GetOptions;

use super::fleet::{Fleet, on_every_fleet};
use super::*;
use crate::actions::secret_readers;
use crate::controllers;
use crate::credential::Credential;
use crate::registry::readers::{NotedSecret, Reader, StoredReader};
use crate::registry::values::{ObjectParts, Recipient};

impl Fixture {
    /// Sends the secret `db` to the bearer of a key.
    async fn send_db(&self, digest: Digest) {
        self.send("db", digest).await;
    }

    /// Sends a secret to the bearer of a key.
    async fn send(&self, name: &str, digest: Digest) {
        let permit = permit(Verb::Get, name).with_credential(self.credential(digest));
        let object = self.registry.get(&permit, &GetOptions::default()).await.unwrap();
        let to = Recipient::new(&self.registry, &permit);
        to.object(SharedSecret.info(), &object, ObjectParts::Whole);
    }

    /// The readers of the secret `db`.
    async fn readers_of_db(&self) -> Vec<StoredReader> {
        let secret = self.read(secret("db")).await.unwrap();
        self.registry.readers_of(&SharedSecret, &secret).await.unwrap().readers
    }
}

async fn make_db(fleet: &Fleet) -> Object {
    let data = json!({ "spec": { "data": { "k": "dg==" } } });
    let made = fleet.one().make(secret("db"), data).await;
    fleet.current().await;
    made
}

#[tokio::test]
async fn the_notes_of_all_servers_are_added_up_and_end_with_their_secret() {
    on_every_fleet(async |fleet| {
        make_db(&fleet).await;
        let (digest, other) =
            (fleet.one().key("ci", json!({})).await, fleet.one().key("cd", json!({})).await);
        fleet.current().await;
        let before = fleet.one().read(secret("db")).await.unwrap();
        for server in [fleet.one(), fleet.other(), fleet.one()] {
            server.pass_seconds(10);
            server.send_db(digest).await;
        }
        fleet.other().pass_seconds(10);
        fleet.other().send_db(other).await;
        for server in [fleet.other(), fleet.one()] {
            fleet.current().await;
            server.registry.store_readers().await.unwrap();
        }
        for server in fleet.current().await {
            let found = server.readers_of_db().await;
            let seen: Vec<_> = found
                .iter()
                .map(|one| {
                    let seconds = one.last_time.unix_seconds() - one.first_time.unix_seconds();
                    (&*one.reader.user, &*one.reader.access_key, one.count, seconds)
                })
                .collect();
            assert_eq!(seen, [("admin", "cd", 1, 0), ("admin", "ci", 3, 20)]);
        }
        let revision = fleet.one().store.revision().await.unwrap();
        for server in fleet.current().await {
            server.registry.store_readers().await.unwrap();
        }
        let now = fleet.one().store.revision().await.unwrap();
        assert_eq!(now, revision, "nothing new, nothing written");
        let after = fleet.one().read(secret("db")).await.unwrap();
        assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
        // A note that is not stored when the secret ends belongs to no later secret.
        fleet.other().send_db(digest).await;
        fleet.one().delete(secret("db")).await;
        assert_eq!(fleet.stored("/readers/").await, [""; 0]);
        make_db(&fleet).await;
        for server in fleet.current().await {
            server.registry.store_readers().await.unwrap();
            assert!(server.readers_of_db().await.is_empty());
        }
        assert_eq!(fleet.stored("/readers/").await, [""; 0]);
    })
    .await;
}

#[tokio::test]
async fn a_corrupt_record_says_that_readers_are_missing_and_is_replaced() {
    let fixture = fixture().await;
    let data = json!({ "spec": { "data": { "k": "dg==" } } });
    let made = fixture.make(secret("db"), data).await;
    let digest = fixture.key("ci", json!({})).await;
    fixture.overwrite(crate::storage_key::readers(&secret("db").key())).await;
    fixture.send_db(digest).await;
    fixture.registry.store_readers().await.unwrap();
    let found = fixture.registry.readers_of(&SharedSecret, &made).await.unwrap();
    assert!(found.truncated && found.readers.len() == 1);
    let since = found.since.unwrap();
    assert_eq!(Some(since), made.metadata.creation_timestamp);
    fixture.delete(secret("db")).await;
}

#[tokio::test]
async fn one_corrupt_secret_or_a_large_batch_does_not_stop_the_others() {
    let fixture = fixture().await;
    let digest = fixture.key("ci", json!({})).await;
    let names: Vec<String> = (0..14).map(|number| format!("s{number}")).collect();
    for name in &names {
        let data = json!({ "spec": { "data": { "k": "dg==" } } });
        let made = fixture.make(secret(name), data).await;
        // The records of one transaction exceed the limit of the store.
        let known = json!({
            "reader": { "user": "u".repeat(2 * 1024 * 1024) },
            "firstTime": "2023-11-14T00:00:00Z", "lastTime": "2023-11-14T00:00:00Z", "count": 1,
        });
        let record = json!({ "uid": made.metadata.uid, "truncated": false, "readers": [known] });
        let key = crate::storage_key::readers(&secret(name).key());
        fixture.put(key, serde_json::to_vec(&record).unwrap().into()).await;
        fixture.send(name, digest).await;
    }
    fixture.corrupt(secret("s1")).await;
    let notes = fixture.registry.reader_notes();
    assert_eq!(notes.len(), 14);
    fixture.delete(secret("s0")).await;
    assert_eq!(notes.len(), 13, "they end with their secret");
    assert!(fixture.registry.store_readers().await.is_err());
    assert_eq!(notes.len(), 1, "those of the corrupt secret stay");
    let of_last = async || {
        let secret = fixture.read(secret("s13")).await.unwrap();
        fixture.registry.readers_of(&SharedSecret, &secret).await.unwrap()
    };
    assert_eq!((of_last().await.readers.len(), of_last().await.truncated), (2, false));
    // At the end of the server, what is not stored is lost.
    controllers::readers::finish(&fixture.registry).await;
    assert!(of_last().await.truncated);
}

#[tokio::test]
async fn a_restored_store_has_lost_readers() {
    let fixture = fixture().await;
    let made = fixture.make(secret("db"), json!({})).await;
    let truncated =
        async || fixture.registry.readers_of(&SharedSecret, &made).await.unwrap().truncated;
    assert!(!truncated().await);
    let log = crate::storage_key::READER_LOG;
    let mut known: Value = postern_meta::decode::decode_typed(&fixture.stored(log).await).unwrap();
    known["epoch"] = 7.into();
    fixture.put(log.into(), serde_json::to_vec(&known).unwrap().into()).await;
    assert!(truncated().await && truncated().await);
}

#[tokio::test]
async fn a_corrupt_user_or_key_leaves_a_reader_without_its_name() {
    let fixture = fixture().await;
    let made = fixture.make(secret("db"), json!({})).await;
    let ada = fixture.make(at(&User, "ada"), json!({ "spec": { "displayName": "Ada" } })).await;
    fixture.key_of("laptop", "ada", json!({ "displayName": "Laptop" })).await;
    let key = secret("db").key();
    let db = NotedSecret { key: &key, uid: &made.metadata.uid };
    let reader = Reader {
        user: "ada".into(),
        uid: ada.metadata.uid.as_str().into(),
        access_key: "laptop".into(),
        ..Reader::default()
    };
    fixture.registry.reader_notes().note(db, "ada", reader, START_UNIX_SECONDS);
    let names = async || {
        let permit = permit(Verb::Get, "db");
        let found = secret_readers::list(&fixture.registry, &permit).await.unwrap();
        let found: Value = postern_meta::decode::decode_typed(found.json()).unwrap();
        let one = found["readers"][0].clone();
        assert_eq!((&one["user"], &one["accessKey"]), (&json!("ada"), &json!("laptop")));
        ["displayName", "accessKeyDisplayName"].map(|name| one[name].clone())
    };
    assert_eq!(names().await, ["Ada", "Laptop"]);
    fixture.corrupt(at(&User, "ada")).await;
    assert_eq!(names().await, [Value::Null, json!("Laptop")]);
    fixture.corrupt(at(&OwnedAccessKey, "laptop")).await;
    assert_eq!(names().await, [Value::Null, Value::Null]);
}

#[tokio::test]
async fn an_impersonator_has_the_name_of_the_owner_of_the_key() {
    let fixture = fixture().await;
    let digest = fixture.key("ci", json!({})).await;
    let bob = Identity { user: Some("bob".to_owned()), ..Identity::default() };
    let acting_as_bob = |bearer: Identity| {
        let credential = Credential::of_key(Arc::new(bearer), digest);
        let credential = credential.acting_as(Impersonation::default(), bob.clone());
        let reader = Reader::of_request(&credential);
        (reader.user.to_string(), reader.impersonated_by.to_string())
    };
    let named = |name: &str| Identity { name: name.to_owned(), ..Identity::default() };
    for (bearer, wanted) in [
        (Identity { user: Some("ada".to_owned()), ..named("ada@shop.example") }, "ada"),
        (Identity { team: Some("shop".to_owned()), ..named("platform:team:shop") }, "shop"),
        (named("ci:subject"), "ci:subject"),
    ] {
        assert_eq!(acting_as_bob(bearer), ("bob".to_owned(), wanted.to_owned()));
    }
}
