//! Whether an identity holds all that rules would give. Kubernetes asks this of the author of a role
//! or a binding: no caller gives permissions that they do not have
//! (`docs/reference/access-rules.md#no-escalation`).

use std::collections::BTreeMap;

use postern_kinds::rbac::PolicyRule;

use super::Policy;
use crate::attributes::{Attributes, Request};
use crate::identity::{Identity, MASTERS_GROUP};
use crate::implicit_rights;
use crate::kind_scope::has_namespaces;
use crate::rbac::rule::ResourceQuery;
use crate::scope::Location;

/// The maximum number of combinations of verbs, groups, resources and names of all rules together:
/// each is checked. A rule that is held at once, by an identity that may do everything, is not
/// counted.
pub const MAX_COMBINATIONS: usize = 1 << 16;

/// How many rules are returned of those that are not held.
const MAX_MISSING: usize = 100;

/// Why an identity may not give rules to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotCovered {
    /// It does not hold these: at most a hundred rules.
    Missing(Vec<PolicyRule>),
    /// The rules have more than [`MAX_COMBINATIONS`] combinations. They are not compared with the
    /// permissions of the identity.
    TooMany,
}

/// One combination of a rule: a verb on a resource, or on a path.
#[derive(Clone, Copy, Debug)]
pub(super) enum Atom<'a> {
    /// On a resource, with its subresource after a slash; `None` for every name.
    Resource { verb: &'a str, group: &'a str, resource: &'a str, name: Option<&'a str> },
    /// On a path, or a pattern of paths.
    Path { verb: &'a str, path: &'a str },
}

/// How many combinations a rule has.
pub(super) fn combinations(rule: &PolicyRule) -> usize {
    let lengths = [rule.api_groups.len(), rule.resources.len(), rule.resource_names.len().max(1)];
    let paths = rule.verbs.len().saturating_mul(rule.non_resource_urls.len());
    lengths.into_iter().fold(rule.verbs.len(), usize::saturating_mul).saturating_add(paths)
}

/// Calls a function with each combination of a rule.
pub(super) fn each_atom<'a>(rule: &'a PolicyRule, mut found: impl FnMut(Atom<'a>)) {
    let names: Vec<Option<&str>> = if rule.resource_names.is_empty() {
        vec![None]
    } else {
        rule.resource_names.iter().map(|name| Some(name.as_str())).collect()
    };
    for verb in &rule.verbs {
        for path in &rule.non_resource_urls {
            found(Atom::Path { verb, path });
        }
        for group in &rule.api_groups {
            for resource in &rule.resources {
                for &name in &names {
                    found(Atom::Resource { verb, group, resource, name });
                }
            }
        }
    }
}

/// Combinations, written as rules again: those that differ in their verbs alone are one.
#[derive(Default)]
pub(super) struct Collected<'a> {
    verbs: BTreeMap<(&'a str, &'a str, Option<&'a str>, &'a str), Vec<&'a str>>,
}

impl<'a> Collected<'a> {
    pub(super) fn add(&mut self, atom: Atom<'a>) {
        let (key, verb) = match atom {
            Atom::Resource { verb, group, resource, name } => ((group, resource, name, ""), verb),
            Atom::Path { verb, path } => (("", "", None, path), verb),
        };
        self.verbs.entry(key).or_default().push(verb);
    }

    pub(super) fn into_rules(self) -> impl Iterator<Item = PolicyRule> {
        self.verbs.into_iter().map(|((group, resource, name, path), verbs)| {
            let verbs = verbs.into_iter().map(str::to_owned).collect();
            if !path.is_empty() {
                let non_resource_urls = vec![path.to_owned()];
                return PolicyRule { verbs, non_resource_urls, ..PolicyRule::default() };
            }
            PolicyRule {
                verbs,
                api_groups: vec![group.to_owned()],
                resources: vec![resource.to_owned()],
                resource_names: name.into_iter().map(str::to_owned).collect(),
                ..PolicyRule::default()
            }
        })
    }
}

impl Policy {
    /// Checks that an identity holds all that these rules would give in a namespace, or everywhere
    /// without one, within its scopes.
    ///
    /// # Errors
    /// The rules that it does not hold, or that there are too many combinations to check.
    pub fn covers(
        &self,
        identity: &Identity,
        namespace: Option<&str>,
        rules: &[PolicyRule],
    ) -> Result<(), NotCovered> {
        let to_look_at = rules.iter().filter(|rule| !self.holds_rule_at_once(identity, rule));
        let to_look_at: Vec<&PolicyRule> = to_look_at.collect();
        let counts = to_look_at.iter().map(|rule| combinations(rule));
        if counts.fold(0, usize::saturating_add) > MAX_COMBINATIONS {
            return Err(NotCovered::TooMany);
        }
        let mut missing = Vec::new();
        for rule in to_look_at {
            let mut collected = Collected::default();
            each_atom(rule, |atom| {
                if !self.holds(identity, namespace, &atom) {
                    collected.add(atom);
                }
            });
            missing.extend(collected.into_rules().take(MAX_MISSING));
            if missing.len() >= MAX_MISSING {
                break;
            }
        }
        missing.truncate(MAX_MISSING);
        if missing.is_empty() { Ok(()) } else { Err(NotCovered::Missing(missing)) }
    }

    /// Whether an identity without a scope holds everything, so that no rule needs to be checked by combination.
    fn holds_rule_at_once(&self, identity: &Identity, rule: &PolicyRule) -> bool {
        let all = Atom::Resource { verb: "*", group: "*", resource: "*", name: None };
        !identity.is_scoped()
            && (identity.is_in(MASTERS_GROUP)
                || (rule.non_resource_urls.is_empty() && self.holds(identity, None, &all)))
    }

    /// Whether an identity has the permission of one combination of a rule. Only a wildcard covers
    /// a wildcard.
    pub(super) fn holds(
        &self,
        identity: &Identity,
        namespace: Option<&str>,
        atom: &Atom<'_>,
    ) -> bool {
        let namespace = namespace.unwrap_or_default();
        match *atom {
            Atom::Resource { verb, group, resource, name } => {
                let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
                let query = ResourceQuery { verb, group, resource, subresource, name };
                let name = name.unwrap_or_default();
                let attributes =
                    Attributes::Resource { verb, group, resource, subresource, namespace, name };
                let own = implicit_rights::right(identity, &attributes);
                (own.is_some()
                    || (self.is_owners(identity, &attributes)
                        && (!namespace.is_empty()
                            || has_namespaces(group, resource) == Some(false)))
                    || self.index.allows(identity, &query, namespace))
                    && self.scopes_hold(identity, &attributes)
            }
            Atom::Path { verb, path } => {
                let attributes = Attributes::Path { verb, path };
                self.is_held(identity, &attributes) && self.scopes_hold(identity, &attributes)
            }
        }
    }

    /// Whether the scopes allow a combination. If it holds everywhere, the scopes must allow it
    /// everywhere.
    fn scopes_hold(&self, identity: &Identity, attributes: &Attributes<'_>) -> bool {
        self.scopes_hold_at(identity, &Request::management(*attributes))
    }

    /// The same at any target.
    pub(super) fn scopes_hold_at(&self, identity: &Identity, request: &Request<'_>) -> bool {
        if identity.scopes.is_empty() {
            return true;
        }
        let attributes = &request.attributes;
        let location = match (attributes, Location::of(attributes)) {
            (Attributes::Resource { group, resource, .. }, Location::Cluster)
                if has_namespaces(group, resource).is_none() =>
            {
                Location::Everywhere
            }
            (_, location) => location,
        };
        let holder = identity.scope_holder();
        let is_open = implicit_rights::is_open(identity, attributes);
        identity.scopes.iter().all(|scope| {
            scope.allows_at(request, location, &holder, &self.projects)
                || (is_open && scope.reaches(request.target))
        })
    }
}
