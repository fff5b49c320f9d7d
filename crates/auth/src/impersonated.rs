//! Acting as somebody else, as in Kubernetes: what is asked for, which rights it takes, and who one
//! is then.
//!
//! It never gives more than whom one acts as has, and never more than the scope of the key that one
//! came with (decision 4): [`PrincipalIndex::impersonate`](crate::principal_index::PrincipalIndex::acting_as) carries
//! that over.

use postern_kinds::{Impersonation, Right};

use crate::identity::{
    AUTHENTICATED_GROUP, Identity, PLATFORM_AUTHENTICATED_GROUP, UNAUTHENTICATED_GROUP,
};

/// The right that it takes.
const VERB: &str = "impersonate";

/// The group of the resources that stand for uids and extra fields, as upstream.
const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";

/// What names and groups begin with that Kubernetes gives a meaning to.
const SYSTEM_PREFIX: &str = "system:";

/// What the names of service accounts begin with; namespace and name follow.
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// The group of all service accounts, and the beginning of those of one namespace.
const SERVICE_ACCOUNTS_GROUP: &str = "system:serviceaccounts";

/// The name of whoever shows no credential.
const ANONYMOUS: &str = "system:anonymous";

/// Who one is then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImpersonatedIdentity {
    /// Whose rights count.
    pub identity: Identity,
    /// It is a user who is disabled: he may do nothing, and neither may who acts as him.
    pub disabled: bool,
}

/// Everything that one must have the right to impersonate, for becoming this identity.
///
/// The right to a user brings the groups and teams that he has, but for those which Kubernetes
/// reserves: who may act as anybody is not thereby a member of `system:masters`.
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
    let reserved = |group: &&String| group.starts_with(SYSTEM_PREFIX);
    let groups: Vec<_> = if wanted.groups.is_empty() {
        let implied = implied_groups(wanted);
        let own = |group: &&String| implied.contains(group) || *group == AUTHENTICATED_GROUP;
        impersonated.groups.iter().filter(reserved).filter(|group| !own(group)).collect()
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

/// Who one is then. `known` is the user or team that is meant, with everything that follows
/// from being it, if there is one.
pub(crate) fn identity(wanted: &Impersonation, known: Option<Identity>) -> Identity {
    let unknown = || Identity { name: wanted.user.clone(), ..Identity::default() };
    let mut identity = known.unwrap_or_else(unknown);
    if !wanted.uid.is_empty() {
        identity.uid.clone_from(&wanted.uid);
    }
    if !wanted.groups.is_empty() {
        identity.groups.clone_from(&wanted.groups);
    }
    identity.add_groups(implied_groups(wanted));
    if !identity.is_in(UNAUTHENTICATED_GROUP) {
        let everyone = [PLATFORM_AUTHENTICATED_GROUP, AUTHENTICATED_GROUP];
        identity.add_groups(everyone.map(str::to_owned));
    }
    identity.extra.clone_from(&wanted.extra);
    identity
}

/// Groups that follow from the name alone, when none are named.
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

pub(crate) fn service_account(wanted: &Impersonation) -> Option<(&str, &str)> {
    let (namespace, name) = wanted.user.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
    let whole = !namespace.is_empty() && !name.is_empty() && !name.contains(':');
    whole.then_some((namespace, name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use postern_kinds::principal::{TeamFacts, UserFacts};

    use crate::principal_index::PrincipalIndex;

    /// Bob is in the team red, and goes by a subject if he has one.
    fn principals(subject: &str, groups: &[&str], disabled: bool) -> PrincipalIndex {
        let mut principals = PrincipalIndex::default();
        let bob = UserFacts {
            uid: "u1".to_owned(),
            subject: subject.to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            disabled,
        };
        principals.set_user("bob", Some(bob));
        let (uid, users) = ("t1".to_owned(), vec!["bob".to_owned()]);
        let red = TeamFacts { uid, users, groups: vec!["deployers".to_owned()] };
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

    fn acting(principals: &PrincipalIndex, wanted: &Impersonation) -> Identity {
        principals.impersonate(wanted, &bearer()).identity
    }

    fn rights(principals: &PrincipalIndex, wanted: &Impersonation) -> Vec<String> {
        let impersonated = acting(principals, wanted);
        let shown = |right: Right| {
            assert_eq!(right.verb, VERB);
            let Right { group, resource, subresource, namespace, name, .. } = right;
            format!("{group}/{resource}/{subresource}/{namespace}/{name}")
        };
        super::rights(wanted, &impersonated).into_iter().map(shown).collect()
    }

    #[test]
    fn a_user_brings_his_groups_and_teams() {
        let principals = principals("", &["ops"], false);
        let bob = acting(&principals, &wanted("bob", &[]));
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
        assert_eq!(bob.access_key, "admin", "the key is still the one that was shown");
        assert_eq!(rights(&principals, &wanted("bob", &[])), ["/users///bob"]);
    }

    #[test]
    fn groups_that_are_named_stand_instead_and_take_a_right_each() {
        let principals = principals("", &["ops"], false);
        let asked = wanted("bob", &["dev", "system:masters"]);
        let bob = acting(&principals, &asked);
        let everyone = ["platform:authenticated", "system:authenticated"];
        assert_eq!(bob.groups, [&["dev", "system:masters"][..], &everyone].concat());
        let rights = rights(&principals, &asked);
        assert_eq!(rights, ["/users///bob", "/groups///dev", "/groups///system:masters"]);
    }

    #[test]
    fn who_may_act_as_a_master_is_not_thereby_one() {
        let principals = principals("", &["system:masters", "ops"], false);
        let rights = rights(&principals, &wanted("bob", &[]));
        assert_eq!(rights, ["/users///bob", "/groups///system:masters"]);
    }

    #[test]
    fn a_subject_and_the_objects_name_both_lead_to_the_user() {
        let principals = principals("oidc|7", &[], false);
        for name in ["bob", "oidc|7"] {
            let bob = acting(&principals, &wanted(name, &[]));
            assert_eq!((bob.name.as_str(), bob.user.as_deref()), ("oidc|7", Some("bob")));
        }
        assert_eq!(rights(&principals, &wanted("bob", &[])), ["/users///bob", "/users///oidc|7"]);
        assert_eq!(rights(&principals, &wanted("oidc|7", &[])), ["/users///oidc|7"]);
    }

    #[test]
    fn a_subject_that_moves_is_found_where_it_is() {
        let mut principals = principals("oidc|7", &[], false);
        let named = |subject: &str| UserFacts {
            uid: "u2".to_owned(),
            subject: subject.to_owned(),
            groups: Vec::new(),
            disabled: false,
        };
        principals.set_user("carol", Some(named("oidc|7")));
        principals.set_user("bob", Some(named("")));
        let found = acting(&principals, &wanted("oidc|7", &[]));
        assert_eq!(found.user.as_deref(), Some("carol"));
        principals.set_user("carol", None);
        assert_eq!(acting(&principals, &wanted("oidc|7", &[])).user, None);
    }

    #[test]
    fn another_uid_is_somebody_else() {
        let principals = principals("", &["ops"], false);
        let asked = |uid: &str| Impersonation { uid: uid.to_owned(), ..wanted("bob", &[]) };
        assert_eq!(acting(&principals, &asked("u1")).user.as_deref(), Some("bob"));
        let other = acting(&principals, &asked("u9"));
        assert_eq!((other.user, other.uid.as_str()), (None, "u9"));
        assert_eq!(other.groups, ["platform:authenticated", "system:authenticated"]);
        let rights = rights(&principals, &asked("u9"));
        assert_eq!(rights, ["/users///bob", "authentication.k8s.io/uids///u9"]);
    }

    #[test]
    fn teams_and_service_accounts_by_their_names() {
        let principals = principals("", &[], false);
        let red = acting(&principals, &wanted("platform:team:red", &[]));
        assert_eq!((red.team.as_deref(), red.uid.as_str()), (Some("red"), "t1"));
        assert!(red.is_in("deployers") && red.is_in("platform:team:red"));
        let robot = wanted("system:serviceaccount:ci:robot", &[]);
        let groups = ["system:serviceaccounts", "system:serviceaccounts:ci"];
        assert_eq!(acting(&principals, &robot).groups[..2], groups);
        assert_eq!(rights(&principals, &robot), ["/serviceaccounts//ci/robot"]);
        // Whoever goes by its name is somebody else.
        let namesake = self::principals("system:serviceaccount:ci:robot", &["ops"], false);
        assert_eq!(acting(&namesake, &robot).user, None);
        let odd = wanted("system:serviceaccount:ci", &[]);
        assert_eq!(rights(&principals, &odd), ["/users///system:serviceaccount:ci"]);
    }

    #[test]
    fn nobody_is_not_authenticated() {
        let principals = principals("", &[], false);
        let nobody = wanted("system:anonymous", &[]);
        assert_eq!(acting(&principals, &nobody).groups, ["system:unauthenticated"]);
        assert_eq!(rights(&principals, &nobody), ["/users///system:anonymous"]);
        let asked = wanted("bob", &["system:unauthenticated"]);
        assert_eq!(acting(&principals, &asked).groups, ["system:unauthenticated"]);
    }

    #[test]
    fn extra_fields_take_a_right_for_each_value() {
        let principals = principals("", &[], false);
        let values = vec!["a".to_owned(), "b".to_owned()];
        let extra = BTreeMap::from([("example.com/why".to_owned(), values)]);
        let asked = Impersonation { extra: extra.clone(), ..wanted("carol", &[]) };
        assert_eq!(acting(&principals, &asked).extra, extra);
        let why = "authentication.k8s.io/userextras/example.com/why/";
        let want = ["/users///carol".to_owned(), format!("{why}/a"), format!("{why}/b")];
        assert_eq!(rights(&principals, &asked), want);
    }

    #[test]
    fn a_disabled_user_may_do_nothing_through_others_either() {
        let principals = principals("", &[], true);
        assert!(principals.impersonate(&wanted("bob", &[]), &bearer()).disabled);
        assert!(!principals.impersonate(&wanted("carol", &[]), &bearer()).disabled);
    }

    #[test]
    fn a_scope_stays_on() {
        let scoped = Identity { scoped: true, ..bearer() };
        let principals = principals("", &["system:masters"], false);
        let bob = principals.impersonate(&wanted("bob", &["system:masters"]), &scoped);
        assert!(bob.identity.scoped);
    }
}
