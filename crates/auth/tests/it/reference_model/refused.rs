//! The scopes that are 422, and the verbs that an upgrade needs, a second time from the words
//! (`docs/reference/scopes.md`).

use postern_auth::attributes::required_verbs;
use postern_kinds::prelude::FieldErrors;
use postern_kinds::scope::validate;

use crate::reference_model::generate::{self, SUBRESOURCES, VERBS};
use crate::reference_model::rng::Rng;
use crate::reference_model::world::{Scope, ScopeResources, ScopeRule};
use crate::reference_model::{real, rng, scenes};

/// An entry names its object; the project of a space or a virtual cluster is one project.
fn has_nameless_entry(scope: &Scope) -> bool {
    let is_bad = |(project, name): &(String, String)| {
        project.is_empty() || project == "*" || name.is_empty()
    };
    scope.projects.iter().any(String::is_empty)
        || scope.spaces.iter().any(is_bad)
        || scope.virtual_clusters.iter().any(is_bad)
}

/// `resourceNames` without `resources` is 422, on the rule and in an element.
fn has_names_alone(rule: &ScopeRule) -> bool {
    let in_element =
        |entry: &ScopeResources| entry.resources.is_empty() && !entry.resource_names.is_empty();
    (rule.resources.is_empty() && !rule.resource_names.is_empty())
        || rule.resources.iter().any(in_element)
}

/// `resources` next to `nonResourceURLs` is 422.
fn has_resources_and_paths(rule: &ScopeRule) -> bool {
    !rule.resources.is_empty() && !rule.non_resource_urls.is_empty()
}

/// A request target is one of the five; else 422.
fn has_unknown_target(rule: &ScopeRule) -> bool {
    let known =
        ["Management", "Cluster", "VirtualCluster", "ProjectSpace", "ProjectVirtualCluster"];
    rule.request_targets.iter().any(|target| !known.contains(&target.as_str()))
}

/// A `*` in nonResourceURLs is the whole last step; else 422.
fn has_star_within_a_path(rule: &ScopeRule) -> bool {
    rule.non_resource_urls.iter().any(|path| {
        let steps: Vec<_> = path.split('/').collect();
        let (last, before) = steps.split_last().unwrap();
        let is_rooted = path.starts_with('/');
        !is_rooted
            || before.iter().any(|step| step.contains('*'))
            || (last.contains('*') && *last != "*")
    })
}

/// A pattern is `name`, `name/sub`, `name/*`, `*/sub` or `*`; else 422.
fn has_unknown_pattern(rule: &ScopeRule) -> bool {
    rule.resources.iter().flat_map(|entry| &entry.resources).any(|pattern| {
        let steps: Vec<_> = pattern.split('/').collect();
        let is_step = |step: &&str| *step == "*" || (!step.is_empty() && !step.contains('*'));
        !steps.iter().all(is_step) || steps.len() > 2 || *steps == ["*", "*"]
    })
}

/// When there is a wildcard, the listed resources must not overlap: no resource is matched by two of them.
fn has_overlap(rule: &ScopeRule) -> bool {
    let samples = ["pods", "users", "zres"].into_iter().flat_map(|resource| {
        ["", "scale", "log", "zsub"].map(|subresource| (resource, subresource))
    });
    let samples: Vec<_> = samples.collect();
    rule.resources.iter().any(|entry| {
        let listed = entry.resources.iter().enumerate();
        listed.clone().any(|(index, one)| {
            let mut others = listed.clone().filter(|(other, _)| *other != index);
            one.contains('*')
                && others.any(|(_, other)| {
                    samples.iter().any(|sample| matches(one, *sample) && matches(other, *sample))
                })
        })
    })
}

fn matches(pattern: &str, (resource, subresource): (&str, &str)) -> bool {
    let (first, second) = pattern.split_once('/').unwrap_or((pattern, ""));
    pattern == "*"
        || ((first == "*" || first == resource)
            && if second == "*" { !subresource.is_empty() } else { second == subresource })
}

fn is_refused(scope: &Scope) -> bool {
    has_nameless_entry(scope)
        || scope.rules.iter().any(|rule| {
            has_names_alone(rule)
                || has_resources_and_paths(rule)
                || has_unknown_target(rule)
                || has_star_within_a_path(rule)
                || has_unknown_pattern(rule)
                || has_overlap(rule)
        })
}

/// Changes a scope to one that may be invalid.
fn bend(rng: &mut Rng, scope: &mut Scope) {
    let patterns = [
        "pods",
        "users",
        "*",
        "pods/*",
        "*/scale",
        "pods/scale",
        "users/*",
        "users/log",
        "*/log",
        "*/*",
        "po*",
        "pods/lo*",
        "a/b/c",
        "/log",
        "pods/",
        "",
    ];
    let paths =
        ["/metrics", "/metrics/*", "/*", "*", "/met*", "/*/x", "metrics", "/**", "/a/*x", ""];
    let mut rule = ScopeRule::default();
    match rng.below(6) {
        0 => scope.spaces.push((rng.text(&["one", "*", ""]), rng.text(&["red", "*", ""]))),
        1 => scope.projects.push(rng.text(&["one", "*", ""])),
        2 => rule.non_resource_urls.push(rng.text(&paths)),
        3 => {
            rule.request_targets.push(rng.text(&[
                "Management",
                "cluster",
                "*",
                "",
                "ProjectSpace",
            ]));
        }
        4 => rule.resource_names.push("a".to_owned()),
        _ => {}
    }
    if rng.percent(60) {
        let resources = (0..rng.below(4)).map(|_| rng.text(&patterns)).collect();
        let resource_names = if rng.percent(20) { vec!["a".to_owned()] } else { Vec::new() };
        rule.resources.push(ScopeResources {
            resources,
            resource_names,
            ..ScopeResources::default()
        });
    }
    scope.rules.push(rule);
}

#[test]
fn scopes_are_refused_that_the_words_refuse() {
    let mut rng = rng(50);
    let (mut refused, mut all) = (0, 0);
    for _ in 0..scenes(50) {
        let mut scope = Scope::default();
        if rng.percent(40) {
            let seeds = generate::scene(&mut rng).seeds;
            scope = generate::scope(&mut rng, &seeds);
        }
        if rng.percent(90) {
            bend(&mut rng, &mut scope);
        }
        let mut errors = FieldErrors::new();
        validate(&real::real_scope(&scope), "spec.scope", &mut errors);
        let expected = is_refused(&scope);
        assert_eq!(!errors.is_empty(), expected, "{errors}\n{scope:?}");
        all += 1;
        refused += usize::from(expected);
    }
    assert!(refused * 5 > all && refused * 5 < all * 4, "{refused} of {all}");
}

/// A request to `exec`, `attach` or `portforward`, and any upgrade that is not a watch, needs the
/// requested verb and `create`, with every method.
#[test]
fn kep_4006_upgrades_need_create_whatever_their_method() {
    for subresource in SUBRESOURCES.iter().chain(&["", "attach", "portforward", "proxy", "Exec"]) {
        for verb in VERBS {
            for is_upgrade in [false, true] {
                let is_stream = ["exec", "attach", "portforward"].contains(subresource);
                let mut expected = vec![*verb];
                if (is_stream || (is_upgrade && *verb != "watch")) && *verb != "create" {
                    expected.push("create");
                }
                let found: Vec<_> = required_verbs(verb, subresource, is_upgrade).collect();
                assert_eq!(found, expected, "{verb} {subresource} {is_upgrade}");
            }
        }
    }
}
