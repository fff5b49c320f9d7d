//! Users, teams and keys: a caller cannot get rights through their fields.

use crate::common::{Known, ada, check_errors, context, errors, object, required};
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_kinds::{AnyKind, Context, NamedIdentities, Principal, RequiredRight, WriterKind};
use serde_json::{Value, json};

#[test]
fn groups_and_subjects_must_be_impersonated_and_teams_bound() {
    let (user, team): (&dyn AnyKind, &dyn AnyKind) = (&User, &Team);
    let groups = |names: &[&str]| json!({ "groups": names });
    let subject = |name: &str| json!({ "subject": name });
    let users = |names: &[&str]| json!({ "users": names });
    for (kind, old, new, rights) in [
        (user, None, groups(&["a", "b"]), vec!["impersonate groups/a", "impersonate groups/b"]),
        (user, Some(groups(&["a"])), groups(&["b", "a"]), vec!["impersonate groups/b"]),
        (user, Some(groups(&["a", "b"])), groups(&["b"]), vec![]),
        (user, None, subject("s"), vec!["impersonate users/s"]),
        (user, Some(subject("s")), subject("s"), vec![]),
        (user, Some(subject("s")), subject("t"), vec!["impersonate users/t"]),
        (user, Some(subject("s")), json!({}), vec![]),
        (user, None, json!({ "displayName": "a", "username": "u", "email": "e" }), vec![]),
        (team, None, groups(&["a"]), vec!["impersonate groups/a"]),
        (team, Some(groups(&["a"])), groups(&["a"]), vec![]),
        (team, None, users(&["ada"]), vec!["bind teams/a", "get users/ada"]),
        (
            team,
            Some(users(&["ada"])),
            users(&["bob", "ada"]),
            vec!["bind teams/a", "get users/bob"],
        ),
        (team, Some(users(&["ada", "bob"])), users(&["bob"]), vec![]),
    ] {
        assert_eq!(required(kind, old.as_ref(), &new), rights, "{kind:?} {old:?} -> {new}");
    }
}

/// Identities that stored objects name.
#[derive(Default)]
struct Named {
    users: &'static [&'static str],
    groups: &'static [&'static str],
    owners: &'static [&'static str],
}

impl NamedIdentities for Named {
    fn names_user(&self, name: &str) -> bool {
        self.users.contains(&name)
    }

    fn names_group(&self, group: &str) -> bool {
        self.groups.contains(&group)
    }

    fn names_owner(&self, owner: Principal<'_>) -> bool {
        let (Principal::User(name) | Principal::Team(name)) = owner;
        self.owners.contains(&name)
    }

    fn is_member(&self, _: &str, _: Principal<'_>) -> bool {
        false
    }

    fn is_named_member(&self, _: &str, _: Principal<'_>) -> bool {
        false
    }
}

/// A caller that could only create users and keys created the user that a binding named, and got
/// the rights of the binding.
#[test]
fn a_name_that_is_named_already_must_be_impersonated_by_who_makes_a_user_or_team_of_it() {
    let (user, team): (&dyn AnyKind, &dyn AnyKind) = (&User, &Team);
    let users = |users| Named { users, ..Named::default() };
    let groups = |groups| Named { groups, ..Named::default() };
    let owners = |owners| Named { owners, ..Named::default() };
    let (none, subject) = (json!({}), json!({ "subject": "s" }));
    let (user_group, team_group) =
        ("impersonate groups/platform:user:a", "impersonate groups/platform:team:a");
    for (kind, named, old, new, rights) in [
        (user, users(&["a"]), None, &none, vec!["impersonate users/a"]),
        (user, users(&["b"]), None, &none, vec![]),
        // With another subject, the name is in no decision.
        (user, users(&["a"]), None, &subject, vec!["impersonate users/s"]),
        (user, users(&["a"]), Some(&subject), &none, vec!["impersonate users/a"]),
        (user, users(&["a"]), Some(&none), &none, vec![]),
        (user, users(&["a"]), Some(&none), &subject, vec!["impersonate users/s"]),
        (user, users(&[]), Some(&subject), &none, vec![]),
        (
            user,
            groups(&["platform:user:a"]),
            None,
            &subject,
            vec!["impersonate users/s", user_group],
        ),
        (user, groups(&["platform:user:a"]), Some(&subject), &none, vec![]),
        (user, groups(&["platform:team:a"]), None, &none, vec![]),
        (user, owners(&["a"]), None, &none, vec!["impersonate users/a"]),
        (team, users(&["a"]), None, &none, vec![]),
        (team, users(&["platform:team:a"]), None, &none, vec!["impersonate users/platform:team:a"]),
        (team, groups(&["platform:team:a"]), None, &none, vec![team_group]),
        (team, owners(&["a"]), None, &none, vec![team_group]),
        (team, owners(&["a"]), Some(&none), &none, vec![]),
    ] {
        let (caller, principals) = (ada(), Known::all());
        let context = Context { named: &named, ..context(&caller, &principals) };
        let old = old.map(|spec| object(kind, "a", spec));
        let prepared = kind.prepare(&mut object(kind, "a", new), old.as_ref(), &context).unwrap();
        let required = prepared.required_rights.iter().map(RequiredRight::first);
        let found: Vec<_> = required
            .map(|right| format!("{} {}/{}", right.verb, right.resource, right.name))
            .collect();
        assert_eq!(found, rights, "{kind:?} {old:?} -> {new}");
    }
}

#[test]
fn reserved_names_are_given_by_masters_and_stay_where_they_are() {
    let (caller, principals) = (ada(), Known::all());
    let check = |kind: &dyn AnyKind, old: Option<&Value>, new: &Value, is_master: bool| {
        let writer = if is_master { WriterKind::Master } else { WriterKind::Client };
        let context = Context { writer, ..context(&caller, &principals) };
        let old = old.map(|spec| object(kind, "a", spec));
        let prepared = kind.prepare(&mut object(kind, "a", new), old.as_ref(), &context).unwrap();
        prepared.verdict.map(|errors| errors.len()).map_err(|error| error.code())
    };
    for (kind, spec) in [
        (&User as &dyn AnyKind, json!({ "groups": ["system:masters"] })),
        (&User, json!({ "groups": ["ok", "platform:user:bob"] })),
        (&User, json!({ "subject": "system:admin" })),
        (&User, json!({ "username": "platform:x" })),
        (&Team, json!({ "groups": ["system:masters"] })),
        (&Team, json!({ "username": "system:x" })),
    ] {
        assert_eq!(check(kind, None, &spec, false), Err(403), "{spec}");
        assert_eq!(check(kind, Some(&json!({})), &spec, false), Err(403), "{spec}");
        assert_eq!(check(kind, None, &spec, true), Ok(0), "{spec}");
        assert_eq!(check(kind, Some(&spec), &spec, false), Ok(0), "{spec}");
        assert_eq!(check(kind, Some(&spec), &json!({}), false), Ok(0), "{spec}");
    }
    for spec in [
        json!({ "subject": "platform:team:red" }),
        json!({ "user": "ada", "groups": ["system:x"] }),
    ] {
        let found = errors(&OwnedAccessKey, &spec);
        assert!(found.contains("may not begin with system: or platform:"), "{found}");
    }
}

#[test]
fn names_are_checked_and_members_of_teams_exist() {
    for (kind, spec, error) in [
        (
            &User as &dyn AnyKind,
            json!({ "subject": "CN=a,O=b" }),
            "spec.subject: Invalid value: must not contain a comma",
        ),
        (
            &User,
            json!({ "username": " a" }),
            "spec.username: Invalid value: must not begin or end with a blank",
        ),
        (
            &User,
            json!({ "groups": ["e\u{301}"] }),
            "spec.groups[0]: Invalid value: must be in Unicode normalization form C",
        ),
        (&Team, json!({ "username": "a\u{200B}" }), "spec.username: Invalid value"),
        (&Team, json!({ "users": ["ada", "eve"] }), "spec.users[1]: Not found: \"eve\""),
        (&Team, json!({ "users": [""] }), "spec.users[0]: Invalid value"),
        (&Team, json!({ "users": ["ada", "bob"] }), ""),
    ] {
        check_errors(kind, &spec, error);
    }
    let (caller, principals) = (ada(), Known::all());
    let with_eve = object(&Team, "a", &json!({ "users": ["eve"] }));
    let prepared =
        Team.prepare(&mut with_eve.clone(), Some(&with_eve), &context(&caller, &principals));
    assert!(prepared.unwrap().verdict.unwrap().is_empty(), "who is in the team may be gone");
}
