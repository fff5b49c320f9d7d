//! The policy of a running server is updated with the owners of objects.

use postern_auth::attributes::Attributes;
use postern_auth::identity::Identity;
use postern_auth::policy::Decision;
use postern_kinds::project::Project;
use postern_kinds::team::Team;
use postern_kinds::user::User;
use serde_json::json;

use super::*;
use crate::storage_key;

async fn object_at(store: &Arc<dyn Store>, key: &str) -> Object {
    let entry = store.get(key).await.unwrap().value.unwrap();
    postern_meta::decode::decode_typed(&entry.value).unwrap()
}

impl Fixture {
    async fn make_secret(&self, name: &str, owner: &serde_json::Value) {
        let object = Object::from_value(json!({
            "apiVersion": "management.platform.sh/v1", "kind": "SharedSecret",
            "metadata": { "name": name, "annotations": { "note": "1" } },
            "spec": { "owner": owner, "data": { "k": "aGk=" } },
        }));
        let (permit, writing) = (permit(Verb::Create, name), Writing::by_server());
        operations::create(&self.registry, &permit, object.unwrap(), &writing).await.unwrap();
    }
}

/// A server with a user, a team, and objects that they own.
async fn with_owners() -> Fixture {
    let fixture = fixture().await;
    fixture.try_make(&User, "ada", &json!({})).await.unwrap();
    fixture.try_make(&Team, "red", &json!({})).await.unwrap();
    fixture.registry.cache().wait_until_current().await.unwrap();
    for number in 0..4 {
        let owner =
            if number % 2 == 0 { json!({ "user": "ada" }) } else { json!({ "team": "red" }) };
        fixture.make_secret(&format!("s{number:02}"), &owner).await;
    }
    fixture.make_secret("without-owner", &json!({})).await;
    let project = json!({ "spec": { "owner": { "user": "ada" } } });
    fixture.try_make(&Project, "one", &project).await.unwrap();
    fixture
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
    assert!(may("s00") && !may("s01") && !may("without-owner") && !may("s99"));
    // A change without a new owner makes no new snapshot, so no watch has to check.
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
    // A restarted server has the same policy.
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
