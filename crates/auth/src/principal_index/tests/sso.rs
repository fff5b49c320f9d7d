//! The groups of single sign-on, and the teams that have them.

use super::*;

#[test]
fn a_team_has_the_groups_of_the_connector_that_it_named() {
    let named = |uid: &str| ConnectorRef { name: "corp".to_owned(), uid: uid.to_owned() };
    let mut principals = principals();
    for (at_the_team, of_the_user, is_member) in [
        (Some("c1"), "c1", true),
        (Some("c1"), "c2", false),
        (Some("c2"), "c2", true),
        // A team from an earlier version names no uid.
        (None, "c2", true),
    ] {
        let facts = ConnectorFacts { uid: of_the_user.to_owned(), disabled: false };
        principals.set_connector("corp", Some(facts));
        let groups = vec!["corp:dev".to_owned()];
        let connectors = at_the_team.map(named).into_iter().collect();
        let with_group = TeamFacts { sso_groups: groups.clone(), connectors, ..team(&[]) };
        principals.set_team("shop", Some(with_group));
        let connector = named(of_the_user);
        let sso = vec![SsoGroups { connector, groups: groups.clone(), confirmed_unix_seconds: 1 }];
        principals.set_user("ada", Some(UserFacts { sso, ..user("u1") }));
        assert_eq!(identity(&principals).is_in("deployers"), is_member, "{at_the_team:?}");
        let of_groups = principals.teams_with_groups(&groups, of_the_user);
        assert_eq!(of_groups.len(), usize::from(is_member));
    }
}

#[test]
fn groups_that_no_provider_has_confirmed_for_long_do_not_count() {
    let connector = ConnectorRef { name: "corp".to_owned(), uid: "c1".to_owned() };
    let with_groups = |confirmed_unix_seconds| {
        let groups = vec!["corp:dev".to_owned()];
        let connector = connector.clone();
        let sso = vec![SsoGroups { connector, groups, confirmed_unix_seconds }];
        UserFacts { sso, ..user("u1") }
    };
    let mut principals = principals();
    let facts = ConnectorFacts { uid: "c1".to_owned(), disabled: false };
    principals.set_connector("corp", Some(facts));
    principals
        .set_team("shop", Some(TeamFacts { sso_groups: vec!["corp:dev".to_owned()], ..team(&[]) }));
    principals.set_user("ada", Some(with_groups(1000)));
    let set_oldest = |principals: &mut PrincipalIndex, oldest| {
        let is_changed = principals.set_oldest_groups(oldest);
        while principals.resolve_next() {}
        is_changed
    };
    let counts = |principals: &PrincipalIndex| {
        let identity = identity(principals);
        let is_member = principals.team_names_of("ada").next().is_some();
        assert_eq!(identity.is_in("corp:dev"), is_member);
        assert_eq!(identity.is_in("deployers"), is_member);
        is_member
    };
    let ada_impersonated = Impersonation { user: "ada".to_owned(), ..Impersonation::default() };
    principals.set_revision(5);
    assert!(!set_oldest(&mut principals, 1000));
    assert!(counts(&principals));
    assert_eq!(principals.users_with_old_groups().count(), 0);
    assert!(set_oldest(&mut principals, 1001));
    assert!(!counts(&principals));
    assert_eq!(principals.users_with_old_groups().collect::<Vec<_>>(), ["ada"]);
    assert_eq!(principals.since_of(&ada_impersonated), 5);
    // They count again if the provider confirms them, or if the clock is set back.
    principals.set_revision(6);
    principals.set_user("ada", Some(with_groups(1001)));
    assert!(counts(&principals));
    assert!(set_oldest(&mut principals, 2000));
    assert!(set_oldest(&mut principals, 900));
    assert!(counts(&principals));
    // To others, a confirmation changes nothing.
    assert_eq!(principals.since_of(&ada_impersonated), 6);
    principals.set_revision(7);
    principals.set_user("ada", Some(with_groups(3000)));
    assert_eq!(principals.since_of(&ada_impersonated), 6);
    principals.set_user("ada", Some(user("u1")));
    assert!(!set_oldest(&mut principals, 5000));
    assert_eq!(principals.users_with_old_groups().count(), 0);
}
