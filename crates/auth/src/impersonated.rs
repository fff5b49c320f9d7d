//! Impersonation, as in Kubernetes: the rights that it takes, and the identity that it gives.
//!
//! The caller gets the permissions of the impersonated identity, within the scope of their own access
//! key: [`PrincipalIndex::impersonate`](crate::principal_index::PrincipalIndex::impersonate) keeps that
//! scope. Reading the headers and the decision are elsewhere. See
//! `docs/reference/authentication.md#impersonation`.

use postern_kinds::{Impersonation, Right};

use crate::attributes::Attributes;
use crate::identity::{
    AUTHENTICATED_GROUP, Identity, PLATFORM_AUTHENTICATED_GROUP, UNAUTHENTICATED_GROUP, own_groups,
    team_group,
};
use crate::policy::{Decision, Policy};

/// The verb of every right that impersonation takes.
const VERB: &str = "impersonate";

/// The API group of the resources for uids and extra fields, as in Kubernetes.
const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";

/// The prefix of the names of service accounts; `NAMESPACE:NAME` follows.
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// The group of all service accounts; with `:NAMESPACE`, of those of one namespace.
const SERVICE_ACCOUNTS_GROUP: &str = "system:serviceaccounts";

/// The name of a caller without a credential.
const ANONYMOUS: &str = "system:anonymous";

/// The identity that an impersonation gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImpersonatedIdentity {
    /// The identity that access decisions see.
    pub identity: Identity,
    /// Whether the user is disabled. No caller may then act as the user.
    pub disabled: bool,
}

/// The rights that the caller must hold to impersonate this identity: all of them.
///
/// Without explicit groups these are the right to the user, and to each group and team that is stored for
/// the user. The right to impersonate every user does not include any group.
pub fn rights(wanted: &Impersonation, impersonated: &Identity) -> Vec<Right> {
    let core = |resource, name: &str| Right::cluster(VERB, "", resource, name);
    let mut rights = vec![match service_account(wanted) {
        Some((namespace, name)) => {
            Right { namespace: namespace.to_owned(), ..core("serviceaccounts", name) }
        }
        None => core("users", &wanted.user),
    }];
    if impersonated.name != wanted.user {
        rights.push(core("users", &impersonated.name));
    }
    let groups: Vec<_> = if wanted.groups.is_empty() {
        let implied = groups_by_name(wanted, impersonated);
        impersonated.groups.iter().filter(|group| !implied.contains(group)).collect()
    } else {
        wanted.groups.iter().collect()
    };
    rights.extend(groups.into_iter().map(|group| core("groups", group)));
    if !wanted.uid.is_empty() {
        rights.push(Right::cluster(VERB, AUTHENTICATION_GROUP, "uids", &wanted.uid));
    }
    for (key, values) in &wanted.extra {
        rights.extend(values.iter().map(|value| Right {
            subresource: key.clone(),
            ..Right::cluster(VERB, AUTHENTICATION_GROUP, "userextras", value)
        }));
    }
    rights
}

/// Whether a caller may act as an impersonated identity now.
pub fn may(
    bearer: &Identity,
    wanted: &Impersonation,
    impersonated: &ImpersonatedIdentity,
    policy: &Policy,
) -> bool {
    let may = |right: Right| policy.decide(bearer, &Attributes::from(&right)) == Decision::Allow;
    !impersonated.disabled && rights(wanted, &impersonated.identity).into_iter().all(may)
}

/// The groups of an impersonated identity that follow from its name and from being authenticated: the right to
/// the name includes them.
fn groups_by_name(wanted: &Impersonation, impersonated: &Identity) -> Vec<String> {
    let everyone = [PLATFORM_AUTHENTICATED_GROUP, AUTHENTICATED_GROUP].map(str::to_owned);
    let user = impersonated.user.iter().flat_map(|user| own_groups(user));
    let team = impersonated.team.iter().map(|team| team_group(team));
    implied_groups(wanted).into_iter().chain(everyone).chain(user).chain(team).collect()
}

/// The impersonated identity. `known` is the user or team that is wanted, with its groups, if there
/// is one and the impersonation names no groups.
pub(crate) fn identity(wanted: &Impersonation, known: Option<Identity>) -> Identity {
    let unknown = || Identity { name: wanted.user.clone(), ..Identity::default() };
    let mut identity = known.unwrap_or_else(unknown);
    identity.is_impersonated = true;
    if !wanted.uid.is_empty() {
        identity.uid.clone_from(&wanted.uid);
    }
    identity.groups.extend(wanted.groups.iter().cloned());
    identity.add_groups(implied_groups(wanted));
    if !identity.is_in(UNAUTHENTICATED_GROUP) {
        let everyone = [PLATFORM_AUTHENTICATED_GROUP, AUTHENTICATED_GROUP];
        identity.add_groups(everyone.map(str::to_owned));
    }
    identity.extra.clone_from(&wanted.extra);
    identity
}

/// The groups that follow from the name alone; none when groups are requested.
fn implied_groups(wanted: &Impersonation) -> Vec<String> {
    if !wanted.groups.is_empty() {
        return Vec::new();
    }
    match service_account(wanted) {
        Some((namespace, _)) => {
            vec![SERVICE_ACCOUNTS_GROUP.to_owned(), format!("{SERVICE_ACCOUNTS_GROUP}:{namespace}")]
        }
        None if wanted.user == ANONYMOUS => vec![UNAUTHENTICATED_GROUP.to_owned()],
        None => Vec::new(),
    }
}

/// The namespace and name of the service account that is wanted; `None` for any other name.
pub(crate) fn service_account(wanted: &Impersonation) -> Option<(&str, &str)> {
    let (namespace, name) = wanted.user.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
    let is_complete = !namespace.is_empty() && !name.is_empty() && !name.contains(':');
    is_complete.then_some((namespace, name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use postern_kinds::principal::{TeamFacts, UserFacts};
    use postern_kinds::scope::Scope;

    use super::*;
    use crate::principal_index::PrincipalIndex;
    use crate::scope::ScopeRules;

    /// An index with the user bob, a member of the team red.
    fn principals(subject: &str, groups: &[&str], disabled: bool) -> PrincipalIndex {
        let mut principals = PrincipalIndex::default();
        let bob = UserFacts {
            uid: "u1".to_owned(),
            subject: subject.to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            disabled,
            ..UserFacts::default()
        };
        principals.set_user("bob", Some(bob));
        let (uid, users) = ("t1".to_owned(), vec!["bob".to_owned()]);
        let red =
            TeamFacts { uid, users, groups: vec!["deployers".to_owned()], ..TeamFacts::default() };
        principals.set_team("red", Some(red));
        principals
    }

    fn wanted(user: &str, groups: &[&str]) -> Impersonation {
        Impersonation {
            user: user.to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            ..Impersonation::default()
        }
    }

    fn bearer() -> Identity {
        Identity { access_key: "admin".to_owned(), ..Identity::default() }
    }

    fn impersonate(principals: &PrincipalIndex, wanted: &Impersonation) -> Identity {
        principals.impersonate(wanted, &bearer()).identity
    }

    fn rights(principals: &PrincipalIndex, wanted: &Impersonation) -> Vec<String> {
        let impersonated = impersonate(principals, wanted);
        let to_text = |right: Right| {
            assert_eq!(right.verb, VERB);
            let Right { group, resource, subresource, namespace, name, .. } = right;
            format!("{group}/{resource}/{subresource}/{namespace}/{name}")
        };
        super::rights(wanted, &impersonated).into_iter().map(to_text).collect()
    }

    #[test]
    fn an_impersonated_user_has_their_groups_and_teams() {
        let principals = principals("", &["ops"], false);
        let bob = impersonate(&principals, &wanted("bob", &[]));
        let groups = [
            "ops",
            "platform:team:red",
            "deployers",
            "platform:user:bob",
            "platform:user:*",
            "platform:authenticated",
            "system:authenticated",
        ];
        assert_eq!((bob.name.as_str(), bob.uid.as_str()), ("bob", "u1"));
        assert_eq!(bob.groups, groups);
        assert_eq!(bob.user.as_deref(), Some("bob"));
        assert_eq!(bob.access_key, "admin", "the access key is still the caller's");
        // The right to the user is none to each group and team that the user is in.
        let each =
            ["/users///bob", "/groups///ops", "/groups///platform:team:red", "/groups///deployers"];
        assert_eq!(rights(&principals, &wanted("bob", &[])), each);
    }

    #[test]
    fn with_explicit_groups_nothing_that_is_stored_counts() {
        let principals = principals("oidc|7", &["system:masters"], false);
        for name in ["bob", "oidc|7"] {
            let bob = impersonate(&principals, &wanted(name, &["helpers"]));
            let unknown = Identity {
                name: name.to_owned(),
                groups: ["helpers", "platform:authenticated", "system:authenticated"]
                    .map(str::to_owned)
                    .to_vec(),
                access_key: "admin".to_owned(),
                is_impersonated: true,
                ..Identity::default()
            };
            assert_eq!(bob, unknown, "no user, team, uid or stored group");
        }
        let red = impersonate(&principals, &wanted("platform:team:red", &["helpers"]));
        assert_eq!((red.team, red.uid.as_str(), red.principal_uids.len()), (None, "", 0));
    }

    #[test]
    fn requested_groups_replace_the_users_and_take_a_right_each() {
        let principals = principals("", &["ops"], false);
        let asked = wanted("bob", &["dev", "system:masters"]);
        let bob = impersonate(&principals, &asked);
        let everyone = ["platform:authenticated", "system:authenticated"];
        assert_eq!(bob.groups, [&["dev", "system:masters"][..], &everyone].concat());
        let rights = rights(&principals, &asked);
        assert_eq!(rights, ["/users///bob", "/groups///dev", "/groups///system:masters"]);
    }

    #[test]
    fn reserved_groups_of_a_user_take_a_right_each() {
        let principals = principals("", &["system:masters", "ops"], false);
        let rights = rights(&principals, &wanted("bob", &[]));
        assert!(rights.contains(&"/groups///system:masters".to_owned()), "{rights:?}");
    }

    #[test]
    fn a_user_is_found_by_subject_and_by_name() {
        let principals = principals("oidc|7", &[], false);
        for name in ["bob", "oidc|7"] {
            let bob = impersonate(&principals, &wanted(name, &[]));
            assert_eq!((bob.name.as_str(), bob.user.as_deref()), ("oidc|7", Some("bob")));
        }
        let teams = ["/groups///platform:team:red", "/groups///deployers"];
        let by_name = [&["/users///bob", "/users///oidc|7"][..], &teams].concat();
        assert_eq!(rights(&principals, &wanted("bob", &[])), by_name);
        let by_subject = [&["/users///oidc|7"][..], &teams].concat();
        assert_eq!(rights(&principals, &wanted("oidc|7", &[])), by_subject);
    }

    #[test]
    fn a_subject_that_moves_to_another_user_is_found_there() {
        let mut principals = principals("oidc|7", &[], false);
        let named = |subject: &str| UserFacts {
            uid: "u2".to_owned(),
            subject: subject.to_owned(),
            ..UserFacts::default()
        };
        principals.set_user("carol", Some(named("oidc|7")));
        principals.set_user("bob", Some(named("")));
        let found = impersonate(&principals, &wanted("oidc|7", &[]));
        assert_eq!(found.user.as_deref(), Some("carol"));
        principals.set_user("carol", None);
        assert_eq!(impersonate(&principals, &wanted("oidc|7", &[])).user, None);
    }

    #[test]
    fn another_uid_is_another_identity() {
        let principals = principals("", &["ops"], false);
        let asked = |uid: &str| Impersonation { uid: uid.to_owned(), ..wanted("bob", &[]) };
        assert_eq!(impersonate(&principals, &asked("u1")).user.as_deref(), Some("bob"));
        let other = impersonate(&principals, &asked("u9"));
        assert_eq!((other.user, other.uid.as_str()), (None, "u9"));
        assert_eq!(other.groups, ["platform:authenticated", "system:authenticated"]);
        let rights = rights(&principals, &asked("u9"));
        assert_eq!(rights, ["/users///bob", "authentication.k8s.io/uids///u9"]);
    }

    #[test]
    fn teams_and_service_accounts_are_found_by_their_names() {
        let principals = principals("", &[], false);
        let red = impersonate(&principals, &wanted("platform:team:red", &[]));
        assert_eq!((red.team.as_deref(), red.uid.as_str()), (Some("red"), "t1"));
        assert!(red.is_in("deployers") && red.is_in("platform:team:red"));
        let robot = wanted("system:serviceaccount:ci:robot", &[]);
        let groups = ["system:serviceaccounts", "system:serviceaccounts:ci"];
        assert_eq!(impersonate(&principals, &robot).groups[..2], groups);
        assert_eq!(rights(&principals, &robot), ["/serviceaccounts//ci/robot"]);
        // A user that has the same text as its subject is not the service account.
        let namesake = self::principals("system:serviceaccount:ci:robot", &["ops"], false);
        assert_eq!(impersonate(&namesake, &robot).user, None);
        let incomplete = wanted("system:serviceaccount:ci", &[]);
        assert_eq!(rights(&principals, &incomplete), ["/users///system:serviceaccount:ci"]);
    }

    #[test]
    fn anonymous_is_not_authenticated() {
        let principals = principals("", &[], false);
        let anonymous = wanted("system:anonymous", &[]);
        assert_eq!(impersonate(&principals, &anonymous).groups, ["system:unauthenticated"]);
        assert_eq!(rights(&principals, &anonymous), ["/users///system:anonymous"]);
        let asked = wanted("bob", &["system:unauthenticated"]);
        assert_eq!(impersonate(&principals, &asked).groups, ["system:unauthenticated"]);
    }

    #[test]
    fn extra_fields_take_a_right_for_each_value() {
        let principals = principals("", &[], false);
        let values = vec!["a".to_owned(), "b".to_owned()];
        let extra = BTreeMap::from([("example.com/why".to_owned(), values)]);
        let asked = Impersonation { extra: extra.clone(), ..wanted("carol", &[]) };
        assert_eq!(impersonate(&principals, &asked).extra, extra);
        let why = "authentication.k8s.io/userextras/example.com/why/";
        let want = ["/users///carol".to_owned(), format!("{why}/a"), format!("{why}/b")];
        assert_eq!(rights(&principals, &asked), want);
    }

    #[test]
    fn a_disabled_user_is_reported() {
        let principals = principals("", &[], true);
        assert!(principals.impersonate(&wanted("bob", &[]), &bearer()).disabled);
        assert!(!principals.impersonate(&wanted("carol", &[]), &bearer()).disabled);
    }

    #[test]
    fn the_scope_of_the_callers_key_stays() {
        let scope = Arc::new(ScopeRules::new(&Scope::default()));
        let scoped = Identity { scopes: vec![scope], ..bearer() };
        let principals = principals("", &["system:masters"], false);
        let bob = principals.impersonate(&wanted("bob", &["system:masters"]), &scoped);
        assert_eq!(bob.identity.scopes, scoped.scopes);
    }
}
