//! The readers of secrets, as several servers store them.

use postern_auth::digest::Digest;
use postern_meta::options::GetOptions;

use super::fleet::{Fleet, on_every_fleet};
use super::*;
use crate::registry::readers::StoredReader;
use crate::registry::values::{ObjectParts, Recipient};

impl Fixture {
    /// Sends the secret `db` to the bearer of a key.
    async fn send_db(&self, digest: Digest) {
        let permit = permit(Verb::Get, "db").with_credential(self.credential(digest));
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
