//! Sets of many objects equal the decisions about each object.

use crate::reference_model::generate::{
    self, NAMES, NAMESPACES, PROJECTS, RESOURCES, Scene, VERBS,
};
use crate::reference_model::real::Real;
use crate::reference_model::rng::Rng;
use crate::reference_model::world::{Request, Target};
use crate::reference_model::{evaluate, near, own, rng, scenes};

/// Whether objects of a kind have a namespace; `None` for an unknown kind.
pub(crate) fn has_namespaces(group: &str, resource: &str) -> Option<bool> {
    match resource {
        "projects" | "clusters" if group == own::OURS => Some(false),
        "spaceinstances" | "virtualclusterinstances" if group == own::OURS => Some(true),
        "pods" | "secrets" if group.is_empty() => Some(true),
        _ => of_served(group, resource),
    }
}

fn of_served(group: &str, resource: &str) -> Option<bool> {
    let mut served = postern_kinds::all().iter().map(|kind| kind.info());
    let kind = served.find(|info| info.version.group == group && info.plural == resource);
    kind.map(postern_kinds::Info::is_namespaced)
}

/// A verb on a kind that the scene is about, without an object.
fn question(rng: &mut Rng, scene: &Scene) -> Request {
    let mut kind = scene.seeds[rng.below(scene.seeds.len())].clone();
    if kind.is_path() || rng.percent(15) {
        kind = Request { group: generate::any_request(rng).group, ..Request::default() };
        kind.resource = rng.text(RESOURCES);
        kind.verb = rng.text(VERBS);
    }
    if rng.percent(30) {
        kind.verb = rng.text(&["get", "list", "watch", "delete"]);
    }
    Request {
        target: Target::Management,
        subresource: String::new(),
        namespace: String::new(),
        name: String::new(),
        ..kind
    }
}

/// The same question about every object that there can be.
pub(crate) fn objects(kind: &Request) -> Vec<Request> {
    let mut objects = Vec::new();
    let has_namespaces = has_namespaces(&kind.group, &kind.resource);
    let is_served = of_served(&kind.group, &kind.resource).is_some();
    let of_many = ["list", "watch", "deletecollection"].contains(&kind.verb.as_str());
    for namespace in NAMESPACES.iter().chain(&["", "elsewhere"]) {
        // Of a kind that is not served, many without a namespace may be those of all namespaces.
        let is_unclear = !is_served && of_many && namespace.is_empty();
        if is_unclear || has_namespaces.is_some_and(|has| has == namespace.is_empty()) {
            continue;
        }
        for name in NAMES.iter().chain(PROJECTS).chain(&["unknown"]) {
            let (namespace, name) = ((*namespace).to_owned(), (*name).to_owned());
            objects.push(Request { namespace, name, ..kind.clone() });
        }
    }
    objects
}

#[test]
fn what_is_readable_equals_the_decisions_one_by_one() {
    let mut rng = rng(10);
    for _ in 0..scenes(12) {
        let scene = generate::scene(&mut rng);
        let real = Real::of(&scene.world, &scene.caller);
        let kind = question(&mut rng, &scene);
        let Request { verb, group, resource, .. } = &kind;
        let readable = real.policy.readable(&real.identity, verb, group, resource);
        let mut any = false;
        for object in objects(&kind) {
            let expected = evaluate::allowed(&scene.world, &scene.caller, &object);
            let found = readable.contains(&object.namespace, &object.name);
            assert_eq!(found, expected, "{object:?}\n{:?}\n{:?}", scene.caller, scene.world);
            any |= expected;
        }
        assert!(!(any && readable.is_empty()), "{kind:?}\n{:?}\n{:?}", scene.caller, scene.world);
    }
}

#[test]
fn whoever_may_do_something_touches_the_kind_and_the_scope_can_match() {
    let mut rng = rng(11);
    for _ in 0..scenes(15) {
        let scene = generate::scene(&mut rng);
        let Real { policy, identity } = Real::of(&scene.world, &scene.caller);
        for _ in 0..10 {
            let request = near::request(&mut rng, &scene);
            let Request { verb, group, resource, subresource, target, .. } = &request;
            let is_allowed = evaluate::allowed(&scene.world, &scene.caller, &request);
            let is_impossible =
                !request.namespace.is_empty() && has_namespaces(group, resource) == Some(false);
            let is_for_a_kind = *target == Target::Management && !request.is_path();
            if !is_for_a_kind || is_impossible || !is_allowed {
                continue;
            }
            let may_have_permission = policy.may_have_permission(&identity, group, resource);
            assert!(may_have_permission, "{request:?}\n{:?}\n{:?}", scene.caller, scene.world);
            // Permissions that need no entry of a scope are never listed.
            if subresource.is_empty() && !own::whatever_the_scope(&scene.caller, &request) {
                let can_match = policy.scope_can_match(&identity, verb, group, resource);
                assert!(can_match, "{request:?}\n{:?}\n{:?}", scene.caller, scene.world);
            }
        }
    }
}

#[test]
fn equal_fingerprints_see_the_same_objects() {
    let mut rng = rng(12);
    let mut same = 0;
    for _ in 0..scenes(4) {
        let mut scene = generate::scene(&mut rng);
        let kind = Request { verb: "get".to_owned(), ..question(&mut rng, &scene) };
        let before = Real::of(&scene.world, &scene.caller);
        let expected: Vec<_> = objects(&kind).iter().map(|object| before.allows(object)).collect();
        crate::reference_model::change::one(&mut rng, &mut scene);
        let after = Real::of(&scene.world, &scene.caller);
        let (group, resource) = (kind.group.as_str(), kind.resource.as_str());
        let of = |real: &Real| real.policy.fingerprint(&real.identity, group, resource, false);
        let now: Vec<_> = objects(&kind).iter().map(|object| after.allows(object)).collect();
        if of(&before) == of(&after) {
            same += 1;
            assert_eq!(now, expected, "{kind:?}\n{:?}\n{:?}", scene.caller, scene.world);
        }
        // A snapshot that was made from the first one, with only this object changed.
        let next = before.policy.with(&crate::reference_model::real::changes(&scene.world));
        if before.policy.same_sources(&next, &before.identity, group, resource) {
            let again = next.fingerprint(&before.identity, group, resource, false);
            assert_eq!(of(&before), again, "{kind:?}\n{:?}\n{:?}", scene.caller, scene.world);
        }
    }
    assert!(same > 0);
}
