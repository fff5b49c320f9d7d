//! The permissions of the built-in policy.

use postern_kinds::{MANAGEMENT_V1, Right};

use super::*;

fn empty_scope() -> Arc<ScopeRules> {
    Arc::new(ScopeRules::new(&postern_kinds::scope::Scope::default()))
}

fn identity(groups: &[&str]) -> Identity {
    Identity {
        name: "ada".to_owned(),
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
        user: Some("ada".to_owned()),
        ..Identity::default()
    }
}

fn on<'a>(verb: &'a str, resource: &'a str, name: &'a str) -> Attributes<'a> {
    Attributes::Resource {
        verb,
        group: "management.platform.sh",
        resource,
        subresource: "",
        namespace: "",
        name,
    }
}

#[test]
fn masters_may_do_everything_and_others_only_what_everyone_may() {
    let questions = [
        on("get", "sharedsecrets", "s1"),
        on("list", "ownedaccesskeys", ""),
        on("get", "users", "bob"),
        on("list", "users", ""),
        on("update", "users", "ada"),
        on("delete", "selves", "x"),
        on("impersonate", "users", "ada"),
        on("createkey", "users", "bob"),
        on("createkey", "teams", "ada"),
        Attributes::Path { verb: "get", path: "/metrics" },
        Attributes::Description { verb: "post", path: "/version" },
    ];
    for question in &questions {
        assert_eq!(
            Policy::built_in().decide(&identity(&["system:masters"]), question),
            Decision::Allow
        );
        for groups in [&[][..], &["system:authenticated"], &["system:masters2"]] {
            assert_eq!(
                Policy::built_in().decide(&identity(groups), question),
                Decision::Deny,
                "{question:?}"
            );
        }
    }
}

#[test]
fn every_caller_may_create_selves_and_read_descriptions() {
    let questions = [
        on("create", "selves", ""),
        on("get", "selves", "me"),
        Attributes::Description { verb: "get", path: "/apis" },
    ];
    for question in &questions {
        for scopes in [Vec::new(), vec![empty_scope()]] {
            let identity = Identity { scopes, ..identity(&["system:authenticated"]) };
            assert_eq!(
                Policy::built_in().decide(&identity, question),
                Decision::Allow,
                "{question:?}"
            );
        }
        let nobody = identity(&["system:unauthenticated"]);
        assert_eq!(Policy::built_in().decide(&nobody, question), Decision::Deny, "{question:?}");
        assert!(!Policy::built_in().may_hold_single_objects(&nobody));
    }
}

#[test]
fn users_and_teams_manage_their_own_keys() {
    let team = Identity { user: None, team: Some("red".to_owned()), ..identity(&[]) };
    for verb in KEY_VERBS {
        assert_eq!(
            Policy::built_in().decide(&identity(&[]), &on(verb, "users", "ada")),
            Decision::Allow
        );
        assert_eq!(
            Policy::built_in().decide(&identity(&[]), &on(verb, "users", "")),
            Decision::Deny
        );
        assert_eq!(Policy::built_in().decide(&team, &on(verb, "teams", "red")), Decision::Allow);
        assert_eq!(Policy::built_in().decide(&team, &on(verb, "users", "ada")), Decision::Deny);
    }
}

#[test]
fn any_one_of_the_required_rights_is_enough() {
    let policy = Policy::built_in();
    let getkey = |user: &str| Right::cluster("getkey", MANAGEMENT_V1.group, "users", user);
    let read = || Right::cluster("get", MANAGEMENT_V1.group, "ownedaccesskeys", "k1");
    let ada = identity(&["system:authenticated"]);
    let master = identity(&["system:masters"]);
    let scoped = Identity { scopes: vec![empty_scope()], ..master.clone() };
    for (identity, required, satisfied) in [
        (&ada, RequiredRight::from(read()), false),
        (&ada, RequiredRight::from(getkey("ada")), true),
        (&ada, RequiredRight::from(read()).or(getkey("ada")), true),
        (&ada, RequiredRight::from(getkey("ada")).or(read()), true),
        (&ada, RequiredRight::from(read()).or(getkey("bob")), false),
        (&ada, RequiredRight::from(read()).or(getkey("bob")).or(getkey("ada")), true),
        (&master, RequiredRight::from(read()), true),
        (&scoped, RequiredRight::from(read()).or(getkey("ada")), false),
        (&ada, RequiredRight::from(getkey("ada")).by_role(), false),
        (&master, RequiredRight::from(getkey("ada")).by_role(), true),
        (&scoped, RequiredRight::from(read()).or(getkey("ada")).by_role(), false),
    ] {
        assert_eq!(policy.satisfies(identity, &required), satisfied, "{required:?}");
    }
}

#[test]
fn what_is_theirs_is_theirs_under_their_uid() {
    let policy = Policy::built_in();
    let getkey = |user: &str| Right::cluster("getkey", MANAGEMENT_V1.group, "users", user);
    let of = |user: &str, uid: &str| OwnedBy {
        owner: postern_kinds::Owner::User(user.to_owned()),
        uid: uid.to_owned(),
    };
    let ada = Identity { uid: "u1".to_owned(), ..identity(&["system:authenticated"]) };
    let key = on("get", "ownedaccesskeys", "k1");
    let without_uid = Identity { uid: String::new(), ..ada.clone() };
    let master = identity(&["system:masters"]);
    for (identity, user, uid, has) in [
        (&ada, "ada", "u1", true),
        (&ada, "ada", "u0", false),
        (&ada, "ada", "", false),
        (&ada, "bob", "u1", false),
        (&without_uid, "ada", "", false),
        (&master, "ada", "u0", true),
    ] {
        let held = policy.has_delegated(identity, &getkey(user), &of(user, uid), &key);
        assert_eq!(held, has, "{identity:?}: {user}, {uid}");
    }
}

#[test]
fn a_scoped_key_may_do_nothing_else() {
    let scoped = Identity { scopes: vec![empty_scope()], ..identity(&["system:masters"]) };
    for question in [on("get", "sharedsecrets", "s1"), on("createkey", "users", "ada")] {
        assert_eq!(Policy::built_in().decide(&scoped, &question), Decision::Deny);
    }
    assert!(!Policy::built_in().may_hold_single_objects(&scoped));
}

#[test]
fn a_scope_has_to_allow_what_an_owner_may_do_to_themselves() {
    let scope_on = |resource: &str| {
        let resources = vec![postern_kinds::scope::ScopeResources {
            group: MANAGEMENT_V1.group.to_owned(),
            resources: vec![resource.to_owned()],
            ..Default::default()
        }];
        let rule = postern_kinds::scope::ScopeRule { resources, ..Default::default() };
        let scope = postern_kinds::scope::Scope { rules: vec![rule], ..Default::default() };
        vec![Arc::new(ScopeRules::new(&scope))]
    };
    for (scopes, may) in [
        (Vec::new(), true),
        (scope_on("users"), true),
        (scope_on("ownedaccesskeys"), false),
        (vec![empty_scope()], false),
    ] {
        let ada = Identity { scopes, ..identity(&["system:authenticated"]) };
        let policy = Policy::built_in();
        assert!(policy.has_right_on_any_owner(&ada, "createkey"), "its scopes aside");
        assert_eq!(policy.may_on_any_owner(&ada, "createkey"), may, "{:?}", ada.scopes);
        let decided = policy.decide(&ada, &on("createkey", "users", "ada"));
        assert_eq!(decided == Decision::Allow, may, "{:?}", ada.scopes);
    }
}

#[test]
fn a_fingerprint_changes_with_what_decides_and_with_nothing_else() {
    let policy = Policy::built_in();
    let of = |identity: &Identity| policy.fingerprint(identity, "g", "r", true);
    let plain = identity(&["system:authenticated"]);
    let other_key = Identity { access_key: "k2".to_owned(), ..plain.clone() };
    assert_eq!(of(&plain), of(&other_key), "another key of the same owner sees the same");
    for changed in [
        identity(&["system:authenticated", "system:masters"]),
        identity(&["system:authenticated", "ops"]),
        identity(&[]),
        Identity { scopes: vec![empty_scope()], ..plain.clone() },
        Identity { uid: "u2".to_owned(), ..plain.clone() },
        Identity { name: "bob".to_owned(), ..plain.clone() },
    ] {
        assert_ne!(of(&plain), of(&changed), "{changed:?}");
    }
}

/// A role with the name of one secret.
fn on_secret(number: usize) -> PolicyChange {
    let texts = |text: &str| vec![text.to_owned()];
    PolicyChange::Role(Some(vec![postern_kinds::rbac::PolicyRule {
        verbs: texts("get"),
        api_groups: texts("management.platform.sh"),
        resources: texts("sharedsecrets"),
        resource_names: vec![format!("s{number}")],
        ..Default::default()
    }]))
}

/// The result for many roles is computed once. A change of one of them is seen all the same, in place or in
/// a next snapshot. An older snapshot gives its older result.
#[test]
fn what_many_roles_give_follows_each_change() {
    use postern_kinds::rbac::{BindingFacts, BoundSubject};
    let ada = identity(&["system:authenticated"]);
    let mut policy = Policy::default();
    for number in 0..20 {
        let (role, subjects) = (format!("r{number}"), vec![BoundSubject::User("ada".to_owned())]);
        let facts = BindingFacts { is_cluster_role: false, role: role.clone(), subjects };
        policy.apply(Some("n"), &role, on_secret(number));
        policy.apply(Some("n"), &role, PolicyChange::Binding(Some(facts)));
    }
    let count = |policy: &Policy| match policy.readable(
        &ada,
        "get",
        "management.platform.sh",
        "sharedsecrets",
    ) {
        Readable::Some { objects, .. } => objects.len(),
        Readable::All => usize::MAX,
    };
    assert_eq!((count(&policy), count(&policy)), (20, 20));
    assert!(policy.readable(&ada, "delete", "management.platform.sh", "sharedsecrets").is_empty());
    let fewer = policy.with(&[(Some("n"), "r3", PolicyChange::Binding(None))]);
    assert_eq!((count(&fewer), count(&policy)), (19, 20));
    policy.apply(Some("n"), "r4", PolicyChange::Role(None));
    policy.apply(Some("n"), "r5", on_secret(6));
    assert_eq!((count(&policy), count(&fewer)), (18, 19));
}
