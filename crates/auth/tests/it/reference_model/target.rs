//! The decision about a request to a target, from the words of the documentation, compared with the
//! real one.

use postern_auth::attributes::RequestTarget;
use postern_auth::policy::target::{InstanceRef, ResolvedTarget, TargetRequest};

use crate::reference_model::generate::{self, Scene};
use crate::reference_model::real::{self, Real};
use crate::reference_model::rng::Rng;
use crate::reference_model::world::{Binding, Caller, Request, Role, Rule, Subject, Target, World};
use crate::reference_model::{evaluate, near, own, rng, scenes, sets};

/// The facts about a target.
struct Known {
    instance: Option<(&'static str, String, String)>,
    space_namespace: Option<String>,
}

/// Only a caller with `use` on the instance (not only on its cluster) reaches a target. The
/// caller's name must not be one of the cluster's own names. Every scope must allow the request, a
/// stream also needs `create`, and the request must stay within the space.
fn gets_there(
    world: &World,
    caller: &Caller,
    request: &Request,
    known: &Known,
    upgrade: bool,
) -> bool {
    let mut request = request.clone();
    if !request.is_path() && sets::has_namespaces(&request.group, &request.resource) == Some(false)
    {
        request.namespace.clear();
    }
    let authenticated = caller.groups.iter().any(|group| group == "system:authenticated");
    authenticated
        && !caller.name.is_empty()
        && !caller.name.starts_with("system:")
        && may_use(world, caller, &request.target, known)
        && verbs(&request, upgrade)
            .into_iter()
            .all(|verb| evaluate::allowed(world, caller, &Request { verb, ..request.clone() }))
        && stays_within(&request, known, upgrade)
}

fn may_use(world: &World, caller: &Caller, target: &Target, known: &Known) -> bool {
    let holds = |resource: &str, namespace: &str, name: &str| {
        let request = Request {
            verb: "use".to_owned(),
            group: own::OURS.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..Request::default()
        };
        evaluate::owner_may(world, caller, &request)
    };
    if let Some((resource, namespace, name)) = &known.instance {
        return holds(resource, namespace, name);
    }
    match target {
        Target::Cluster { cluster } | Target::VirtualCluster { cluster, .. } => {
            holds("clusters", "", cluster)
        }
        _ => false,
    }
}

fn verbs(request: &Request, upgrade: bool) -> Vec<String> {
    let stream = ["exec", "attach", "portforward"].contains(&request.subresource.as_str());
    let mut verbs = vec![request.verb.clone()];
    if stream || (upgrade && request.verb != "watch") {
        verbs.push("create".to_owned());
    }
    verbs
}

fn stays_within(request: &Request, known: &Known, upgrade: bool) -> bool {
    let Target::ProjectSpace { .. } = request.target else { return true };
    let Some(own) = &known.space_namespace else { return false };
    if request.is_path() {
        return request.description && ["get", "head"].contains(&&*request.verb) && !upgrade;
    }
    if !request.namespace.is_empty() {
        return request.namespace == *own;
    }
    if upgrade || !request.subresource.is_empty() {
        return false;
    }
    let its_namespace = request.verb == "get"
        && request.group.is_empty()
        && request.resource == "namespaces"
        && request.name == *own;
    let group_of_reviews =
        ["authentication.k8s.io", "authorization.k8s.io"].contains(&&*request.group);
    let review =
        request.verb == "create" && group_of_reviews && request.resource.ends_with("reviews");
    its_namespace || review
}

#[test]
fn the_decision_at_a_target_and_the_naive_one_agree() {
    let mut rng = rng(70);
    let (mut allowed, mut all) = (0_usize, 0_usize);
    for _ in 0..scenes(60) {
        let mut scene = generate::scene(&mut rng);
        let_use(&mut rng, &mut scene);
        let real = Real::of(&scene.world, &scene.caller);
        for _ in 0..40 {
            let mut request = near::request(&mut rng, &scene);
            if request.target == Target::Management {
                request.target = generate::target(&mut rng);
            }
            if rng.percent(5) {
                let review = rng.text(&["selfsubjectaccessreviews", "subjectaccessreviews"]);
                request = Request {
                    target: request.target,
                    verb: rng.text(&["create", "create", "get"]),
                    group: "authorization.k8s.io".to_owned(),
                    resource: review,
                    ..Request::default()
                };
            }
            let upgrade = rng.percent(15);
            let known = known(&mut rng, &request);
            let expected = gets_there(&scene.world, &scene.caller, &request, &known, upgrade);
            let found = real_decision(&real, &request, &known, upgrade);
            all += 1;
            allowed += usize::from(expected);
            assert_eq!(
                found, expected,
                "{request:?} upgrade: {upgrade}\n{:?}\n{:?}",
                scene.caller, scene.world
            );
        }
    }
    assert!(allowed * 20 >= all && allowed * 10 <= all * 9, "{allowed} of {all} are allowed");
}

/// Makes it likely that the caller may use some targets.
fn let_use(rng: &mut Rng, scene: &mut Scene) {
    let Scene { world, caller, .. } = scene;
    if rng.percent(85) && !caller.groups.iter().any(|one| one == "system:authenticated") {
        caller.groups.push("system:authenticated".to_owned());
    }
    if rng.percent(5) {
        caller.name = rng.text(&["system:node:n", "", "system:"]);
    }
    if rng.percent(30) {
        return;
    }
    let resources = ["clusters", "spaceinstances", "virtualclusterinstances", "*"];
    let rule = Rule {
        verbs: vec![rng.text(&["use", "*"])],
        api_groups: vec![own::OURS.to_owned()],
        resources: vec![rng.text(&resources)],
        ..Rule::default()
    };
    let name = "using".to_owned();
    world.roles.push(Role { name: name.clone(), rules: vec![rule], ..Role::default() });
    world.bindings.push(Binding {
        name: name.clone(),
        cluster_role: true,
        role: name,
        subjects: vec![Subject::User(caller.name.clone())],
        ..Binding::default()
    });
}

fn known(rng: &mut Rng, request: &Request) -> Known {
    let namespace = rng.text(&["p-one", "p-two", "a"]);
    let space_namespace = match rng.below(10) {
        0 => None,
        1..=6 if !request.namespace.is_empty() => Some(request.namespace.clone()),
        7 if !request.name.is_empty() => Some(request.name.clone()),
        _ => Some("own".to_owned()),
    };
    let instance = match &request.target {
        Target::ProjectSpace { name, .. } => Some(("spaceinstances", namespace, name.clone())),
        Target::ProjectVirtualCluster { name, .. } => {
            Some(("virtualclusterinstances", namespace, name.clone()))
        }
        Target::VirtualCluster { name, .. } if rng.percent(50) => {
            Some(("virtualclusterinstances", namespace, name.clone()))
        }
        _ => None,
    };
    Known { instance, space_namespace }
}

fn real_decision(real: &Real, request: &Request, known: &Known, is_upgrade: bool) -> bool {
    let instance = known.instance.as_ref();
    let instance =
        instance.map(|(resource, namespace, name)| InstanceRef { resource, namespace, name });
    let target: RequestTarget<'_> = real::target(&request.target);
    let space_namespace = known.space_namespace.as_deref();
    let place = ResolvedTarget { target, instance, space_namespace };
    let attributes = real::attributes(request);
    let request = TargetRequest { place, attributes, is_upgrade };
    real.policy.decide_at_target(&real.identity, &request).is_ok()
}
