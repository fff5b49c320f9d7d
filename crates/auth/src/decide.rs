//! May they? The one place where access is decided.
//!
//! So far: members of `system:masters` may do everything, everyone else nothing. Deny is the
//! default, and stays it.

use crate::identity::{Identity, MASTERS_GROUP};

/// What a request wants, taken from the *parsed* request, never from its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attributes<'a> {
    /// Something done to a resource.
    Resource {
        /// The verb, as access rules spell it.
        verb: &'a str,
        /// The API group; empty for the core group.
        group: &'a str,
        /// The plural name.
        resource: &'a str,
        /// The namespace; empty when the resource has none, or all are meant.
        namespace: &'a str,
        /// The object's name; empty when none is named.
        name: &'a str,
    },
    /// A path that is no resource: discovery, OpenAPI, metrics.
    Path {
        /// The HTTP method in small letters.
        verb: &'a str,
        /// The path.
        path: &'a str,
    },
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// They may.
    Allow,
    /// They may not.
    Deny,
}

/// Decides. Pure: the same question has the same answer everywhere.
pub fn decide(identity: &Identity, _attributes: &Attributes<'_>) -> Decision {
    if identity.is_in(MASTERS_GROUP) { Decision::Allow } else { Decision::Deny }
}

/// Why not, in kube-apiserver's words.
pub fn refusal_text(identity: &Identity, attributes: &Attributes<'_>) -> String {
    let user = &identity.name;
    match attributes {
        Attributes::Resource { verb, group, resource, namespace, .. } => {
            let place = if namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace \"{namespace}\"")
            };
            format!(
                "User \"{user}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" \
                 {place}"
            )
        }
        Attributes::Path { verb, path } => format!("User \"{user}\" cannot {verb} path \"{path}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(groups: &[&str]) -> Identity {
        Identity {
            name: "ada".to_owned(),
            uid: String::new(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            user: Some("ada".to_owned()),
            access_key: "k".to_owned(),
        }
    }

    #[test]
    fn masters_may_everything_and_others_nothing() {
        let questions = [
            Attributes::Resource {
                verb: "get",
                group: "management.platform.sh",
                resource: "sharedsecrets",
                namespace: "default",
                name: "s1",
            },
            Attributes::Path { verb: "get", path: "/version" },
        ];
        for question in &questions {
            assert_eq!(decide(&identity(&["system:masters"]), question), Decision::Allow);
            for groups in [&[][..], &["system:authenticated"], &["system:masters2"]] {
                assert_eq!(decide(&identity(groups), question), Decision::Deny);
            }
        }
    }

    #[test]
    fn refusals_are_worded_as_upstream() {
        let named = |namespace| Attributes::Resource {
            verb: "get",
            group: "management.platform.sh",
            resource: "sharedsecrets",
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
