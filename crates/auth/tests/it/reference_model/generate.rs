//! Random worlds, callers and scopes that are made for a few requests, and noise around them. The requests
//! that are near to what such a policy allows are made in [`crate::reference_model::near`].

use crate::reference_model::own::OURS;
use crate::reference_model::rng::Rng;
use crate::reference_model::world::{
    Binding, Caller, Namespace, Owned, Request, Role, Rule, Scope, ScopeResources, ScopeRule,
    Subject, Target, World,
};

pub(crate) const VERBS: &[&str] = &[
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "bind",
    "getkey",
    "impersonate",
];
pub(crate) const GROUPS: &[&str] = &["", OURS, "apps", "rbac.authorization.k8s.io"];
pub(crate) const RESOURCES: &[&str] = &[
    "projects",
    "sharedsecrets",
    "virtualclusterinstances",
    "spaceinstances",
    "clusters",
    "users",
    "teams",
    "secrets",
    "pods",
    "namespaces",
    "roles",
];
pub(crate) const SUBRESOURCES: &[&str] = &["status", "members", "clusters", "scale", "exec", "log"];
pub(crate) const NAMES: &[&str] = &["a", "b", "ab", "one", "two", "ada", "bob", "red"];
pub(crate) const NAMESPACES: &[&str] = &["p-one", "p-two", "p-three", "other", "default"];
pub(crate) const PROJECTS: &[&str] = &["one", "two", "three"];
pub(crate) const PATHS: &[&str] = &[
    "/metrics",
    "/metrics/",
    "/metrics/x",
    "/metrics/x/y",
    "/healthz",
    "/healthzx",
    "/apis/apps",
    "/version",
];
pub(crate) const CLUSTERS: &[&str] = &["east", "west"];
pub(crate) const GROUP_NAMES: &[&str] = &[
    "platform:team:red",
    "platform:team:blue",
    "platform:user:ada",
    "platform:user:*",
    "system:authenticated",
    "dev",
];

/// A world, a caller in it, and requests that the world was made for.
pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) caller: Caller,
    pub(crate) seeds: Vec<Request>,
}

pub(crate) fn scene(rng: &mut Rng) -> Scene {
    let namespaces = namespaces();
    let mut caller = caller(rng);
    let seeds: Vec<_> = (0..=rng.below(3)).map(|_| seed(rng, &caller)).collect();
    let mut world = World { namespaces, ..World::default() };
    for seed in &seeds {
        if rng.percent(25) {
            own(rng, &mut world, &caller, seed);
        }
        if rng.percent(90) || world.owned.is_empty() {
            grant(rng, &mut world, &caller, seed);
        }
    }
    for _ in 0..rng.below(3) {
        let other = Request { target: Target::Management, ..any_request(rng) };
        let unauthenticated = self::caller(rng);
        grant(rng, &mut world, &unauthenticated, &other);
    }
    let scopes = [0, 0, 0, 1, 1, 1, 1, 2, 3][rng.below(9)];
    if rng.percent(12) {
        grow(rng, &mut world, &caller, &seeds);
    }
    caller.impersonated = rng.percent(10);
    caller.scopes = (0..scopes).map(|_| scope(rng, &seeds)).collect();
    Scene { world, caller, seeds }
}

/// `other` belongs to a project though its name does not say so, and `p-three` to none though it does.
fn namespaces() -> Vec<Namespace> {
    [("p-one", "one"), ("p-two", "two"), ("other", "one"), ("p-three", ""), ("default", "")]
        .map(|(name, project)| Namespace { name: name.to_owned(), project: project.to_owned() })
        .to_vec()
}

/// A user (in the team red, or not), a team, or any other subject; rarely a member of `system:masters`.
pub(crate) fn caller(rng: &mut Rng) -> Caller {
    let mut caller = Caller::default();
    let everybody = ["platform:authenticated", "system:authenticated"];
    caller.groups.extend(everybody.map(str::to_owned));
    match rng.below(10) {
        0..=5 => {
            let name = rng.text(&["ada", "bob"]);
            caller.groups.push(format!("platform:user:{name}"));
            caller.groups.push("platform:user:*".to_owned());
            caller.uids.push(format!("uid-{name}"));
            if rng.percent(60) {
                caller.groups.push("platform:team:red".to_owned());
                caller.uids.push("uid-red".to_owned());
                caller.teams.push("red".to_owned());
            } else if rng.percent(30) {
                // By an impersonation: in the group, and not in the team.
                caller.groups.push("platform:team:red".to_owned());
            }
            caller.name =
                if rng.percent(80) { name.clone() } else { format!("{name}@example.com") };
            caller.user = Some(name);
        }
        6..=7 => {
            "platform:team:red".clone_into(&mut caller.name);
            caller.groups.push(caller.name.clone());
            caller.uids.push("uid-red".to_owned());
            caller.team = Some("red".to_owned());
        }
        _ => caller.name = rng.text(&["robot", "ada", "system:serviceaccount:default:ci"]),
    }
    if rng.percent(20) {
        caller.groups.push("dev".to_owned());
    }
    if rng.percent(3) {
        caller.groups.push("system:masters".to_owned());
    }
    caller
}

/// A request that the policy will be made for. Some are those that need no role.
fn seed(rng: &mut Rng, caller: &Caller) -> Request {
    if rng.percent(12) {
        return without_a_role(rng, caller);
    }
    any_request(rng)
}

fn without_a_role(rng: &mut Rng, caller: &Caller) -> Request {
    let own = caller.user.clone().unwrap_or_else(|| "ada".to_owned());
    let (verb, group, resource, name) = match rng.below(7) {
        0 => (
            rng.text(&["get", "bind", "getkey", "createkey", "updatekey", "deletekey"]),
            OURS,
            "users",
            own,
        ),
        1 => (rng.text(&["get", "bind", "getkey"]), OURS, "teams", "red".to_owned()),
        2 => (rng.text(&["get", "create"]), OURS, "selves", rng.text(&["", "self"])),
        3 => ("create".to_owned(), "authentication.k8s.io", "selfsubjectreviews", String::new()),
        4 => {
            ("create".to_owned(), "authorization.k8s.io", "selfsubjectaccessreviews", String::new())
        }
        5 => ("create".to_owned(), OURS, "directclusterendpointtokens", String::new()),
        _ => {
            let verb = rng.text(&["get", "head", "post"]);
            let path = rng.text(&["/version", "/apis", "/openapi/v3"]);
            return Request { verb, path, description: true, ..Request::default() };
        }
    };
    Request {
        verb,
        group: group.to_owned(),
        resource: resource.to_owned(),
        name,
        ..Request::default()
    }
}

/// A random request, near to real ones. Postern's kinds are mostly in its own group, and have a
/// namespace if the kind has one.
pub(crate) fn any_request(rng: &mut Rng) -> Request {
    let target = if rng.percent(80) { Target::Management } else { target(rng) };
    let verb = rng.text(VERBS);
    if rng.percent(10) {
        let description = rng.percent(20);
        return Request { target, verb, path: rng.text(PATHS), description, ..Request::default() };
    }
    let resource = rng.text(RESOURCES);
    let is_core = ["secrets", "pods", "namespaces"].contains(&resource.as_str());
    let group = match rng.below(10) {
        0 => rng.text(GROUPS),
        _ if is_core => String::new(),
        _ if resource == "roles" => "rbac.authorization.k8s.io".to_owned(),
        _ => OURS.to_owned(),
    };
    let is_cluster = ["projects", "clusters", "users", "teams"].contains(&resource.as_str());
    let namespace =
        if is_cluster == rng.percent(95) { String::new() } else { rng.text(NAMESPACES) };
    let subresource = if rng.percent(25) { rng.text(SUBRESOURCES) } else { String::new() };
    let name = match (rng.below(5), resource.as_str()) {
        (0, _) => String::new(),
        (_, "projects") => rng.text(PROJECTS),
        _ => rng.text(NAMES),
    };
    Request { target, verb, group, resource, subresource, namespace, name, ..Request::default() }
}

pub(crate) fn target(rng: &mut Rng) -> Target {
    let project = rng.text(PROJECTS);
    let name = rng.text(NAMES);
    match rng.below(4) {
        0 => Target::Cluster { cluster: rng.text(CLUSTERS) },
        1 => {
            let namespace = rng.text(NAMESPACES);
            Target::VirtualCluster { cluster: rng.text(CLUSTERS), namespace, name }
        }
        2 => Target::ProjectSpace { project, name },
        _ => Target::ProjectVirtualCluster { project, name },
    }
}

/// Adds a role that allows the request, and a binding of it to the caller; sometimes one that is
/// almost right.
fn grant(rng: &mut Rng, world: &mut World, caller: &Caller, request: &Request) {
    let number = world.bindings.len();
    let is_local = !request.namespace.is_empty() && rng.percent(55);
    let is_cluster_role = !is_local || rng.percent(50);
    let at = |local: bool| if local { request.namespace.clone() } else { String::new() };
    // The same name in several places, so that a mix-up is found.
    let name = rng.text(&["edit", "view", "edit"]);
    let taken = |role: &Role, local: bool| role.name == name && role.namespace == at(local);
    let rules = (0..=rng.below(2)).map(|_| rule(rng, request)).collect();
    match world.roles.iter_mut().find(|role| taken(role, !is_cluster_role)) {
        Some(role) => role.rules = rules,
        None => {
            world.roles.push(Role { namespace: at(!is_cluster_role), name: name.clone(), rules });
        }
    }
    let mut subjects = vec![subject(rng, caller)];
    if rng.percent(30) {
        subjects.push(Subject::Group(rng.text(GROUP_NAMES)));
    }
    if let (Some(uid), true) = (caller.uids.first().cloned(), rng.percent(15)) {
        // The same one twice, under two names.
        subjects.push(Subject::Principal { group: rng.text(GROUP_NAMES), uid: uid.clone() });
        subjects.push(Subject::Principal { group: rng.text(GROUP_NAMES), uid });
    }
    let mut namespace = at(is_local);
    if rng.percent(8) {
        namespace = rng.text(NAMESPACES);
    }
    let cluster_role = if rng.percent(4) { !is_cluster_role } else { is_cluster_role };
    world.bindings.push(Binding {
        namespace,
        name: format!("b{number}"),
        cluster_role,
        role: name,
        subjects,
    });
}

/// Gives the object of the request an owner. It is mostly the caller or a team of the caller, else another
/// owner, one that is gone, or none.
pub(crate) fn own(rng: &mut Rng, world: &mut World, caller: &Caller, request: &Request) {
    if request.is_path() || request.name.is_empty() {
        return;
    }
    let uid = match rng.below(10) {
        0 => String::new(),
        1 => "uid-gone".to_owned(),
        2 => rng.text(&["uid-ada", "uid-bob", "uid-red"]),
        _ if caller.uids.is_empty() => "uid-ada".to_owned(),
        _ => caller.uids[rng.below(caller.uids.len())].clone(),
    };
    let Request { group, resource, namespace, name, .. } = request.clone();
    let owned = Owned { group, resource, namespace, name, uid };
    put_owned(world, owned);
}

/// Sets the owner of an object.
pub(crate) fn put_owned(world: &mut World, owned: Owned) {
    world.owned.retain(|one| !crate::reference_model::real::is_same(one, &owned));
    world.owned.push(owned);
}

/// Adds many roles and bindings for one subject in one place: roles of many rules, rules of many
/// combinations and names, and roles that several bindings give. A decision may not depend on how many
/// there are.
pub(crate) fn grow(rng: &mut Rng, world: &mut World, caller: &Caller, seeds: &[Request]) {
    let subject = subject(rng, caller);
    let place = seeds[rng.below(seeds.len())].namespace.clone();
    let first = world.bindings.len();
    let count = 1 + rng.below(12);
    for number in 0..count {
        let mut rules = Vec::new();
        for _ in 0..=rng.below(7) {
            let request = if rng.percent(50) {
                any_request(rng)
            } else {
                seeds[rng.below(seeds.len())].clone()
            };
            let mut rule = rule(rng, &request);
            if rng.percent(15) {
                widen(&mut rule);
            }
            rules.push(rule);
        }
        world.roles.push(Role { namespace: String::new(), name: format!("r{number}"), rules });
    }
    for number in 0..rng.below(24) {
        let name = format!("b{}", first + number);
        let namespace = if rng.percent(85) { place.clone() } else { rng.text(NAMESPACES) };
        let role = format!("r{}", rng.below(count));
        let subjects = vec![subject.clone()];
        world.bindings.push(Binding { namespace, name, cluster_role: true, role, subjects });
    }
}

/// Gives a rule on resources many combinations.
fn widen(rule: &mut Rule) {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    if rule.non_resource_urls.is_empty() {
        rule.verbs.extend(texts(VERBS));
        rule.api_groups.extend(texts(GROUPS));
        rule.resources.extend(texts(RESOURCES));
        rule.resource_names.extend(texts(NAMES));
    }
}

/// The caller by name, by one of the groups, or by uid; sometimes a subject that looks alike.
fn subject(rng: &mut Rng, caller: &Caller) -> Subject {
    let group = |rng: &mut Rng| caller.groups[rng.below(caller.groups.len())].clone();
    match rng.below(12) {
        0..=3 => Subject::User(caller.name.clone()),
        4..=7 => Subject::Group(group(rng)),
        8..=9 if !caller.uids.is_empty() => {
            let uid = caller.uids[rng.below(caller.uids.len())].clone();
            Subject::Principal { group: group(rng), uid }
        }
        10 => Subject::Principal { group: group(rng), uid: "uid-gone".to_owned() },
        11 => Subject::Group(caller.name.clone()),
        _ => Subject::User(group(rng)),
    }
}

/// A rule that allows the request, with noise.
fn rule(rng: &mut Rng, request: &Request) -> Rule {
    let mut rule = Rule { verbs: wider(rng, &request.verb, VERBS), ..Rule::default() };
    if request.is_path() {
        rule.non_resource_urls = vec![wider_path(rng, &request.path)];
        return rule;
    }
    rule.api_groups = wider(rng, &request.group, GROUPS);
    let whole = whole(request);
    rule.resources = match rng.below(10) {
        0 => vec!["*".to_owned()],
        1 => vec![format!("*/{}", request.subresource)],
        2 => vec![format!("{}/*", request.resource)],
        3..=5 => vec![request.resource.clone(), whole],
        _ => vec![whole],
    };
    rule.resource_names = match rng.below(10) {
        0..=3 => Vec::new(),
        4 => vec!["*".to_owned(), request.name.clone()],
        5 => vec![rng.text(&["*", "a", "red"])],
        _ => vec![rng.text(NAMES), request.name.clone()],
    };
    rule
}

fn whole(request: &Request) -> String {
    match request.subresource.as_str() {
        "" => request.resource.clone(),
        subresource => format!("{}/{subresource}", request.resource),
    }
}

fn wider(rng: &mut Rng, value: &str, others: &[&str]) -> Vec<String> {
    match rng.below(10) {
        0..=1 => vec!["*".to_owned()],
        2..=4 => vec![rng.text(others), value.to_owned()],
        5 if rng.percent(50) => vec![rng.text(others)],
        _ => vec![value.to_owned()],
    }
}

fn wider_path(rng: &mut Rng, path: &str) -> String {
    let cut = path.rfind('/').unwrap_or(0);
    match rng.below(6) {
        0 => "*".to_owned(),
        1 => format!("{}/*", &path[..cut]),
        2 => format!("{path}*"),
        3 => format!("{path}/*"),
        _ => path.to_owned(),
    }
}

/// A scope with entries for most of the requests, and some others.
pub(crate) fn scope(rng: &mut Rng, seeds: &[Request]) -> Scope {
    let mut scope = Scope { allow_platform_cli: rng.percent(20), ..Scope::default() };
    for seed in seeds {
        if rng.percent(95) {
            add_entry(rng, &mut scope, seed);
        }
    }
    for _ in 0..rng.below(3) {
        let other = any_request(rng);
        add_entry(rng, &mut scope, &other);
    }
    scope
}

/// Adds an entry that allows the request, or one like it.
pub(crate) fn add_entry(rng: &mut Rng, scope: &mut Scope, request: &Request) {
    let of = namespaces().into_iter().find(|namespace| namespace.name == request.namespace);
    let mut project = match &request.target {
        Target::ProjectSpace { project, .. } | Target::ProjectVirtualCluster { project, .. } => {
            project.clone()
        }
        _ if request.resource == "projects" => request.name.clone(),
        _ => of.map(|namespace| namespace.project).unwrap_or_default(),
    };
    if project.is_empty() {
        project = rng.text(PROJECTS);
    }
    let name = match &request.target {
        Target::ProjectSpace { name, .. } | Target::ProjectVirtualCluster { name, .. } => {
            name.clone()
        }
        _ if request.name.is_empty() => rng.text(NAMES),
        _ => request.name.clone(),
    };
    let name = if rng.percent(20) { "*".to_owned() } else { name };
    let is_space = request.resource == "spaceinstances"
        || matches!(request.target, Target::ProjectSpace { .. });
    let is_cluster = request.resource == "virtualclusterinstances"
        || matches!(request.target, Target::ProjectVirtualCluster { .. });
    match rng.below(10) {
        0 => scope.projects.push("*".to_owned()),
        1..=2 => scope.projects.push(project),
        3..=4 if is_space => scope.spaces.push((project, name)),
        3..=4 if is_cluster => scope.virtual_clusters.push((project, name)),
        _ => scope.rules.push(scope_rule(rng, request)),
    }
}

/// A rule of a scope that allows the request: each field is set or not.
fn scope_rule(rng: &mut Rng, request: &Request) -> ScopeRule {
    let mut rule = ScopeRule::default();
    if rng.percent(60) {
        rule.verbs = wider(rng, &request.verb, VERBS);
    }
    if request.is_path() {
        if rng.percent(80) {
            rule.non_resource_urls = vec![scope_path(rng, &request.path)];
        }
    } else {
        if rng.percent(70) {
            rule.resources = vec![scope_resources(rng, request)];
        }
        if rng.percent(20) {
            let mut other = any_request(rng);
            if other.is_path() {
                "pods".clone_into(&mut other.resource);
            }
            rule.resources.push(scope_resources(rng, &other));
        }
        if !rule.resources.is_empty() && rng.percent(15) {
            rule.resource_names = vec![request.name.clone()];
        }
        if rng.percent(40) {
            rule.namespaces = vec![request.namespace.clone()];
        }
    }
    set_targets(rng, &mut rule, &request.target);
    if rng.percent(4) {
        make_invalid(rng, &mut rule);
    }
    rule
}

fn set_targets(rng: &mut Rng, rule: &mut ScopeRule, target: &Target) {
    let name = match target {
        Target::Management => "Management",
        Target::Cluster { .. } => "Cluster",
        Target::VirtualCluster { .. } => "VirtualCluster",
        Target::ProjectSpace { .. } => "ProjectSpace",
        Target::ProjectVirtualCluster { .. } => "ProjectVirtualCluster",
    };
    if rng.percent(35) {
        rule.request_targets = vec![name.to_owned()];
    }
    if rng.percent(10) {
        rule.request_targets.push(rng.text(&["Cluster", "Management", "ProjectSpace"]));
    }
    match target {
        Target::Cluster { cluster } if rng.percent(40) => rule.cluster.clone_from(cluster),
        Target::VirtualCluster { namespace, name, .. } if rng.percent(50) => {
            let name = if rng.percent(30) { String::new() } else { name.clone() };
            let namespace = if rng.percent(30) { String::new() } else { namespace.clone() };
            rule.virtual_clusters.push((name, namespace));
        }
        _ if rng.percent(3) => rule.cluster = rng.text(CLUSTERS),
        _ if rng.percent(3) => {
            rule.virtual_clusters.push((rng.text(&["", "a"]), rng.text(&["", "p-one"])));
        }
        _ => {}
    }
}

fn scope_resources(rng: &mut Rng, request: &Request) -> ScopeResources {
    let whole = whole(request);
    let resources = match rng.below(12) {
        0..=1 => Vec::new(),
        2 => vec!["*".to_owned()],
        3 => vec![format!("{}/*", request.resource)],
        4 => vec![request.resource.clone(), format!("{}/*", request.resource)],
        5 => vec!["*/scale".to_owned()],
        6 => vec!["*/scale".to_owned(), request.resource.clone()],
        7..=8 => vec![rng.text(RESOURCES), whole],
        _ => vec![whole],
    };
    let mut resource_names = Vec::new();
    if rng.percent(5) && !resources.is_empty() {
        resource_names = NAMES.iter().chain(PROJECTS).map(|name| (*name).to_owned()).collect();
    } else if rng.percent(30) && !resources.is_empty() {
        resource_names = vec![request.name.clone(), rng.text(NAMES)];
        resource_names.truncate(1 + rng.below(2));
    }
    ScopeResources { group: request.group.clone(), resources, resource_names }
}

fn scope_path(rng: &mut Rng, path: &str) -> String {
    let cut = path.rfind('/').unwrap_or(0);
    match rng.below(5) {
        0 => format!("{}/*", &path[..cut]),
        1 => format!("{path}/*").replace("//", "/"),
        _ => path.to_owned(),
    }
}

/// Makes a rule that the server answers 422 to. A stored one must not allow anything.
fn make_invalid(rng: &mut Rng, rule: &mut ScopeRule) {
    match rng.below(4) {
        0 => rule.request_targets.push("management".to_owned()),
        1 => rule.non_resource_urls.push("/a*".to_owned()),
        2 => rule.resources.push(ScopeResources {
            resources: vec!["*".to_owned(), "pods".to_owned()],
            ..ScopeResources::default()
        }),
        _ => rule.non_resource_urls.push("/*/x".to_owned()),
    }
}
