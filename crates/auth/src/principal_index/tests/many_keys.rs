//! Owners with many keys, and the keys of workload identities.

use postern_kinds::principal::{KeyUse, WorkloadFacts};

use super::super::concerned::KEYS_AT_ONCE;
use super::*;

#[test]
fn a_change_of_an_owner_with_many_keys_is_resolved_in_short_steps() {
    let mut principals = principals();
    let count = 5 * KEYS_AT_ONCE;
    for n in 0..count {
        principals.set_key(&format!("many-{n}"), Some(key(&format!("many-{n}"), ada())));
    }
    principals.apply("ada", AccessChange::User(Some(UserFacts { disabled: true, ..user("u1") })));
    let mut steps = 1;
    while principals.resolve_next() {
        steps += 1;
    }
    assert_eq!(steps, count.div_ceil(KEYS_AT_ONCE) + 1, "{KEYS_AT_ONCE} keys at a time");
    assert_eq!(
        principals.identify(&digest(1), NOW, &Policy::default()).err(),
        Some(Refusal::Disabled)
    );
    // A login confirms the groups again: nothing is resolved.
    let again = UserFacts { disabled: true, ..user("u1") };
    principals.apply("ada", AccessChange::User(Some(again)));
    assert!(principals.concerned.is_empty());
}

#[test]
fn keys_sessions_logins_and_keys_of_workloads_are_counted_apart() {
    let mut principals = principals();
    let connector = Some(ConnectorRef { name: "corp".to_owned(), uid: "c1".to_owned() });
    let ended =
        Lifetime { created_unix_seconds: NOW - 100, ttl_seconds: 50, ..Lifetime::default() };
    let session =
        KeyFacts { used_as: KeyUse::Session, maker: made_by("uid-k"), ..key("session", ada()) };
    let login = KeyFacts { used_as: KeyUse::Session, connector, ..key("login", ada()) };
    let exchanged = KeyFacts { workload_uid: Some("w1".to_owned()), ..key("exchanged", ada()) };
    for (name, facts) in [
        ("old-session", KeyFacts { lifetime: ended, ..session.clone() }),
        ("session", session),
        ("old-login", KeyFacts { lifetime: ended, ..login.clone() }),
        ("login", login),
        ("old-exchanged", KeyFacts { lifetime: ended, ..exchanged.clone() }),
        ("exchanged", exchanged),
        ("expired", KeyFacts { lifetime: ended, ..key("expired", ada()) }),
    ] {
        principals.set_key(name, Some(KeyFacts { uid: format!("uid-{name}"), ..facts }));
    }
    assert_eq!(principals.key_count(&ada(), NOW), 3, "k, exchanged and expired");
    assert_eq!(principals.session_count("uid-k", NOW), 1);
    assert_eq!(principals.all_session_count(&ada(), NOW), 1, "no login, and none that has ended");
    assert_eq!(principals.login_count(&ada(), "c1", NOW), 1);
    assert_eq!(principals.login_count(&ada(), "c2", NOW), 0);
    assert_eq!(principals.workload_key_count("w1", NOW), 1);
}

#[test]
fn an_exchanged_key_does_no_more_and_lives_no_longer_than_its_workload_identity_says_now() {
    let mut principals = principals();
    let scope = |project: &str| {
        let project = ScopeProject { project: project.to_owned() };
        Some(Arc::new(Scope { projects: vec![project], ..Scope::default() }))
    };
    let lifetime = Lifetime { created_unix_seconds: NOW, ttl_seconds: 900, ..Lifetime::default() };
    let workload_uid = Some("w1".to_owned());
    let exchanged = KeyFacts { workload_uid, scope: scope("shop"), lifetime, ..key("k", ada()) };
    principals.set_key("k", Some(exchanged.clone()));
    // A key that the exchanged one made.
    let child = KeyFacts { scope: scope("shop"), maker: made_by("uid-k"), ..key("child", ada()) };
    principals.set_record(digest(2), Some(record("child", "u1")));
    principals.set_key("child", Some(child));
    let identify = |principals: &PrincipalIndex, byte, now| {
        let key = principals.identify(&digest(byte), now, &Policy::default());
        key.map(|key| (key.identity.scopes.len(), key.ends_at()))
    };
    let both = |principals: &PrincipalIndex, now| {
        [identify(principals, 1, now), identify(principals, 2, now)]
    };
    let as_exchanged = WorkloadFacts {
        uid: "w1".to_owned(),
        disabled: false,
        scope: scope("shop"),
        ttl_seconds: 900,
    };
    assert_eq!(both(&principals, NOW), [Err(Refusal::Unknown), Err(Refusal::Unknown)], "not known");
    principals.set_workload("ci", Some(as_exchanged.clone()));
    assert_eq!(both(&principals, NOW), [Ok((1, Some(NOW + 900))), Ok((2, Some(NOW + 900)))]);
    // Narrower: its scope counts next to that of the key.
    let narrower = WorkloadFacts { scope: scope("none"), ttl_seconds: 60, ..as_exchanged.clone() };
    principals.set_workload("ci", Some(narrower));
    assert_eq!(both(&principals, NOW), [Ok((2, Some(NOW + 60))), Ok((3, Some(NOW + 60)))]);
    assert_eq!(both(&principals, NOW + 60), [Err(Refusal::Expired), Err(Refusal::Expired)]);
    assert_eq!(principals.workload_key_count("w1", NOW + 61), 0);
    // Wider: the key stays as it was made.
    let wider = WorkloadFacts { ttl_seconds: 3600, ..as_exchanged.clone() };
    principals.set_workload("ci", Some(wider));
    assert_eq!(both(&principals, NOW), [Ok((1, Some(NOW + 900))), Ok((2, Some(NOW + 900)))]);
    let disabled = WorkloadFacts { disabled: true, ..as_exchanged.clone() };
    principals.set_workload("ci", Some(disabled));
    assert_eq!(both(&principals, NOW), [Err(Refusal::Disabled), Err(Refusal::Disabled)]);
    // A later one of the name is another one.
    let later = WorkloadFacts { uid: "w2".to_owned(), ..as_exchanged.clone() };
    principals.set_workload("ci", Some(later));
    assert_eq!(both(&principals, NOW), [Err(Refusal::Unknown), Err(Refusal::Unknown)]);
    principals.set_workload("ci", Some(as_exchanged));
    assert_eq!(principals.uids_of_workload("ci"), ["uid-k"]);
    principals.set_workload("ci", None);
    assert_eq!(both(&principals, NOW), [Err(Refusal::Unknown), Err(Refusal::Unknown)]);
}
