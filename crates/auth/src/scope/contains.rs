//! Whether one scope is contained in another: all that it allows, the other allows as well.
//!
//! `Ok` means contained. The opposite is not true: these shapes are rejected although they may be
//! contained. For them, several entries would have to be taken together, or an entry of one form be
//! compared with a rule:
//!
//! * an entry of projects, spaces or virtualClusters, or `allowPlatformCli`, within rules, except rules
//!   that allow everything;
//! * a rule within entries, except one for the management API alone that has only namespaces of
//!   contained projects;
//! * a rule within the union of several rules, if no single rule has all of its verbs, namespaces,
//!   targets and paths. Within one rule, a resource with its names must be within one element;
//! * a rule with a namespace in which it matches nothing, as that of cluster-scoped kinds;
//! * all projects, spaces or virtual clusters (`*`) within a list of all that there are.

use std::sync::Arc;

use postern_kinds::rbac::ALL;
use postern_kinds::scope::Scope;

use super::rule::Rule;
use super::{Instances, Names, ScopeRules};
use crate::projects::Projects;

/// Checks that all that a scope allows, each of the other scopes allows as well.
///
/// # Errors
/// A text that names the first entry of which it cannot be shown.
pub fn contains(
    parents: &[Arc<ScopeRules>],
    child: &Scope,
    projects: &Projects,
) -> Result<(), String> {
    parents.iter().try_for_each(|parent| is_contained(parent, child, projects))
}

fn is_contained(parent: &ScopeRules, child: &Scope, projects: &Projects) -> Result<(), String> {
    if *child == parent.source || parent.rules.all().iter().any(Rule::is_open) {
        return Ok(());
    }
    let check = |is_contained: bool, entry: String| {
        let refused = || format!("{entry} is not within the scope of the access key");
        if is_contained { Ok(()) } else { Err(refused()) }
    };
    let cli = !child.allow_platform_cli || parent.source.allow_platform_cli;
    check(cli, "allowPlatformCli".to_owned())?;
    for (index, entry) in child.projects.iter().enumerate() {
        check(has(&parent.projects, &entry.project), format!("projects[{index}]"))?;
    }
    for (index, entry) in child.spaces.iter().enumerate() {
        let within = has_instance(parent, &parent.spaces, &entry.project, &entry.space);
        check(within, format!("spaces[{index}]"))?;
    }
    for (index, entry) in child.virtual_clusters.iter().enumerate() {
        let (project, name) = (&entry.project, &entry.virtual_cluster);
        let within = has_instance(parent, &parent.virtual_clusters, project, name);
        check(within, format!("virtualClusters[{index}]"))?;
    }
    for (index, rule) in child.rules.iter().enumerate() {
        // A rule that matches nothing is within everything.
        let Some(rule) = Rule::of(rule) else { continue };
        let by_rule = parent.rules.all().iter().any(|mine| mine.covers(&rule));
        check(by_rule || is_in_projects(parent, &rule, projects), format!("rules[{index}]"))?;
    }
    Ok(())
}

/// Whether these names contain all names of an entry, or every name.
fn has(names: &Names, name: &str) -> bool {
    if name == ALL { names.all } else { names.has(name) }
}

fn has_instance(parent: &ScopeRules, instances: &Instances, project: &str, name: &str) -> bool {
    let listed = instances.get(project).is_some_and(|names| has(names, name));
    listed || (project != ALL && !project.is_empty() && parent.projects.has(project))
}

/// Whether a rule covers only namespaces of projects that the parent has.
fn is_in_projects(parent: &ScopeRules, rule: &Rule, projects: &Projects) -> bool {
    let of_parent = |namespace: &Arc<str>| {
        projects.of(namespace).is_some_and(|project| parent.projects.has(project))
    };
    rule.is_for_management()
        && rule.namespaces.as_ref().is_some_and(|namespaces| namespaces.iter().all(of_parent))
}
