//! May they? The one place where access is decided: from an immutable [`Policy`] and names, never
//! from an object's content.
//!
//! So far the policy is built in: members of `system:masters` may do everything; every caller may
//! ask who they are and read the API's description; users and teams may manage their own access
//! keys (decision 3). A key with a scope may do what every caller may, and nothing else. Deny is
//! the default, and stays it.

use std::sync::Arc;

use postern_kinds::selves::SelfKind;
use postern_kinds::{AnyKind as _, MANAGEMENT_V1, RequiredRight};

use crate::attributes::Attributes;
use crate::identity::{AUTHENTICATED_GROUP, Identity, MASTERS_GROUP};

/// Rights on a user or team that concern their keys; all users and teams hold them on themselves.
const KEY_VERBS: [&str; 4] = ["createkey", "getkey", "updatekey", "deletekey"];

/// What a decision comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// They may.
    Allow,
    /// They may not.
    Deny,
}

/// What decisions are made from: a snapshot that never changes. Whoever holds one decides by it as
/// a whole, whatever is written meanwhile; a change makes a new one.
#[derive(Debug)]
pub struct Policy {
    grants: Vec<Grant>,
}

/// Something that is allowed to a group.
#[derive(Debug)]
struct Grant {
    /// The group of those who may.
    group: &'static str,
    rule: Rule,
    /// Does it hold for a key with a scope, whatever the scope (decision 4)?
    whatever_the_scope: bool,
}

/// What is allowed.
#[derive(Debug)]
enum Rule {
    /// Everything.
    Everything,
    /// These verbs on a resource.
    Resource { verbs: &'static [&'static str], group: &'static str, resource: &'static str },
    /// These methods on what describes the API.
    Description { verbs: &'static [&'static str] },
}

/// What decides what an identity sees of one kind. As long as two are equal, it sees the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// The grants that the identity holds and that concern the kind, by their index.
    grants: Vec<usize>,
    /// The identity's own: name, uid, and the groups, by which grants come and go.
    name: String,
    uid: String,
    groups: Vec<String>,
    scoped: bool,
}

impl Policy {
    /// Returns the policy that holds without anything stored.
    pub fn built_in() -> Arc<Self> {
        let selves = SelfKind.info();
        let masters =
            Grant { group: MASTERS_GROUP, rule: Rule::Everything, whatever_the_scope: false };
        let open = |rule| Grant { group: AUTHENTICATED_GROUP, rule, whatever_the_scope: true };
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

    /// Decides. The same question has the same answer for as long as the policy is the same.
    pub fn decide(&self, identity: &Identity, attributes: &Attributes<'_>) -> Decision {
        let granted = self.held_by(identity).any(|(_, grant)| grant.rule.allows(attributes));
        if granted || concerns_own_keys(identity, attributes) {
            Decision::Allow
        } else {
            Decision::Deny
        }
    }

    /// Does the identity hold one of the rights that will do?
    pub fn satisfies(&self, identity: &Identity, required: &RequiredRight) -> bool {
        required.any_of().any(|right| self.decide(identity, &right.into()) == Decision::Allow)
    }

    /// May the identity do anything at all to single objects, where it may not do it to all? Where
    /// this is false, a list is refused instead of being empty.
    pub fn may_hold_single_objects(&self, identity: &Identity) -> bool {
        !identity.scoped && identity.is_in(AUTHENTICATED_GROUP)
    }

    /// Returns what decides what the identity sees of a kind. What is changed for somebody else is
    /// not in it.
    pub fn fingerprint(&self, identity: &Identity, group: &str, resource: &str) -> Fingerprint {
        let concerns = |rule: &Rule| match rule {
            Rule::Everything => true,
            Rule::Resource { group: of, resource: name, .. } => *of == group && *name == resource,
            Rule::Description { .. } => false,
        };
        let held = self.held_by(identity).filter(|(_, grant)| concerns(&grant.rule));
        Fingerprint {
            grants: held.map(|(index, _)| index).collect(),
            name: identity.name.clone(),
            uid: identity.uid.clone(),
            groups: identity.groups.clone(),
            scoped: identity.scoped,
        }
    }

    fn held_by<'a>(&'a self, identity: &'a Identity) -> impl Iterator<Item = (usize, &'a Grant)> {
        let held = |grant: &Grant| {
            (grant.whatever_the_scope || !identity.scoped) && identity.is_in(grant.group)
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
    fn masters_may_do_everything_and_others_only_what_is_open_to_all() {
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
    fn every_caller_may_ask_who_they_are_and_read_the_description() {
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
    fn a_scope_takes_everything_else_away() {
        let scoped = Identity { scoped: true, ..identity(&["system:masters"]) };
        for question in [on("get", "sharedsecrets", "s1"), on("createkey", "users", "ada")] {
            assert_eq!(Policy::built_in().decide(&scoped, &question), Decision::Deny);
        }
        assert!(!Policy::built_in().may_hold_single_objects(&scoped));
    }

    #[test]
    fn a_fingerprint_changes_with_what_decides_and_with_nothing_else() {
        let policy = Policy::built_in();
        let of = |identity: &Identity| policy.fingerprint(identity, "g", "r");
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
