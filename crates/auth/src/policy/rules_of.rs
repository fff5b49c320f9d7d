//! All rules that an identity has in a namespace, as a SelfSubjectRulesReview answers them.

use std::collections::BTreeSet;

use postern_kinds::rbac::{ALL, PolicyRule};
use postern_kinds::reviews::self_subject_rules_review::{NonResourceRule, ResourceRule, Status};
use postern_kinds::{GroupResource, MANAGEMENT_V1};

use super::Policy;
use super::covers::{Atom, Collected, combinations, each_atom};
use crate::identity::{AUTHENTICATED_GROUP, Identity, MASTERS_GROUP};
use crate::implicit_rights::{KEY_VERBS, OPEN, OWN_VERBS};
use crate::kind_scope::has_namespaces;

/// A rule with more combinations than this is left out under a scope.
const MAX_COMBINATIONS: usize = 4096;

/// The rules that an identity has in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RulesOf {
    /// The rules about resources.
    pub resource_rules: Vec<PolicyRule>,
    /// The rules about paths.
    pub non_resource_rules: Vec<PolicyRule>,
    /// Whether the identity has permissions that rules cannot express.
    pub incomplete: bool,
}

impl From<Status> for RulesOf {
    fn from(status: Status) -> Self {
        let of_resources = |rule: ResourceRule| PolicyRule {
            verbs: rule.verbs,
            api_groups: rule.api_groups,
            resources: rule.resources,
            resource_names: rule.resource_names,
            ..PolicyRule::default()
        };
        let of_paths = |rule: NonResourceRule| PolicyRule {
            verbs: rule.verbs,
            non_resource_urls: rule.non_resource_urls,
            ..PolicyRule::default()
        };
        Self {
            resource_rules: status.resource_rules.into_iter().map(of_resources).collect(),
            non_resource_rules: status.non_resource_rules.into_iter().map(of_paths).collect(),
            incomplete: status.incomplete,
        }
    }
}

impl From<RulesOf> for Status {
    fn from(rules: RulesOf) -> Self {
        let of_resources = |rule: PolicyRule| ResourceRule {
            verbs: rule.verbs,
            api_groups: rule.api_groups,
            resources: rule.resources,
            resource_names: rule.resource_names,
        };
        let of_paths = |rule: PolicyRule| NonResourceRule {
            verbs: rule.verbs,
            non_resource_urls: rule.non_resource_urls,
        };
        Self {
            resource_rules: rules.resource_rules.into_iter().map(of_resources).collect(),
            non_resource_rules: rules.non_resource_rules.into_iter().map(of_paths).collect(),
            incomplete: rules.incomplete,
            ..Self::default()
        }
    }
}

impl Policy {
    /// The rules that an identity has in a namespace, within its scopes.
    pub fn rules_of(&self, identity: &Identity, namespace: &str) -> RulesOf {
        let mut rules: BTreeSet<PolicyRule> = BTreeSet::new();
        for grants in self.index.of(identity) {
            for (of, grant) in grants.grants_in(namespace) {
                rules.extend(grant.role.source.iter().flat_map(|rule| parts(rule, of.is_none())));
            }
        }
        rules.extend(own_rules(identity));
        rules.extend(self.rules_of_owner(identity, namespace));
        // Objects without a namespace are asked for without one.
        let everywhere = self.rules_of_owner(identity, "").filter(|_| !namespace.is_empty());
        let mut all = RulesOf::default();
        if identity.is_scoped() {
            let mut allowed = BTreeSet::new();
            let mut left = MAX_COMBINATIONS;
            let here = rules.into_iter().map(|rule| (namespace, rule));
            for (namespace, rule) in here.chain(everywhere.map(|rule| ("", rule))) {
                if self.add_allowed(identity, namespace, &rule, &mut left, &mut allowed) {
                    continue;
                }
                let narrowed = self.narrowed(identity, namespace, &rule);
                all.incomplete |= !narrowed.is_complete;
                for part in narrowed.parts {
                    all.incomplete |=
                        !self.add_allowed(identity, namespace, &part, &mut left, &mut allowed);
                }
            }
            rules = allowed;
        } else {
            rules.extend(everywhere);
        }
        rules.extend(open_rules(identity));
        for rule in rules {
            if rule.non_resource_urls.is_empty() {
                all.resource_rules.push(rule);
            } else {
                all.non_resource_rules.push(rule);
            }
        }
        all
    }

    /// The rules that an identity holds as the owner of objects in a namespace, or of those without
    /// one.
    fn rules_of_owner<'a>(
        &'a self,
        identity: &'a Identity,
        namespace: &'a str,
    ) -> impl Iterator<Item = PolicyRule> + 'a {
        let has_some = move |kind: &GroupResource| {
            !namespace.is_empty() || has_namespaces(kind.group, kind.resource) == Some(false)
        };
        self.owners.kinds().filter(has_some).flat_map(move |kind| {
            let of = self.owners.of(identity, kind.group, kind.resource);
            let names = of.filter_map(move |owned| owned.get(namespace));
            names.flat_map(|names| names.keys()).map(move |name| {
                let subresources = self.owners.subresources(kind.group, kind.resource).iter();
                let subresources = subresources.map(|sub| format!("{}/{sub}", kind.resource));
                PolicyRule {
                    resources: std::iter::once(kind.resource.to_owned())
                        .chain(subresources)
                        .collect(),
                    ..on(&[ALL], kind.group, kind.resource, &[name])
                }
            })
        })
    }

    /// Adds the part of a rule that the scopes allow. Returns whether that is all of it.
    fn add_allowed(
        &self,
        identity: &Identity,
        namespace: &str,
        rule: &PolicyRule,
        left: &mut usize,
        allowed: &mut BTreeSet<PolicyRule>,
    ) -> bool {
        let Some(rest) = left.checked_sub(combinations(rule)) else { return false };
        *left = rest;
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        let mut collected = Collected::default();
        let mut is_all = true;
        each_atom(rule, |atom| {
            // Objects without a namespace are asked for without one.
            let is_held = self.holds(identity, namespace, &atom)
                || (is_cluster_scoped(&atom) && self.holds(identity, None, &atom));
            if is_held {
                collected.add(atom);
            } else {
                is_all = false;
            }
        });
        if is_all {
            allowed.insert(rule.clone());
        } else {
            allowed.extend(collected.into_rules());
        }
        is_all
    }
}

/// Whether a combination is about a kind without namespaces. A Namespace is in itself.
fn is_cluster_scoped(atom: &Atom<'_>) -> bool {
    let Atom::Resource { group, resource, .. } = *atom else { return false };
    let plural = resource.split_once('/').map_or(resource, |(plural, _)| plural);
    (group, plural) != ("", "namespaces") && has_namespaces(group, plural) == Some(false)
}

/// A rule about resources, and one about paths where its role is held everywhere.
fn parts(rule: &PolicyRule, is_everywhere: bool) -> impl Iterator<Item = PolicyRule> {
    let of_resources = PolicyRule { non_resource_urls: Vec::new(), ..rule.clone() };
    let of_paths = PolicyRule {
        verbs: rule.verbs.clone(),
        non_resource_urls: rule.non_resource_urls.clone(),
        ..PolicyRule::default()
    };
    let has_resources = !rule.resources.is_empty();
    let has_paths = is_everywhere && !rule.non_resource_urls.is_empty();
    let of_resources = has_resources.then_some(of_resources);
    of_resources.into_iter().chain(has_paths.then_some(of_paths))
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn on(verbs: &[&str], group: &str, resource: &str, names: &[&str]) -> PolicyRule {
    PolicyRule {
        verbs: texts(verbs),
        api_groups: texts(&[group]),
        resources: texts(&[resource]),
        resource_names: texts(names),
        ..PolicyRule::default()
    }
}

/// The rules that an identity has without a role, except those that are open to every identity.
fn own_rules(identity: &Identity) -> Vec<PolicyRule> {
    let mut rules = Vec::new();
    if identity.is_in(MASTERS_GROUP) {
        rules.push(on(&[ALL], ALL, ALL, &[]));
        let (verbs, non_resource_urls) = (texts(&[ALL]), texts(&[ALL]));
        rules.push(PolicyRule { verbs, non_resource_urls, ..PolicyRule::default() });
    }
    let themselves = [&OWN_VERBS[..], &KEY_VERBS].concat();
    let ours = MANAGEMENT_V1.group;
    rules.extend(identity.user.iter().map(|user| on(&themselves, ours, "users", &[user])));
    rules.extend(identity.team.iter().map(|team| on(&themselves, ours, "teams", &[team])));
    rules.extend(identity.teams.iter().map(|team| on(&OWN_VERBS, ours, "teams", &[team])));
    rules
}

/// The rules that are open to every identity.
fn open_rules(identity: &Identity) -> Vec<PolicyRule> {
    if !identity.is_in(AUTHENTICATED_GROUP) {
        return Vec::new();
    }
    OPEN.iter().map(|(group, resource, verbs)| on(verbs, group, resource, &[])).collect()
}
