//! The expiry of access keys, and its events.

use futures_util::FutureExt as _;
use postern_auth::bearer::{BearerToken, Refusal};
use postern_auth::digest::Digest;
use postern_auth::resolved_key::ResolvedKey;
use postern_kinds::SecretText;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::user::User;
use postern_meta::decode::decode_typed;
use postern_meta::options::{GetOptions, Propagation};

use super::*;
use crate::admit;
use crate::permit::ResourceTarget;
use crate::secret_record::SecretRecord;

fn key(name: &str) -> At<'_> {
    at(&OwnedAccessKey, name)
}

impl Fixture {
    /// A new key of the administrator, by its digest.
    pub(super) async fn key(&self, name: &str, spec: Value) -> Digest {
        self.key_of(name, "admin", spec).await
    }

    /// A new key of a user, by its digest.
    pub(crate) async fn key_of(&self, name: &str, user: &str, mut spec: Value) -> Digest {
        spec["user"] = user.into();
        let made = self.make(key(name), json!({ "spec": spec })).await;
        let value = SecretText::from(made.fields["spec"]["key"].as_str().unwrap().to_owned());
        self.current().await;
        self.registry.digester().digest(&BearerToken::of_key(&value))
    }

    pub(super) fn pass_seconds(&self, seconds: i64) {
        self.clock.now_unix_seconds.fetch_add(seconds, Ordering::Relaxed);
    }

    /// The key of a digest, as a request with it would be authenticated.
    pub(super) fn identify(&self, digest: &Digest, now: i64) -> Result<Arc<ResolvedKey>, Refusal> {
        let cache = self.registry.cache();
        cache.principals().identify(digest, now, &cache.policy())
    }

    pub(crate) fn refusal(&self, digest: &Digest) -> Option<Refusal> {
        let now = self.clock.now().unix_seconds();
        self.identify(digest, now).err()
    }

    pub(super) fn use_key(&self, digest: &Digest) {
        let now = self.clock.now().unix_seconds();
        let key = self.identify(digest, now).unwrap();
        self.registry.key_uses().note(&key, now);
    }

    pub(super) async fn watch_with(&self, digest: Digest) -> Watcher {
        let permit = permit(Verb::Watch, "unused").of_all();
        let permit = permit.with_credential(self.credential(digest));
        let ending = self.ending.subscribe();
        self.registry.watch(&permit, &options("watch=true"), ending, large_work()).await.unwrap()
    }

    /// A watch on access keys, by a caller that sees only its own keys.
    pub(super) async fn watch_keys_with(&self, digest: Digest) -> Watcher {
        let permit = key("unused").permit(Verb::Watch).of_all();
        let permit = permit.with_credential(self.credential(digest)).of_own();
        let options = options("watch=1&resourceVersion=0");
        self.registry.watch(&permit, &options, self.ending.subscribe(), large_work()).await.unwrap()
    }

    pub(super) async fn names_of_keys(&self) -> Vec<String> {
        let permit = key("unused").permit(Verb::List).of_all();
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
    // Only time passes: the watcher itself checks the key.
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
    fixture.current().await;
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
    fixture.delete(key("used")).await;
    let left = fixture.store.list(postern_store::ListRequest::default()).await.unwrap();
    let left: Vec<_> = left.entries.iter().filter(|entry| entry.key.ends_with("/used")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_use_without_which_other_servers_would_let_the_key_expire_is_stored_at_once() {
    let fixture = fixture().await;
    let digest = fixture.key("active", json!({ "ttl": 300, "ttlAfterLastActivity": true })).await;
    let other = fixture.key("other", json!({ "ttl": 300 })).await;
    let is_urgent = |digest, after_seconds| {
        fixture.pass_seconds(after_seconds);
        fixture.use_key(digest);
        fixture.registry.key_uses().until_urgent().now_or_never().is_some()
    };
    // Others know that it lives for 120 seconds and longer: the next regular round stores that.
    assert!(!is_urgent(&digest, 180));
    let before = fixture.store.revision().await.unwrap();
    fixture.registry.store_urgent_activity().await.unwrap();
    assert_eq!(fixture.store.revision().await.unwrap(), before);
    // The round was missed. This server knows more uses than the others.
    assert!(!is_urgent(&other, 1));
    fixture.registry.store_urgent_activity().await.unwrap();
    assert_ne!(fixture.store.revision().await.unwrap(), before);
    fixture.current().await;
    assert!(!is_urgent(&digest, 1) && is_urgent(&digest, 181));
    assert!(fixture.registry.key_uses().until_urgent().now_or_never().is_none(), "noted once");
}

#[tokio::test]
async fn expired_keys_are_removed_in_the_end() {
    let fixture = fixture().await;
    fixture.key("short", json!({ "ttl": 60 })).await;
    fixture.key("ever", json!({})).await;
    let retention = fixture.registry.user_policy().expired_retention_seconds;
    fixture.pass_seconds(60 + retention);
    operations::remove_expired_keys(&fixture.registry).await.unwrap();
    assert_eq!(fixture.names_of_keys().await, ["admin", "ever", "short"]);
    fixture.pass_seconds(1);
    operations::remove_expired_keys(&fixture.registry).await.unwrap();
    assert_eq!(fixture.names_of_keys().await, ["admin", "ever"]);
}

impl Fixture {
    /// The permit of the bearer of a key, with the permissions that users and teams have on their own objects.
    fn bearing(&self, digest: Digest, verb: Verb, name: &str) -> Permit {
        key(name).permit(verb).with_credential(self.credential(digest)).of_own()
    }

    async fn make_as(&self, digest: Digest, name: &str, spec: Value) -> Result<(), ApiError> {
        let (permit, writing) = (self.bearing(digest, Verb::Create, name), Writing::by_server());
        let object = key(name).object(&json!({ "spec": spec }));
        operations::create(&self.registry, &permit, object, &writing).await.map(drop)
    }

    async fn set_finalizers(&self, name: &str, finalizers: &[&str]) {
        let permit = key(name).permit(Verb::Update);
        let set = |key: &mut Object| {
            key.metadata.finalizers = finalizers.iter().map(|one| (*one).to_owned()).collect();
        };
        operations::release(&self.registry, &permit, set).await.unwrap();
        self.current().await;
    }

    async fn change_as(&self, digest: Digest, name: &str, spec: Value) -> Result<(), ApiError> {
        self.change_key(&self.bearing(digest, Verb::Update, name), &spec).await
    }

    async fn change_key(&self, permit: &Permit, spec: &Value) -> Result<(), ApiError> {
        let writing = Writing::by_server();
        let changed = operations::update(&self.registry, permit, &writing, |object| {
            let mut value = object.clone().into_value();
            value["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            Ok(Object::from_value(value).unwrap())
        });
        changed.await?;
        self.registry.cache().wait_until_current().await
    }

    pub(crate) async fn user(&self, name: &str) {
        self.make(at(&User, name), json!({})).await;
    }
}

fn code(result: Result<(), ApiError>) -> u16 {
    result.map_or_else(|error| error.code(), |()| 200)
}

#[tokio::test]
async fn a_key_with_a_limited_life_makes_and_changes_none_that_ends_later() {
    let fixture = fixture().await;
    fixture.user("ada").await;
    let limited = fixture.key_of("limited", "ada", json!({ "ttl": 1000 })).await;
    let login = fixture.key_of("login", "ada", json!({ "ttl": 1000, "type": "Login" })).await;
    let unlimited = fixture.key_of("unlimited", "ada", json!({})).await;
    fixture.pass_seconds(400);
    let value = |byte: &str| byte.repeat(40);
    for (by, name, spec, expected) in [
        (limited, "a", json!({ "ttl": 600 }), 200),
        (limited, "b", json!({ "ttl": 601 }), 403),
        (limited, "b", json!({}), 403),
        (limited, "b", json!({ "ttl": 300, "ttlAfterLastActivity": true }), 403),
        (limited, "b", json!({ "ttl": 10, "type": "Login" }), 403),
        (login, "c", json!({}), 200),
        (unlimited, "d", json!({}), 200),
    ] {
        assert_eq!(code(fixture.make_as(by, name, spec.clone()).await), expected, "{name}: {spec}");
    }
    for (by, name, spec, expected) in [
        (limited, "limited", json!({ "description": "x" }), 200),
        (limited, "limited", json!({ "ttl": 1001 }), 403),
        (limited, "limited", json!({ "ttl": 0 }), 403),
        (limited, "unlimited", json!({ "key": value("u") }), 403),
        (limited, "unlimited", json!({ "description": "x" }), 403),
        (limited, "login", json!({ "key": value("l") }), 403),
        (limited, "unlimited", json!({ "disabled": true }), 200),
        (limited, "unlimited", json!({ "disabled": false }), 403),
        (limited, "a", json!({ "key": value("a") }), 200),
        (login, "unlimited", json!({ "disabled": false }), 200),
        (login, "login", json!({ "ttl": 0 }), 200),
        (limited, "limited", json!({ "type": "Login" }), 403),
    ] {
        let changed = fixture.change_as(by, name, spec.clone()).await;
        assert_eq!(code(changed), expected, "{name}: {spec}");
    }
}

#[tokio::test]
async fn a_new_value_takes_the_rights_that_the_key_carries() {
    let fixture = fixture().await;
    fixture.user("ada").await;
    let own = fixture.key_of("own", "ada", json!({})).await;
    fixture.key_of("carries", "ada", json!({ "groups": ["deployers"] })).await;
    let value = |letter: &str| json!({ "key": letter.repeat(40) });
    assert_eq!(code(fixture.change_as(own, "own", value("a")).await), 200);
    let own = fixture.key_of("another", "ada", json!({})).await;
    assert_eq!(code(fixture.change_as(own, "carries", value("b")).await), 403);
    assert_eq!(code(fixture.change_as(own, "carries", json!({ "description": "x" })).await), 200);
    let admin = key("carries").permit(Verb::Update);
    assert_eq!(code(fixture.change_key(&admin, &value("c")).await), 200);
    // The stored value is not a new value.
    assert_eq!(code(fixture.change_as(own, "carries", value("c")).await), 200);
    assert_eq!(code(fixture.change_as(own, "carries", json!({ "disabled": true })).await), 200);
    assert_eq!(code(fixture.change_as(own, "carries", json!({ "disabled": false })).await), 403);
}

#[tokio::test]
async fn an_owner_enables_only_what_they_disabled() {
    let fixture = fixture().await;
    fixture.user("ada").await;
    let own = fixture.key_of("own", "ada", json!({})).await;
    fixture.key_of("other", "ada", json!({})).await;
    let admin = key("other").permit(Verb::Update);
    for (disabled_by_admin, expected) in [(true, 403), (false, 200)] {
        let off = json!({ "disabled": true });
        let disabled = if disabled_by_admin {
            fixture.change_key(&admin, &off).await
        } else {
            fixture.change_as(own, "other", off).await
        };
        assert_eq!(code(disabled), 200);
        let on = json!({ "disabled": false });
        assert_eq!(code(fixture.change_as(own, "other", on.clone()).await), expected);
        assert_eq!(code(fixture.change_key(&admin, &on).await), 200);
    }
}

#[tokio::test]
async fn a_namesake_has_and_is_told_nothing_of_the_old_keys_which_are_removed() {
    let fixture = fixture().await;
    fixture.user("ada").await;
    fixture.key_of("old", "ada", json!({})).await;
    // An earlier version has orphaned it.
    let old = key("old").key();
    let mut orphan: Value = decode_typed(&fixture.stored(&old).await).unwrap();
    orphan["status"] = json!({});
    fixture.put(old, crate::cache::to_stored(Object::from_value(orphan).unwrap())).await;
    fixture.key_of("held", "ada", json!({})).await;
    fixture.set_finalizers("held", &["example.com/held"]).await;
    fixture.delete(key("held")).await;
    // The owner exists: nothing is removed.
    operations::remove_keys_without_owner(&fixture.registry).await.unwrap();
    assert!(fixture.names_of_keys().await.contains(&"old".to_owned()));
    let background =
        DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
    fixture.try_delete(at(&User, "ada"), background).await.unwrap();
    fixture.user("ada").await;
    let namesake = fixture.key_of("new", "ada", json!({})).await;
    let mut watching = fixture.watch_keys_with(namesake).await;
    assert_eq!(names(&watching.next().await.unwrap()), ["ADDED new"]);
    let mine = fixture.bearing(namesake, Verb::List, "unused").of_all();
    let listed = fixture.registry.list(&mine, &options("")).await.unwrap();
    assert_eq!(listed.objects.len(), 1);
    let read = fixture.bearing(namesake, Verb::Get, "old");
    let read = fixture.registry.get(&read, &GetOptions::default()).await;
    assert_eq!(read.unwrap_err().code(), 404);
    let change = fixture.change_as(namesake, "old", json!({ "description": "mine" })).await;
    assert_eq!(code(change), 404);
    let action = User.info().action("accesskeys", Verb::Get);
    let of_ada = ResourceTarget { action, ..ResourceTarget::object(&User, Verb::Get, None, "ada") };
    let of_ada = at(&User, "ada").permit(Verb::Get).decide_for(of_ada).unwrap();
    let keys = fixture.registry.access_keys_of(&of_ada, &options("")).await.unwrap();
    assert_eq!(keys.objects.len(), 1);
    // The error does not tell that the old key is terminating, only that the name exists.
    let taken = fixture.make_as(namesake, "held", json!({})).await.unwrap_err();
    assert_eq!(taken.code(), 409);
    assert!(!taken.to_string().contains("being deleted"), "{taken}");
    fixture.set_finalizers("held", &[]).await;
    operations::remove_keys_without_owner(&fixture.registry).await.unwrap();
    fixture.current().await;
    let left = fixture.names_of_keys().await;
    assert!(!left.contains(&"old".to_owned()) && left.contains(&"new".to_owned()), "{left:?}");
    assert_eq!(fixture.registry.cache().principals().keys_without_owner().count(), 0);
}

#[tokio::test]
async fn admission_reads_the_policy_and_the_principals_once() {
    let fixture = fixture().await;
    let digest = fixture.key("made", json!({})).await;
    let registry = &fixture.registry;
    let bearing =
        |verb, name| super::permit(verb, name).with_credential(fixture.credential(digest));
    let (creating, updating) = (bearing(Verb::Create, "s"), bearing(Verb::Update, "s"));
    let reads_since = |(policy, principals): (usize, usize)| {
        let now = registry.cache().reads();
        (now.0 - policy, now.1 - principals)
    };
    let writing = Writing::by_server();
    let new = secret("s").object(&json!({}));
    // The other tasks of the server do not run in between: there is no await between two checks of the count.
    let before = registry.cache().reads();
    let admitted = admit::create(&registry.admission(), &creating, new, &writing);
    assert_eq!(reads_since(before), (1, 1));
    registry.commit(admitted.unwrap(), false).await.unwrap();
    registry.cache().wait_until_current().await.unwrap();
    let cached = registry.read_to_decide(&SharedSecret, Some("platform"), "s").unwrap().unwrap();
    let previous = cached.into_previous().unwrap();
    let mut changed = previous.object.clone();
    changed.fields.insert("spec".to_owned(), json!({ "description": "changed" }));
    let before = registry.cache().reads();
    let (view, secrets) = (registry.admission(), SecretRecord::default());
    admit::update(&view, &updating, changed, previous, secrets, &writing).unwrap();
    assert_eq!(reads_since(before), (1, 1));
}
