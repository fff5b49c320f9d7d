//! The policy of a running server is updated with the owners of objects.

use postern_auth::attributes::Attributes;
use postern_auth::identity::Identity;
use postern_auth::policy::Decision;
use postern_kinds::project::Project;
use postern_kinds::team::Team;
use postern_kinds::user::User;

use super::*;

impl Fixture {
    async fn make_secret(&self, name: &str, owner: &Value) {
        let metadata = json!({ "annotations": { "note": "1" } });
        let spec = json!({ "owner": owner, "data": { "k": "aGk=" } });
        self.make(secret(name), json!({ "metadata": metadata, "spec": spec })).await;
    }
}

fn question<'a>(verb: &'a str, name: &'a str) -> Attributes<'a> {
    Attributes::Resource {
        verb,
        group: "management.platform.sh",
        resource: "sharedsecrets",
        subresource: "",
        namespace: "platform",
        name,
    }
}

/// A server with a user, a team, and objects that they own.
async fn with_owners() -> Fixture {
    let fixture = fixture().await;
    fixture.make(at(&User, "ada"), json!({})).await;
    fixture.make(at(&Team, "red"), json!({})).await;
    fixture.current().await;
    for number in 0..4 {
        let owner =
            if number % 2 == 0 { json!({ "user": "ada" }) } else { json!({ "team": "red" }) };
        fixture.make_secret(&format!("s{number:02}"), &owner).await;
    }
    fixture.make_secret("without-owner", &json!({})).await;
    let project = json!({ "spec": { "owner": { "user": "ada" } } });
    fixture.make(at(&Project, "one"), project).await;
    fixture
}

#[tokio::test]
async fn the_policy_follows_the_owners_of_objects() {
    let fixture = with_owners().await;
    let cache = fixture.registry.cache().clone();
    let uid = fixture.read(at(&User, "ada")).await.unwrap().metadata.uid;
    let ada = Identity { principal_uids: vec![uid], ..Identity::default() };
    let may =
        |name: &str| cache.policy().decide(&ada, &question("delete", name)) == Decision::Allow;
    let change = async |name: &str, change: &dyn Fn(&mut Value)| {
        fixture.change(secret(name), change).await;
        fixture.current().await;
    };
    cache.wait_until_current().await.unwrap();
    assert!(may("s00") && !may("s01") && !may("without-owner") && !may("s99"));
    // A change without a new owner makes no new snapshot, so no watch has to check.
    let (before, version) = (cache.policy(), cache.access_version());
    change("s00", &|object| object["metadata"]["annotations"]["a"] = "b".into()).await;
    change("s00", &|object| object["metadata"]["annotations"] = json!({})).await;
    assert!(Arc::ptr_eq(&before, &cache.policy()) && cache.access_version() == version);
    assert!(may("s00"));
    let give = |to: Value| move |object: &mut Value| object["spec"]["owner"] = to.clone();
    change("s00", &give(json!({ "team": "red" }))).await;
    change("s01", &give(json!({ "user": "ada" }))).await;
    assert!(!may("s00") && may("s01"));
    fixture.delete(secret("s01")).await;
    cache.wait_until_current().await.unwrap();
    assert!(!may("s01"));
    // A restarted server has the same policy.
    let again = over(fixture.store.clone()).await;
    let policy = again.registry.cache().policy();
    for name in ["s00", "s01", "s02", "s03"] {
        assert_eq!(
            policy.decide(&ada, &question("get", name)) == Decision::Allow,
            may(name),
            "{name}"
        );
    }
}
