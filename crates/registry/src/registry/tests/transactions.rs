//! Several changes in one write: all of them admitted, each with its own event.

use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_meta::options::{DeleteOptions, GetOptions};
use serde_json::{Value, json};

use super::*;
use crate::admit;
use crate::registry::decoded;
use crate::storage_key;

impl Fixture {
    /// Makes an object that has no namespace.
    pub(super) async fn try_make(
        &self,
        kind: &'static dyn postern_kinds::AnyKind,
        name: &str,
        fields: &Value,
    ) -> Result<Object, ApiError> {
        let info = kind.info();
        let mut whole = json!({
            "apiVersion": info.version.to_string(), "kind": info.kind, "metadata": { "name": name },
        });
        whole.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let object = Object::from_value(whole).unwrap();
        let permit = Permit::for_server(kind, Verb::Create, None, name);
        let made = operations::create(&self.registry, &permit, object, &Writing::by_server()).await;
        decoded(&made?)
    }

    async fn read(&self, kind: &'static dyn postern_kinds::AnyKind, name: &str) -> Object {
        let permit = Permit::for_server(kind, Verb::Get, None, name);
        decoded(&self.registry.get(&permit, &GetOptions::default()).await.unwrap()).unwrap()
    }

    async fn watch_all(&self, kind: &'static dyn postern_kinds::AnyKind) -> Watcher {
        let permit = Permit::for_server(kind, Verb::Watch, None, "").of_all();
        // Only what happens from now on.
        let version = Position::end_of(self.registry.cache().applied());
        let options = options(&format!("watch=1&resourceVersion={version}"));
        self.registry.watch(&permit, &options, self.ending.subscribe(), large_work()).await.unwrap()
    }
}

fn new_object(kind: &'static dyn postern_kinds::AnyKind, name: &str, spec: &Value) -> Object {
    let info = kind.info();
    Object::from_value(json!({
        "apiVersion": info.version.to_string(), "kind": info.kind,
        "metadata": { "name": name }, "spec": spec,
    }))
    .unwrap()
}

#[tokio::test]
async fn two_objects_of_different_kinds_in_one_transaction_are_seen_by_both_watchers() {
    let fixture = fixture().await;
    let (mut users, mut teams) = (fixture.watch_all(&User).await, fixture.watch_all(&Team).await);
    let admitted = |kind, name, spec: &Value| {
        let permit = Permit::for_server(kind, Verb::Create, None, name);
        let (view, writing) = (fixture.registry.admission(), Writing::by_server());
        admit::create(&view, &permit, new_object(kind, name, spec), &writing).unwrap()
    };
    let both = admitted(&User, "ada", &json!({ "email": "ada@example.org" })).with(admitted(
        &Team,
        "red",
        &json!({ "displayName": "Red" }),
    ));
    fixture.registry.commit(both, false).await.unwrap();
    assert_eq!(names(&users.next().await.unwrap()), ["ADDED ada"]);
    assert_eq!(names(&teams.next().await.unwrap()), ["ADDED red"]);
    let version = async |kind, name| {
        let version: u64 =
            fixture.read(kind, name).await.metadata.resource_version.parse().unwrap();
        Position::from_packed(version)
    };
    let (ada, red) = (version(&User, "ada").await, version(&Team, "red").await);
    assert_eq!(ada.revision(), red.revision(), "one transaction");
    assert_eq!((ada.index(), red.index()), (0, 1), "each at its own index");
    // Both went through admission.
    for (kind, name) in [(&User as &dyn postern_kinds::AnyKind, "ada"), (&Team, "red")] {
        let kind =
            postern_kinds::find(kind.info().version.group, "v1", kind.info().plural).unwrap();
        let metadata = fixture.read(kind, name).await.metadata;
        assert!(!metadata.uid.is_empty());
        assert_eq!(metadata.managed_fields[0].manager, "postern");
    }
}

#[tokio::test]
async fn all_of_a_write_happens_or_nothing() {
    let fixture = fixture().await;
    fixture.try_make(&Team, "red", &json!({})).await.unwrap();
    let admitted = |kind, name| {
        let permit = Permit::for_server(kind, Verb::Create, None, name);
        let (view, writing) = (fixture.registry.admission(), Writing::by_server());
        admit::create(&view, &permit, new_object(kind, name, &json!({})), &writing).unwrap()
    };
    let both = admitted(&User, "ada").with(admitted(&Team, "red"));
    let error = fixture.registry.commit(both, false).await.unwrap_err();
    assert_eq!((error.code(), error.status().message.contains("red")), (409, true));
    let permit = Permit::for_server(&User, Verb::Get, None, "ada");
    let absent = fixture.registry.get(&permit, &GetOptions::default()).await.unwrap_err();
    assert_eq!(absent.code(), 404);
}

#[tokio::test]
async fn a_user_who_is_removed_leaves_their_teams_in_the_same_transaction() {
    let fixture = fixture().await;
    for user in ["ada", "bob"] {
        fixture.try_make(&User, user, &json!({})).await.unwrap();
    }
    for team in ["blue", "red"] {
        let users = json!({ "spec": { "users": ["ada", "bob"] } });
        fixture.try_make(&Team, team, &users).await.unwrap();
    }
    fixture.registry.cache().wait_until_current().await.unwrap();
    let (mut users, mut teams) = (fixture.watch_all(&User).await, fixture.watch_all(&Team).await);
    let permit = Permit::for_server(&User, Verb::Delete, None, "ada");
    operations::delete(&fixture.registry, &permit, &DeleteOptions::default()).await.unwrap();
    assert_eq!(names(&users.next().await.unwrap()), ["DELETED ada"]);
    assert_eq!(names(&teams.next().await.unwrap()), ["MODIFIED blue", "MODIFIED red"]);
    let mut revisions = Vec::new();
    for team in ["blue", "red"] {
        let team = fixture.read(&Team, team).await;
        assert_eq!(team.fields["spec"]["users"], json!(["bob"]));
        assert_eq!(team.metadata.generation, 2, "it is a change of the desired state");
        let managers = &team.metadata.managed_fields;
        assert!(managers.iter().any(|entry| entry.manager == "postern"), "admitted as any change");
        let version = team.metadata.resource_version.parse().unwrap();
        revisions.push(Position::from_packed(version).revision());
    }
    assert_eq!(revisions[0], revisions[1]);
}

#[tokio::test]
async fn no_two_users_share_a_name_of_whichever_field() {
    let fixture = fixture().await;
    let ada = json!({ "spec": { "subject": "oidc|7", "username": "lovelace" } });
    fixture.try_make(&User, "ada", &ada).await.unwrap();
    for (name, spec, field) in [
        ("oidc-7", json!({ "subject": "oidc|7" }), "spec.subject"),
        ("bob", json!({ "subject": "ada" }), "spec.subject"),
        ("bob", json!({ "subject": "lovelace" }), "spec.subject"),
        ("bob", json!({ "username": "oidc|7" }), "spec.username"),
        ("lovelace", json!({}), "metadata.name"),
    ] {
        let error = fixture.try_make(&User, name, &json!({ "spec": spec })).await.unwrap_err();
        let message = &error.status().message;
        assert_eq!(error.code(), 422, "{message}");
        assert!(message.contains(field) && message.contains("Duplicate"), "{message}");
    }
    // A subject that was given up can be taken.
    let permit = Permit::for_server(&User, Verb::Delete, None, "ada");
    operations::delete(&fixture.registry, &permit, &DeleteOptions::default()).await.unwrap();
    fixture.try_make(&User, "lovelace", &json!({ "spec": { "subject": "ada" } })).await.unwrap();
}

#[tokio::test]
async fn a_key_never_belongs_to_a_namesake_of_its_owner() {
    let fixture = fixture().await;
    fixture.try_make(&User, "ada", &json!({})).await.unwrap();
    fixture.registry.cache().wait_until_current().await.unwrap();
    let permit = Permit::for_server(&OwnedAccessKey, Verb::Create, None, "late");
    let key = new_object(&OwnedAccessKey, "late", &json!({ "user": "ada" }));
    let (view, writing) = (fixture.registry.admission(), Writing::by_server());
    let admitted = admit::create(&view, &permit, key, &writing).unwrap();
    // Admitted for ada. Before the commit, another user gets the name ada.
    let gone = Permit::for_server(&User, Verb::Delete, None, "ada");
    operations::delete(&fixture.registry, &gone, &DeleteOptions::default()).await.unwrap();
    fixture.try_make(&User, "ada", &json!({})).await.unwrap();
    let error = fixture.registry.commit(admitted, false).await.unwrap_err();
    assert_eq!(error.code(), 409, "{}", error.status().message);
    // Another change of the owner meanwhile is no reason to refuse.
    let key = new_object(&OwnedAccessKey, "later", &json!({ "user": "ada" }));
    let permit = Permit::for_server(&OwnedAccessKey, Verb::Create, None, "later");
    fixture.registry.cache().wait_until_current().await.unwrap();
    let admitted = admit::create(&fixture.registry.admission(), &permit, key, &writing).unwrap();
    let change = Permit::for_server(&User, Verb::Update, None, "ada");
    let rename = |user: &Object| {
        let mut user = user.clone().into_value();
        user["spec"]["displayName"] = "Ada".into();
        Ok(Object::from_value(user).unwrap())
    };
    operations::update(&fixture.registry, &change, &writing, rename).await.unwrap();
    fixture.registry.commit(admitted, false).await.unwrap();
}

#[tokio::test]
async fn somebody_elses_change_does_not_end_a_watch_and_an_own_one_does() {
    let fixture = fixture().await;
    let digest = fixture.key("mine", json!({})).await;
    let mut watch = fixture.watch_with(digest).await;
    fixture.try_make(&User, "bob", &json!({ "spec": { "groups": ["ops"] } })).await.unwrap();
    fixture.try_make(&Team, "red", &json!({ "spec": { "users": ["bob"] } })).await.unwrap();
    fixture.create("a").await.unwrap();
    assert_eq!(names(&watch.next().await.unwrap()), ["ADDED a"]);
    let permit = Permit::for_server(&User, Verb::Update, None, "admin");
    let demote = |user: &Object| {
        let mut user = user.clone().into_value();
        user["spec"]["groups"] = json!([]);
        Ok(Object::from_value(user).unwrap())
    };
    let writing = Writing::by_server();
    operations::update(&fixture.registry, &permit, &writing, demote).await.unwrap();
    fixture.registry.cache().wait_until_current().await.unwrap();
    assert_eq!(names(&watch.next().await.unwrap()), ["ERROR 410"]);
}

#[tokio::test]
async fn the_owner_of_a_key_sees_its_end() {
    let fixture = fixture().await;
    fixture.try_make(&User, "ada", &json!({})).await.unwrap();
    let digest = fixture.key_of("watching", "ada", json!({})).await;
    let mut watch = fixture.watch_keys_with(digest).await;
    assert_eq!(names(&watch.next().await.unwrap()), ["ADDED watching"]);
    fixture.key("anothers", json!({})).await;
    fixture.key_of("second", "ada", json!({})).await;
    assert_eq!(names(&watch.next().await.unwrap()), ["ADDED second"]);
    let permit = Permit::for_server(&OwnedAccessKey, Verb::Delete, None, "second");
    operations::delete(&fixture.registry, &permit, &DeleteOptions::default()).await.unwrap();
    assert_eq!(names(&watch.next().await.unwrap()), ["DELETED second"]);
}

#[tokio::test]
async fn a_clock_that_is_set_back_meanwhile_does_not_contradict_a_deletion() {
    for readings in 0..6 {
        let fixture = fixture().await;
        fixture.create("a").await.unwrap();
        fixture.clock.readings_until_step.store(readings, Ordering::Relaxed);
        let permit = permit(Verb::Delete, "a");
        let deleted = operations::delete(&fixture.registry, &permit, &DeleteOptions::default())
            .await
            .unwrap();
        fixture.registry.cache().wait_until_current().await.unwrap();
        let key = crate::storage_key::object(SharedSecret.info(), Some("platform"), "a");
        let left = fixture.registry.cache().of(SharedSecret.info()).get(&key).unwrap();
        assert_eq!(deleted.is_terminating, left.is_some(), "set back after {readings} readings");
    }
}

#[tokio::test]
async fn a_key_and_lists_of_names_have_limits() {
    let fixture = fixture().await;
    let many: Vec<String> = (0..=postern_kinds::MAX_IDENTITIES).map(|n| format!("g{n}")).collect();
    for (kind, spec) in [
        (&User as &'static dyn postern_kinds::AnyKind, json!({ "groups": many })),
        (&Team, json!({ "users": many })),
    ] {
        let error = fixture.try_make(kind, "many", &json!({ "spec": spec })).await.unwrap_err();
        assert_eq!(error.code(), 422);
        assert!(error.status().message.contains("Too many"), "{}", error.status().message);
    }
    let spec =
        |bytes: usize| json!({ "spec": { "user": "admin", "description": "x".repeat(bytes) } });
    fixture.try_make(&OwnedAccessKey, "large", &spec(60 * 1024)).await.unwrap();
    let error = fixture.try_make(&OwnedAccessKey, "larger", &spec(64 * 1024)).await.unwrap_err();
    assert_eq!(error.code(), 422);
    assert!(error.status().message.contains("Too long"), "{}", error.status().message);
}

#[tokio::test]
async fn a_corrupt_user_is_left_out_of_lists_and_gives_up_their_names_when_deleted() {
    let fixture = fixture().await;
    let ada = json!({ "spec": { "subject": "oidc|7" } });
    fixture.try_make(&User, "ada", &ada).await.unwrap();
    fixture.try_make(&User, "bob", &json!({})).await.unwrap();
    let key = storage_key::object(User.info(), None, "ada");
    let change = Change::Put { key, value: bytes::Bytes::from_static(b"flipped") };
    fixture.store.commit(Txn { conditions: vec![], changes: vec![change] }).await.unwrap();
    fixture.registry.cache().wait_until_current().await.unwrap();

    let all = Permit::for_server(&User, Verb::List, None, "").of_all();
    let page = fixture.registry.list(&all, &options("")).await.unwrap();
    let listed: Vec<String> =
        page.objects.iter().map(|object| object.decode().unwrap().metadata.name).collect();
    assert_eq!(listed, ["admin", "bob"]);
    assert_eq!(page.warnings.len(), 1);
    assert!(page.warnings[0].contains("users/ada"), "{:?}", page.warnings);

    let permit = Permit::for_server(&User, Verb::Delete, None, "ada");
    let how = DeleteOptions { ignore_store_read_error: true, ..DeleteOptions::default() };
    operations::delete(&fixture.registry, &permit, &how).await.unwrap();
    fixture.try_make(&User, "carol", &ada).await.unwrap();
    fixture.try_make(&User, "ada", &json!({})).await.unwrap();
}

/// A write that is admitted, and not stored yet, with the team `db` and its members.
async fn admitted_team(fixture: &Fixture, users: &Value) -> admit::Admitted {
    let team = fixture.read(&Team, "db").await;
    let permit = Permit::for_server(&Team, Verb::Update, None, "db");
    let key = storage_key::object(Team.info(), None, "db");
    let cached = fixture.registry.cache().of(Team.info()).get(&key).unwrap().unwrap();
    let previous = admit::Previous::of(cached).unwrap();
    let mut value = team.into_value();
    value["spec"]["users"] = users.clone();
    let new = Object::from_value(value).unwrap();
    let (secrets, writing) = (crate::secret_record::SecretRecord::default(), Writing::by_server());
    admit::update(&fixture.registry.admission(), &permit, new, previous, secrets, &writing).unwrap()
}

#[tokio::test]
async fn a_later_user_of_the_name_is_in_no_team_whatever_was_written_at_the_same_time() {
    let fixture = fixture().await;
    let members = |fixture: &Fixture| {
        let principals = fixture.registry.cache().principals();
        principals.team_names_of("ada").map(str::to_owned).collect::<Vec<_>>()
    };
    let current = async || fixture.registry.cache().wait_until_current().await.unwrap();
    let permit = Permit::for_server(&User, Verb::Delete, None, "ada");
    fixture.try_make(&User, "ada", &json!({})).await.unwrap();
    fixture.try_make(&Team, "db", &json!({})).await.unwrap();
    current().await;
    // The user is added to the team while another caller deletes the user; another one has the name then.
    for is_made_again in [false, true] {
        let added = admitted_team(&fixture, &json!(["ada"])).await;
        operations::delete(&fixture.registry, &permit, &DeleteOptions::default()).await.unwrap();
        if is_made_again {
            fixture.try_make(&User, "ada", &json!({})).await.unwrap();
        }
        current().await;
        let stored = fixture.registry.commit(added, false).await;
        assert_eq!(stored.err().map(|error| error.code()), Some(409));
        if !is_made_again {
            fixture.try_make(&User, "ada", &json!({})).await.unwrap();
        }
        current().await;
    }
    // The user is deleted by a caller who does not know of the team yet.
    let key = storage_key::object(User.info(), None, "ada");
    let cached = fixture.registry.cache().of(User.info()).get(&key).unwrap().unwrap();
    let previous = admit::Previous::of(cached).unwrap();
    let deletion =
        admit::delete(&fixture.registry.admission(), &permit, previous, 0, None).unwrap();
    let added = admitted_team(&fixture, &json!(["ada"])).await;
    fixture.registry.commit(added, false).await.unwrap();
    fixture.registry.commit(deletion, false).await.unwrap();
    fixture.try_make(&User, "ada", &json!({})).await.unwrap();
    current().await;
    assert_eq!(members(&fixture), Vec::<String>::new());
    assert_eq!(fixture.read(&Team, "db").await.fields["spec"]["users"], json!([]));
}
