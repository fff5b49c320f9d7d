//! Requests near to the permissions of a policy. Some match a rule or an entry. Others are the same
//! with one letter, level, verb, namespace, case or star changed.

use crate::reference_model::generate::{
    self, GROUPS, NAMES, NAMESPACES, PATHS, RESOURCES, SUBRESOURCES, Scene, VERBS,
};
use crate::reference_model::rng::Rng;
use crate::reference_model::world::{Owned, Request, Rule, Scope, Target};

/// A request for this scene: as it is, or a near miss.
pub(crate) fn request(rng: &mut Rng, scene: &Scene) -> Request {
    let mut request = base(rng, scene);
    let changes = [0, 0, 0, 0, 0, 0, 1, 1, 1, 2][rng.below(10)];
    for _ in 0..changes {
        change(rng, &mut request);
    }
    request
}

fn base(rng: &mut Rng, scene: &Scene) -> Request {
    let seed = scene.seeds[rng.below(scene.seeds.len())].clone();
    match rng.below(10) {
        0..=5 => seed,
        6 => to_what_is_owned(rng, scene, seed),
        7 => from_a_role(rng, scene, seed),
        8 => from_a_scope(rng, scene, seed),
        _ => generate::any_request(rng),
    }
}

/// Moves the request to an object that has an owner, or to a possible subresource of it.
fn to_what_is_owned(rng: &mut Rng, scene: &Scene, request: Request) -> Request {
    if scene.world.owned.is_empty() || request.is_path() {
        return request;
    }
    let owned = scene.world.owned[rng.below(scene.world.owned.len())].clone();
    let Owned { group, resource, namespace, name, .. } = owned;
    let subresource = rng.text(&["", "", "status", "accesskeys"]);
    Request { group, resource, subresource, namespace, name, ..request }
}

/// Moves the request to another verb, resource or name of a rule of a role.
fn from_a_role(rng: &mut Rng, scene: &Scene, mut request: Request) -> Request {
    let rules: Vec<&Rule> = scene.world.roles.iter().flat_map(|role| &role.rules).collect();
    if rules.is_empty() || request.is_path() {
        return request;
    }
    let rule = rules[rng.below(rules.len())];
    set(rng, &rule.verbs, &mut request.verb);
    set(rng, &rule.api_groups, &mut request.group);
    set_resource(rng, &rule.resources, &mut request);
    set(rng, &rule.resource_names, &mut request.name);
    request
}

/// Moves the request to the object of an entry of a scope.
fn from_a_scope(rng: &mut Rng, scene: &Scene, mut request: Request) -> Request {
    if scene.caller.scopes.is_empty() {
        return request;
    }
    let scope = &scene.caller.scopes[rng.below(scene.caller.scopes.len())];
    if !scope.rules.is_empty() && rng.percent(70) {
        return from_a_scope_rule(rng, scope, request);
    }
    let its: Vec<_> = scope.spaces.iter().chain(&scope.virtual_clusters).collect();
    if !its.is_empty() {
        let (project, name) = its[rng.below(its.len())];
        let names = [name.clone()];
        set(rng, &names, &mut request.name);
        request.resource = rng.text(&["spaceinstances", "virtualclusterinstances"]);
        crate::reference_model::own::OURS.clone_into(&mut request.group);
        request.path.clear();
        let of_project =
            scene.world.namespaces.iter().find(|namespace| namespace.project == *project);
        if let Some(namespace) = of_project {
            request.namespace.clone_from(&namespace.name);
        }
    }
    request
}

fn from_a_scope_rule(rng: &mut Rng, scope: &Scope, mut request: Request) -> Request {
    let rule = &scope.rules[rng.below(scope.rules.len())];
    set(rng, &rule.verbs, &mut request.verb);
    set(rng, &rule.namespaces, &mut request.namespace);
    if let Some(path) = rule.non_resource_urls.first() {
        return Request {
            path: path.replace('*', "x"),
            verb: request.verb,
            target: request.target,
            ..Request::default()
        };
    }
    if !rule.resources.is_empty() && !request.is_path() {
        let entry = &rule.resources[rng.below(rule.resources.len())];
        request.group.clone_from(&entry.group);
        set_resource(rng, &entry.resources, &mut request);
        set(rng, &entry.resource_names, &mut request.name);
    }
    request
}

/// Takes one of the values, if there is one that is no star.
fn set(rng: &mut Rng, values: &[String], to: &mut String) {
    if !values.is_empty() {
        let value = &values[rng.below(values.len())];
        if value != "*" {
            to.clone_from(value);
        }
    }
}

fn set_resource(rng: &mut Rng, resources: &[String], request: &mut Request) {
    let mut whole = String::new();
    set(rng, resources, &mut whole);
    if whole.is_empty() {
        return;
    }
    let (resource, subresource) = whole.split_once('/').unwrap_or((&whole, ""));
    let or =
        |value: &str, other: &str| if value == "*" { other.to_owned() } else { value.to_owned() };
    request.resource = or(resource, "pods");
    request.subresource = or(subresource, "exec");
}

/// Changes one thing.
pub(crate) fn change(rng: &mut Rng, request: &mut Request) {
    if request.is_path() {
        return change_path(rng, request);
    }
    match rng.below(9) {
        0 => change_text(rng, &mut request.verb, VERBS),
        1 => change_text(rng, &mut request.group, GROUPS),
        2 => change_text(rng, &mut request.resource, RESOURCES),
        3 => change_level(rng, request),
        4..=5 => change_text(rng, &mut request.namespace, NAMESPACES),
        6 => change_text(rng, &mut request.name, NAMES),
        7 => request.name.clear(),
        _ => change_target(rng, request),
    }
    if request.resource.is_empty() {
        "pods".clone_into(&mut request.resource);
    }
}

fn change_path(rng: &mut Rng, request: &mut Request) {
    match rng.below(5) {
        0 => request.path = rng.text(PATHS),
        1 => change_text(rng, &mut request.verb, VERBS),
        2 => request.path.push_str(rng.pick(&["/", "x", "*", "/x"])),
        3 => request.description = !request.description,
        _ => change_target(rng, request),
    }
    if request.path.is_empty() {
        "/".clone_into(&mut request.path);
    }
}

/// A subresource for the object, or the object for a subresource.
fn change_level(rng: &mut Rng, request: &mut Request) {
    if request.subresource.is_empty() || rng.percent(40) {
        request.subresource = rng.text(SUBRESOURCES);
    } else {
        request.subresource.clear();
    }
}

fn change_target(rng: &mut Rng, request: &mut Request) {
    let (letter, other) = (rng.percent(50), rng.text(NAMES));
    match &mut request.target {
        Target::ProjectSpace { project, name }
        | Target::ProjectVirtualCluster { project, name } => {
            if letter {
                change_text(rng, project, generate::PROJECTS);
            } else {
                *name = other;
            }
        }
        Target::Cluster { cluster } => change_text(rng, cluster, generate::CLUSTERS),
        Target::VirtualCluster { name, namespace, .. } => {
            if letter {
                change_text(rng, namespace, NAMESPACES);
            } else {
                *name = other;
            }
        }
        target @ Target::Management => {
            if rng.percent(30) {
                *target = generate::target(rng);
            }
        }
    }
}

/// Another word, another case, one letter more or less, a star, a blank, or nothing.
pub(crate) fn change_text(rng: &mut Rng, text: &mut String, words: &[&str]) {
    match rng.below(9) {
        0..=2 => *text = rng.text(words),
        3 => *text = text.to_uppercase(),
        4 => {
            text.pop();
        }
        5 => text.push(char::from(b'a' + u8::try_from(rng.below(26)).unwrap())),
        6 => "*".clone_into(text),
        7 => text.push(' '),
        _ => text.clear(),
    }
}
