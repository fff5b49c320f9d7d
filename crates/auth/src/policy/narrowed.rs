//! Narrows a rule to the parts that the scopes of a key name.
//!
//! The results are candidates. The user of a candidate checks each combination. So a candidate may
//! be too wide, and never decides.

use postern_kinds::MANAGEMENT_V1;
use postern_kinds::rbac::{ALL, PolicyRule};
use postern_kinds::scope::ScopeRule;

use super::Policy;
use crate::identity::Identity;
use crate::scope::{CLI_KINDS, CLI_SUBRESOURCES, Holder, READ, ScopeRules};

/// The most candidates for one rule.
const MAX_CANDIDATES: usize = 1024;

/// The target of requests to the management API.
const MANAGEMENT: &str = "Management";

/// What scopes leave of a rule.
pub(super) struct Narrowed {
    pub(super) parts: Vec<PolicyRule>,
    /// Whether there is nothing else that they leave.
    pub(super) is_complete: bool,
}

impl Policy {
    /// The parts of a rule that the scopes of an identity name in a namespace.
    pub(super) fn narrowed(
        &self,
        identity: &Identity,
        namespace: &str,
        rule: &PolicyRule,
    ) -> Narrowed {
        let holder = identity.scope_holder();
        let mut parts = vec![rule.clone()];
        for scope in &identity.scopes {
            let named = self.rules_of_scope(scope, namespace, &holder);
            if parts.len().saturating_mul(named.len()) > MAX_CANDIDATES {
                return Narrowed { parts: Vec::new(), is_complete: false };
            }
            let meets =
                parts.iter().flat_map(|part| named.iter().filter_map(|one| meet(part, one)));
            let mut next: Vec<PolicyRule> = meets.collect();
            next.sort_unstable();
            next.dedup();
            parts = next;
        }
        let mut is_complete = true;
        for part in &mut parts {
            is_complete &= !expand_subresources(part);
        }
        Narrowed { parts, is_complete }
    }

    /// The rules that a scope names in a namespace, and without one.
    fn rules_of_scope(
        &self,
        scope: &ScopeRules,
        namespace: &str,
        holder: &Holder<'_>,
    ) -> Vec<PolicyRule> {
        let source = scope.source();
        let project = self.projects.of(namespace);
        let is_of = |name: &str| name == ALL || Some(name) == project;
        let mut rules = Vec::new();
        for entry in &source.projects {
            if project.is_some() && is_of(&entry.project) {
                rules.push(of_resources(&[ALL], ALL, &[ALL], &[]));
                rules.push(of_resources(&READ, "", &["namespaces"], &[namespace]));
            }
            let one = [entry.project.as_str()];
            let names = if entry.project == ALL { &[][..] } else { &one };
            rules.push(of_resources(&READ, MANAGEMENT_V1.group, &["projects"], names));
            rules.push(of_resources(&[ALL], MANAGEMENT_V1.group, &["projects/*"], names));
        }
        let spaces = source.spaces.iter().map(|one| ("spaceinstances", &one.project, &one.space));
        let clusters = source
            .virtual_clusters
            .iter()
            .map(|one| ("virtualclusterinstances", &one.project, &one.virtual_cluster));
        for (kind, _, name) in spaces.chain(clusters).filter(|(_, project, _)| is_of(project)) {
            let one = [name.as_str()];
            let names = if name == ALL { &[][..] } else { &one };
            rules.push(of_resources(&READ, MANAGEMENT_V1.group, &[kind], names));
        }
        if source.allow_platform_cli {
            rules.extend(rules_of_cli(holder));
        }
        rules.extend(source.rules.iter().flat_map(|rule| rules_of_rule(rule, namespace)));
        rules
    }
}

/// What `allowPlatformCli` names.
fn rules_of_cli(holder: &Holder<'_>) -> Vec<PolicyRule> {
    let ours = MANAGEMENT_V1.group;
    let of_projects = CLI_SUBRESOURCES.map(|name| format!("projects/{name}"));
    let of_projects: Vec<&str> = of_projects.iter().map(String::as_str).collect();
    let mut rules = vec![
        of_resources(&["get", "list"], ours, &CLI_KINDS, &[]),
        of_resources(&["get"], ours, &of_projects, &[]),
    ];
    rules.extend(holder.user.map(|user| of_resources(&["get"], ours, &["users"], &[user])));
    let teams = holder.team.into_iter().chain(holder.teams.iter().map(String::as_str));
    rules.extend(teams.map(|team| of_resources(&["get"], ours, &["teams"], &[team])));
    rules
}

/// The rules that a rule of a scope names in a namespace.
fn rules_of_rule(rule: &ScopeRule, namespace: &str) -> Vec<PolicyRule> {
    let reaches = rule.request_targets.is_empty()
        || rule.request_targets.iter().any(|target| target == MANAGEMENT);
    let is_there = rule.namespaces.is_empty()
        || rule.namespaces.iter().any(|one| one.is_empty() || one == namespace);
    if !reaches || !is_there || !rule.cluster.is_empty() || !rule.virtual_clusters.is_empty() {
        return Vec::new();
    }
    let verbs = if rule.verbs.is_empty() { vec![ALL.to_owned()] } else { rule.verbs.clone() };
    let paths = |non_resource_urls| PolicyRule {
        verbs: verbs.clone(),
        non_resource_urls,
        ..PolicyRule::default()
    };
    if !rule.non_resource_urls.is_empty() {
        return vec![paths(rule.non_resource_urls.clone())];
    }
    let all = PolicyRule { verbs: verbs.clone(), ..of_resources(&[], ALL, &[ALL], &[]) };
    if rule.resources.is_empty() {
        return vec![all, paths(vec![ALL.to_owned()])];
    }
    let of_element = rule.resources.iter().map(|element| PolicyRule {
        api_groups: vec![element.group.clone()],
        resources: if element.resources.is_empty() {
            vec![ALL.to_owned()]
        } else {
            element.resources.clone()
        },
        resource_names: names_in_both(&element.resource_names, &rule.resource_names),
        ..all.clone()
    });
    of_element.collect()
}

fn of_resources(verbs: &[&str], group: &str, resources: &[&str], names: &[&str]) -> PolicyRule {
    let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    PolicyRule {
        verbs: owned(verbs),
        api_groups: owned(&[group]),
        resources: owned(resources),
        resource_names: owned(names),
        ..PolicyRule::default()
    }
}

/// What two rules have in common; `None` if that is nothing.
fn meet(one: &PolicyRule, other: &PolicyRule) -> Option<PolicyRule> {
    let verbs = in_both(&one.verbs, &other.verbs, meet_text);
    let api_groups = in_both(&one.api_groups, &other.api_groups, meet_text);
    let resources = in_both(&one.resources, &other.resources, meet_resource);
    let non_resource_urls = in_both(&one.non_resource_urls, &other.non_resource_urls, meet_path);
    let resource_names = names_in_both(&one.resource_names, &other.resource_names);
    let has_names = !one.resource_names.is_empty() && !other.resource_names.is_empty();
    let has_no_object = has_names && resource_names.is_empty();
    let is_of_resources = !(api_groups.is_empty() || resources.is_empty() || has_no_object);
    let is_something = !verbs.is_empty() && (is_of_resources || !non_resource_urls.is_empty());
    is_something.then_some(PolicyRule {
        verbs,
        api_groups,
        resources,
        resource_names,
        non_resource_urls,
    })
}

/// Writes `name/*` as the known subresources: roles do not know it, and scopes do. Returns whether there was one.
fn expand_subresources(rule: &mut PolicyRule) -> bool {
    let is_pattern = |resource: &String| resource.ends_with("/*");
    let (patterns, mut resources): (Vec<_>, Vec<_>) =
        std::mem::take(&mut rule.resources).into_iter().partition(is_pattern);
    for plural in patterns.iter().filter_map(|pattern| pattern.strip_suffix("/*")) {
        let kinds = postern_kinds::all().iter().map(|kind| kind.info());
        let of_kind = kinds.filter(|info| info.plural == plural);
        let known = of_kind.flat_map(postern_kinds::Info::subresources);
        resources.extend(known.map(|subresource| format!("{plural}/{subresource}")));
    }
    resources.sort_unstable();
    resources.dedup();
    rule.resources = resources;
    !patterns.is_empty()
}

/// The common entries of two lists, pair by pair.
fn in_both(
    one: &[String],
    other: &[String],
    meet: impl Fn(&str, &str) -> Option<String>,
) -> Vec<String> {
    let pairs = one.iter().flat_map(|one| other.iter().map(move |other| (one, other)));
    let mut both: Vec<String> = pairs.filter_map(|(one, other)| meet(one, other)).collect();
    both.sort_unstable();
    both.dedup();
    both
}

/// Names of objects. An empty list is every name.
fn names_in_both(one: &[String], other: &[String]) -> Vec<String> {
    match (one, other) {
        ([], names) | (names, []) => names.to_vec(),
        _ => in_both(one, other, |one, other| (one == other).then(|| one.to_owned())),
    }
}

fn meet_text(one: &str, other: &str) -> Option<String> {
    match (one, other) {
        (ALL, text) | (text, ALL) => Some(text.to_owned()),
        _ => (one == other).then(|| one.to_owned()),
    }
}

/// Patterns of resources: `*`, `name`, `name/subresource`, `*/subresource` and `name/*`.
fn meet_resource(one: &str, other: &str) -> Option<String> {
    if one == ALL || other == ALL {
        return meet_text(one, other);
    }
    let parts = |text: &'_ str| {
        let (resource, subresource) = text.split_once('/').unwrap_or((text, ""));
        (resource.to_owned(), subresource.to_owned())
    };
    let ((one, one_sub), (other, other_sub)) = (parts(one), parts(other));
    let resource = meet_text(&one, &other)?;
    if one_sub.is_empty() || other_sub.is_empty() {
        return (one_sub == other_sub).then_some(resource);
    }
    Some(format!("{resource}/{}", meet_text(&one_sub, &other_sub)?))
}

/// Paths, of which the last step may be `*`.
fn meet_path(one: &str, other: &str) -> Option<String> {
    let is_in = |path: &str, pattern: &str| {
        pattern.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix)) || path == pattern
    };
    if is_in(one, other) {
        Some(one.to_owned())
    } else {
        is_in(other, one).then(|| other.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_patterns_have_in_common() {
        for (one, other, both) in [
            ("*", "pods", Some("pods")),
            ("pods", "*", Some("pods")),
            ("*", "pods/log", Some("pods/log")),
            ("pods", "pods/log", None),
            ("*/scale", "deployments/scale", Some("deployments/scale")),
            ("projects/*", "projects/members", Some("projects/members")),
            ("projects/*", "*/members", Some("projects/members")),
            ("pods", "secrets", None),
        ] {
            assert_eq!(meet_resource(one, other).as_deref(), both, "{one} {other}");
            assert_eq!(meet_resource(other, one).as_deref(), both, "{other} {one}");
        }
        assert_eq!(meet_path("*", "/metrics").as_deref(), Some("/metrics"));
        assert_eq!(meet_path("/a/*", "/a/b/*").as_deref(), Some("/a/b/*"));
        assert_eq!(meet_path("/a", "/b"), None);
    }
}
