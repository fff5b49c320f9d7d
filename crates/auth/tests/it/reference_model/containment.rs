//! Tests of containment. A contained scope allows nothing that the other scope does not allow. If
//! containment is denied, a request shows the reason, or the shape is one that is not decided.

use postern_auth::scope::contains;

use crate::reference_model::generate::{self, Scene};
use crate::reference_model::real::{self, Real};
use crate::reference_model::rng::Rng;
use crate::reference_model::world::{
    Caller, Request, Rule, Scope, ScopeResources, ScopeRule, World,
};
use crate::reference_model::{near, rng, sample, scenes, scope};

/// A scope that is near to another one: with less, with more, or with one thing changed.
fn relative(rng: &mut Rng, scene: &Scene, of: &Scope) -> Scope {
    let mut scope = of.clone();
    if rng.percent(15) {
        return generate::scope(rng, &scene.seeds);
    }
    for _ in 0..=rng.below(2) {
        match rng.below(5) {
            0 => drop_one(rng, &mut scope.projects),
            1 => drop_one(rng, &mut scope.rules),
            2 if rng.percent(50) => scope.rules.push(small_rule(rng)),
            2 => scope.allow_platform_cli = rng.percent(30),
            3 if rng.percent(40) => generate::add_entry(rng, &mut scope, &scene.seeds[0]),
            _ => narrow_or_widen(rng, &mut scope),
        }
    }
    scope
}

fn drop_one<T>(rng: &mut Rng, from: &mut Vec<T>) {
    if !from.is_empty() {
        from.remove(rng.below(from.len()));
    }
}

/// Changes one field of a rule, or one entry.
fn narrow_or_widen(rng: &mut Rng, scope: &mut Scope) {
    let other = |rng: &mut Rng| rng.text(&["one", "two", "*", "a", "red"]);
    if scope.rules.is_empty() {
        scope.projects.iter_mut().take(1).for_each(|project| *project = other(rng));
        scope.spaces.iter_mut().take(1).for_each(|entry| entry.1 = other(rng));
        scope.virtual_clusters.iter_mut().take(1).for_each(|entry| entry.1 = other(rng));
        return;
    }
    let index = rng.below(scope.rules.len());
    let rule = &mut scope.rules[index];
    match rng.below(11) {
        8 => match rule.non_resource_urls.first_mut() {
            Some(path) => {
                *path = rng.text(&["/metrics/", "/metrics/*", "/metrics", "/metrics/x/*"]);
            }
            None if rule.resources.is_empty() => {
                rule.non_resource_urls.push("/metrics/*".to_owned());
            }
            None => {}
        },
        9 => rule.cluster = rng.text(&["", "east", "west"]),
        10 => rule.virtual_clusters = vec![(rng.text(&["", "a"]), rng.text(&["", "p-one"]))],
        0 => drop_one(rng, &mut rule.verbs),
        1 => rule.verbs.push("get".to_owned()),
        2 => drop_one(rng, &mut rule.namespaces),
        3 => rule.namespaces.push("p-one".to_owned()),
        4 => drop_one(rng, &mut rule.request_targets),
        5 => rule.request_targets = vec!["Management".to_owned()],
        6 => rule
            .resources
            .iter_mut()
            .take(1)
            .for_each(|entry| entry.resource_names = vec!["a".to_owned()]),
        _ => {
            if let Some(entry) = rule.resources.first_mut() {
                drop_one(rng, &mut entry.resources);
            }
        }
    }
}

/// Whether the shape is on the list of undecided shapes.
///
/// - Entries within rules, rules within entries, and a rule within several of them or within several elements of one.
/// - A rule that matches nothing, or nothing in one of its namespaces, as that of cluster-scoped kinds.
/// - Virtual clusters without a list within a list that has an entry for all.
fn is_undecided(world: &World, parent: &Scope, child: &Scope) -> bool {
    let matches_nothing = |rule: &ScopeRule| {
        let samples = sample::of_scope(world, &with_rule(rule));
        !samples.iter().any(|request| scope::rule_allows(rule, request))
    };
    let matches_nothing_in_one = |rule: &ScopeRule| {
        rule.namespaces.iter().any(|namespace| {
            matches_nothing(&ScopeRule { namespaces: vec![namespace.clone()], ..rule.clone() })
        })
    };
    let child_has_entries = child.allow_platform_cli
        || !child.projects.is_empty()
        || !child.spaces.is_empty()
        || !child.virtual_clusters.is_empty();
    let names_all_virtual_clusters = |rule: &ScopeRule| {
        let is_all = |(name, namespace): &(String, String)| name.is_empty() && namespace.is_empty();
        rule.virtual_clusters.iter().any(is_all)
    };
    let parent_has_entries = parent.allow_platform_cli
        || !parent.projects.is_empty()
        || !parent.spaces.is_empty()
        || !parent.virtual_clusters.is_empty();
    let several =
        parent.rules.len() > 1 || parent.rules.iter().any(|rule| rule.resources.len() > 1);
    (child_has_entries && !parent.rules.is_empty())
        || (!child.rules.is_empty() && parent_has_entries)
        || (!child.rules.is_empty() && several)
        || child.rules.iter().any(|rule| matches_nothing(rule) || matches_nothing_in_one(rule))
        || parent.rules.iter().any(names_all_virtual_clusters)
}

fn with_rule(rule: &ScopeRule) -> Scope {
    Scope { rules: vec![rule.clone()], ..Scope::default() }
}

/// A rule of few words, so that two of them are often related.
fn small_rule(rng: &mut Rng) -> ScopeRule {
    let some = |rng: &mut Rng, texts: &[&str]| {
        (0..[0, 0, 1, 2][rng.below(4)]).map(|_| rng.text(texts)).collect::<Vec<_>>()
    };
    let mut rule = ScopeRule {
        verbs: some(rng, &["get", "list", "*"]),
        request_targets: some(rng, &["Management", "Cluster", "VirtualCluster"]),
        ..ScopeRule::default()
    };
    match rng.below(4) {
        0 => rule.cluster = rng.text(&["east", "west"]),
        1 => rule.virtual_clusters = vec![(rng.text(&["", "a"]), rng.text(&["", "n"]))],
        _ => {}
    }
    if rng.percent(40) {
        let paths = ["/metrics/", "/metrics/*", "/metrics", "/metrics/x/*"];
        rule.non_resource_urls = some(rng, &paths);
        return rule;
    }
    rule.namespaces = some(rng, &["", "p-one", "other", "default"]);
    if rng.percent(60) {
        let resources = some(rng, &["pods", "pods/*", "*/scale", "pods/scale", "*"]);
        let mut resource_names = some(rng, &["a", "b"]);
        if resources.is_empty() {
            resource_names.clear();
        }
        rule.resources =
            vec![ScopeResources { resources, resource_names, ..ScopeResources::default() }];
    }
    rule
}

#[test]
fn one_rule_within_another_is_decided() {
    let mut rng = rng(43);
    let world = generate::scene(&mut rng).world;
    let (policy, caller) = (real::policy(&world), Caller::default());
    let (mut contained, mut witnessed) = (0, 0);
    for _ in 0..scenes(60) {
        let (parent, child) = (with_rule(&small_rule(&mut rng)), with_rule(&small_rule(&mut rng)));
        let pair = Pair { world: &world, caller: &caller, parent: &parent, child: &child };
        let samples = sample::of_scope(&world, &child);
        let found =
            contains(&[real::compiled(&parent)], &real::real_scope(&child), policy.projects());
        let witness = samples.iter().find(|request| pair.is_witness(request));
        if found.is_ok() {
            contained += 1;
            assert!(witness.is_none(), "contained, but {witness:?}\n{}", pair.told());
        } else {
            witnessed += 1;
            let is_decided = witness.is_some() || is_undecided(&world, &parent, &child);
            assert!(is_decided, "no witness: {}", pair.told());
        }
    }
    assert!(contained > 0 && witnessed > 0);
}

struct Pair<'a> {
    world: &'a World,
    caller: &'a Caller,
    parent: &'a Scope,
    child: &'a Scope,
}

impl Pair<'_> {
    /// Whether the entries alone differ on this request. A permission without an entry is no reason
    /// to deny.
    fn is_reason(&self, request: &Request) -> bool {
        scope::entries_allow(self.world, self.caller, self.child, request)
            && !scope::entries_allow(self.world, self.caller, self.parent, request)
    }

    /// Whether this request shows that the child is not contained.
    fn is_witness(&self, request: &Request) -> bool {
        scope::allows(self.world, self.caller, self.child, request)
            && !scope::allows(self.world, self.caller, self.parent, request)
    }

    fn told(&self) -> String {
        let (world, parent, child) = (&self.world.namespaces, self.parent, self.child);
        let json = |scope: &Scope| serde_json::to_string(scope).unwrap();
        format!("parent {}\nchild  {}\n{:?}\n{world:?}", json(parent), json(child), self.caller)
    }
}

#[test]
fn what_is_contained_allows_no_more_and_what_is_not_has_a_witness() {
    let mut rng = rng(40);
    let (mut contained, mut witnessed, mut undecided) = (0, 0, 0);
    for _ in 0..scenes(6) {
        let mut scene = generate::scene(&mut rng);
        let parent = generate::scope(&mut rng, &scene.seeds);
        let child = relative(&mut rng, &scene, &parent);
        scene.caller.scopes = vec![child.clone()];
        let (world, caller) = (&scene.world, &scene.caller);
        let pair = Pair { world, caller, parent: &parent, child: &child };
        let policy = real::policy(world);
        let parents = [real::compiled(&parent)];
        let samples = sample::of_scope(world, &child);
        let witness = samples.iter().find(|request| pair.is_witness(request));
        let found = contains(&parents, &real::real_scope(&child), policy.projects());
        if found.is_ok() {
            contained += 1;
            let near = (0..10).map(|_| near::request(&mut rng, &scene));
            let witness =
                witness.cloned().or_else(|| near.into_iter().find(|one| pair.is_witness(one)));
            assert!(witness.is_none(), "contained, but {witness:?}\n{}", pair.told());
        } else if samples.iter().any(|request| pair.is_reason(request)) {
            witnessed += 1;
        } else {
            undecided += 1;
            assert!(is_undecided(world, &parent, &child), "no witness: {found:?}\n{}", pair.told());
        }
    }
    eprintln!("{contained} contained, {witnessed} with a witness, {undecided} not decided");
    assert!(contained > 0 && witnessed > 0 && undecided < contained + witnessed);
}

#[test]
fn a_scope_contains_itself_and_the_empty_one() {
    let mut rng = rng(41);
    for _ in 0..scenes(5) {
        let scene = generate::scene(&mut rng);
        let scope = generate::scope(&mut rng, &scene.seeds);
        let projects = real::policy(&scene.world);
        let parents = [real::compiled(&scope), real::compiled(&scope)];
        let own = contains(&parents, &real::real_scope(&scope), projects.projects());
        assert_eq!(own, Ok(()), "{scope:?}");
        let empty = contains(&parents, &real::real_scope(&Scope::default()), projects.projects());
        assert_eq!(empty, Ok(()), "{scope:?}");
    }
}

#[test]
fn rules_that_are_covered_are_allowed_and_others_have_a_witness() {
    let mut rng = rng(42);
    let (mut covered, mut denied) = (0, 0);
    for _ in 0..scenes(12) {
        let scene = generate::scene(&mut rng);
        let real = Real::of(&scene.world, &scene.caller);
        let Some(mut rules) = asked_rules(&mut rng, &scene) else { continue };
        let namespace = rng.percent(60).then(|| rng.text(&["p-one", "p-two", "other", "default"]));
        let namespace = namespace.as_deref();
        // Only rules for something.
        rules.retain(|rule| !sample::of_rule(rule, namespace).is_empty());
        let asked: Vec<_> = rules.iter().map(real::policy_rule).collect();
        let found = real.policy.covers(&real.identity, namespace, &asked);
        let samples = rules.iter().flat_map(|rule| sample::of_rule(rule, namespace));
        let witness = samples.into_iter().find(|request| !real.allows(request));
        let told =
            || format!("{namespace:?} {rules:?}\n{found:?}\n{:?}\n{:?}", scene.caller, scene.world);
        if found.is_ok() {
            covered += 1;
            assert!(witness.is_none(), "covered, but not {witness:?}\n{}", told());
        } else {
            denied += 1;
            let is_scoped = !scene.caller.scopes.is_empty();
            assert!(is_scoped || witness.is_some(), "no witness: {}", told());
        }
    }
    eprintln!("{covered} covered, {denied} denied");
    assert!(covered > 0 && denied > 0);
}

/// Rules that an identity has, or some that are near to them.
fn asked_rules(rng: &mut Rng, scene: &Scene) -> Option<Vec<Rule>> {
    let all: Vec<_> = scene.world.roles.iter().flat_map(|role| &role.rules).collect();
    let mut rules = Vec::new();
    for _ in 0..=rng.below(2) {
        let mut rule = (*all.get(rng.below(all.len()))?).clone();
        match rng.below(7) {
            0 => drop_one(rng, &mut rule.verbs),
            1 => drop_one(rng, &mut rule.resources),
            2 => rule.resource_names.push("a".to_owned()),
            3 => rule.resource_names.clear(),
            _ => {}
        }
        rules.push(rule);
    }
    Some(rules)
}
