//! Tests of the principal index: its results, and that they are right after any sequence of
//! changes.

use proptest::prelude::*;

use postern_kinds::principal::{ConnectorFacts, ConnectorRef, KeyUse, Lifetime, SsoGroups};
use postern_kinds::rbac::{BindingFacts, BoundSubject, PolicyChange, PolicyRule};
use postern_kinds::scope::{Scope, ScopeProject};

use super::*;

mod many_keys;
mod parents;
mod sso;

const NOW: i64 = 10_000;

fn digest(byte: u8) -> Digest {
    Digest::from_hex(&format!("{byte:02x}").repeat(32)).unwrap()
}

fn record(name: &str, owner_uid: &str) -> DigestRecord {
    let (name, uid) = (name.to_owned(), format!("uid-{name}"));
    DigestRecord { name, uid, owner_uid: owner_uid.to_owned() }
}

/// A key of a user with the uid `u1`, of the team of [`team`], or of a subject.
fn key(name: &str, owner: Owner) -> KeyFacts {
    let owner_uid = match owner {
        Owner::User(_) => "u1",
        Owner::Team(_) => "t1",
        Owner::Subject(_) => "",
    };
    KeyFacts {
        uid: format!("uid-{name}"),
        owner: Some(owner),
        owner_uid: owner_uid.to_owned(),
        lifetime: Lifetime { created_unix_seconds: NOW - 100, ..Lifetime::default() },
        ..KeyFacts::default()
    }
}

/// The record of the key of a uid as the maker of another one; none for an empty uid.
fn made_by(uid: &str) -> Option<Arc<Maker>> {
    let maker = Maker {
        name: uid.trim_start_matches("uid-").to_owned(),
        uid: uid.to_owned(),
        impersonated: None,
    };
    (!uid.is_empty()).then(|| Arc::new(maker))
}

fn user(uid: &str) -> UserFacts {
    UserFacts { uid: uid.to_owned(), groups: vec!["ops".to_owned()], ..UserFacts::default() }
}

fn team(users: &[&str]) -> TeamFacts {
    let users = users.iter().map(|&user| user.to_owned()).collect();
    TeamFacts {
        uid: "t1".to_owned(),
        users,
        groups: vec!["deployers".to_owned()],
        ..TeamFacts::default()
    }
}

fn ada() -> Owner {
    Owner::User("ada".to_owned())
}

/// The user ada, with one key.
fn principals() -> PrincipalIndex {
    let mut principals = PrincipalIndex::default();
    principals.set_record(digest(1), Some(record("k", "u1")));
    principals.set_key("k", Some(key("k", ada())));
    principals.set_user("ada", Some(user("u1")));
    principals
}

fn identity(principals: &PrincipalIndex) -> Arc<Identity> {
    principals.identify(&digest(1), NOW, &Policy::default()).unwrap().identity.clone()
}

#[test]
fn a_known_key_has_its_users_groups_and_its_own() {
    let mut principals = principals();
    let mut with_groups = key("k", ada());
    with_groups.groups = vec!["ci".to_owned(), "ops".to_owned()];
    principals.set_key("k", Some(with_groups));
    let identity = identity(&principals);
    assert_eq!((identity.name.as_str(), identity.uid.as_str()), ("ada", "u1"));
    for group in ["ops", "ci", "platform:user:ada", "platform:user:*", "system:authenticated"] {
        assert_eq!(identity.groups.iter().filter(|mine| *mine == group).count(), 1, "{group}");
    }
    assert!(!identity.is_in("system:masters"));
}

#[test]
fn a_subject_replaces_the_name() {
    let mut principals = principals();
    principals.set_user("ada", Some(UserFacts { subject: "oidc|7".to_owned(), ..user("u1") }));
    assert_eq!(identity(&principals).name, "oidc|7");
}

#[test]
fn an_identity_follows_its_teams() {
    let mut principals = principals();
    assert!(!identity(&principals).is_in("platform:team:red"));
    principals.set_team("red", Some(team(&["ada", "bob"])));
    let in_team = identity(&principals);
    assert!(in_team.is_in("platform:team:red") && in_team.is_in("deployers"));
    principals.set_team("red", Some(team(&["bob"])));
    assert!(!identity(&principals).is_in("deployers"));
    principals.set_team("red", Some(team(&["ada"])));
    principals.set_team("red", None);
    assert!(!identity(&principals).is_in("platform:team:red"));
    assert_eq!(principals.team_names_of("ada").count(), 0);
}

#[test]
fn a_key_of_a_team_has_the_identity_of_the_team() {
    let mut principals = PrincipalIndex::default();
    principals.set_team("red", Some(team(&["ada"])));
    principals.set_key("k", Some(key("k", Owner::Team("red".to_owned()))));
    principals.set_record(digest(1), Some(record("k", "t1")));
    let identity = identity(&principals);
    assert_eq!(identity.name, "platform:team:red");
    assert!(identity.is_in("platform:team:red") && identity.is_in("deployers"));
    assert!(!identity.is_in("platform:user:*"));
    assert_eq!(identity.team.as_deref(), Some("red"));
}

#[test]
fn a_key_of_a_raw_subject_has_no_groups_but_those_of_everyone() {
    let mut principals = PrincipalIndex::default();
    principals.set_key("k", Some(key("k", Owner::Subject("robot".to_owned()))));
    principals.set_record(digest(1), Some(record("k", "")));
    let identity = identity(&principals);
    assert_eq!(identity.name, "robot");
    assert_eq!(identity.groups, ["platform:authenticated", "system:authenticated"]);
}

#[test]
fn refusals() {
    let refused = |change: &dyn Fn(&mut PrincipalIndex)| {
        let mut changed = principals();
        change(&mut changed);
        changed.identify(&digest(1), NOW, &Policy::default()).unwrap_err()
    };
    assert_eq!(refused(&|index| index.set_record(digest(1), None)), Refusal::Unknown);
    assert_eq!(refused(&|index| index.set_key("k", None)), Refusal::Unknown);
    assert_eq!(refused(&|index| index.set_user("ada", None)), Refusal::Unknown);
    // One that is created again under the same name has another uid.
    assert_eq!(refused(&|index| index.set_user("ada", Some(user("u2")))), Refusal::Unknown);
    let namesake = || KeyFacts { uid: "other".to_owned(), ..key("k", ada()) };
    assert_eq!(refused(&|index| index.set_key("k", Some(namesake()))), Refusal::Unknown);
    let disabled = || KeyFacts { disabled: true, ..key("k", ada()) };
    assert_eq!(refused(&|index| index.set_key("k", Some(disabled()))), Refusal::Disabled);
    let disabled = || UserFacts { disabled: true, ..user("u1") };
    assert_eq!(refused(&|index| index.set_user("ada", Some(disabled()))), Refusal::Disabled);
    let without_owner = || KeyFacts { owner: None, ..key("k", ada()) };
    assert_eq!(refused(&|index| index.set_key("k", Some(without_owner()))), Refusal::Unknown);
    let lifetime =
        Lifetime { created_unix_seconds: NOW - 100, ttl_seconds: 100, ..Lifetime::default() };
    let expired = || KeyFacts { lifetime, ..key("k", ada()) };
    assert_eq!(refused(&|index| index.set_key("k", Some(expired()))), Refusal::Expired);
}

#[test]
fn a_use_extends_a_ttl_after_last_activity_and_is_kept_when_the_key_changes() {
    let mut principals = principals();
    let lifetime = Lifetime {
        created_unix_seconds: NOW - 1000,
        ttl_seconds: 300,
        after_last_activity: true,
        ..Lifetime::default()
    };
    principals.set_last_activity("k", "uid-k", NOW - 10);
    principals.set_key("k", Some(KeyFacts { lifetime, ..key("k", ada()) }));
    let resolved = principals.identify(&digest(1), NOW, &Policy::default()).unwrap();
    assert_eq!(resolved.ends_at(), Some(NOW + 290));
    resolved.activity.note(NOW);
    principals.set_key("k", Some(KeyFacts { lifetime, ..key("k", ada()) }));
    assert_eq!(
        principals.identify(&digest(1), NOW, &Policy::default()).unwrap().ends_at(),
        Some(NOW + 300)
    );
    assert_eq!(principals.last_activity("k", "uid-k"), Some(NOW));
    // A stored use that is older than the known use changes nothing.
    principals.set_last_activity("k", "uid-k", NOW - 50);
    assert_eq!(principals.last_activity("k", "uid-k"), Some(NOW));
    assert_eq!(principals.activities().collect::<Vec<_>>(), [("k", "uid-k", NOW)]);
    assert_eq!(principals.unstored_activities().collect::<Vec<_>>(), [("k", "uid-k", NOW)]);
    principals.set_last_activity("k", "uid-k", NOW);
    assert_eq!(principals.unstored_activities().count(), 0);
    // The use of an earlier key of the same name is not the use of this key.
    principals.set_key("k", Some(KeyFacts { uid: "other".to_owned(), ..key("k", ada()) }));
    assert_eq!(principals.last_activity("k", "other"), None);
    assert_eq!(principals.activities().count(), 0);
}

#[test]
fn keys_that_expired_before_a_time_are_found() {
    let mut principals = principals();
    let lifetime = Lifetime { created_unix_seconds: 0, ttl_seconds: 300, ..Lifetime::default() };
    principals.set_key("old", Some(KeyFacts { lifetime, ..key("old", ada()) }));
    assert_eq!(principals.ended_before(300).count(), 0);
    assert_eq!(principals.ended_before(301).collect::<Vec<_>>(), ["old"]);
}

fn scope_of(project: &str) -> Scope {
    let project = ScopeProject { project: project.to_owned() };
    Scope { projects: vec![project], ..Scope::default() }
}

/// The key "parent" of ada has made the key "k", and that one the key "child".
fn family() -> PrincipalIndex {
    let mut principals = principals();
    let made = |name: &str, parent: &str| KeyFacts {
        scope: Some(Arc::new(scope_of(name))),
        maker: made_by(parent),
        ..key(name, ada())
    };
    principals.set_key("parent", Some(made("parent", "")));
    principals.set_key("child", Some(made("child", "uid-k")));
    principals.set_record(digest(2), Some(record("child", "u1")));
    principals.set_key("k", Some(made("k", "uid-parent")));
    principals
}

#[test]
fn a_key_has_its_scope_and_those_of_the_keys_that_made_it() {
    let principals = family();
    let child = principals.identify(&digest(2), NOW, &Policy::default()).unwrap();
    let scopes: Vec<_> = child.identity.scopes.iter().map(|scope| scope.source().clone()).collect();
    assert_eq!(scopes, ["child", "k", "parent"].map(scope_of));
    assert_eq!(principals.identity_of_key("child").unwrap(), child.identity);
}

#[test]
fn a_key_stops_with_the_keys_that_made_it() {
    let change = |change: fn(&mut PrincipalIndex)| {
        let mut principals = family();
        assert!(principals.identify(&digest(2), NOW, &Policy::default()).is_ok());
        change(&mut principals);
        principals.identify(&digest(2), NOW, &Policy::default()).map(|_| ()).unwrap_err()
    };
    let parent = |facts: KeyFacts| Some(KeyFacts { scope: None, ..facts });
    assert_eq!(change(|all| all.set_key("parent", None)), Refusal::Unknown);
    assert_eq!(change(|all| all.set_key("k", None)), Refusal::Unknown);
    let disabled = |all: &mut PrincipalIndex| {
        all.set_key("parent", Some(KeyFacts { disabled: true, ..key("parent", ada()) }));
    };
    assert_eq!(change(disabled), Refusal::Disabled);
    let another = |all: &mut PrincipalIndex| {
        all.set_key("parent", Some(KeyFacts { uid: "other".to_owned(), ..key("parent", ada()) }));
    };
    assert_eq!(change(another), Refusal::Unknown);
    let of_bob = Owner::User("bob".to_owned());
    let of_nobody = parent(key("parent", of_bob.clone()));
    let mut principals = family();
    principals.set_key("parent", of_nobody);
    assert_eq!(
        principals.identify(&digest(2), NOW, &Policy::default()).unwrap_err(),
        Refusal::Unknown
    );
    principals.set_user("bob", Some(user("u1")));
    assert!(principals.identify(&digest(2), NOW, &Policy::default()).is_ok());
    principals.set_user("bob", Some(UserFacts { disabled: true, ..user("u1") }));
    assert_eq!(
        principals.identify(&digest(2), NOW, &Policy::default()).unwrap_err(),
        Refusal::Disabled
    );
}

#[test]
fn a_key_expires_with_the_keys_that_made_it() {
    let mut principals = family();
    let lifetime = Lifetime {
        created_unix_seconds: NOW - 100,
        ttl_seconds: 300,
        after_last_activity: true,
        ..Lifetime::default()
    };
    principals.set_key("parent", Some(KeyFacts { lifetime, ..key("parent", ada()) }));
    let child = principals.identify(&digest(2), NOW + 199, &Policy::default()).unwrap();
    assert_eq!(child.ends_at(), Some(NOW + 200));
    assert_eq!(
        principals.identify(&digest(2), NOW + 200, &Policy::default()).unwrap_err(),
        Refusal::Expired
    );
    // A use of the parent extends its life, and so that of the child.
    principals.note_activity("parent", "uid-parent", NOW + 100);
    assert_eq!(
        principals.identify(&digest(2), NOW + 200, &Policy::default()).unwrap().ends_at(),
        Some(NOW + 400)
    );
}

#[test]
fn keys_that_made_each_other_give_no_access() {
    let mut principals = family();
    let circle = KeyFacts { maker: made_by("uid-child"), ..key("parent", ada()) };
    principals.set_key("parent", Some(circle));
    assert_eq!(
        principals.identify(&digest(2), NOW, &Policy::default()).unwrap_err(),
        Refusal::Unknown
    );
    assert_eq!(principals.identity_of_key("child"), None);
}

#[test]
fn a_user_has_the_uids_of_their_teams_and_an_impersonated_one_those_that_are_theirs() {
    let mut principals = principals();
    principals.set_team("red", Some(team(&["ada"])));
    let identity =
        principals.identify(&digest(1), NOW, &Policy::default()).unwrap().identity.clone();
    assert_eq!(identity.principal_uids, ["u1", "t1"]);
    assert_eq!(identity.teams, ["red"]);
    let wanted = |groups: &[&str], uid: &str| Impersonation {
        user: "ada".to_owned(),
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
        uid: uid.to_owned(),
        ..Impersonation::default()
    };
    for (groups, uid, uids) in [
        (&[][..], "", &["u1", "t1"][..]),
        (&[], "u1", &["u1", "t1"]),
        (&[], "u9", &[]),
        // With explicit groups, nothing that is stored counts.
        (&["red"], "", &[]),
        (&["platform:team:red"], "u1", &[]),
    ] {
        let acting = principals.impersonate(&wanted(groups, uid), &identity).identity;
        assert_eq!(acting.principal_uids, uids, "{groups:?} {uid}");
        assert_eq!(acting.teams.len(), uids.len().saturating_sub(1));
    }
}

/// A policy that lets only ada impersonate the named users and groups.
fn ada_may_impersonate(names: &[&str]) -> Policy {
    let rules = vec![PolicyRule {
        verbs: vec!["impersonate".to_owned()],
        api_groups: vec![String::new()],
        resources: vec!["users".to_owned(), "groups".to_owned()],
        resource_names: names.iter().map(|&name| name.to_owned()).collect(),
        ..PolicyRule::default()
    }];
    let binding = BindingFacts {
        subjects: vec![BoundSubject::User("ada".to_owned())],
        role: "actor".to_owned(),
        is_cluster_role: true,
    };
    let mut policy = Policy::default();
    policy.apply(None, "actor", PolicyChange::Role(Some(rules)));
    policy.apply(None, "actor", PolicyChange::Binding(Some(binding)));
    policy
}

#[test]
fn a_key_that_was_made_under_impersonation_ends_with_the_right_to_impersonate() {
    let wanted = Impersonation {
        user: "robot".to_owned(),
        groups: vec!["helpers".to_owned()],
        ..Impersonation::default()
    };
    let maker = |impersonated| {
        let (name, uid) = ("k".to_owned(), "uid-k".to_owned());
        Some(Arc::new(Maker { name, uid, impersonated }))
    };
    let mut principals = principals();
    principals.set_record(digest(2), Some(record("made", "u1")));
    principals.set_record(digest(3), Some(record("grandchild", "u1")));
    let made = KeyFacts { maker: maker(Some(wanted)), ..key("made", ada()) };
    principals.set_key("made", Some(made));
    let grandchild = KeyFacts { maker: made_by("uid-made"), ..key("grandchild", ada()) };
    principals.set_key("grandchild", Some(grandchild));
    let refusal = |principals: &PrincipalIndex, names: &[&str]| {
        let policy = ada_may_impersonate(names);
        let of = |byte| principals.identify(&digest(byte), NOW, &policy).err();
        assert_eq!(of(2), of(3), "what it made ends with it");
        of(2)
    };
    assert_eq!(refusal(&principals, &["robot", "helpers"]), None);
    let ended = Some(Refusal::ImpersonationEnded);
    assert_eq!(refusal(&principals, &["robot"]), ended, "the right to the group has ended");
    assert_eq!(refusal(&principals, &["helpers"]), ended);
    // The impersonator's own key, and its owner.
    let mut disabled = principals;
    disabled.set_key("k", Some(KeyFacts { disabled: true, ..key("k", ada()) }));
    assert_eq!(refusal(&disabled, &["robot", "helpers"]), Some(Refusal::Disabled));
    disabled.set_key("k", None);
    assert_eq!(refusal(&disabled, &["robot", "helpers"]), Some(Refusal::Unknown));
}

#[test]
fn a_key_that_does_not_give_access_impersonates_nobody() {
    let wanted = Impersonation { user: "robot".to_owned(), ..Impersonation::default() };
    let may = |change: &dyn Fn(&mut PrincipalIndex), now| {
        let mut principals = principals();
        let policy = ada_may_impersonate(&["robot"]);
        change(&mut principals);
        principals.may_impersonate("k", "uid-k", &wanted, now, &policy)
    };
    let of = |facts: KeyFacts| {
        move |principals: &mut PrincipalIndex| {
            principals.set_key("k", Some(facts.clone()));
        }
    };
    let short = Lifetime {
        created_unix_seconds: NOW - 100,
        ttl_seconds: 200,
        after_last_activity: false,
        ..Lifetime::default()
    };
    assert!(may(&|_| (), NOW));
    assert!(!may(&of(KeyFacts { disabled: true, ..key("k", ada()) }), NOW), "disabled");
    assert!(may(&of(KeyFacts { lifetime: short, ..key("k", ada()) }), NOW));
    assert!(!may(&of(KeyFacts { lifetime: short, ..key("k", ada()) }), NOW + 100), "expired");
    assert!(
        !may(&of(KeyFacts { maker: made_by("uid-gone"), ..key("k", ada()) }), NOW),
        "lost maker"
    );
    let disabled = |principals: &mut PrincipalIndex| {
        principals.set_user("ada", Some(UserFacts { disabled: true, ..user("u1") }));
    };
    assert!(!may(&disabled, NOW), "the owner is disabled");
    assert!(!may(&|principals| principals.set_user("ada", None), NOW), "the owner is gone");
}

#[test]
fn a_key_adds_no_groups_that_its_scoped_maker_does_not_have_now() {
    let groups = |groups: &[&str]| groups.iter().map(|&group| group.to_owned()).collect::<Vec<_>>();
    let scoped = |of: &[&str]| KeyFacts {
        groups: groups(of),
        scope: Some(Arc::new(scope_of("p"))),
        ..key("k", ada())
    };
    let mut principals = principals();
    principals.set_user("ada", Some(user("u1")));
    principals.set_key("k", Some(scoped(&["of-maker"])));
    principals.set_team("red", Some(team(&["ada"])));
    for (number, name, maker) in [(2, "child", "uid-k"), (3, "grandchild", "uid-child")] {
        principals.set_record(digest(number), Some(record(name, "u1")));
        let all = groups(&["ops", "of-maker", "deployers", "other"]);
        let facts = KeyFacts { groups: all, maker: made_by(maker), ..key(name, ada()) };
        principals.set_key(name, Some(facts));
    }
    let added = |principals: &PrincipalIndex| {
        let held = |byte| {
            let key = principals.identify(&digest(byte), NOW, &Policy::default()).unwrap();
            let all = ["ops", "of-maker", "deployers", "other"].into_iter();
            all.filter(|group| key.identity.is_in(group)).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(held(2), held(3));
        held(2)
    };
    assert_eq!(added(&principals), "ops of-maker deployers");
    let mut without = principals;
    without.set_team("red", Some(team(&[])));
    assert_eq!(added(&without), "ops of-maker", "the user has left the team");
    without.set_user("ada", Some(UserFacts { groups: Vec::new(), ..user("u1") }));
    assert_eq!(added(&without), "of-maker", "the user has lost the group");
    without.set_key("k", Some(scoped(&[])));
    assert_eq!(added(&without), "", "the maker has lost the group");
    // A maker without a scope, which impersonated, gives the groups that the impersonated identity
    // could give.
    without.set_key("k", Some(key("k", ada())));
    assert_eq!(added(&without), "ops of-maker deployers other");
}

#[test]
fn it_is_known_since_when_an_impersonated_name_is_who_it_is() {
    let wanted = |user: &str, groups: &[&str]| Impersonation {
        user: user.to_owned(),
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
        ..Impersonation::default()
    };
    let mut principals = PrincipalIndex::default();
    principals.set_revision(10);
    let with_subject = || UserFacts { subject: "oidc|7".to_owned(), ..user("u1") };
    principals.set_user("ada", Some(with_subject()));
    principals.set_team("red", Some(team(&["ada"])));
    let at = |principals: &PrincipalIndex| {
        ["ada", "oidc|7", "platform:team:red", "bob"]
            .map(|name| principals.since_of(&wanted(name, &[])))
    };
    assert_eq!(at(&principals), [10; 4]);
    principals.set_revision(20);
    principals.set_user("ada", Some(with_subject()));
    principals.set_team("red", Some(team(&["ada"])));
    assert_eq!(at(&principals), [10; 4], "nothing has changed");
    principals.set_team("red", Some(team(&[])));
    assert_eq!(at(&principals), [20, 20, 10, 10], "the user has left the team");
    principals.set_revision(30);
    principals.set_team("red", Some(TeamFacts { groups: Vec::new(), ..team(&["ada"]) }));
    assert_eq!(at(&principals), [30, 30, 30, 10]);
    principals.set_revision(40);
    principals.set_user("bob", Some(UserFacts { groups: Vec::new(), ..user("u2") }));
    assert_eq!(at(&principals), [30, 30, 30, 40]);
    principals.set_revision(50);
    principals.set_user("ada", None);
    assert_eq!(at(&principals), [50, 50, 30, 40]);
    for fixed in [wanted("ada", &["x"]), wanted("system:serviceaccount:a:b", &[])] {
        assert_eq!(principals.since_of(&fixed), 0, "{fixed:?}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Record(u8, Option<u8>),
    /// Its owner, whether it is disabled, and the key that made it.
    Key(u8, Option<(u8, bool, Option<u8>)>),
    User(u8, Option<(u8, bool)>),
    Team(u8, Option<Vec<u8>>),
}

fn step() -> impl Strategy<Value = Step> {
    let name = || 0..3u8;
    prop_oneof![
        (name(), proptest::option::of(name())).prop_map(|(d, k)| Step::Record(d, k)),
        (name(), proptest::option::of((name(), any::<bool>(), proptest::option::of(name()))))
            .prop_map(|(k, f)| Step::Key(k, f)),
        (name(), proptest::option::of((0..2u8, any::<bool>()))).prop_map(|(u, f)| Step::User(u, f)),
        (name(), proptest::option::of(proptest::collection::vec(name(), 0..3)))
            .prop_map(|(t, users)| Step::Team(t, users)),
    ]
}

fn apply(principals: &mut PrincipalIndex, step: &Step) {
    match step.clone() {
        Step::Record(d, k) => {
            principals.set_record(digest(d), k.map(|k| record(&format!("k{k}"), "u1")));
        }
        Step::Key(k, facts) => {
            let name = format!("k{k}");
            let facts = facts.map(|(owner, disabled, parent)| KeyFacts {
                disabled,
                scope: parent.map(|parent| Arc::new(scope_of(&format!("p{parent}")))),
                maker: parent.and_then(|parent| made_by(&format!("uid-k{parent}"))),
                ..key(&name, Owner::User(format!("u{owner}")))
            });
            principals.set_key(&name, facts);
        }
        Step::User(u, facts) => {
            let facts =
                facts.map(|(uid, disabled)| UserFacts { disabled, ..user(&format!("u{uid}")) });
            principals.set_user(&format!("u{u}"), facts);
        }
        Step::Team(t, users) => {
            let users = users.map(|users| TeamFacts {
                users: users.iter().map(|user| format!("u{user}")).collect(),
                ..team(&[])
            });
            principals.set_team(&format!("t{t}"), users);
        }
    }
}

#[test]
fn keys_without_their_owner_are_those_of_nobody_and_of_a_namesake() {
    let mut principals = principals();
    principals.set_team("red", Some(team(&[])));
    principals.set_key("t", Some(key("t", Owner::Team("red".to_owned()))));
    principals.set_key("s", Some(key("s", Owner::Subject("ada".to_owned()))));
    principals.set_key("lost", Some(KeyFacts { owner_uid: String::new(), ..key("lost", ada()) }));
    let without_owner = |principals: &PrincipalIndex| {
        let mut names: Vec<_> = principals.keys_without_owner().map(str::to_owned).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(without_owner(&principals), ["lost"]);
    principals.set_user("ada", Some(user("u2")));
    assert_eq!(without_owner(&principals), ["k", "lost"]);
    assert_eq!(principals.identity_of_key("k"), None, "a namesake has not their keys");
    principals.set_user("ada", None);
    principals.set_team("red", None);
    assert_eq!(without_owner(&principals), ["k", "lost", "t"]);
    principals.set_user("ada", Some(user("u1")));
    assert!(principals.identity_of_key("k").is_some());
}

/// An index that is built from the keys, users and teams of another.
fn rebuilt(principals: &PrincipalIndex) -> PrincipalIndex {
    let mut rebuilt = PrincipalIndex::default();
    for (digest, record) in &principals.records {
        rebuilt.set_record(*digest, Some(record.clone()));
    }
    for (name, team) in &principals.teams {
        rebuilt.set_team(name, Some(team.clone()));
    }
    for (name, user) in &principals.users {
        rebuilt.set_user(name, Some(user.clone()));
    }
    for (name, key) in &principals.keys {
        rebuilt.set_key(name, Some(key.clone()));
    }
    rebuilt
}

proptest! {
    /// After any sequence of changes, the index is the same as one built from its content.
    #[test]
    fn an_index_updated_by_changes_equals_one_built_from_its_content(steps in proptest::collection::vec(step(), 1..40)) {
        let mut principals = PrincipalIndex::default();
        for step in &steps {
            apply(&mut principals, step);
            let rebuilt = rebuilt(&principals);
            for byte in 0..3 {
                let identified = |principals: &PrincipalIndex| {
                    let key = principals.identify(&digest(byte), NOW, &Policy::default());
                    key.map(|key| key.identity.clone())
                };
                prop_assert_eq!(identified(&principals), identified(&rebuilt));
            }
        }
    }
}

#[test]
fn a_change_of_a_team_is_resolved_one_owner_at_a_time() {
    let mut principals = PrincipalIndex::default();
    let members: Vec<String> = (0..20).map(|n| format!("u{n}")).collect();
    for name in &members {
        principals.set_user(name, Some(user(name)));
    }
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    principals.apply("red", AccessChange::Team(Some(team(&names))));
    let mut steps = 1;
    while principals.resolve_next() {
        steps += 1;
    }
    assert_eq!(steps, 21, "the team and each of its members");
}

/// A session of ada that ends after 60 seconds without a use, and a key of the command line that it allowed.
fn session_with_command_line(is_code: bool) -> PrincipalIndex {
    let mut principals = principals();
    let mut session = KeyFacts { used_as: KeyUse::Session, ..key("k", ada()) };
    session.lifetime.ttl_seconds = 1000;
    session.lifetime.idle_seconds = 60;
    principals.set_key("k", Some(session));
    let cli = KeyFacts {
        used_as: if is_code { KeyUse::CommandLineCode } else { KeyUse::CommandLine },
        maker: made_by("uid-k"),
        ..key("cli", ada())
    };
    principals.set_record(digest(2), Some(record("cli", "u1")));
    principals.set_key("cli", Some(cli));
    principals
}

#[test]
fn a_key_of_the_command_line_outlives_the_idleness_of_its_session_and_not_its_end() {
    let mut principals = session_with_command_line(false);
    let policy = Policy::default();
    let at = |principals: &PrincipalIndex, byte, now| {
        principals.identify(&digest(byte), now, &policy).map(|key| key.identity.name.clone())
    };
    // The session was made at NOW - 100, and was idle since.
    assert_eq!(at(&principals, 1, NOW), Err(Refusal::Expired));
    assert_eq!(at(&principals, 2, NOW), Ok("ada".to_owned()));
    assert_eq!(at(&principals, 2, NOW + 899), Ok("ada".to_owned()));
    assert_eq!(at(&principals, 2, NOW + 900), Err(Refusal::Expired));
    // The object of the session stays as long, and without such a key no longer than the session.
    assert_eq!(principals.end_of("k"), Some(NOW + 900));
    let ada = principals.identify(&digest(2), NOW, &policy).unwrap();
    assert_eq!(ada.latest_end(), Some(NOW + 900));
    let caller = ada.as_caller_key(None);
    assert_eq!((caller.name.as_str(), caller.has_maker), ("k", false), "it acts as the session");
    principals.set_key("cli", None);
    assert_eq!(principals.end_of("k"), Some(NOW - 40));
}

/// The user has asked for this lifetime, so a key without an end must not come of it.
#[test]
fn a_login_of_the_command_line_that_ends_before_its_session_acts_as_itself() {
    let policy = Policy::default();
    for (ttl_seconds, name) in [(0, "k"), (999, "cli"), (1000, "k"), (2000, "k")] {
        let mut principals = session_with_command_line(false);
        let mut cli =
            KeyFacts { used_as: KeyUse::CommandLine, maker: made_by("uid-k"), ..key("cli", ada()) };
        cli.lifetime.ttl_seconds = ttl_seconds;
        principals.set_key("cli", Some(cli));
        let caller = principals.identify(&digest(2), NOW, &policy).unwrap().as_caller_key(None);
        assert_eq!(caller.name, name, "{ttl_seconds}");
        if name == "cli" {
            assert_eq!((caller.ends_at(), caller.has_maker), (Some(NOW + 899), true));
        }
        // The idleness of the browser ends no key that this login has created.
        let made = KeyFacts { maker: made_by("uid-cli"), ..key("made", ada()) };
        principals.set_record(digest(3), Some(record("made", "u1")));
        principals.set_key("made", Some(made));
        let made = principals.identify(&digest(3), NOW, &policy);
        assert!(made.is_ok(), "{ttl_seconds}: {:?}", made.err());
    }
}

#[test]
fn a_code_of_the_command_line_is_known_to_its_own_function_alone() {
    let policy = Policy::default();
    let principals = session_with_command_line(true);
    let unknown = Some(Refusal::Unknown);
    assert_eq!(principals.identify(&digest(2), NOW, &policy).err(), unknown);
    assert_eq!(principals.identify_or_code(&digest(2), NOW, &policy).err(), unknown);
    assert!(principals.identify_command_line_code(&digest(2), NOW, &policy).is_ok());
    let principals = session_with_command_line(false);
    assert_eq!(principals.identify_command_line_code(&digest(2), NOW, &policy).err(), unknown);
}

#[test]
fn only_a_login_of_this_user_with_a_linked_identity_confirms_groups() {
    let identity = ("issuer".to_owned(), "subject".to_owned());
    let user = |uid: &str, identities: &[(String, String)]| {
        let (uid, identities) = (uid.to_owned(), identities.to_vec());
        UserFacts { uid, identities, ..Default::default() }
    };
    let mut index = PrincipalIndex::default();
    let (name, uid) = ("corp".to_owned(), "c1".to_owned());
    let login = KeyFacts {
        uid: "k1".to_owned(),
        owner: Some(Owner::User("ada".to_owned())),
        owner_uid: "u1".to_owned(),
        connector: Some(ConnectorRef { name, uid }),
        identity: Some(identity.clone()),
        ..KeyFacts::default()
    };
    index.set_key("k", Some(login));
    let known = [identity];
    for (user, expected) in [
        (user("u1", &known), true),
        // The identity is no longer linked, or the user is a later one of the same name.
        (user("u1", &[]), false),
        (user("u2", &known), false),
    ] {
        index.set_user("ada", Some(user.clone()));
        assert_eq!(index.has_other_login("ada", "c1", "k2", 0), expected, "{user:?}");
    }
    assert!(!index.has_other_login("ada", "c1", "k1", 0));
}
