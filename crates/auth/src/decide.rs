//! May they? The one place where access is decided.
//!
//! So far: members of `system:masters` may do everything; everyone may ask who he is and read the
//! API's description; users and teams may manage their own access keys (decision 3). A key with a
//! scope may do what everyone may, and nothing else. Deny is the default, and stays it.

use postern_kinds::selves::SelfKind;
use postern_kinds::{AnyKind as _, MANAGEMENT_V1, Right};

use crate::identity::{AUTHENTICATED_GROUP, Identity, MASTERS_GROUP};

/// Rights on a user or team that concern his keys; everyone holds them on himself.
const KEY_VERBS: [&str; 4] = ["createkey", "getkey", "updatekey", "deletekey"];

/// What a request wants, taken from the *parsed* request, never from its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attributes<'a> {
    /// Something done to a resource.
    Resource {
        /// The verb, as access rules spell it.
        verb: &'a str,
        /// The API group; empty for the core group.
        group: &'a str,
        /// The plural name.
        resource: &'a str,
        /// What is reached behind the object; empty for the object itself.
        subresource: &'a str,
        /// The namespace; empty when the resource has none, or all are meant.
        namespace: &'a str,
        /// The object's name; empty when none is named.
        name: &'a str,
    },
    /// A description of the API: discovery, `OpenAPI`, the version.
    Description {
        /// The HTTP method in small letters.
        verb: &'a str,
        /// The path.
        path: &'a str,
    },
    /// Any other path that is no resource.
    Path {
        /// The HTTP method in small letters.
        verb: &'a str,
        /// The path.
        path: &'a str,
    },
}

impl<'a> From<&'a Right> for Attributes<'a> {
    fn from(right: &'a Right) -> Self {
        Attributes::Resource {
            verb: right.verb,
            group: right.group,
            resource: right.resource,
            subresource: &right.subresource,
            namespace: &right.namespace,
            name: &right.name,
        }
    }
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// They may.
    Allow,
    /// They may not.
    Deny,
}

/// Decides. Pure: the same question has the same answer everywhere.
pub fn decide(identity: &Identity, attributes: &Attributes<'_>) -> Decision {
    let master = !identity.scoped && identity.is_in(MASTERS_GROUP);
    let open = identity.is_in(AUTHENTICATED_GROUP) && is_open_to_all(attributes);
    if master || open || concerns_own_keys(identity, attributes) {
        Decision::Allow
    } else {
        Decision::Deny
    }
}

/// May the identity do anything at all to single objects, where it may not do it to all? Where
/// this is false, a list is refused instead of being empty.
pub fn may_reach_single_objects(identity: &Identity) -> bool {
    !identity.scoped && identity.is_in(AUTHENTICATED_GROUP)
}

/// What whoever has a key may do with it, whatever its scope (decision 4).
fn is_open_to_all(attributes: &Attributes<'_>) -> bool {
    match attributes {
        Attributes::Description { verb, .. } => matches!(*verb, "get" | "head"),
        Attributes::Resource { verb, group, resource, .. } => {
            let info = SelfKind.info();
            *group == info.version.group
                && *resource == info.plural
                && matches!(*verb, "create" | "get")
        }
        Attributes::Path { .. } => false,
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

/// Why not, in kube-apiserver's words.
pub fn refusal_text(identity: &Identity, attributes: &Attributes<'_>) -> String {
    let user = &identity.name;
    match attributes {
        Attributes::Resource { verb, group, resource, subresource, namespace, .. } => {
            let place = if namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace \"{namespace}\"")
            };
            let slash = if subresource.is_empty() { "" } else { "/" };
            let scope = if identity.scoped {
                ": the scope of the access key does not allow it"
            } else {
                ""
            };
            format!(
                "User \"{user}\" cannot {verb} resource \"{resource}{slash}{subresource}\" in API \
                 group \"{group}\" {place}{scope}"
            )
        }
        Attributes::Description { verb, path } | Attributes::Path { verb, path } => {
            format!("User \"{user}\" cannot {verb} path \"{path}\"")
        }
    }
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
    fn masters_may_everything_and_others_nothing_but_the_open() {
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
            assert_eq!(decide(&identity(&["system:masters"]), question), Decision::Allow);
            for groups in [&[][..], &["system:authenticated"], &["system:masters2"]] {
                assert_eq!(decide(&identity(groups), question), Decision::Deny, "{question:?}");
            }
        }
    }

    #[test]
    fn everyone_who_is_somebody_may_ask_who_he_is_and_read_the_description() {
        let questions = [
            on("create", "selves", ""),
            on("get", "selves", "me"),
            Attributes::Description { verb: "get", path: "/apis" },
        ];
        for question in &questions {
            for scoped in [false, true] {
                let identity = Identity { scoped, ..identity(&["system:authenticated"]) };
                assert_eq!(decide(&identity, question), Decision::Allow, "{question:?}");
            }
            let nobody = identity(&["system:unauthenticated"]);
            assert_eq!(decide(&nobody, question), Decision::Deny, "{question:?}");
            assert!(!may_reach_single_objects(&nobody));
        }
    }

    #[test]
    fn own_keys_are_in_own_hands() {
        let team = Identity { user: None, team: Some("red".to_owned()), ..identity(&[]) };
        for verb in KEY_VERBS {
            assert_eq!(decide(&identity(&[]), &on(verb, "users", "ada")), Decision::Allow);
            assert_eq!(decide(&identity(&[]), &on(verb, "users", "")), Decision::Deny);
            assert_eq!(decide(&team, &on(verb, "teams", "red")), Decision::Allow);
            assert_eq!(decide(&team, &on(verb, "users", "ada")), Decision::Deny);
        }
    }

    #[test]
    fn a_scope_takes_everything_else_away() {
        let scoped = Identity { scoped: true, ..identity(&["system:masters"]) };
        for question in [on("get", "sharedsecrets", "s1"), on("createkey", "users", "ada")] {
            assert_eq!(decide(&scoped, &question), Decision::Deny);
        }
        assert!(!may_reach_single_objects(&scoped));
    }

    #[test]
    fn refusals_are_worded_as_upstream() {
        let named = |namespace| Attributes::Resource {
            verb: "get",
            group: "management.platform.sh",
            resource: "sharedsecrets",
            subresource: "",
            namespace,
            name: "s1",
        };
        assert_eq!(
            refusal_text(&identity(&[]), &named("default")),
            "User \"ada\" cannot get resource \"sharedsecrets\" in API group \
             \"management.platform.sh\" in the namespace \"default\""
        );
        assert!(refusal_text(&identity(&[]), &named("")).ends_with("at the cluster scope"));
    }
}
