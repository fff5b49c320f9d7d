//! Every subject that has a permission, with its source. It is the inverse of [`Policy::decide`]
//! for identities without a scope.

use postern_kinds::rbac::BoundSubject;

use super::Policy;
use super::explain::allows;
use crate::attributes::Attributes;
use crate::explanation::{PolicyName, Source};
use crate::identity::{AUTHENTICATED_GROUP, MASTERS_GROUP};
use crate::implicit_rights::{self, KEY_VERBS, OWN_VERBS};

/// A subject that has a permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhoCan {
    /// The subject in a binding: a user name, a group, or the user or team of a uid.
    Subject(BoundSubject),
    /// The user of this name.
    User(String),
    /// The team of this name: its keys.
    Team(String),
    /// The members of the team of this name.
    Members(String),
    /// The user, or the team with its members, that owns the object.
    Owner {
        /// The uid of the user or team.
        uid: String,
    },
}

/// A subject that has a permission, and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grantee {
    /// The subject.
    pub who: WhoCan,
    /// The source of its permission.
    pub source: Source,
}

impl Policy {
    /// Every subject that has a permission, scopes of keys aside: once for each source. Groups are one
    /// row. The cost grows with the number of bindings.
    pub fn who_can(&self, attributes: &Attributes<'_>) -> Vec<Grantee> {
        let group = |name: &str| WhoCan::Subject(BoundSubject::Group(name.to_owned()));
        let mut all = vec![Grantee { who: group(MASTERS_GROUP), source: Source::Masters }];
        let everyone = crate::identity::Identity {
            groups: vec![AUTHENTICATED_GROUP.to_owned()],
            ..Default::default()
        };
        if implicit_rights::is_open(&everyone, attributes) {
            all.push(Grantee { who: group(AUTHENTICATED_GROUP), source: Source::Everyone });
        }
        let themselves = themselves(attributes).into_iter();
        all.extend(themselves.map(|who| Grantee { who, source: Source::Themselves }));
        all.extend(self.owner_of(attributes).map(|uid| Grantee {
            who: WhoCan::Owner { uid: uid.to_owned() },
            source: Source::Owner,
        }));
        let namespace = attributes.role_namespace();
        let mut by_role: Vec<Grantee> = Vec::new();
        for (key, facts, role) in self.index.bindings() {
            let counts = match key.namespace.as_deref() {
                None => true,
                Some(of) => of == namespace && !attributes.is_path(),
            };
            let rule = counts
                .then(|| role.rules().iter().position(|rule| allows(rule, attributes)))
                .flatten();
            let Some(rule) = rule else { continue };
            by_role.extend(facts.subjects.iter().map(|subject| Grantee {
                who: WhoCan::Subject(subject.clone()),
                source: Source::Role {
                    binding: key.to_name(),
                    role: role.key.to_name(),
                    rule,
                    subject: subject.clone(),
                },
            }));
        }
        by_role.sort_by_cached_key(|grantee| match &grantee.source {
            Source::Role { binding, subject, .. } => Some((subject.clone(), binding.clone())),
            _ => None::<(_, PolicyName)>,
        });
        by_role.dedup();
        all.extend(by_role);
        all
    }
}

/// The users and teams that have the permission because the request is about themselves.
fn themselves(attributes: &Attributes<'_>) -> Vec<WhoCan> {
    let Attributes::Resource { verb, group, resource, subresource, namespace, name } = *attributes
    else {
        return Vec::new();
    };
    let (is_own, is_key) = (OWN_VERBS.contains(&verb), KEY_VERBS.contains(&verb));
    let is_about_one = group == postern_kinds::MANAGEMENT_V1.group
        && subresource.is_empty()
        && namespace.is_empty()
        && !name.is_empty();
    match resource {
        "users" if is_about_one && (is_own || is_key) => vec![WhoCan::User(name.to_owned())],
        "teams" if is_about_one && is_own => {
            vec![WhoCan::Team(name.to_owned()), WhoCan::Members(name.to_owned())]
        }
        "teams" if is_about_one && is_key => vec![WhoCan::Team(name.to_owned())],
        _ => Vec::new(),
    }
}
