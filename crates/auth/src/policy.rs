//! The one place where access is decided: from an immutable [`Policy`] and names, never from an
//! object's content.
//!
//! So far the policy is built in: members of `system:masters` may do everything; every caller may
//! ask who they are and read the API's description; users and teams may manage their own access
//! keys (decision 3). A key with a scope may do what every caller may, and nothing else. Deny is
//! the default, and stays it.

use std::sync::Arc;

use postern_kinds::selves::SelfKind;
use postern_kinds::{AnyKind as _, MANAGEMENT_V1, OwnedBy, Owner, RequiredRight, Right};

use crate::attributes::Attributes;
use crate::identity::{AUTHENTICATED_GROUP, Identity, MASTERS_GROUP};

/// The verbs on a user or team that concern its access keys. Every user and team has them on itself.
const KEY_VERBS: [&str; 4] = ["createkey", "getkey", "updatekey", "deletekey"];

/// The result of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The identity may do it.
    Allow,
    /// The identity may not do it.
    Deny,
}

/// What decisions are made from: a snapshot that never changes, so that all decisions for one
/// request agree. A change makes a new snapshot.
#[derive(Debug)]
pub struct Policy {
    grants: Vec<Grant>,
}

/// Something that is allowed to a group.
#[derive(Debug)]
struct Grant {
    /// The group that it is allowed to.
    group: &'static str,
    rule: Rule,
    /// Does it hold for a key with a scope, too, whatever that scope is (decision 4)?
    ignores_scope: bool,
}

/// What is allowed.
#[derive(Debug)]
enum Rule {
    /// Everything.
    Everything,
    /// These verbs on a resource.
    Resource { verbs: &'static [&'static str], group: &'static str, resource: &'static str },
    /// These methods on descriptions of the API.
    Description { verbs: &'static [&'static str] },
}

/// What decides what an identity sees of one kind. As long as two are equal, it sees the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// The grants that the identity holds and that concern the kind, by their index.
    grants: Vec<usize>,
    /// The identity's own: who they are, and the groups, by which grants come and go.
    name: String,
    uid: String,
    user: Option<String>,
    team: Option<String>,
    groups: Vec<String>,
    scoped: bool,
}

impl Policy {
    /// Returns the policy that needs nothing stored.
    pub fn built_in() -> Arc<Self> {
        let selves = SelfKind.info();
        let masters = Grant { group: MASTERS_GROUP, rule: Rule::Everything, ignores_scope: false };
        let open = |rule| Grant { group: AUTHENTICATED_GROUP, rule, ignores_scope: true };
        let grants = vec![
            masters,
            open(Rule::Resource {
                verbs: &["create", "get"],
                group: selves.version.group,
                resource: selves.plural,
            }),
            open(Rule::Description { verbs: &["get", "head"] }),
        ];
        Arc::new(Self { grants })
    }

    /// Decides whether an identity may do something. The same question always has the same answer.
    pub fn decide(&self, identity: &Identity, attributes: &Attributes<'_>) -> Decision {
        if self.is_granted(identity, attributes) || concerns_own_keys(identity, attributes) {
            Decision::Allow
        } else {
            Decision::Deny
        }
    }

    /// Is a requirement met: does the identity have any one of its rights, and by a role where that is
    /// required?
    pub fn satisfies(&self, identity: &Identity, required: &RequiredRight) -> bool {
        required.any_of().any(|right| {
            let attributes = right.into();
            if required.is_by_role() {
                self.is_granted(identity, &attributes)
            } else {
                self.decide(identity, &attributes) == Decision::Allow
            }
        })
    }

    /// Does an identity have a right on the owner of an object, as a right on the object? What users and
    /// teams may do to what is theirs, nobody may who only has got their name since.
    pub fn has_delegated(&self, identity: &Identity, right: &Right, owned_by: &OwnedBy) -> bool {
        let attributes = right.into();
        let is_owner = !identity.uid.is_empty() && identity.uid == owned_by.uid;
        self.is_granted(identity, &attributes)
            || (is_owner && concerns_own_keys(identity, &attributes))
    }

    /// Is it granted by a role, and not only because it concerns the identity's own keys?
    fn is_granted(&self, identity: &Identity, attributes: &Attributes<'_>) -> bool {
        self.held_by(identity).any(|(_, grant)| grant.rule.allows(attributes))
    }

    /// Can the identity have rights on single objects that it does not have on the collection? If
    /// not, a list is refused; otherwise it has the objects that the identity may read.
    pub fn may_hold_single_objects(&self, identity: &Identity) -> bool {
        !identity.scoped && identity.is_in(AUTHENTICATED_GROUP)
    }

    /// Returns what decides what the identity sees of a kind. What is changed for somebody else is
    /// not in it.
    pub fn fingerprint(
        &self,
        identity: &Identity,
        group: &str,
        resource: &str,
        delegated: bool,
    ) -> Fingerprint {
        let is_owner = |of: &str, name: &str| {
            delegated && of == MANAGEMENT_V1.group && matches!(name, "users" | "teams")
        };
        let concerns = |rule: &Rule| match rule {
            Rule::Everything => true,
            Rule::Resource { group: of, resource: name, .. } => {
                (*of == group && *name == resource) || is_owner(of, name)
            }
            Rule::Description { .. } => false,
        };
        let held = self.held_by(identity).filter(|(_, grant)| concerns(&grant.rule));
        Fingerprint {
            grants: held.map(|(index, _)| index).collect(),
            name: identity.name.clone(),
            uid: identity.uid.clone(),
            user: identity.user.clone(),
            team: identity.team.clone(),
            groups: identity.groups.clone(),
            scoped: identity.scoped,
        }
    }

    fn held_by<'a>(&'a self, identity: &'a Identity) -> impl Iterator<Item = (usize, &'a Grant)> {
        let held = |grant: &Grant| {
            (grant.ignores_scope || !identity.scoped) && identity.is_in(grant.group)
        };
        self.grants.iter().enumerate().filter(move |(_, grant)| held(grant))
    }
}

impl Rule {
    fn allows(&self, attributes: &Attributes<'_>) -> bool {
        match (self, attributes) {
            (Self::Everything, _) => true,
            (
                Self::Resource { verbs, group: of, resource: named },
                Attributes::Resource { verb, group, resource, .. },
            ) => verbs.contains(verb) && of == group && named == resource,
            (Self::Description { verbs }, Attributes::Description { verb, .. }) => {
                verbs.contains(verb)
            }
            _ => false,
        }
    }
}

/// Returns the owners on whom an identity that is no master has rights: so far, only themselves.
pub fn owners_with_rights(identity: &Identity) -> Vec<Owner> {
    let user = identity.user.clone().map(Owner::User);
    let team = identity.team.clone().map(Owner::Team);
    user.into_iter().chain(team).collect()
}

fn concerns_own_keys(identity: &Identity, attributes: &Attributes<'_>) -> bool {
    let Attributes::Resource { verb, group, resource, subresource, name, .. } = attributes else {
        return false;
    };
    let own = match *resource {
        "users" => identity.user.as_deref(),
        "teams" => identity.team.as_deref(),
        _ => None,
    };
    !identity.scoped
        && *group == MANAGEMENT_V1.group
        && subresource.is_empty()
        && KEY_VERBS.contains(verb)
        && own == Some(*name)
}

#[cfg(test)]
mod tests {
    use postern_kinds::Right;

    use super::*;

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
            on("get", "users", "ada"),
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
            for scoped in [false, true] {
                let identity = Identity { scoped, ..identity(&["system:authenticated"]) };
                assert_eq!(
                    Policy::built_in().decide(&identity, question),
                    Decision::Allow,
                    "{question:?}"
                );
            }
            let nobody = identity(&["system:unauthenticated"]);
            assert_eq!(
                Policy::built_in().decide(&nobody, question),
                Decision::Deny,
                "{question:?}"
            );
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
            assert_eq!(
                Policy::built_in().decide(&team, &on(verb, "teams", "red")),
                Decision::Allow
            );
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
        let scoped = Identity { scoped: true, ..master.clone() };
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
            let held = policy.has_delegated(identity, &getkey(user), &of(user, uid));
            assert_eq!(held, has, "{identity:?}: {user}, {uid}");
        }
    }

    #[test]
    fn a_scoped_key_may_do_nothing_else() {
        let scoped = Identity { scoped: true, ..identity(&["system:masters"]) };
        for question in [on("get", "sharedsecrets", "s1"), on("createkey", "users", "ada")] {
            assert_eq!(Policy::built_in().decide(&scoped, &question), Decision::Deny);
        }
        assert!(!Policy::built_in().may_hold_single_objects(&scoped));
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
            Identity { scoped: true, ..plain.clone() },
            Identity { uid: "u2".to_owned(), ..plain.clone() },
            Identity { name: "bob".to_owned(), ..plain.clone() },
        ] {
            assert_ne!(of(&plain), of(&changed), "{changed:?}");
        }
    }
}
