//! The permissions of a scope (`docs/reference/scopes.md`), one sentence a function.

use postern_kinds::ResourceScope;

use crate::reference_model::own::{self, OURS};
use crate::reference_model::world::{
    Caller, Request, Scope, ScopeResources, ScopeRule, Target, World,
};

/// A scope allows the requests that any of its entries allows, and those that need no entry: here,
/// and at each target that it reaches. An empty scope allows nothing else.
pub(crate) fn allows(world: &World, caller: &Caller, scope: &Scope, request: &Request) -> bool {
    (own::whatever_the_scope(caller, request) && reaches(scope, &request.target))
        || entries_allow(world, caller, scope, request)
}

/// A request is allowed if any of the entries allows it.
pub(crate) fn entries_allow(
    world: &World,
    caller: &Caller,
    scope: &Scope,
    request: &Request,
) -> bool {
    scope.projects.iter().any(|project| project_allows(world, project, request))
        || scope.spaces.iter().any(|entry| {
            instance_allows(world, entry, "spaceinstances", request)
                || is_the_space(entry, &request.target)
        })
        || scope.virtual_clusters.iter().any(|entry| {
            instance_allows(world, entry, "virtualclusterinstances", request)
                || is_the_virtual_cluster(entry, &request.target)
        })
        || scope.rules.iter().any(|rule| rule_allows(rule, request))
        || (scope.allow_platform_cli && command_line_allows(caller, request))
}

/// A scope reaches the management API, and the targets that an entry is for.
fn reaches(scope: &Scope, target: &Target) -> bool {
    *target == Target::Management
        || scope.projects.iter().any(|project| is_in_project(project, target))
        || scope.spaces.iter().any(|entry| is_the_space(entry, target))
        || scope.virtual_clusters.iter().any(|entry| is_the_virtual_cluster(entry, target))
        || scope.rules.iter().any(|rule| is_valid(rule) && is_for_target(rule, target))
}

/// A project gives the Project object to read and its subresources, everything in its namespaces, and its
/// spaces and virtual clusters through the gateway. The star is all projects.
fn project_allows(world: &World, project: &str, request: &Request) -> bool {
    if request.target != Target::Management {
        return is_in_project(project, &request.target);
    }
    !request.is_path()
        && (is_project_object(project, request) || is_in_namespace_of(world, project, request))
}

fn is_in_project(project: &str, target: &Target) -> bool {
    match target {
        Target::ProjectSpace { project: its, .. }
        | Target::ProjectVirtualCluster { project: its, .. } => entry_is(project, its),
        Target::Management | Target::Cluster { .. } | Target::VirtualCluster { .. } => false,
    }
}

/// The Project object itself to read, and the subresources of one with every verb.
fn is_project_object(project: &str, request: &Request) -> bool {
    let is_object = request.group == OURS
        && request.resource == "projects"
        && request.namespace.is_empty()
        && entry_is(project, &request.name);
    match request.subresource.as_str() {
        "" => is_object && is_read(&request.verb),
        _ => is_object && !request.name.is_empty(),
    }
}

/// The project of a namespace is the one that the server has set, never read off the name.
fn is_in_namespace_of(world: &World, project: &str, request: &Request) -> bool {
    for namespace in &world.namespaces {
        let belongs = !namespace.project.is_empty() && entry_is(project, &namespace.project);
        if belongs && !request.namespace.is_empty() && namespace.name == request.namespace {
            return true;
        }
    }
    false
}

/// A space or a virtual cluster gives that one instance to read, and nothing else of the project. The
/// star is all of that project; the project is a name.
fn instance_allows(
    world: &World,
    (project, instance): &(String, String),
    resource: &str,
    request: &Request,
) -> bool {
    request.target == Target::Management
        && !request.is_path()
        && request.group == OURS
        && request.resource == resource
        && request.subresource.is_empty()
        && is_read(&request.verb)
        && entry_is(instance, &request.name)
        && project != "*"
        && is_in_namespace_of(world, project, request)
}

/// A space is reached through the gateway by its project and name.
fn is_the_space((project, space): &(String, String), target: &Target) -> bool {
    match target {
        Target::ProjectSpace { project: its, name } => project == its && entry_is(space, name),
        _ => false,
    }
}

/// A virtual cluster is reached through the gateway by its project and name.
fn is_the_virtual_cluster((project, cluster): &(String, String), target: &Target) -> bool {
    match target {
        Target::ProjectVirtualCluster { project: its, name } => {
            project == its && entry_is(cluster, name)
        }
        _ => false,
    }
}

/// The star is all; else letter by letter. No name is none, not the whole collection.
fn entry_is(entry: &str, value: &str) -> bool {
    entry == "*" || (entry == value && !entry.is_empty())
}

/// To read is to get, list or watch.
fn is_read(verb: &str) -> bool {
    ["get", "list", "watch"].contains(&verb)
}

/// The command line may read the own user and teams, get and list projects, clusters, virtual clusters
/// and spaces, and get the members and clusters of projects. Never secrets, never keys.
fn command_line_allows(caller: &Caller, request: &Request) -> bool {
    if request.target != Target::Management || request.is_path() || request.group != OURS {
        return false;
    }
    let (verb, resource) = (request.verb.as_str(), request.resource.as_str());
    let kinds = ["projects", "clusters", "virtualclusterinstances", "spaceinstances"];
    let of_kinds = match request.subresource.as_str() {
        "" => kinds.contains(&resource) && ["get", "list"].contains(&verb),
        "members" | "clusters" => resource == "projects" && verb == "get",
        _ => false,
    };
    // Impersonation does not widen a scope: the own user is the owner of the key.
    of_kinds || (!caller.impersonated && own::reads_own_user_or_team(caller, request))
}

/// Inside a rule every field that is set matches. A rule that is not valid allows nothing.
pub(crate) fn rule_allows(rule: &ScopeRule, request: &Request) -> bool {
    is_valid(rule)
        && verbs_match(rule, request)
        && resources_match(rule, request)
        && namespaces_match(rule, request)
        && paths_match(rule, request)
        && is_for_target(rule, &request.target)
}

/// The three fields about the target, all of which must match.
fn is_for_target(rule: &ScopeRule, target: &Target) -> bool {
    targets_match(rule, target)
        && cluster_matches(rule, target)
        && virtual_clusters_match(rule, target)
}

/// An empty list is every verb. So is the star, the literal for all verbs.
fn verbs_match(rule: &ScopeRule, request: &Request) -> bool {
    rule.verbs.is_empty() || rule.verbs.iter().any(|verb| verb == "*" || *verb == request.verb)
}

/// An empty list is all kinds in all groups; one that is not empty is not for paths.
fn resources_match(rule: &ScopeRule, request: &Request) -> bool {
    if rule.resources.is_empty() {
        return true;
    }
    !request.is_path()
        && rule.resources.iter().any(|entry| resources_entry_matches(rule, entry, request))
}

/// In an element the group is the group, one of the resources matches, and one of the names does. Without resources,
/// all of the group match. Without names, every name matches. A request without a name is for none. The names of the
/// rule are for all its elements.
fn resources_entry_matches(rule: &ScopeRule, entry: &ScopeResources, request: &Request) -> bool {
    let of_names = |names: &Vec<String>| {
        names.is_empty() || (!request.name.is_empty() && names.contains(&request.name))
    };
    entry.group == request.group
        && (entry.resources.is_empty()
            || entry.resources.iter().any(|pattern| pattern_matches(pattern, request)))
        && of_names(&entry.resource_names)
        && of_names(&rule.resource_names)
}

/// A plain name is that resource, `name/sub` a subresource, the star all resources and subresources,
/// `name/*` all subresources of that name, `*/sub` this subresource of all.
fn pattern_matches(pattern: &str, request: &Request) -> bool {
    if pattern == "*" {
        return true;
    }
    let Some((resource, subresource)) = pattern.split_once('/') else {
        return pattern == request.resource && request.subresource.is_empty();
    };
    if request.subresource.is_empty() {
        return false;
    }
    match (resource, subresource) {
        ("*", subresource) => subresource == request.subresource,
        (resource, "*") => resource == request.resource,
        (resource, subresource) => {
            resource == request.resource && subresource == request.subresource
        }
    }
}

/// An empty list is every namespace; the empty text is for resources that have none, not for all namespaces
/// of one that has. Paths are neither.
fn namespaces_match(rule: &ScopeRule, request: &Request) -> bool {
    if rule.namespaces.is_empty() {
        return true;
    }
    if request.is_path() || !rule.namespaces.contains(&request.namespace) {
        return false;
    }
    !request.namespace.is_empty() || has_no_namespaces(request)
}

/// Kinds of every Kubernetes cluster that have no namespaces, and that are not served here.
const OTHERS_WITHOUT: [(&str, &str); 1] = [("", "nodes")];

/// Is the request, which names no namespace, for a resource that has none? The server knows this for its own
/// kinds. Of an unknown kind, one object without a namespace has none; many may be those of all namespaces.
fn has_no_namespaces(request: &Request) -> bool {
    let kind = (request.group.as_str(), request.resource.as_str());
    for served in postern_kinds::all() {
        let info = served.info();
        if (info.version.group, info.plural) == kind {
            return info.scope == ResourceScope::Cluster;
        }
    }
    let of_many = ["list", "watch", "deletecollection"].contains(&request.verb.as_str());
    OTHERS_WITHOUT.contains(&kind) || !of_many
}

/// An empty list is every path; one that is not empty is not for resources.
fn paths_match(rule: &ScopeRule, request: &Request) -> bool {
    rule.non_resource_urls.is_empty()
        || (request.is_path()
            && rule.non_resource_urls.iter().any(|entry| path_matches(entry, &request.path)))
}

/// A wildcard is the full, final step of a path; else the path is the entry. An entry with a star elsewhere
/// is for no path.
fn path_matches(entry: &str, path: &str) -> bool {
    if let Some(before) = entry.strip_suffix("/*") {
        let rest = path.strip_prefix(before);
        return !before.contains('*') && rest.is_some_and(|rest| rest.starts_with('/'));
    }
    !entry.contains('*') && entry == path
}

/// An empty list is every target. A text that is no target is for none.
fn targets_match(rule: &ScopeRule, target: &Target) -> bool {
    let name = match target {
        Target::Management => "Management",
        Target::Cluster { .. } => "Cluster",
        Target::VirtualCluster { .. } => "VirtualCluster",
        Target::ProjectSpace { .. } => "ProjectSpace",
        Target::ProjectVirtualCluster { .. } => "ProjectVirtualCluster",
    };
    rule.request_targets.is_empty() || rule.request_targets.iter().any(|entry| entry == name)
}

/// When the cluster is set, only requests to this cluster match.
fn cluster_matches(rule: &ScopeRule, target: &Target) -> bool {
    match target {
        _ if rule.cluster.is_empty() => true,
        Target::Cluster { cluster } => *cluster == rule.cluster,
        _ => false,
    }
}

/// When virtual clusters are set, only requests to one of them match. An empty name is all, an empty
/// namespace all namespaces.
fn virtual_clusters_match(rule: &ScopeRule, target: &Target) -> bool {
    if rule.virtual_clusters.is_empty() {
        return true;
    }
    let Target::VirtualCluster { namespace: its_namespace, name: its_name, .. } = target else {
        return false;
    };
    rule.virtual_clusters.iter().any(|(name, namespace)| {
        (name.is_empty() || name == its_name)
            && (namespace.is_empty() || namespace == its_namespace)
    })
}

/// Names of objects without resources, and resources next to paths, are 422. A stored rule of that
/// kind allows nothing. (An overlap under a wildcard is also 422, but its meaning is clear.)
fn is_valid(rule: &ScopeRule) -> bool {
    let names_alone = !rule.resource_names.is_empty() && rule.resources.is_empty();
    let both = !rule.resources.is_empty() && !rule.non_resource_urls.is_empty();
    !names_alone && !both
}
