//! The rights that writers of access keys need beyond the verb, and the facts about these writers that the server
//! records.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::whole;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::principal::Lifetime;
use postern_kinds::{
    AnyKind as _, Caller, CallerKey, Context, Impersonation, MAX_IDENTITIES, NoPrincipals, Owner,
    Prepared, Principal, Principals, RequiredRight, Right, WriterKind,
};
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;
use serde_json::{Value, json};

const NOW: i64 = 1_000_000;

fn caller(uid: &str) -> Caller {
    Caller { user: Some("ada".to_owned()), team: None, uid: uid.to_owned() }
}

fn key(spec: &Value, status: &Value) -> Object {
    let created = Timestamp::from_unix_seconds(NOW - 100).to_string();
    let metadata = json!({ "name": "k", "uid": "uid-k", "creationTimestamp": created });
    whole(&OwnedAccessKey, &metadata, &json!({ "spec": spec, "status": status }))
}

fn context(caller: &Caller) -> Context<'_> {
    Context::of(caller, Timestamp::from_unix_seconds(NOW), &NoPrincipals)
}

fn prepare(new: &mut Object, old: Option<&Object>, context: Context<'_>) -> Prepared {
    OwnedAccessKey.prepare(new, old, &context).unwrap()
}

fn impersonate(resource: &'static str, name: &str) -> RequiredRight {
    Right::cluster("impersonate", "", resource, name).into()
}

const GROUP: &str = "management.platform.sh";

/// The right to change the key by a role.
fn by_role(on_owner: Option<Right>) -> RequiredRight {
    let right = RequiredRight::from(Right::cluster("update", GROUP, "ownedaccesskeys", "k"));
    on_owner.into_iter().fold(right, RequiredRight::or).by_role()
}

#[test]
fn what_a_key_carries_takes_its_rights_when_it_is_made_gets_a_value_or_is_enabled() {
    let caller = caller("uid-ada");
    let of = context(&caller);
    let with_value = Context { has_new_credential: true, ..of };
    let all = || vec![impersonate("groups", "a"), impersonate("groups", "b")];
    let subject = || vec![impersonate("users", "ci")];
    let two = json!({ "user": "ada", "groups": ["a", "b"] });
    let one = json!({ "user": "ada", "groups": ["a"] });
    let raw = json!({ "subject": "ci" });
    let with = |spec: &Value, field: &str, value: Value| {
        let mut spec = spec.clone();
        spec[field] = value;
        spec
    };
    let disabled = |spec: &Value| with(spec, "disabled", true.into());
    let until = with(&two, "ttl", 600.into());
    let all_scope = || json!({ "rules": [{}] });
    let mine = json!({ "disabledByUid": "uid-ada" });
    for (old, new, context, required) in [
        (None, &two, of, all()),
        (None, &raw, of, subject()),
        (Some(&two), &two, of, vec![]),
        (Some(&one), &two, of, vec![impersonate("groups", "b")]),
        (Some(&two), &one, of, vec![]),
        (Some(&two), &two, with_value, all()),
        (Some(&one), &two, with_value, all()),
        (Some(&raw), &raw, with_value, subject()),
        (Some(&raw), &raw, of, vec![]),
        (Some(&two), &disabled(&two), of, vec![]),
        (Some(&disabled(&two)), &disabled(&two), of, vec![]),
        (Some(&disabled(&two)), &two, of, all()),
        (Some(&disabled(&two)), &one, of, vec![impersonate("groups", "a")]),
        (Some(&disabled(&raw)), &raw, of, subject()),
        // To live longer, or to do more, is to be made anew.
        (Some(&with(&two, "ttl", 10.into())), &with(&two, "ttl", 11.into()), of, all()),
        (Some(&with(&two, "ttl", 10.into())), &two, of, all()),
        (Some(&two), &with(&two, "ttl", 10.into()), of, vec![]),
        (Some(&with(&two, "ttl", 10.into())), &with(&two, "ttl", 9.into()), of, vec![]),
        (Some(&with(&raw, "ttl", 10.into())), &raw, of, subject()),
        (Some(&with(&until, "ttlAfterLastActivity", true.into())), &until, of, all()),
        (Some(&until), &with(&until, "ttlAfterLastActivity", true.into()), of, all()),
        (Some(&with(&two, "scope", json!({}))), &two, of, all()),
        (Some(&with(&two, "scope", json!({}))), &with(&two, "scope", all_scope()), of, all()),
        (Some(&with(&two, "scope", json!({}))), &with(&two, "scope", json!({})), of, vec![]),
        (Some(&two), &with(&two, "scope", json!({})), of, vec![]),
    ] {
        let old = old.map(|spec| key(spec, &mine));
        let prepared = prepare(&mut key(new, &mine), old.as_ref(), context);
        assert_eq!(prepared.required_rights, required, "{old:?} to {new}");
    }
}

/// Access that comes from an impersonation ends with the right to it. So other keys, which are not recorded as its own,
/// get nothing by it.
#[test]
fn under_impersonation_no_other_key_gets_more() {
    let impersonated =
        |user: &str| Impersonation { user: user.to_owned(), ..Impersonation::default() };
    let acting = CallerKey {
        name: "mine".to_owned(),
        uid: "uid-mine".to_owned(),
        owner: Some(Owner::User("eve".to_owned())),
        impersonated: Some(impersonated("ada")),
        ..CallerKey::default()
    };
    let made_as = |user: &str| json!({ "maker": { "name": "mine", "uid": "uid-mine", "impersonated": impersonated(user) } });
    let before = json!({ "user": "ada", "groups": ["a"] });
    let caller = caller("uid-ada");
    let context = Context { caller_key: Some(&acting), ..context(&caller) };
    for (change, widens) in [
        (json!({ "groups": ["a", "b"] }), true),
        (json!({ "groups": ["b"] }), true),
        (json!({ "groups": [] }), false),
        (json!({ "groups": ["a", "a"] }), false),
        (json!({ "type": "Login" }), true),
        (json!({ "type": "Other" }), false),
        (json!({ "displayName": "x" }), false),
    ] {
        let mut spec = before.clone();
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        for (status, is_its_own) in
            [(json!({}), false), (made_as("bob"), false), (made_as("ada"), true)]
        {
            let old = key(&before, &status);
            let prepared = prepare(&mut key(&spec, &status), Some(&old), context);
            let is_allowed = is_its_own || !widens;
            assert_eq!(
                prepared.verdict.is_ok(),
                is_allowed,
                "{change} {status}: {:?}",
                prepared.verdict
            );
        }
    }
}

#[test]
fn only_who_disabled_a_key_enables_it_without_a_role() {
    let on_owner = |resource| Some(Right::cluster("updatekey", GROUP, resource, "ada"));
    let user = json!({ "user": "ada" });
    let team = json!({ "team": "ada" });
    let raw = json!({ "subject": "ada" });
    let not_raw = |spec: &Value| spec.get("subject").is_none();
    for (spec, by_uid, uid, required) in [
        (&user, "uid-ada", "uid-ada", vec![]),
        (&user, "uid-admin", "uid-ada", vec![by_role(on_owner("users"))]),
        // A namesake of the user that disabled it, and one without a uid.
        (&user, "uid-ada", "uid-other", vec![by_role(on_owner("users"))]),
        (&user, "uid-ada", "", vec![by_role(on_owner("users"))]),
        // Disabled by an older version, or by an identity without a uid.
        (&user, "", "uid-ada", vec![by_role(on_owner("users"))]),
        (&user, "", "", vec![by_role(on_owner("users"))]),
        (&team, "uid-admin", "uid-ada", vec![by_role(on_owner("teams"))]),
        (&raw, "uid-admin", "uid-ada", vec![by_role(None)]),
    ] {
        let caller = caller(uid);
        let context = context(&caller);
        let mut disabled = spec.clone();
        disabled["disabled"] = true.into();
        let old = key(&disabled, &json!({ "disabledByUid": by_uid }));
        let prepared = prepare(&mut key(spec, &json!({})), Some(&old), context);
        let required = if not_raw(spec) {
            required
        } else {
            [vec![impersonate("users", "ada")], required].concat()
        };
        assert_eq!(prepared.required_rights, required, "{spec}, by {by_uid}, as {uid}");
    }
}

#[test]
fn the_server_remembers_who_disabled_a_key_and_clients_cannot_say_it() {
    let enabled = json!({ "user": "ada" });
    let disabled = json!({ "user": "ada", "disabled": true });
    let by = |uid: &str| json!({ "disabledByUid": uid });
    let nobody = json!({});
    for (old, new, uid, status) in [
        (None, &disabled, "uid-ada", json!({ "disabledByUid": "uid-ada", "ownerUid": "uid-ada" })),
        (None, &enabled, "uid-ada", json!({ "ownerUid": "uid-ada" })),
        (Some((&enabled, nobody.clone())), &disabled, "uid-ada", by("uid-ada")),
        (Some((&disabled, by("uid-admin"))), &disabled, "uid-ada", by("uid-admin")),
        (Some((&disabled, nobody.clone())), &disabled, "uid-ada", nobody.clone()),
        (Some((&disabled, by("uid-admin"))), &enabled, "uid-admin", nobody.clone()),
        (Some((&enabled, nobody.clone())), &disabled, "", nobody.clone()),
    ] {
        let caller = caller(uid);
        let context = context(&caller);
        let old = old.map(|(spec, status)| key(spec, &status));
        let mut sent = key(new, &by("uid-forged"));
        prepare(&mut sent, old.as_ref(), context);
        assert_eq!(sent.fields["status"], status, "{old:?} to {new} as {uid}");
    }
}

#[test]
fn a_key_with_a_limited_life_leaves_no_key_that_ends_later() {
    let caller = caller("uid-ada");
    let limited = CallerKey {
        uid: "uid-limited".to_owned(),
        lifetime: Lifetime {
            created_unix_seconds: NOW - 100,
            ttl_seconds: 1000,
            after_last_activity: false,
            idle_seconds: 0,
        },
        ..CallerKey::default()
    };
    let of = Context { caller_key: Some(&limited), ..context(&caller) };
    let with_value = Context { has_new_credential: true, ..of };
    let server = Context { caller_key: None, ..of };
    let maximum = Context { access_key_max_ttl_seconds: Some(2000), ..of };
    let until = |ttl: i64| json!({ "subject": "ci", "ttl": ttl });
    let disabled = |ttl: i64| json!({ "subject": "ci", "ttl": ttl, "disabled": true });
    let login = json!({ "subject": "ci", "ttl": 10, "type": "Login" });
    for (old, new, context, code) in [
        (None, until(1000), of, None),
        (None, until(1001), of, Some(403)),
        (None, until(0), of, Some(403)),
        (None, until(0), server, None),
        // The default is the maximum, or the remaining lifetime of the caller's key.
        (None, until(0), maximum, None),
        (None, until(2000), maximum, Some(403)),
        (None, disabled(0), of, Some(403)),
        (None, login.clone(), of, Some(403)),
        (Some(until(10)), login.clone(), of, Some(403)),
        (Some(login), until(10), of, None),
        (Some(until(2000)), until(2000), of, Some(403)),
        (Some(until(2000)), until(1000), of, None),
        (Some(until(1000)), until(2000), of, Some(403)),
        (Some(until(2000)), until(2000), with_value, Some(403)),
        // To disable a key is allowed, and nothing else with it.
        (Some(until(2000)), disabled(2000), of, None),
        (Some(until(2000)), disabled(2001), of, Some(403)),
        (Some(until(2000)), disabled(2000), with_value, Some(403)),
        (Some(disabled(2000)), until(2000), of, Some(403)),
    ] {
        let old = old.map(|spec| key(&spec, &json!({})));
        let prepared = prepare(&mut key(&new, &json!({})), old.as_ref(), context);
        let error = prepared.verdict.err();
        assert_eq!(error.as_ref().map(ApiError::code), code, "{old:?} to {new}");
        if let Some(error) = error {
            let message = &error.status().message;
            assert!(
                message.contains("\"k\" is forbidden: the access key of the request expires at")
            );
        }
    }
}

#[test]
fn a_key_without_a_ttl_lives_as_long_as_the_operator_and_the_callers_key_allow() {
    let caller = caller("uid-ada");
    let limited = |ttl_seconds, is_login| CallerKey {
        lifetime: Lifetime {
            created_unix_seconds: NOW - 100,
            ttl_seconds,
            after_last_activity: false,
            idle_seconds: 0,
        },
        is_login,
        ..CallerKey::default()
    };
    let [short, long, login, endless] =
        [limited(1000, false), limited(5000, false), limited(1000, true), limited(0, false)];
    for (caller_key, maximum, expected) in [
        (None, None, 0),
        (None, Some(2000), 2000),
        (Some(&short), Some(2000), 1000),
        (Some(&long), Some(2000), 2000),
        (Some(&login), Some(2000), 2000),
        (Some(&endless), Some(2000), 2000),
        // No limit is not given by a key that has one, and not made up either.
        (Some(&short), None, 0),
    ] {
        let context =
            Context { caller_key, access_key_max_ttl_seconds: maximum, ..context(&caller) };
        let mut new = key(&json!({ "subject": "ci" }), &json!({}));
        let prepared = prepare(&mut new, None, context);
        let ttl = new.fields["spec"].get("ttl").and_then(Value::as_i64).unwrap_or(0);
        assert_eq!(ttl, expected, "{caller_key:?} {maximum:?}");
        assert_eq!(prepared.verdict.is_err(), expected == 0 && caller_key.is_some());
    }
}

/// Ada, with this uid.
struct Ada(&'static str);

impl Principals for Ada {
    fn uid(&self, principal: Principal<'_>) -> Option<String> {
        (principal == Principal::User("ada")).then(|| self.0.to_owned())
    }

    fn teams_of(&self, _: &str) -> Vec<String> {
        Vec::new()
    }
}

#[test]
fn whoever_writes_a_key_that_its_owner_disabled_disables_it_against_them() {
    let mine = json!({ "user": "ada", "disabled": true });
    let of_team = json!({ "team": "ada", "disabled": true });
    let now = Timestamp::from_unix_seconds(NOW);
    for (spec, by, writer_uid, writer, expected) in [
        (&mine, "uid-ada", "uid-admin", WriterKind::Client, "uid-admin"),
        (&mine, "uid-ada", "uid-ada", WriterKind::Client, "uid-ada"),
        (&mine, "uid-admin", "uid-ada", WriterKind::Client, "uid-admin"),
        (&mine, "uid-admin", "uid-other", WriterKind::Client, "uid-admin"),
        // The server gives keys their finalizers and takes them.
        (&mine, "uid-ada", "", WriterKind::Server, "uid-ada"),
        // A team has no person that could enable the keys they have disabled.
        (&of_team, "uid-ada", "uid-admin", WriterKind::Client, "uid-ada"),
    ] {
        let caller = caller(writer_uid);
        let context = Context { writer, ..Context::of(&caller, now, &Ada("uid-ada")) };
        let old = key(spec, &json!({ "disabledByUid": by }));
        let mut sent = key(spec, &json!({}));
        prepare(&mut sent, Some(&old), context);
        let stored = &sent.fields["status"]["disabledByUid"];
        assert_eq!(stored, expected, "{spec}, disabled by {by}, written by {writer_uid}");
    }
}

#[test]
fn the_groups_of_a_key_are_bounded() {
    let caller = caller("uid-ada");
    let context = context(&caller);
    for (count, message) in [(MAX_IDENTITIES, None), (MAX_IDENTITIES + 1, Some("Too many"))] {
        let groups: Vec<_> = (0..count).map(|number| format!("g{number}")).collect();
        let spec = json!({ "subject": "ci", "groups": groups });
        let errors = prepare(&mut key(&spec, &json!({})), None, context).verdict.unwrap();
        let found: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), usize::from(message.is_some()), "{found:?}");
        assert!(message.is_none_or(|text| found[0].contains(text)), "{found:?}");
    }
}
