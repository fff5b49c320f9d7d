//! Requests that stand for all that a rule or an entry of a scope can match. They have its own values.
//! For an empty field or a star, they have some values that occur nowhere else.

use crate::reference_model::own::OURS;
use crate::reference_model::rbac;
use crate::reference_model::world::{
    Request, Rule, Scope, ScopeResources, ScopeRule, Target, World,
};

/// Requests that stand for all that a rule of a role gives in a namespace, or everywhere.
pub(crate) fn of_rule(rule: &Rule, namespace: Option<&str>) -> Vec<Request> {
    let mut all = Vec::new();
    for verb in starred(&rule.verbs, &["get", "create", "zverb"]) {
        if namespace.is_none() {
            for entry in &rule.non_resource_urls {
                let cut = entry.trim_end_matches('*');
                let paths = if entry.ends_with('*') {
                    vec![cut.to_owned(), format!("{cut}/z")]
                } else {
                    vec![entry.clone()]
                };
                let request =
                    |path: String| Request { verb: verb.clone(), path, ..Request::default() };
                all.extend(paths.into_iter().filter(|path| !path.is_empty()).map(request));
            }
        }
        for group in starred(&rule.api_groups, &["", OURS, "zgroup"]) {
            for resource in rule.resources.iter().flat_map(|entry| of_resource_entry(entry)) {
                of_objects(rule, namespace, (&verb, &group, &resource), &mut all);
            }
        }
    }
    all.retain(|request| rbac::matches(rule, request));
    all
}

fn of_objects(
    rule: &Rule,
    namespace: Option<&str>,
    (verb, group, (resource, subresource)): (&str, &str, &(String, String)),
    all: &mut Vec<Request>,
) {
    let names = listed(&rule.resource_names, &["", "a", "zname"]);
    let has_namespaces = crate::reference_model::sets::has_namespaces(group, resource);
    let namespaces = namespace.map_or_else(|| vec!["", "default", "znamespace"], |one| vec![one]);
    for name in names {
        for namespace in &namespaces {
            // Only one that there can be: a kind without namespaces has none.
            if has_namespaces == Some(false) && !namespace.is_empty() {
                continue;
            }
            all.push(Request {
                verb: verb.to_owned(),
                group: group.to_owned(),
                resource: resource.clone(),
                subresource: subresource.clone(),
                namespace: (*namespace).to_owned(),
                name: name.clone(),
                ..Request::default()
            });
        }
    }
}

fn starred(values: &[String], for_star: &[&str]) -> Vec<String> {
    if values.iter().any(|value| value == "*") {
        return for_star.iter().map(|value| (*value).to_owned()).collect();
    }
    values.to_vec()
}

fn listed(values: &[String], for_none: &[&str]) -> Vec<String> {
    if values.is_empty() {
        for_none.iter().map(|value| (*value).to_owned()).collect()
    } else {
        values.to_vec()
    }
}

fn of_resource_entry(entry: &str) -> Vec<(String, String)> {
    let pair = |resource: &str, subresource: &str| (resource.to_owned(), subresource.to_owned());
    match entry.split_once('/') {
        None if entry == "*" => {
            let pods = vec![
                pair("pods", ""),
                pair("pods", "exec"),
                pair("users", ""),
                pair("projects", ""),
                pair("namespaces", ""),
            ];
            pods.into_iter()
                .chain([pair("zres", ""), pair("zres", "zsub"), pair("zres", "scale")])
                .collect()
        }
        None => vec![pair(entry, "")],
        Some(("*", subresource)) => vec![pair("pods", subresource), pair("zres", subresource)],
        Some((resource, "*")) => {
            vec![pair(resource, "zsub"), pair(resource, "scale"), pair(resource, "exec")]
        }
        Some((resource, subresource)) => vec![pair(resource, subresource)],
    }
}

/// Requests that stand for all that a scope can match.
pub(crate) fn of_scope(world: &World, scope: &Scope) -> Vec<Request> {
    let mut all = Vec::new();
    for project in &scope.projects {
        of_project(world, project, &mut all);
    }
    for (project, name) in &scope.spaces {
        of_instance(world, (project, name), "spaceinstances", &mut all);
    }
    for (project, name) in &scope.virtual_clusters {
        of_instance(world, (project, name), "virtualclusterinstances", &mut all);
    }
    if scope.allow_platform_cli {
        for resource in ["projects", "clusters", "virtualclusterinstances", "spaceinstances"] {
            all.push(resource_request("list", OURS, resource, ("", "")));
            all.push(resource_request("get", OURS, resource, ("", "zname")));
        }
    }
    for rule in &scope.rules {
        of_scope_rule(rule, &mut all);
    }
    all.extend(discovery(&all));
    all
}

/// Discovery at every target of these requests.
fn discovery(of: &[Request]) -> Vec<Request> {
    let mut targets: Vec<_> = of.iter().map(|request| request.target.clone()).collect();
    targets.sort();
    targets.dedup();
    let (verb, path) = ("get".to_owned(), "/apis".to_owned());
    let ask = Request { verb, path, description: true, ..Request::default() };
    targets.into_iter().map(|target| Request { target, ..ask.clone() }).collect()
}

fn resource_request(
    verb: &str,
    group: &str,
    resource: &str,
    (namespace, name): (&str, &str),
) -> Request {
    let text = str::to_owned;
    let (verb, group, resource) = (text(verb), text(group), text(resource));
    Request {
        verb,
        group,
        resource,
        namespace: text(namespace),
        name: text(name),
        ..Request::default()
    }
}

fn of_project(world: &World, project: &str, all: &mut Vec<Request>) {
    let names = starred(&[project.to_owned()], &["one", "zproject"]);
    for project in &names {
        all.push(resource_request("get", OURS, "projects", ("", project)));
        let migrate = "migratevirtualclusterinstance".to_owned();
        let object = resource_request("create", OURS, "projects", ("", project));
        all.push(Request { subresource: migrate, ..object });
        let object = resource_request("get", "", "pods", ("default", "a"));
        let (project, name) = (project.clone(), "zname".to_owned());
        let target = Target::ProjectSpace { project: project.clone(), name: name.clone() };
        all.push(Request { target, ..object.clone() });
        all.push(Request { target: Target::ProjectVirtualCluster { project, name }, ..object });
    }
    for namespace in &world.namespaces {
        if !namespace.project.is_empty() && (project == "*" || namespace.project == project) {
            all.push(resource_request("zverb", "zgroup", "zres", (&namespace.name, "zname")));
        }
    }
}

fn of_instance(
    world: &World,
    (project, name): (&str, &str),
    resource: &str,
    all: &mut Vec<Request>,
) {
    for name in starred(&[name.to_owned()], &["red", "zname"]) {
        for namespace in world.namespaces.iter().filter(|one| one.project == project) {
            all.push(resource_request("watch", OURS, resource, (&namespace.name, &name)));
        }
        let project = project.to_owned();
        let target = if resource == "spaceinstances" {
            Target::ProjectSpace { project, name }
        } else {
            Target::ProjectVirtualCluster { project, name }
        };
        all.push(Request { target, ..resource_request("get", "", "pods", ("default", "a")) });
    }
}

fn of_scope_rule(rule: &ScopeRule, all: &mut Vec<Request>) {
    let mut whats = Vec::new();
    if rule.resources.is_empty() {
        for path in listed(&rule.non_resource_urls, &["/zpath"]) {
            let path =
                path.strip_suffix("/*").map_or(path.clone(), |before| format!("{before}/zstep"));
            whats.push(Request { path, ..Request::default() });
        }
    }
    if rule.non_resource_urls.is_empty() {
        let any = [
            ScopeResources::default(),
            ScopeResources { group: "zgroup".to_owned(), ..ScopeResources::default() },
            ScopeResources { group: OURS.to_owned(), ..ScopeResources::default() },
        ];
        let entries = if rule.resources.is_empty() { &any[..] } else { &rule.resources };
        for entry in entries {
            of_scope_resources(rule, entry, &mut whats);
        }
    }
    for target in targets(rule) {
        for verb in starred(&listed(&rule.verbs, &["*"]), &["get", "list", "delete", "zverb"]) {
            let request = |what: &Request| Request {
                verb: verb.clone(),
                target: target.clone(),
                ..what.clone()
            };
            all.extend(whats.iter().map(request));
        }
    }
}

fn of_scope_resources(rule: &ScopeRule, entry: &ScopeResources, whats: &mut Vec<Request>) {
    let names =
        if entry.resource_names.is_empty() { &rule.resource_names } else { &entry.resource_names };
    for pattern in listed(&entry.resources, &["*"]) {
        for (resource, subresource) in of_resource_entry(&pattern) {
            for name in listed(names, &["", "a", "zname"]) {
                for namespace in listed(&rule.namespaces, &["", "default", "znamespace"]) {
                    let what = resource_request("", &entry.group, &resource, (&namespace, &name));
                    whats.push(Request { subresource: subresource.clone(), ..what });
                }
            }
        }
    }
}

fn targets(rule: &ScopeRule) -> Vec<Target> {
    let cluster = listed(std::slice::from_ref(&rule.cluster), &[]).remove(0);
    let cluster = if cluster.is_empty() { "zcluster".to_owned() } else { cluster };
    let mut all = vec![
        Target::Management,
        Target::Cluster { cluster },
        Target::ProjectSpace { project: "zproject".to_owned(), name: "zname".to_owned() },
        Target::ProjectVirtualCluster { project: "zproject".to_owned(), name: "zname".to_owned() },
    ];
    let any = [(String::new(), String::new())];
    let clusters = if rule.virtual_clusters.is_empty() { &any[..] } else { &rule.virtual_clusters };
    for (name, namespace) in clusters {
        let or = |text: &String, other: &str| {
            if text.is_empty() { other.to_owned() } else { text.clone() }
        };
        let (name, namespace) = (or(name, "zname"), or(namespace, "znamespace"));
        all.push(Target::VirtualCluster { cluster: "zcluster".to_owned(), namespace, name });
    }
    all
}
