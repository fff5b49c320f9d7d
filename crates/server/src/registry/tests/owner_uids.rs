//! The migration of owners, whom older versions had in a Role and a binding of each object; and that the policy
//! of a running server follows the owners of objects.

use postern_auth::attributes::Attributes;
use postern_auth::identity::Identity;
use postern_auth::policy::Decision;
use postern_kinds::access::{OWNER_UID, owner_role};
use postern_kinds::cluster_role::ClusterRole;
use postern_kinds::cluster_role_binding::ClusterRoleBinding;
use postern_kinds::project::Project;
use postern_kinds::role::Role;
use postern_kinds::role_binding::RoleBinding;
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_store::{Condition, ListRequest};
use serde_json::json;

use super::*;
use crate::cache::to_stored;
use crate::registry::format::migrate;
use crate::registry::owner_uids;
use crate::storage_key;

/// More secrets than one transaction takes over.
const SECRETS: usize = 60;

async fn everything(store: &Arc<dyn Store>) -> Vec<(String, bytes::Bytes)> {
    let page = store.list(ListRequest::default()).await.unwrap();
    page.entries.into_iter().map(|entry| (entry.key.to_string(), entry.value)).collect()
}

async fn put(store: &Arc<dyn Store>, key: &str, value: impl Into<bytes::Bytes>) {
    let change = Change::Put { key: key.into(), value: value.into() };
    store.commit(Txn { conditions: vec![], changes: vec![change] }).await.unwrap();
}

async fn remove(store: &Arc<dyn Store>, key: &str) {
    let change = Change::Delete { key: key.into() };
    store.commit(Txn { conditions: vec![], changes: vec![change] }).await.unwrap();
}

async fn object_at(store: &Arc<dyn Store>, key: &str) -> Object {
    let entry = store.get(key).await.unwrap().value.unwrap();
    postern_meta::decode::decode_typed(&entry.value).unwrap()
}

fn secret_key(name: &str) -> Arc<str> {
    storage_key::object(SharedSecret.info(), Some("platform"), name)
}

async fn uid_of(store: &Arc<dyn Store>, name: &str) -> Option<String> {
    object_at(store, &secret_key(name)).await.metadata.annotations.remove(OWNER_UID)
}

impl Fixture {
    async fn make_secret(&self, name: &str, owner: &serde_json::Value) {
        let object = Object::from_value(json!({
            "apiVersion": "management.platform.sh/v1", "kind": "SharedSecret",
            "metadata": { "name": name, "annotations": { "theirs": "1" } },
            "spec": { "owner": owner, "data": { "k": "aGk=" } },
        }));
        let (permit, writing) = (permit(Verb::Create, name), Writing::by_server());
        operations::create(&self.registry, &permit, object.unwrap(), &writing).await.unwrap();
    }
}

/// Returns a server with a user, a team, and objects that are theirs.
async fn with_owners() -> Fixture {
    let fixture = fixture().await;
    fixture.try_make(&User, "ada", &json!({})).await.unwrap();
    fixture.try_make(&Team, "red", &json!({})).await.unwrap();
    fixture.registry.cache().wait_until_current().await.unwrap();
    for number in 0..SECRETS {
        let owner =
            if number % 2 == 0 { json!({ "user": "ada" }) } else { json!({ "team": "red" }) };
        fixture.make_secret(&format!("s{number:02}"), &owner).await;
    }
    fixture.make_secret("of-nobody", &json!({})).await;
    let project = json!({ "spec": { "owner": { "user": "ada" } } });
    fixture.try_make(&Project, "one", &project).await.unwrap();
    fixture
}

/// Returns the Role and the binding that format 3 had for the owner of an object, by their keys.
fn roles_of_format_3(object: &Object, group: &str, uid: &str) -> [(Arc<str>, Object); 2] {
    let kind = postern_kinds::of_reference(&object.api_version, &object.kind).unwrap();
    let namespace = Some(object.metadata.namespace.as_str()).filter(|one| !one.is_empty());
    let name = owner_role(kind.info(), &object.metadata.name);
    let of: [&dyn postern_kinds::AnyKind; 2] = match namespace {
        Some(_) => [&Role, &RoleBinding],
        None => [&ClusterRole, &ClusterRoleBinding],
    };
    of.map(|of| {
        let info = of.info();
        let uids = json!({ group: uid }).to_string();
        let role = Object::from_value(json!({
            "apiVersion": info.version.to_string(), "kind": info.kind,
            "metadata": {
                "name": name, "namespace": namespace.unwrap_or_default(), "uid": "1",
                "labels": { "platform.sh/managed-by": "access-rules" },
                "annotations": { "platform.sh/subject-uids": uids },
                "ownerReferences": [{
                    "apiVersion": object.api_version, "kind": object.kind,
                    "name": object.metadata.name, "uid": object.metadata.uid,
                }],
            },
        }));
        (storage_key::object(info, namespace, &name), role.unwrap())
    })
}

/// Makes a store what format 3 had: no annotations, and a Role and a binding for each owner.
async fn to_format_3(store: &Arc<dyn Store>) {
    for (key, value) in everything(store).await {
        if !key.contains("/sharedsecrets/") && !key.contains("/projects/") {
            continue;
        }
        let mut object: Object = postern_meta::decode::decode_typed(&value).unwrap();
        let Some(uid) = object.metadata.annotations.remove(OWNER_UID) else { continue };
        let kind = postern_kinds::of_reference(&object.api_version, &object.kind).unwrap();
        let ownership = kind.ownership(&object).unwrap();
        let group = ownership.principal().unwrap().group();
        for (key, role) in roles_of_format_3(&object, &group, &uid) {
            put(store, &key, to_stored(role)).await;
        }
        put(store, &key, to_stored(object)).await;
    }
    put(store, storage_key::FORMAT, "3").await;
}

#[tokio::test]
async fn owners_are_taken_over_from_their_roles_once() {
    let fixture = with_owners().await;
    let store = fixture.store.clone();
    let current = everything(&store).await;
    to_format_3(&store).await;
    assert!(everything(&store).await.len() > current.len() + 2 * SECRETS);
    migrate(&store).await.unwrap();
    assert_eq!(everything(&store).await, current);
    let revision = store.revision().await.unwrap();
    migrate(&store).await.unwrap();
    assert_eq!(store.revision().await.unwrap(), revision, "once is enough");
}

#[tokio::test]
async fn two_servers_take_over_owners_at_once() {
    let fixture = with_owners().await;
    let store = fixture.store.clone();
    let current = everything(&store).await;
    to_format_3(&store).await;
    let (one, other) = tokio::join!(migrate(&store), migrate(&store));
    one.unwrap();
    other.unwrap();
    assert_eq!(everything(&store).await, current);
}

#[tokio::test]
async fn what_was_taken_over_before_an_interruption_stays() {
    let fixture = with_owners().await;
    let store = fixture.store.clone();
    let current = everything(&store).await;
    to_format_3(&store).await;
    let format = store.get(storage_key::FORMAT).await.unwrap().value.unwrap();
    let format = Condition::At(format.key, format.position);
    // All projects, and some of the secrets.
    assert!(owner_uids::take_over_some(&store, &format, &Project).await.unwrap());
    assert!(!owner_uids::take_over_some(&store, &format, &SharedSecret).await.unwrap());
    // Somebody else has the name by now, and the Roles that say so are gone.
    let key = storage_key::object(User.info(), None, "ada");
    let before = store.get(&key).await.unwrap().value.unwrap().value;
    let mut namesake = object_at(&store, &key).await;
    namesake.metadata.uid = "uid-of-a-namesake".to_owned();
    put(&store, &key, to_stored(namesake)).await;
    migrate(&store).await.unwrap();
    put(&store, &key, before).await;
    assert_eq!(everything(&store).await, current);
}

#[tokio::test]
async fn a_binding_says_who_the_owner_is_and_a_client_does_not() {
    let fixture = with_owners().await;
    let store = fixture.store.clone();
    let ada = object_at(&store, &storage_key::object(User.info(), None, "ada")).await.metadata.uid;
    to_format_3(&store).await;
    let keys = async |name: &str| {
        let object = object_at(&store, &secret_key(name)).await;
        roles_of_format_3(&object, "platform:user:ada", "uid-earlier")
    };
    // Who was the owner has got a namesake.
    let [_, (key, binding)] = keys("s00").await;
    put(&store, &key, to_stored(binding)).await;
    // It cannot be read, or names somebody else, so it gives them nothing.
    let [_, (key, mut binding)] = keys("s02").await;
    binding.metadata.annotations.insert("platform.sh/subject-uids".to_owned(), "{".to_owned());
    put(&store, &key, to_stored(binding)).await;
    let [_, (key, mut binding)] = keys("s04").await;
    binding.metadata.annotations.insert("platform.sh/subject-uids".to_owned(), "{}".to_owned());
    put(&store, &key, to_stored(binding)).await;
    put(&store, &keys("s06").await[1].0, "{").await;
    // There is none, as before access rules had roles; or it is of an earlier object of the name.
    for (key, _) in keys("s08").await {
        remove(&store, &key).await;
    }
    let [_, (key, mut binding)] = keys("s10").await;
    binding.metadata.owner_references[0].uid = "uid-of-an-earlier-secret".to_owned();
    put(&store, &key, to_stored(binding)).await;
    // What a client has written into the annotation is nothing.
    for name in ["s00", "s02", "s08", "of-nobody"] {
        let mut object = object_at(&store, &secret_key(name)).await;
        object.metadata.annotations.insert(OWNER_UID.to_owned(), "uid-forged".to_owned());
        put(&store, &secret_key(name), to_stored(object)).await;
    }
    // An object that cannot be read is in nobody's way.
    put(&store, &secret_key("s12"), "{").await;
    migrate(&store).await.unwrap();
    for (name, uid) in [
        ("s00", Some("uid-earlier")),
        ("s02", None),
        ("s04", None),
        ("s06", None),
        ("s08", Some(ada.as_str())),
        ("s10", Some(ada.as_str())),
        ("s14", Some(ada.as_str())),
        ("of-nobody", None),
    ] {
        assert_eq!(uid_of(&store, name).await.as_deref(), uid, "{name}");
    }
    let left: Vec<_> = everything(&store).await.into_iter().map(|(key, _)| key).collect();
    let left: Vec<_> = left.iter().filter(|key| key.ends_with(":owner")).collect();
    assert!(left.iter().all(|key| key.contains(":s06:") || key.contains(":s12:")), "{left:?}");
}

#[tokio::test]
async fn the_policy_follows_the_owners_of_objects() {
    let fixture = with_owners().await;
    let cache = fixture.registry.cache().clone();
    let key = storage_key::object(User.info(), None, "ada");
    let uid = object_at(&fixture.store, &key).await.metadata.uid;
    let ada = Identity { principal_uids: vec![uid], ..Identity::default() };
    let may = |name: &str| {
        let question = Attributes::Resource {
            verb: "delete",
            group: "management.platform.sh",
            resource: "sharedsecrets",
            subresource: "",
            namespace: "platform",
            name,
        };
        cache.policy().decide(&ada, &question) == Decision::Allow
    };
    let change = async |name: &str, change: &dyn Fn(&mut Object)| {
        let (permit, writing) = (permit(Verb::Update, name), Writing::by_server());
        let changed = operations::update(&fixture.registry, &permit, &writing, |object| {
            let mut object = object.clone();
            change(&mut object);
            Ok(object)
        });
        changed.await.unwrap();
        cache.wait_until_current().await.unwrap();
    };
    cache.wait_until_current().await.unwrap();
    assert!(may("s00") && !may("s01") && !may("of-nobody") && !may("s99"));
    // A change that leaves the owner alone makes no new snapshot, so that no watch has to look.
    let (before, version) = (cache.policy(), cache.access_version());
    change("s00", &|object| drop(object.metadata.annotations.insert("a".into(), "b".into()))).await;
    change("s00", &|object| object.metadata.annotations.clear()).await;
    assert!(Arc::ptr_eq(&before, &cache.policy()) && cache.access_version() == version);
    assert!(may("s00"));
    let give = |to: serde_json::Value| {
        move |object: &mut Object| object.fields["spec"]["owner"] = to.clone()
    };
    change("s00", &give(json!({ "team": "red" }))).await;
    change("s01", &give(json!({ "user": "ada" }))).await;
    assert!(!may("s00") && may("s01"));
    let permit = permit(Verb::Delete, "s01");
    operations::delete(&fixture.registry, &permit, &DeleteOptions::default()).await.unwrap();
    cache.wait_until_current().await.unwrap();
    assert!(!may("s01"));
    // A server that starts knows the same.
    let again = over(fixture.store.clone()).await;
    let question = |name| Attributes::Resource {
        verb: "get",
        group: "management.platform.sh",
        resource: "sharedsecrets",
        subresource: "",
        namespace: "platform",
        name,
    };
    let policy = again.registry.cache().policy();
    for name in ["s00", "s01", "s02", "s03"] {
        assert_eq!(policy.decide(&ada, &question(name)) == Decision::Allow, may(name), "{name}");
    }
}
