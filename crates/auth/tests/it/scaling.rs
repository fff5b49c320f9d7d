//! Twice the input costs at most 2.5 times as much, for every list of names in authentication.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../meta/tests/it/measured/mod.rs"]
mod measured;

use measured::{check, check_input};
use postern_auth::attributes::Attributes;
use postern_auth::bearer;
use postern_auth::digest::Digest;
use postern_auth::identity::Identity;
use postern_auth::impersonated::rights;
use postern_auth::policy::{Decision, Policy};
use postern_auth::principal_index::{DigestRecord, PrincipalIndex};
use postern_kinds::principal::{KeyFacts, TeamFacts, UserFacts};
use postern_kinds::{Impersonation, Owner};
// The file that is included needs it.

/// Far more names than any limit allows.
const NAMES: usize = 16_384;

fn names(n: usize, prefix: &str) -> Vec<String> {
    (0..n).map(|number| format!("{prefix}{number}")).collect()
}

fn digest() -> Digest {
    Digest::from_hex(&"01".repeat(32)).unwrap()
}

fn user(groups: Vec<String>) -> UserFacts {
    UserFacts { uid: "u1".to_owned(), groups, ..UserFacts::default() }
}

fn team(users: Vec<String>, groups: Vec<String>) -> TeamFacts {
    TeamFacts { uid: "t1".to_owned(), users, groups, ..TeamFacts::default() }
}

/// An index with the user ada, and a key of ada with these groups.
fn index(groups: Vec<String>) -> PrincipalIndex {
    let mut index = PrincipalIndex::default();
    let (name, uid, owner_uid) = ("k".to_owned(), "uid-k".to_owned(), "u1".to_owned());
    let key = KeyFacts {
        uid: uid.clone(),
        owner: Some(Owner::User("ada".to_owned())),
        owner_uid: owner_uid.clone(),
        groups,
        ..KeyFacts::default()
    };
    index.set_record(digest(), Some(DigestRecord { name, uid, owner_uid }));
    index.set_key("k", Some(key));
    index.set_user("ada", Some(user(Vec::new())));
    index
}

#[test]
fn groups_of_users_teams_and_keys() {
    check("groups", NAMES, |n| {
        let [of_key, of_user, of_team] = ["k", "u", "t"].map(|prefix| names(n, prefix));
        Box::new(move || {
            let mut index = index(of_key.clone());
            index.set_user("ada", Some(user(of_user.clone())));
            index.set_team("red", Some(team(vec!["ada".to_owned()], of_team.clone())));
            assert!(
                index.identify(&digest(), 0, &Policy::default()).unwrap().identity.groups.len()
                    > 3 * of_key.len()
            );
        })
    });
}

#[test]
fn users_of_a_team() {
    check("users", NAMES, |n| {
        let [before, after] = ["before", "after"].map(|prefix| names(n, prefix));
        Box::new(move || {
            let mut index = index(Vec::new());
            for users in [&before, &after] {
                index.set_team("red", Some(team(users.clone(), Vec::new())));
            }
            index.set_team("red", None);
        })
    });
}

#[test]
fn impersonated_groups() {
    let wanted = |n| Impersonation {
        user: "ada".to_owned(),
        groups: names(n, "system:"),
        ..Impersonation::default()
    };
    check_input("Impersonate-Group", NAMES, wanted, |wanted| {
        let identity = index(Vec::new()).impersonate(wanted, &Identity::default()).identity;
        assert!(rights(wanted, &identity).len() > wanted.groups.len());
    });
}

#[test]
fn decisions() {
    let identity = |n| Identity { groups: names(n, "g"), ..Identity::default() };
    check_input("groups", NAMES * 16, identity, |identity| {
        let question = Attributes::Path { verb: "get", path: "/metrics" };
        assert_eq!(Policy::built_in().decide(identity, &question), Decision::Deny);
    });
}

#[test]
fn credentials() {
    let header = |n| ["Bearer ", &"a ".repeat(n)].concat();
    check_input("Authorization", NAMES * 64, header, |header| {
        assert!(bearer::parse(std::iter::once(header.as_bytes())).is_err());
    });
}
