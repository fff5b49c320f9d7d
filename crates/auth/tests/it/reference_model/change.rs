//! Changes one at a time. A policy after these changes equals a policy that is built from scratch.
//! The snapshot before them stays unchanged. An entry that is added to a scope only adds
//! permissions.

use postern_auth::policy::Policy;
use postern_kinds::rbac::PolicyChange;

use crate::reference_model::generate::{self, Scene};
use crate::reference_model::real::{self, Real};
use crate::reference_model::rng::Rng;
use crate::reference_model::world::{Binding, Namespace, Owned, Request, Role, World};
use crate::reference_model::{evaluate, near, rng, scenes};

/// Removes, replaces or adds one object of the scene's world.
pub(crate) fn one(rng: &mut Rng, scene: &mut Scene) {
    let other = generate::scene(rng).world;
    let world = &mut scene.world;
    match rng.below(11) {
        0 if !world.bindings.is_empty() => {
            drop(world.bindings.remove(rng.below(world.bindings.len())));
        }
        1 if !world.roles.is_empty() => drop(world.roles.remove(rng.below(world.roles.len()))),
        2 => {
            let index = rng.below(world.namespaces.len());
            world.namespaces[index].project = rng.text(&["", "one", "two", "three"]);
        }
        6 if !world.roles.is_empty() => {
            let index = rng.below(world.roles.len());
            let rules = &mut world.roles[index].rules;
            let more = other.roles.into_iter().next_back().map(|role| role.rules);
            if rules.len() > 1 && rng.percent(60) {
                drop(rules.pop());
            } else {
                rules.extend(more.into_iter().flatten());
            }
        }
        7 if world.bindings.len() > 3 => {
            drop(world.bindings.remove(rng.below(world.bindings.len())));
        }
        8 if !world.owned.is_empty() => {
            drop(world.owned.remove(rng.below(world.owned.len())));
        }
        9..=10 => {
            let seed = scene.seeds[rng.below(scene.seeds.len())].clone();
            generate::own(rng, world, &scene.caller, &seed);
        }
        3..=4 => other.roles.into_iter().take(1).for_each(|role| put_role(world, role)),
        _ => other.bindings.into_iter().take(1).for_each(|binding| put_binding(world, binding)),
    }
}

fn put_role(world: &mut World, role: Role) {
    world.roles.retain(|one| (&one.namespace, &one.name) != (&role.namespace, &role.name));
    world.roles.push(role);
}

fn put_binding(world: &mut World, binding: Binding) {
    world.bindings.retain(|one| (&one.namespace, &one.name) != (&binding.namespace, &binding.name));
    world.bindings.push(binding);
}

/// The policy after every object that differs has been applied, in one go.
fn apply(policy: &Policy, old: &World, new: &World) -> Policy {
    let mut changes = Vec::new();
    let is_gone = |found: bool| !found;
    for role in &old.roles {
        let same = |one: &Role| (&one.namespace, &one.name) == (&role.namespace, &role.name);
        if is_gone(new.roles.iter().any(same)) {
            changes.push((
                real::place(&role.namespace),
                role.name.as_str(),
                PolicyChange::Role(None),
            ));
        }
    }
    for binding in &old.bindings {
        let same =
            |one: &Binding| (&one.namespace, &one.name) == (&binding.namespace, &binding.name);
        if is_gone(new.bindings.iter().any(same)) {
            let namespace = real::place(&binding.namespace);
            changes.push((namespace, binding.name.as_str(), PolicyChange::Binding(None)));
        }
    }
    let roles = new.roles.iter().filter(|role| !old.roles.contains(role));
    changes.extend(roles.map(real::role_change));
    let bindings = new.bindings.iter().filter(|binding| !old.bindings.contains(binding));
    changes.extend(bindings.map(real::binding_change));
    let namespaces = |one: &&Namespace| !old.namespaces.contains(one);
    changes.extend(new.namespaces.iter().filter(namespaces).map(real::namespace_change));
    let is_owned = |one: &Owned, by: &World| by.owned.iter().any(|other| real::is_same(one, other));
    let gone = old.owned.iter().filter(|one| !is_owned(one, new));
    changes.extend(gone.map(|one| real::owner_change(one, None)));
    let owned = new.owned.iter().filter(|one| !old.owned.contains(one));
    changes.extend(owned.map(|one| real::owner_change(one, Some(one.uid.clone()))));
    policy.with(&changes)
}

#[test]
fn changes_one_at_a_time_make_the_policy_that_is_built_anew() {
    let mut rng = rng(20);
    for _ in 0..scenes(2) {
        let mut scene = generate::scene(&mut rng);
        let is_small = scene.world.roles.iter().all(|role| role.name != "r0");
        if is_small && rng.percent(50) {
            generate::grow(&mut rng, &mut scene.world, &scene.caller, &scene.seeds);
        }
        let identity = real::identity(&scene.caller);
        let mut policy = real::policy(&scene.world);
        for _ in 0..12.max(scene.world.bindings.len() * 2) {
            let before = (policy.clone(), scene.world.clone());
            one(&mut rng, &mut scene);
            policy = apply(&policy, &before.1, &scene.world);
            let anew = real::policy(&scene.world);
            for _ in 0..8 {
                let request = near::request(&mut rng, &scene);
                let expected = evaluate::allowed(&scene.world, &scene.caller, &request);
                let found = real::allows(&policy, &identity, &request);
                assert_eq!(found, expected, "{request:?}\n{:?}\n{:?}", scene.caller, scene.world);
                assert_eq!(real::allows(&anew, &identity, &request), expected);
                let earlier = evaluate::allowed(&before.1, &scene.caller, &request);
                assert_eq!(real::allows(&before.0, &identity, &request), earlier, "{request:?}");
            }
        }
    }
}

#[test]
fn an_entry_of_a_scope_takes_nothing_away_and_gives_nothing_that_the_owner_lacks() {
    let mut rng = rng(21);
    for _ in 0..scenes(6) {
        let mut scene = generate::scene(&mut rng);
        if scene.caller.scopes.is_empty() {
            continue;
        }
        let before = Real::of(&scene.world, &scene.caller);
        let index = rng.below(scene.caller.scopes.len());
        let seed = scene.seeds[rng.below(scene.seeds.len())].clone();
        generate::add_entry(&mut rng, &mut scene.caller.scopes[index], &seed);
        scene.caller.scopes[index].allow_platform_cli |= rng.percent(20);
        let after = Real::of(&scene.world, &scene.caller);
        for _ in 0..REQUESTS {
            let request = near::request(&mut rng, &scene);
            check_addition(&scene, (&before, &after), &request);
        }
    }
}

const REQUESTS: usize = 20;

fn check_addition(scene: &Scene, (before, after): (&Real, &Real), request: &Request) {
    let (was, is) = (before.allows(request), after.allows(request));
    assert!(!was || is, "taken away: {request:?}\n{:?}\n{:?}", scene.caller, scene.world);
    let is_here = request.target == crate::reference_model::world::Target::Management;
    let owner_may = !is_here || evaluate::owner_may(&scene.world, &scene.caller, request);
    assert!(!is || owner_may, "given: {request:?}\n{:?}\n{:?}", scene.caller, scene.world);
}
