//! The set of objects of a kind that a scope allows, found at once. It equals the scope's decisions,
//! request by request.

use postern_kinds::MANAGEMENT_V1;

use super::rule::Rule;
use super::{CLI_KINDS, Holder, READ, ScopeRules};
use crate::attributes::RequestTarget;
use crate::kind_scope::has_namespaces;
use crate::object_set::ObjectSet;
use crate::projects::Projects;

/// The objects of a kind on which a scope allows a verb.
pub(super) fn objects(
    scope: &ScopeRules,
    verb: &str,
    group: &str,
    resource: &str,
    holder: &Holder<'_>,
    projects: &Projects,
) -> ObjectSet {
    let mut set = ObjectSet { in_projects: scope.projects.all, ..ObjectSet::default() };
    for project in &scope.projects.names {
        set.namespaces.extend(projects.namespaces_of(project).map(str::to_owned));
    }
    if is_read_of_namespace(verb, group, resource) {
        set.names.extend(set.namespaces.iter().cloned());
        let all = projects.namespaces().filter(|_| scope.projects.all);
        set.names.extend(all.map(str::to_owned));
    }
    if group == MANAGEMENT_V1.group {
        if READ.contains(&verb) {
            add_entries(scope, resource, projects, &mut set);
        }
        if scope.source.allow_platform_cli {
            add_cli(verb, resource, holder, &mut set);
        }
    }
    let of_kind = scope.rules.all().iter().filter(|rule| {
        rule.has_verb(verb) && rule.is_for_resources() && rule.reaches(RequestTarget::Management)
    });
    of_kind.for_each(|rule| add_rule(rule, group, resource, &mut set));
    set.keep_possible(has_namespaces(group, resource));
    set
}

/// Whether a verb reads Namespaces. An entry of a project allows that for the project's own.
fn is_read_of_namespace(verb: &str, group: &str, resource: &str) -> bool {
    (group, resource) == ("", "namespaces") && READ.contains(&verb)
}

/// Adds what entries of projects, spaces and virtual clusters allow to read.
fn add_entries(scope: &ScopeRules, resource: &str, projects: &Projects, set: &mut ObjectSet) {
    if resource == "projects" {
        set.names.extend(scope.projects.names.iter().map(ToString::to_string));
        if scope.projects.all {
            set.namespaces.insert(String::new());
        }
    }
    for (project, names) in scope.instances_of(resource).into_iter().flatten() {
        for namespace in projects.namespaces_of(project) {
            if names.all {
                set.namespaces.insert(namespace.to_owned());
            }
            let object = |name: &str| (namespace.to_owned(), name.to_owned());
            set.objects.extend(names.names.iter().map(|name| object(name)));
        }
    }
}

fn add_cli(verb: &str, resource: &str, holder: &Holder<'_>, set: &mut ObjectSet) {
    set.all |= matches!(verb, "get" | "list") && CLI_KINDS.contains(&resource);
    match (verb, resource) {
        ("get", "users") => set.names.extend(holder.user.map(str::to_owned)),
        ("get", "teams") => {
            set.names.extend(holder.team.map(str::to_owned));
            set.names.extend(holder.teams.iter().cloned());
        }
        _ => {}
    }
}

fn add_rule(rule: &Rule, group: &str, resource: &str, set: &mut ObjectSet) {
    let mut add = |names: Option<Vec<&str>>| match (&rule.namespaces, names) {
        (None, None) => set.all = true,
        (None, Some(names)) => set.names.extend(names.into_iter().map(str::to_owned)),
        (Some(namespaces), None) => {
            set.namespaces.extend(namespaces.iter().map(ToString::to_string));
        }
        (Some(namespaces), Some(names)) => {
            for namespace in namespaces.iter() {
                let object = |name: &&str| (namespace.to_string(), (*name).to_owned());
                set.objects.extend(names.iter().map(object));
            }
        }
    };
    let Some(elements) = &rule.elements else { return add(None) };
    for element in elements.iter().filter(|element| element.matches_kind(group, resource, "")) {
        add(element.names.as_ref().map(|names| names.iter().map(|name| &**name).collect()));
    }
}

/// Whether a scope can allow anything on an object of a kind. No set of objects is built, so
/// projects that have no namespace count.
pub(super) fn can_match(
    scope: &ScopeRules,
    verb: Option<&str>,
    group: &str,
    resource: &str,
    holder: &Holder<'_>,
) -> bool {
    let is_ours = group == MANAGEMENT_V1.group;
    let may_have_namespace = has_namespaces(group, resource) != Some(false);
    let has_projects = scope.projects.all || !scope.projects.names.is_empty();
    let reads = verb.is_none_or(|verb| READ.contains(&verb));
    let reads_namespaces = verb.is_none_or(|verb| is_read_of_namespace(verb, group, resource));
    let is_namespaces = (group, resource) == ("", "namespaces") && reads_namespaces;
    let by_project = has_projects
        && (may_have_namespace || is_namespaces || (is_ours && resource == "projects"));
    let is_read_of_project = is_ours && resource == "projects" && !may_have_namespace && !reads;
    let by_instance = is_ours
        && reads
        && scope.instances_of(resource).is_some_and(|instances| !instances.is_empty());
    let mut cli = ObjectSet::default();
    if is_ours && scope.source.allow_platform_cli {
        for one in verb.map_or(vec!["get", "list"], |verb| vec![verb]) {
            add_cli(one, resource, holder, &mut cli);
        }
    }
    let by_rule = |rule: &Rule| {
        let of_kind = rule.elements.as_ref().is_none_or(|elements| {
            elements.iter().any(|element| match verb {
                None => element.concerns(group, resource),
                Some(_) => element.matches_kind(group, resource, ""),
            })
        });
        of_kind
            && rule.is_for_resources()
            && rule.reaches(RequestTarget::Management)
            && verb.is_none_or(|verb| rule.has_verb(verb))
            && has_possible_place(rule, has_namespaces(group, resource))
    };
    (by_project && !is_read_of_project)
        || by_instance
        || !cli.is_empty()
        || scope.rules.all().iter().any(by_rule)
}

/// Whether the namespaces of a rule are possible for a kind.
fn has_possible_place(rule: &Rule, has_namespaces: Option<bool>) -> bool {
    let Some(namespaces) = &rule.namespaces else { return true };
    match has_namespaces {
        None => true,
        Some(true) => namespaces.iter().any(|namespace| !namespace.is_empty()),
        Some(false) => namespaces.has(""),
    }
}
