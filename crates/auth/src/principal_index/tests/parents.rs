//! Keys that end with their parents.

use super::*;

/// The key "k" has the parent "parent", which the key "maker" has made.
fn family() -> PrincipalIndex {
    let mut principals = principals();
    let of = |name: &str, maker: &str, parent: Option<&str>| KeyFacts {
        maker: made_by(maker),
        parent_uid: parent.map(str::to_owned),
        ..key(name, ada())
    };
    principals.set_key("k", Some(of("k", "", Some("uid-parent"))));
    principals.set_record(digest(2), Some(record("k", "u1")));
    principals.set_key("parent", Some(of("parent", "uid-maker", None)));
    principals.set_key("maker", Some(of("maker", "", None)));
    principals
}

fn identified(principals: &PrincipalIndex, now: i64) -> Result<(), Refusal> {
    principals.identify(&digest(2), now, &Policy::default()).map(drop)
}

#[test]
fn a_key_stops_with_its_parent_and_with_the_maker_of_its_parent() {
    let after = |change: &dyn Fn(&mut PrincipalIndex)| {
        let mut principals = family();
        assert_eq!(identified(&principals, NOW), Ok(()));
        change(&mut principals);
        identified(&principals, NOW)
    };
    for name in ["parent", "maker"] {
        assert_eq!(after(&|all| all.set_key(name, None)), Err(Refusal::Unknown), "{name}");
        let disabled = |all: &mut PrincipalIndex| {
            let facts = all.keys.get(name).cloned().unwrap();
            all.set_key(name, Some(KeyFacts { disabled: true, ..facts }));
        };
        assert_eq!(after(&disabled), Err(Refusal::Disabled), "{name}");
        let expired = |all: &mut PrincipalIndex| {
            let facts = all.keys.get(name).cloned().unwrap();
            let lifetime = Lifetime { ttl_seconds: 100, ..facts.lifetime };
            all.set_key(name, Some(KeyFacts { lifetime, ..facts }));
        };
        assert_eq!(after(&expired), Err(Refusal::Expired), "{name}");
        // A later key of the same name is another one.
        let again = |all: &mut PrincipalIndex| {
            let facts = all.keys.get(name).cloned().unwrap();
            all.set_key(name, Some(KeyFacts { uid: "uid-other".to_owned(), ..facts }));
        };
        assert_eq!(after(&again), Err(Refusal::Unknown), "{name}");
    }
}

#[test]
fn a_parent_narrows_nothing_else() {
    let mut principals = family();
    let scope = Some(Arc::new(scope_of("p")));
    let facts = principals.keys.get("parent").cloned().unwrap();
    principals.set_key("parent", Some(KeyFacts { scope, ..facts }));
    let key = principals.identify(&digest(2), NOW, &Policy::default()).unwrap();
    assert!(!key.identity.is_scoped());
    // It does not escape by keys that it makes: they end with it.
    assert!(key.as_caller_key(None).has_maker);
    let names: Vec<_> = key.ancestors.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["parent", "maker"]);
    assert!(!principals.is_made_by("uid-k", "uid-parent"));
}

#[test]
fn keys_whose_parent_is_gone_are_found_and_circles_end() {
    let mut principals = family();
    assert_eq!(principals.keys_without_maker().count(), 0);
    let facts = principals.keys.get("parent").cloned().unwrap();
    let circle = KeyFacts { parent_uid: Some("uid-k".to_owned()), maker: None, ..facts };
    principals.set_key("parent", Some(circle));
    assert_eq!(identified(&principals, NOW), Ok(()));
    principals.set_key("parent", None);
    assert_eq!(principals.keys_without_maker().collect::<Vec<_>>(), ["k"]);
}

#[test]
fn a_parent_is_a_key_of_the_same_owner() {
    use postern_kinds::Principals as _;
    let principals = family();
    let uid = |name: &str, owner: &Owner, child: &str| principals.parent_uid(name, owner, child);
    assert_eq!(uid("parent", &ada(), "uid-other"), Some("uid-parent".to_owned()));
    assert_eq!(uid("parent", &Owner::Team("t".to_owned()), "uid-other"), None);
    assert_eq!(uid("none", &ada(), "uid-other"), None);
    assert_eq!(uid("parent", &ada(), "uid-maker"), None, "it ends with that key");
}

/// Of a chain of parents, each that can have a child is usable.
#[test]
fn a_chain_of_parents_is_limited() {
    let mut principals = PrincipalIndex::default();
    principals.set_user("ada", Some(user("u1")));
    principals.set_key("c0", Some(key("c0", ada())));
    let mut length = 0;
    while principals.parent_uid(&format!("c{length}"), &ada(), "").is_some() {
        let parent_uid = Some(format!("uid-c{length}"));
        length += 1;
        let name = format!("c{length}");
        principals.set_key(&name, Some(KeyFacts { parent_uid, ..key(&name, ada()) }));
    }
    assert_eq!(length, 9);
    assert!(principals.ties(&principals.keys["c9"]).is_some());
}

/// With a maker and a parent each, there are exponentially many paths between keys.
#[test]
fn a_change_resolves_each_key_a_few_times_however_many_paths_lead_to_it() {
    const HUBS: usize = 16;
    let (mut principals, mut steps) = (PrincipalIndex::default(), Vec::new());
    principals.set_user("ada", Some(user("u1")));
    for leaves in [50, 100] {
        let hub = |number: usize| KeyFacts {
            maker: made_by(&format!("uid-h{}", (number + 1) % HUBS)),
            parent_uid: Some(format!("uid-h{}", (number + 5) % HUBS)),
            ..key(&format!("h{number}"), ada())
        };
        for number in 0..HUBS {
            principals.set_key(&format!("h{number}"), Some(hub(number)));
        }
        for number in 0..leaves {
            let parent_uid = Some(format!("uid-h{}", number % HUBS));
            let name = format!("leaf{number}");
            principals.set_key(&name, Some(KeyFacts { parent_uid, ..key(&name, ada()) }));
        }
        principals.apply("h3", AccessChange::Key(Some(hub(3))));
        let mut count = 1;
        while principals.resolve_next() {
            count += 1;
        }
        steps.push(count);
    }
    assert!(steps.iter().all(|count| *count <= 2 * HUBS), "{steps:?}");
}
