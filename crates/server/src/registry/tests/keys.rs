//! Access keys in time: when they end, and what is told then.

use postern_auth::bearer::{BearerToken, Refusal};
use postern_auth::digest::Digest;
use postern_kinds::SecretText;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_meta::decode::decode_typed;
use serde_json::{Value, json};

use super::*;
use crate::operations;
use crate::stages::authenticate::Credential;

fn key_permit(verb: Verb, name: &str) -> Permit {
    Permit::for_server(&OwnedAccessKey, verb, None, name)
}

fn object(name: &str, spec: &Value) -> Object {
    let info = OwnedAccessKey.info();
    let value = json!({
        "apiVersion": info.version.to_string(),
        "kind": info.kind,
        "metadata": { "name": name },
        "spec": spec,
    });
    Object::from_value(value).unwrap()
}

impl Fixture {
    /// A new key of the administrator, by its digest.
    pub(super) async fn key(&self, name: &str, spec: Value) -> Digest {
        self.key_of(name, "admin", spec).await
    }

    /// A new key of a user, by its digest.
    pub(super) async fn key_of(&self, name: &str, user: &str, mut spec: Value) -> Digest {
        spec["user"] = user.into();
        let permit = key_permit(Verb::Create, name);
        let made =
            operations::create(&self.registry, &permit, object(name, &spec), &Writing::by_server())
                .await;
        let made: Value = decode_typed(&made.unwrap().json).unwrap();
        let value = SecretText::from(made["spec"]["key"].as_str().unwrap().to_owned());
        self.registry.cache().wait_until_current().await.unwrap();
        self.registry.digester().digest(&BearerToken::of_key(&value))
    }

    pub(super) fn pass_seconds(&self, seconds: i64) {
        self.clock.now_unix_seconds.fetch_add(seconds, Ordering::Relaxed);
    }

    pub(super) fn refusal(&self, digest: &Digest) -> Option<Refusal> {
        let now = self.clock.now().unix_seconds();
        self.registry.cache().principals().identify(digest, now).err()
    }

    pub(super) fn use_key(&self, digest: &Digest) {
        let now = self.clock.now().unix_seconds();
        let key = self.registry.cache().principals().identify(digest, now).unwrap();
        key.activity.note(now);
    }

    pub(super) async fn watch_with(&self, digest: Digest) -> Watcher {
        let now = self.clock.now().unix_seconds();
        let key = self.registry.cache().principals().identify(&digest, now).unwrap();
        let credential = Credential::of_key(key.identity.clone(), digest);
        let permit = permit(Verb::Watch, "unused").of_all().with_credential(credential);
        let draining = self.draining.subscribe();
        self.registry.watch(&permit, &options("watch=true"), draining).await.unwrap()
    }

    /// A watch on access keys, by the bearer of one who sees only their own.
    pub(super) async fn watch_keys_with(&self, digest: Digest) -> Watcher {
        let now = self.clock.now().unix_seconds();
        let key = self.registry.cache().principals().identify(&digest, now).unwrap();
        let credential = Credential::of_key(key.identity.clone(), digest);
        let permit = key_permit(Verb::Watch, "unused").of_all();
        let permit = permit.with_credential(credential).of_own();
        let options = options("watch=1&resourceVersion=0");
        self.registry.watch(&permit, &options, self.draining.subscribe()).await.unwrap()
    }

    pub(super) async fn names_of_keys(&self) -> Vec<String> {
        let permit = key_permit(Verb::List, "unused").of_all();
        let list = self.registry.list(&permit, &options("")).await.unwrap();
        list.objects.iter().map(|key| key.decode().unwrap().metadata.name).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_ttl_ends_a_key_and_its_watches() {
    let fixture = fixture().await;
    let digest = fixture.key("short", json!({ "ttl": 60 })).await;
    let mut watch = fixture.watch_with(digest).await;
    fixture.pass_seconds(59);
    assert_eq!(fixture.refusal(&digest), None);
    fixture.pass_seconds(1);
    assert_eq!(fixture.refusal(&digest), Some(Refusal::Expired));
    // Nothing happens but that time passes: the watcher looks by itself.
    let Some(last) = watch.next().await else { panic!("no word") };
    assert!(matches!(&last[..], [Delivery::Failed(error)] if error.code() == 401));
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn use_prolongs_a_key_that_counts_from_it_also_across_a_restart() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let fixture = over(store.clone()).await;
    let spec = json!({ "ttl": 300, "ttlAfterLastActivity": true });
    let digest = fixture.key("active", spec).await;
    fixture.pass_seconds(299);
    fixture.use_key(&digest);
    fixture.pass_seconds(299);
    fixture.use_key(&digest);
    fixture.registry.store_activity().await.unwrap();
    fixture.registry.cache().wait_until_current().await.unwrap();
    let now = fixture.clock.now().unix_seconds();
    drop(fixture);
    let again = over_at(store, now + 299).await;
    assert_eq!(again.refusal(&digest), None);
    again.pass_seconds(1);
    assert_eq!(again.refusal(&digest), Some(Refusal::Expired));
}

#[tokio::test]
async fn a_use_is_stored_once_and_goes_with_its_key() {
    let fixture = fixture().await;
    let digest = fixture.key("used", json!({})).await;
    fixture.use_key(&digest);
    fixture.registry.store_activity().await.unwrap();
    let revision = fixture.store.revision().await.unwrap();
    fixture.registry.store_activity().await.unwrap();
    assert_eq!(fixture.store.revision().await.unwrap(), revision, "nothing new, nothing written");
    let gone = key_permit(Verb::Delete, "used");
    operations::delete(&fixture.registry, &gone, &postern_meta::options::DeleteOptions::default())
        .await
        .unwrap();
    let left = fixture.store.list(postern_store::ListRequest::default()).await.unwrap();
    let left: Vec<_> = left.entries.iter().filter(|entry| entry.key.ends_with("/used")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn expired_keys_are_removed_in_the_end() {
    let fixture = fixture().await;
    fixture.key("short", json!({ "ttl": 60 })).await;
    fixture.key("ever", json!({})).await;
    let retention = fixture.registry.key_policy().expired_retention_seconds;
    fixture.pass_seconds(60 + retention);
    operations::remove_expired_keys(&fixture.registry).await.unwrap();
    assert_eq!(fixture.names_of_keys().await, ["admin", "ever", "short"]);
    fixture.pass_seconds(1);
    operations::remove_expired_keys(&fixture.registry).await.unwrap();
    assert_eq!(fixture.names_of_keys().await, ["admin", "ever"]);
}
