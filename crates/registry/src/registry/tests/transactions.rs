//! Several changes in one write: all of them admitted, each with its own event.

use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::team::Team;
use postern_kinds::user::User;

use super::*;
use crate::admit;

const ADA: At<'_> = at(&User, "ada");
const RED: At<'_> = at(&Team, "red");
const DB: At<'_> = at(&Team, "db");

impl Fixture {
    async fn watch_all(&self, kind: AnyKindRef) -> Watcher {
        let permit = Permit::for_server(kind, Verb::Watch, None, "").of_all();
        // Only what happens from now on.
        let version = Position::end_of(self.registry.cache().applied());
        let options = options(&format!("watch=1&resourceVersion={version}"));
        self.registry.watch(&permit, &options, self.ending.subscribe(), large_work()).await.unwrap()
    }
}

/// A create that is admitted, and not stored yet.
fn admitted(fixture: &Fixture, at: At<'_>, spec: &Value) -> admit::Admitted {
    let (view, writing) = (fixture.registry.admission(), Writing::by_server());
    let new = at.object(&json!({ "spec": spec }));
    admit::create(&view, &at.permit(Verb::Create), new, &writing).unwrap()
}

#[tokio::test]
async fn two_objects_of_different_kinds_in_one_transaction_are_seen_by_both_watchers() {
    let fixture = fixture().await;
    let (mut users, mut teams) = (fixture.watch_all(&User).await, fixture.watch_all(&Team).await);
    let red = admitted(&fixture, RED, &json!({ "displayName": "Red" }));
    let both = admitted(&fixture, ADA, &json!({ "email": "ada@example.org" })).with(red);
    fixture.registry.commit(both, false).await.unwrap();
    assert_eq!(names(&users.next().await.unwrap()), ["ADDED ada"]);
    assert_eq!(names(&teams.next().await.unwrap()), ["ADDED red"]);
    let version = async |at| {
        let version = fixture.read(at).await.unwrap().metadata.resource_version;
        Position::from_packed(version.parse().unwrap())
    };
    let (ada, red) = (version(ADA).await, version(RED).await);
    assert_eq!(ada.revision(), red.revision(), "one transaction");
    assert_eq!((ada.index(), red.index()), (0, 1), "each at its own index");
    // Both went through admission.
    for at in [ADA, RED] {
        let metadata = fixture.read(at).await.unwrap().metadata;
        assert!(!metadata.uid.is_empty());
        assert_eq!(metadata.managed_fields[0].manager, "postern");
    }
}

#[tokio::test]
async fn the_future_of_a_commit_is_small() {
    let fixture = fixture().await;
    let write = admitted(&fixture, RED, &json!({}));
    // Each write copies it into its box.
    let bytes = size_of_val(&fixture.registry.try_commit(write, false));
    assert!(bytes <= 3200, "{bytes} bytes");
}

#[tokio::test]
async fn all_of_a_write_happens_or_nothing() {
    let fixture = fixture().await;
    fixture.make(RED, json!({})).await;
    let red = admitted(&fixture, RED, &json!({}));
    let both = admitted(&fixture, ADA, &json!({})).with(red);
    let error = fixture.registry.commit(both, false).await.unwrap_err();
    assert_eq!((error.code(), error.status().message.contains("red")), (409, true));
    assert_eq!(fixture.read(ADA).await.unwrap_err().code(), 404);
}

#[tokio::test]
async fn a_user_who_is_removed_leaves_their_teams_in_the_same_transaction() {
    let fixture = fixture().await;
    for user in ["ada", "bob"] {
        fixture.make(at(&User, user), json!({})).await;
    }
    for team in ["blue", "red"] {
        let users = json!({ "spec": { "users": ["ada", "bob"] } });
        fixture.make(at(&Team, team), users.clone()).await;
    }
    fixture.current().await;
    let (mut users, mut teams) = (fixture.watch_all(&User).await, fixture.watch_all(&Team).await);
    fixture.delete(ADA).await;
    assert_eq!(names(&users.next().await.unwrap()), ["DELETED ada"]);
    assert_eq!(names(&teams.next().await.unwrap()), ["MODIFIED blue", "MODIFIED red"]);
    let mut revisions = Vec::new();
    for team in ["blue", "red"] {
        let team = fixture.read(at(&Team, team)).await.unwrap();
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
    fixture.make(ADA, ada.clone()).await;
    for (name, spec, field) in [
        ("oidc-7", json!({ "subject": "oidc|7" }), "spec.subject"),
        ("bob", json!({ "subject": "ada" }), "spec.subject"),
        ("bob", json!({ "subject": "lovelace" }), "spec.subject"),
        ("bob", json!({ "username": "oidc|7" }), "spec.username"),
        ("lovelace", json!({}), "metadata.name"),
    ] {
        let error = fixture.try_make(at(&User, name), json!({ "spec": spec })).await.unwrap_err();
        let message = &error.status().message;
        assert_eq!(error.code(), 422, "{message}");
        assert!(message.contains(field) && message.contains("Duplicate"), "{message}");
    }
    // A subject that was given up can be taken.
    fixture.delete(ADA).await;
    fixture.make(at(&User, "lovelace"), json!({ "spec": { "subject": "ada" } })).await;
}

#[tokio::test]
async fn a_key_never_belongs_to_a_namesake_of_its_owner() {
    let fixture = fixture().await;
    fixture.make(ADA, json!({})).await;
    fixture.current().await;
    let of_ada = json!({ "user": "ada" });
    let late = admitted(&fixture, at(&OwnedAccessKey, "late"), &of_ada);
    // Admitted for ada. Before the commit, another user gets the name ada.
    fixture.delete(ADA).await;
    fixture.make(ADA, json!({})).await;
    let error = fixture.registry.commit(late, false).await.unwrap_err();
    assert_eq!(error.code(), 409, "{}", error.status().message);
    // Another change of the owner meanwhile is no reason to refuse.
    fixture.current().await;
    let later = admitted(&fixture, at(&OwnedAccessKey, "later"), &of_ada);
    fixture.change(ADA, |user| user["spec"]["displayName"] = "Ada".into()).await;
    fixture.registry.commit(later, false).await.unwrap();
}

#[tokio::test]
async fn somebody_elses_change_does_not_end_a_watch_and_an_own_one_does() {
    let fixture = fixture().await;
    let digest = fixture.key("mine", json!({})).await;
    let mut watch = fixture.watch_with(digest).await;
    fixture.make(at(&User, "bob"), json!({ "spec": { "groups": ["ops"] } })).await;
    fixture.make(RED, json!({ "spec": { "users": ["bob"] } })).await;
    fixture.create("a").await.unwrap();
    assert_eq!(names(&watch.next().await.unwrap()), ["ADDED a"]);
    fixture.change(at(&User, "admin"), |user| user["spec"]["groups"] = json!([])).await;
    fixture.current().await;
    assert_eq!(names(&watch.next().await.unwrap()), ["ERROR 410"]);
}

#[tokio::test]
async fn the_owner_of_a_key_sees_its_end() {
    let fixture = fixture().await;
    fixture.make(ADA, json!({})).await;
    let digest = fixture.key_of("watching", "ada", json!({})).await;
    let mut watch = fixture.watch_keys_with(digest).await;
    assert_eq!(names(&watch.next().await.unwrap()), ["ADDED watching"]);
    fixture.key("anothers", json!({})).await;
    fixture.key_of("second", "ada", json!({})).await;
    assert_eq!(names(&watch.next().await.unwrap()), ["ADDED second"]);
    fixture.delete(at(&OwnedAccessKey, "second")).await;
    assert_eq!(names(&watch.next().await.unwrap()), ["DELETED second"]);
}

#[tokio::test]
async fn a_clock_that_is_set_back_meanwhile_does_not_contradict_a_deletion() {
    for readings in 0..6 {
        let fixture = fixture().await;
        fixture.create("a").await.unwrap();
        fixture.clock.readings_until_step.store(readings, Ordering::Relaxed);
        let is_terminating =
            fixture.try_delete(secret("a"), DeleteOptions::default()).await.unwrap();
        fixture.current().await;
        let left = fixture.registry.cache().of(SharedSecret.info()).get(&secret("a").key());
        assert_eq!(is_terminating, left.unwrap().is_some(), "set back after {readings} readings");
    }
}

#[tokio::test]
async fn a_key_and_lists_of_names_have_limits() {
    let fixture = fixture().await;
    let many: Vec<String> = (0..=postern_kinds::MAX_IDENTITIES).map(|n| format!("g{n}")).collect();
    for (kind, spec) in
        [(&User as AnyKindRef, json!({ "groups": many })), (&Team, json!({ "users": many }))]
    {
        let error = fixture.try_make(at(kind, "many"), json!({ "spec": spec })).await.unwrap_err();
        assert_eq!(error.code(), 422);
        assert!(error.status().message.contains("Too many"), "{}", error.status().message);
    }
    let spec =
        |bytes: usize| json!({ "spec": { "user": "admin", "description": "x".repeat(bytes) } });
    fixture.make(at(&OwnedAccessKey, "large"), spec(60 * 1024)).await;
    let error = fixture.try_make(at(&OwnedAccessKey, "larger"), spec(64 * 1024)).await.unwrap_err();
    assert_eq!(error.code(), 422);
    assert!(error.status().message.contains("Too long"), "{}", error.status().message);
}

#[tokio::test]
async fn a_corrupt_user_is_left_out_of_lists_and_gives_up_their_names_when_deleted() {
    let fixture = fixture().await;
    let ada = json!({ "spec": { "subject": "oidc|7" } });
    fixture.make(ADA, ada.clone()).await;
    fixture.make(at(&User, "bob"), json!({})).await;
    fixture.corrupt(ADA).await;

    let all = Permit::for_server(&User, Verb::List, None, "").of_all();
    let page = fixture.registry.list(&all, &options("")).await.unwrap();
    let listed: Vec<String> =
        page.objects.iter().map(|object| object.decode().unwrap().metadata.name).collect();
    assert_eq!(listed, ["admin", "bob"]);
    assert_eq!(page.warnings.len(), 1);
    assert!(page.warnings[0].contains("users/ada"), "{:?}", page.warnings);

    fixture.remove(ADA).await;
    fixture.make(at(&User, "carol"), ada.clone()).await;
    fixture.make(ADA, json!({})).await;
}

fn previous(fixture: &Fixture, at: At<'_>) -> admit::Previous {
    let cached = fixture.registry.cache().of(at.kind.info()).get(&at.key()).unwrap().unwrap();
    admit::Previous::of(cached).unwrap()
}

/// A write that is admitted, and not stored yet, with the team `db` and its members.
async fn admitted_team(fixture: &Fixture, users: &Value) -> admit::Admitted {
    fixture.current().await;
    let previous = previous(fixture, DB);
    let mut value = previous.object.clone().into_value();
    value["spec"]["users"] = users.clone();
    let new = Object::from_value(value).unwrap();
    let (secrets, writing) = (crate::secret_record::SecretRecord::default(), Writing::by_server());
    let (view, permit) = (fixture.registry.admission(), DB.permit(Verb::Update));
    admit::update(&view, &permit, new, previous, secrets, &writing).unwrap()
}

#[tokio::test]
async fn a_later_user_of_the_name_is_in_no_team_whatever_was_written_at_the_same_time() {
    let fixture = fixture().await;
    let members = |fixture: &Fixture| {
        let principals = fixture.registry.cache().principals();
        principals.team_names_of("ada").map(str::to_owned).collect::<Vec<_>>()
    };
    fixture.make(ADA, json!({})).await;
    fixture.make(DB, json!({})).await;
    fixture.current().await;
    // The user is added to the team while another caller deletes the user; another one has the name then.
    for is_made_again in [false, true] {
        let added = admitted_team(&fixture, &json!(["ada"])).await;
        fixture.delete(ADA).await;
        if is_made_again {
            fixture.make(ADA, json!({})).await;
        }
        fixture.current().await;
        let stored = fixture.registry.commit(added, false).await;
        assert_eq!(stored.err().map(|error| error.code()), Some(409));
        if !is_made_again {
            fixture.make(ADA, json!({})).await;
        }
        fixture.current().await;
    }
    // A caller that does not know of the team yet deletes the user.
    let (view, permit) = (fixture.registry.admission(), ADA.permit(Verb::Delete));
    let deletion = admit::delete(&view, &permit, previous(&fixture, ADA), 0, None).unwrap();
    let added = admitted_team(&fixture, &json!(["ada"])).await;
    fixture.registry.commit(added, false).await.unwrap();
    fixture.registry.commit(deletion, false).await.unwrap();
    fixture.make(ADA, json!({})).await;
    fixture.current().await;
    assert_eq!(members(&fixture), Vec::<String>::new());
    assert_eq!(fixture.read(DB).await.unwrap().fields["spec"]["users"], json!([]));
}
