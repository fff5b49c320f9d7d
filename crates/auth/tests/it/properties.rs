//! All functions for the same question have the same result, for random policies, scopes and
//! identities.

use std::collections::BTreeMap;
use std::sync::Arc;

use postern_auth::attributes::{Attributes, Request};
use postern_auth::explanation::Source;
use postern_auth::identity::Identity;
use postern_auth::policy::{Decision, NotCovered, Policy, WhoCan};
use postern_auth::scope::{Holder, ScopeRules, contains};
use postern_kinds::rbac::{BindingFacts, BoundSubject, PolicyChange, PolicyRule};
use postern_kinds::scope::Scope;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
// The other tests need it.

use crate::random::{
    KINDS, NAMES, NAMESPACES, VERBS, after, change, changes, identity, policy_of, questions,
    requests, scope, unscoped,
};

fn allows(policy: &Policy, identity: &Identity, question: &Attributes<'_>) -> bool {
    policy.decide(identity, question) == Decision::Allow
}

/// A policy in which ada has these rules, everywhere or in a namespace.
fn policy_with_rules(policy: &Policy, namespace: Option<&str>, rules: &[PolicyRule]) -> Policy {
    let subjects = vec![BoundSubject::User("ada".to_owned())];
    let binding = BindingFacts { is_cluster_role: true, role: "added".to_owned(), subjects };
    policy.with(&[
        (None, "added", PolicyChange::Role(Some(rules.to_vec()))),
        (namespace, "added", PolicyChange::Binding(Some(binding))),
    ])
}

/// Whether a question fits its kind: it has a namespace if and only if the kind has namespaces.
fn is_possible(question: &Attributes<'_>) -> bool {
    let Attributes::Resource { group, resource, namespace, .. } = *question else { return true };
    let kind = KINDS.iter().find(|(of, name, _)| *of == group && *name == resource);
    kind.is_some_and(|(_, _, has_namespaces)| *has_namespaces || namespace.is_empty())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn explanations_agree_with_decisions(changes in changes(), identity in identity()) {
        let policy = policy_of(&changes);
        for question in questions() {
            let explanation = policy.explain(&identity, &question);
            let allowed = allows(&policy, &identity, &question);
            prop_assert_eq!(explanation.is_allowed(), allowed, "{:?}", question);
            if let Some(Source::Role { binding, role, rule, .. }) = &explanation.source {
                prop_assert!(binding.namespace.is_none() || role.namespace.is_none() || binding.namespace == role.namespace);
                prop_assert!(*rule < 7);
            }
        }
    }

    /// The rule that an explanation names as missing is enough.
    #[test]
    fn what_is_missing_would_allow_it(changes in changes(), identity in identity(), which in any::<prop::sample::Index>()) {
        let policy = policy_of(&changes);
        let denied: Vec<_> =
            questions().into_iter().filter(|question| !allows(&policy, &identity, question)).collect();
        if denied.is_empty() {
            return Ok(());
        }
        let question = which.get(&denied);
        let explanation = policy.explain(&identity, question);
        let mut policy = policy;
        if let Some(missing) = &explanation.missing_rule {
            let rules = std::slice::from_ref(&missing.rule);
            policy = policy_with_rules(&policy, missing.namespace.as_deref(), rules);
        }
        let mut identity = identity;
        for refusing in &explanation.refusing_scopes {
            let mut wider = identity.scopes[refusing.index].source().clone();
            wider.rules.extend(refusing.missing.rules.iter().cloned());
            identity.scopes[refusing.index] = Arc::new(ScopeRules::new(&wider));
        }
        prop_assert!(allows(&policy, &identity, question), "{:?}: {:?}", question, explanation);
    }

    #[test]
    fn readable_objects_are_those_that_decisions_allow(changes in changes(), identity in identity()) {
        let policy = policy_of(&changes);
        for (group, resource, has_namespaces) in KINDS {
            for verb in ["get", "delete", "bind", "getkey"] {
                let readable = policy.readable(&identity, verb, group, resource);
                for namespace in NAMESPACES {
                    for name in NAMES.iter().filter(|name| !name.is_empty()) {
                        if has_namespaces == namespace.is_empty() {
                            continue;
                        }
                        let question = Attributes::Resource { verb, group, resource, subresource: "", namespace, name };
                        let allowed = allows(&policy, &identity, &question);
                        prop_assert_eq!(readable.contains(namespace, name), allowed, "{:?}: {:?}", question, readable);
                        prop_assert!(!allowed || !readable.is_empty());
                    }
                }
            }
        }
    }

    #[test]
    fn touching_a_kind_is_never_denied_to_who_may_do_something(changes in changes(), identity in identity()) {
        let policy = policy_of(&changes);
        for question in questions().iter().filter(|question| is_possible(question)) {
            let Attributes::Resource { verb, group, resource, subresource, .. } = *question else { continue };
            if allows(&policy, &identity, question) {
                prop_assert!(policy.may_have_permission(&identity, group, resource), "{:?}", question);
            }
            if subresource.is_empty() && policy.scopes_allow(&identity, question) && !["selves"].contains(&resource) {
                prop_assert!(policy.scope_can_match(&identity, verb, group, resource), "{:?}", question);
            }
        }
    }

    /// After any sequence of changes, the index is the same as one built from its content.
    #[test]
    fn an_index_updated_by_changes_equals_one_built_from_its_content(changes in changes(), identity in unscoped()) {
        let mut last = BTreeMap::new();
        for (at, change) in changes.iter().enumerate() {
            let mut kind = format!("{:?}", std::mem::discriminant(&change.2));
            if let PolicyChange::Owner(of, _) = &change.2 {
                kind += of.resource;
            }
            last.insert((kind, change.0.clone(), change.1.clone()), at);
        }
        let mut kept: Vec<usize> = last.into_values().collect();
        kept.sort_unstable();
        kept.reverse();
        let rebuilt = policy_of(&kept.iter().map(|&at| changes[at].clone()).collect::<Vec<_>>());
        let policy = policy_of(&changes);
        for question in questions() {
            prop_assert_eq!(allows(&policy, &identity, &question), allows(&rebuilt, &identity, &question), "{:?}", question);
        }
        for (group, resource, _) in KINDS {
            prop_assert_eq!(policy.may_have_permission(&identity, group, resource), rebuilt.may_have_permission(&identity, group, resource));
            let question = Attributes::Resource { verb: "get", group, resource, subresource: "", namespace: "n1", name: "a" };
            prop_assert_eq!(policy.who_can(&question), rebuilt.who_can(&question));
        }
    }

    /// Removed rules leave no permission.
    #[test]
    fn what_is_removed_gives_nothing(changes in changes(), identity in unscoped()) {
        let removed: Vec<_> = changes.iter().map(|(namespace, name, change)| {
            let none = match change {
                PolicyChange::Role(_) => PolicyChange::Role(None),
                PolicyChange::Binding(_) => PolicyChange::Binding(None),
                PolicyChange::Namespace(_) => PolicyChange::Namespace(None),
                PolicyChange::Owner(kind, _) => PolicyChange::Owner(*kind, None),
            };
            (namespace.clone(), name.clone(), none)
        }).collect();
        let policy = after(&policy_of(&changes), &removed);
        let empty = Policy::built_in();
        prop_assert!(policy.same_sources(&empty, &identity, "g", "r"));
        for question in questions() {
            prop_assert_eq!(allows(&policy, &identity, &question), allows(&empty, &identity, &question));
        }
        for (group, resource, _) in KINDS {
            prop_assert_eq!(policy.may_have_permission(&identity, group, resource), empty.may_have_permission(&identity, group, resource));
        }
    }

    /// A change that is reported to change nothing changes nothing.
    #[test]
    fn a_change_that_is_none_makes_the_same_policy(changes in changes(), identity in identity(), change in change()) {
        let policy = policy_of(&changes);
        let borrowed = (change.0.as_deref(), change.1.as_str(), change.2.clone());
        let is_changed = policy.is_changed_by(&borrowed);
        let newer = after(&policy, std::slice::from_ref(&change));
        prop_assert!(!newer.is_changed_by(&borrowed) || !matches!(change.2, PolicyChange::Owner(..)));
        for question in questions() {
            prop_assert!(is_changed || allows(&policy, &identity, &question) == allows(&newer, &identity, &question));
        }
    }

    #[test]
    fn the_same_sources_give_the_same_rights(changes in changes(), identity in identity(), change in change()) {
        let policy = policy_of(&changes);
        let newer = after(&policy, &[change]);
        for (group, resource, _) in KINDS {
            if policy.same_sources(&newer, &identity, group, resource) {
                let [old, new] = [&policy, &newer].map(|policy| policy.readable(&identity, "get", group, resource));
                prop_assert_eq!(old, new);
            }
        }
    }

    /// A caller that may give rules gives no permission that it does not have.
    #[test]
    fn covered_rules_give_nothing_new(changes in changes(), identity in identity(), rules in prop::collection::vec(crate::random::rule(), 1..3), place in prop::option::of(Just("n1"))) {
        let policy = policy_of(&changes);
        let other = Identity { name: "ada".to_owned(), ..Identity::default() };
        let given = policy_with_rules(&Policy::built_in(), place, &rules);
        let covers = policy.covers(&identity, place, &rules);
        let mut gains = Vec::new();
        for question in questions().into_iter().filter(is_possible) {
            if allows(&given, &other, &question) && !allows(&policy, &identity, &question) {
                gains.push(question);
            }
        }
        prop_assert!(covers.is_err() || gains.is_empty(), "{:?}", gains);
        if let Err(NotCovered::Missing(missing)) = covers {
            for one in &missing {
                prop_assert!(policy.covers(&identity, place, std::slice::from_ref(one)).is_err());
            }
            // With the missing rules added, all is covered, unless a scope denies it.
            let is_understood = |rule: &PolicyRule| !rule.resources.iter().any(|one| one.ends_with('/'));
            if !identity.is_scoped() && rules.iter().all(is_understood) {
                let policy = policy_with_rules(&policy, place, &missing);
                prop_assert!(place.is_some() || policy.covers(&identity, place, &rules).is_ok());
            }
        }
    }

    #[test]
    fn who_can_is_the_inverse_of_decisions(changes in changes(), identity in unscoped()) {
        let policy = policy_of(&changes);
        for question in questions() {
            let is_them = |who: &WhoCan| match who {
                WhoCan::Subject(BoundSubject::User(name)) => *name == identity.name,
                WhoCan::Subject(BoundSubject::Group(group)) => identity.is_in(group),
                WhoCan::Subject(BoundSubject::Principal { uid, .. }) => {
                    !uid.is_empty() && identity.principal_uids.contains(uid)
                }
                WhoCan::User(name) => identity.user.as_ref() == Some(name),
                WhoCan::Team(name) => identity.team.as_ref() == Some(name),
                WhoCan::Members(name) => identity.teams.contains(name),
                WhoCan::Owner { uid } => identity.principal_uids.contains(uid),
            };
            let listed = policy.who_can(&question).iter().any(|grantee| is_them(&grantee.who));
            prop_assert_eq!(listed, allows(&policy, &identity, &question), "{:?}", question);
        }
    }

    /// The rules of a rules review allow what decisions allow, and all of it when they say so.
    #[test]
    fn the_rules_of_an_identity_are_its_rights(changes in changes(), identity in identity()) {
        let policy = policy_of(&changes);
        let all = policy.rules_of(&identity, "n1");
        let rules: Vec<_> = all.resource_rules.iter().chain(&all.non_resource_rules).cloned().collect();
        let reviewed = policy_with_rules(&Policy::built_in(), Some("n1"), &rules);
        let ada = Identity { name: "ada".to_owned(), ..Identity::default() };
        for question in questions().iter().filter(|question| question.role_namespace() == "n1" && is_possible(question)) {
            let (listed, allowed) = (allows(&reviewed, &ada, question), allows(&policy, &identity, question));
            prop_assert!(!listed || allowed, "listed and denied: {:?}", question);
            prop_assert!(listed || !allowed || all.incomplete, "allowed and not listed: {:?}", question);
        }
    }

    /// A contained scope allows nothing that its parent does not.
    #[test]
    fn containment_is_containment(changes in changes(), parent in scope(), child in scope(), narrowing in 0..8u8) {
        let policy = policy_of(&changes);
        let holder = Holder { user: Some("ada"), ..Holder::default() };
        // Mostly a narrower one: two random scopes are hardly ever contained.
        let child = if narrowing == 0 { child } else { narrowed(&parent, child, narrowing) };
        let parent = Arc::new(ScopeRules::new(&parent));
        if contains(std::slice::from_ref(&parent), &child, policy.projects()).is_ok() {
            let child = ScopeRules::new(&child);
            for request in requests() {
                let under = |scope: &ScopeRules| scope.allows(&request, &holder, policy.projects());
                prop_assert!(!under(&child) || under(&parent), "{:?}", request);
            }
        }
    }

    /// Another entry takes no right away, and gives none that the owner lacks.
    #[test]
    fn another_entry_of_a_scope_only_adds(changes in changes(), identity in unscoped(), one in scope(), two in scope()) {
        let policy = policy_of(&changes);
        let scoped = |scope: &Scope| {
            let scopes = vec![Arc::new(ScopeRules::new(scope))];
            Identity { scopes, ..identity.clone() }
        };
        let mut both = one.clone();
        both.allow_platform_cli |= two.allow_platform_cli;
        both.projects.extend(two.projects);
        both.spaces.extend(two.spaces);
        both.virtual_clusters.extend(two.virtual_clusters);
        both.rules.extend(two.rules);
        let (one, both) = (scoped(&one), scoped(&both));
        for question in questions() {
            let [narrow, wide, owner] =
                [&one, &both, &identity].map(|identity| allows(&policy, identity, &question));
            prop_assert!((!narrow || wide) && (!wide || owner), "{:?}", question);
        }
    }
}

/// A scope that is mostly within another: parts of it, narrowed by parts of a third.
fn narrowed(parent: &Scope, other: Scope, how: u8) -> Scope {
    let mut scope = parent.clone();
    for rule in &mut scope.rules {
        let from = other.rules.first().cloned().unwrap_or_default();
        if how & 1 != 0 {
            rule.verbs = from.verbs;
        }
        if how & 2 != 0 {
            rule.namespaces = from.namespaces;
            rule.resource_names = from.resource_names;
        }
        if how & 4 != 0 {
            rule.request_targets = from.request_targets;
            rule.resources = from.resources;
        }
    }
    scope.spaces.extend(other.spaces.into_iter().take(1));
    scope
}

/// Both answers of each question are tried often enough to find a difference.
#[test]
fn the_random_world_has_both_answers() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut allowed, mut asked) = (0, 0);
    for _ in 0..50 {
        let policy = policy_of(&changes().new_tree(&mut runner).unwrap().current());
        let identity = identity().new_tree(&mut runner).unwrap().current();
        for question in questions() {
            allowed += usize::from(allows(&policy, &identity, &question));
            asked += 1;
        }
    }
    assert!(allowed * 20 > asked, "{allowed} of {asked}");
    assert!(
        VERBS.len() == 6 && Request::management(questions()[0]).target == crate::random::TARGETS[0]
    );
}
