//! The requests that get to a target, and those that do not, rule by rule. `tests/reference_model/target.rs`
//! shows for random cases that the decisions equal those of the plain evaluator.

use std::sync::Arc;

use http::Request as HttpRequest;
use postern_kinds::rbac::{BindingFacts, BoundSubject, PolicyChange};
use postern_kinds::scope::{Scope, ScopeResources, ScopeRule, ScopeSpace};

use super::*;
use crate::scope::ScopeRules;

const SPACE: ResolvedTarget<'static> = ResolvedTarget {
    target: RequestTarget::ProjectSpace { project: "p", space: "s" },
    instance: Some(InstanceRef { resource: "spaceinstances", namespace: "p-p", name: "s" }),
    space_namespace: Some("own"),
};

const CLUSTER: ResolvedTarget<'static> = ResolvedTarget {
    target: RequestTarget::Cluster { cluster: "c" },
    instance: None,
    space_namespace: None,
};

const OF_PROJECT: ResolvedTarget<'static> = ResolvedTarget {
    target: RequestTarget::ProjectVirtualCluster { project: "p", virtual_cluster: "v" },
    instance: Some(InstanceRef {
        resource: "virtualclusterinstances",
        namespace: "p-p",
        name: "v",
    }),
    space_namespace: None,
};

const BY_PLACE: ResolvedTarget<'static> = ResolvedTarget {
    target: RequestTarget::VirtualCluster { cluster: "c", namespace: "ns", name: "v" },
    ..OF_PROJECT
};

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn ada() -> Identity {
    Identity {
        name: "ada".to_owned(),
        groups: texts(&["platform:user:ada", "system:authenticated"]),
        user: Some("ada".to_owned()),
        ..Identity::default()
    }
}

fn scoped(scope: &Scope) -> Identity {
    Identity { scopes: vec![Arc::new(ScopeRules::new(scope))], ..ada() }
}

/// A policy in which ada may use these: `resource name`, in `p-p` where it has a namespace.
fn policy(usable: &[(&str, &str)]) -> Policy {
    let mut changes = Vec::new();
    let names: Vec<String> = (0..usable.len()).map(|index| format!("r{index}")).collect();
    for ((resource, name), role) in usable.iter().zip(&names) {
        let rule = PolicyRule {
            verbs: texts(&["use"]),
            api_groups: texts(&[MANAGEMENT_V1.group]),
            resources: texts(&[resource]),
            resource_names: texts(&[name]),
            ..PolicyRule::default()
        };
        let namespace = (*resource != "clusters").then_some("p-p");
        let subjects = vec![BoundSubject::User("ada".to_owned())];
        let is_cluster_role = namespace.is_none();
        let binding = BindingFacts { is_cluster_role, role: role.clone(), subjects };
        changes.push((namespace, role.as_str(), PolicyChange::Role(Some(vec![rule]))));
        changes.push((namespace, role.as_str(), PolicyChange::Binding(Some(binding))));
    }
    Policy::built_in().with(&changes)
}

fn all_usable() -> Policy {
    policy(&[("clusters", "c"), ("spaceinstances", "s"), ("virtualclusterinstances", "v")])
}

/// The refusal of `METHOD PATH`, `+` after it for an upgrade, in one letter; `.` for none.
fn asked(policy: &Policy, identity: &Identity, place: ResolvedTarget<'_>, request: &str) -> char {
    let (request, upgrade) = request.strip_suffix('+').map_or((request, false), |r| (r, true));
    let (method, path) = request.split_once(' ').unwrap();
    let mut http = HttpRequest::builder().method(method).uri(path);
    if upgrade {
        http = http.header("upgrade", "websocket").header("connection", "Upgrade");
    }
    let (parts, ()) = http.body(()).unwrap().into_parts();
    let read = KubeRequest::parse(&parts, parts.uri.path()).unwrap();
    match policy.decide_at_target(identity, &TargetRequest::new(place, &read)) {
        Ok(()) => '.',
        Err(TargetRefusal::SystemIdentity(_)) => 'i',
        Err(TargetRefusal::NotForwarded(_)) => 'f',
        Err(TargetRefusal::NotUsable(_)) => 'u',
        Err(TargetRefusal::Scope(_)) => 's',
        Err(TargetRefusal::OutsideSpace) => 'o',
    }
}

#[test]
fn use_is_needed_on_what_is_reached() {
    let get = "GET /api/v1/namespaces/own/pods/x";
    for (usable, place, want) in [
        (&[][..], CLUSTER, 'u'),
        (&[("clusters", "c")], CLUSTER, '.'),
        (&[("clusters", "d")], CLUSTER, 'u'),
        (&[("spaceinstances", "s")], SPACE, '.'),
        // Permission on the cluster gives no access to another owner's space.
        (&[("clusters", "c")], SPACE, 'u'),
        (&[("virtualclusterinstances", "s")], SPACE, 'u'),
        (&[("virtualclusterinstances", "v")], OF_PROJECT, '.'),
        (&[("clusters", "c")], OF_PROJECT, 'u'),
        (&[("virtualclusterinstances", "v")], BY_PLACE, '.'),
        // The cluster is not the way into its instances by their places, either.
        (&[("clusters", "c")], BY_PLACE, 'u'),
        (&[("clusters", "d")], BY_PLACE, 'u'),
    ] {
        assert_eq!(asked(&policy(usable), &ada(), place, get), want, "{usable:?} {place:?}");
    }
    let nowhere = ResolvedTarget { instance: None, ..BY_PLACE };
    assert_eq!(asked(&policy(&[("clusters", "c")]), &ada(), nowhere, get), '.');
    assert_eq!(asked(&policy(&[("virtualclusterinstances", "v")]), &ada(), nowhere, get), 'u');
    let master = Identity { groups: texts(&["system:masters", "system:authenticated"]), ..ada() };
    assert_eq!(asked(&Policy::default(), &master, CLUSTER, get), '.');
    let here = ResolvedTarget { target: RequestTarget::Management, ..CLUSTER };
    assert_eq!(asked(&Policy::default(), &master, here, get), 'u');
}

#[test]
fn through_a_space_only_its_own_namespace_is_reached() {
    let policy = all_usable();
    for (request, want) in [
        ("GET /api/v1/namespaces/own/pods", '.'),
        ("GET /api/v1/namespaces/own/pods?watch=1", '.'),
        ("DELETE /apis/apps/v1/namespaces/own/deployments/d", '.'),
        ("POST /api/v1/namespaces/own/pods/x/exec+", '.'),
        ("GET /api/v1/namespaces/own", '.'),
        ("GET /api", '.'),
        ("GET /apis/apps/v1", '.'),
        ("GET /openapi/v3/api/v1", '.'),
        ("GET /version", '.'),
        ("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", '.'),
        ("POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews", '.'),
        ("POST /apis/authorization.k8s.io/v1/namespaces/own/localsubjectaccessreviews", '.'),
        ("GET /api/v1/namespaces/other/pods", 'o'),
        ("GET /api/v1/namespaces/own2/pods", 'o'),
        ("GET /api/v1/pods", 'o'),
        ("GET /api/v1/pods?fieldSelector=metadata.namespace%3Down", 'o'),
        ("GET /api/v1/pods?fieldSelector=metadata.name%3Dx", 'o'),
        ("GET /api/v1/watch/pods", 'o'),
        ("GET /api/v1/namespaces/other", 'o'),
        ("GET /api/v1/namespaces", 'o'),
        ("GET /api/v1/namespaces?fieldSelector=metadata.name%3Down", 'o'),
        ("GET /api/v1/watch/namespaces/own", 'o'),
        ("GET /apis/example.com/v1/namespaces/own", 'o'),
        ("GET /api/v1/namespaces/own/status", 'o'),
        ("PUT /api/v1/namespaces/own/finalize", 'o'),
        ("DELETE /api/v1/namespaces/own", 'o'),
        ("PATCH /api/v1/namespaces/own", 'o'),
        ("GET /api/v1/namespaces/own+", 'o'),
        ("GET /api/v1/nodes/n/proxy/x", 'o'),
        ("GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions", 'o'),
        ("GET /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", 'o'),
        ("POST /apis/example.com/v1/selfsubjectaccessreviews", 'o'),
        ("POST /apis/authorization.k8s.io/v1/namespaces/other/localsubjectaccessreviews", 'o'),
        ("GET /metrics", 'o'),
        ("GET /healthz", 'o'),
        ("POST /api", 'o'),
        ("GET /version+", 'o'),
    ] {
        assert_eq!(asked(&policy, &ada(), SPACE, request), want, "{request}");
    }
    let unknown = ResolvedTarget { space_namespace: None, ..SPACE };
    let nameless = ResolvedTarget { space_namespace: Some(""), ..SPACE };
    for place in [unknown, nameless] {
        for request in ["GET /api/v1/namespaces/own/pods", "GET /api/v1/pods", "GET /version"] {
            assert_eq!(asked(&policy, &ada(), place, request), 'o', "{request}");
        }
    }
}

fn reader() -> Scope {
    let resources = vec![ScopeResources {
        resources: texts(&["pods", "pods/exec", "pods/proxy", "pods/log"]),
        ..ScopeResources::default()
    }];
    let rule = ScopeRule {
        verbs: texts(&["get", "list", "watch"]),
        resources,
        request_targets: texts(&["Cluster"]),
        cluster: "c".to_owned(),
        ..ScopeRule::default()
    };
    Scope { rules: vec![rule], ..Scope::default() }
}

/// A WebSocket upgrade arrives as a GET (Kubernetes' KEP-4006): a key that may only read runs nothing by it.
#[test]
fn a_scope_that_reads_does_not_upgrade() {
    let (policy, reader) = (all_usable(), scoped(&reader()));
    let pod = "/api/v1/namespaces/own/pods/x";
    for (request, want) in [
        (format!("GET {pod}"), '.'),
        (format!("GET {pod}/log?follow=1"), '.'),
        ("GET /api/v1/pods?watch=1".to_owned(), '.'),
        ("GET /api/v1/pods?watch=1+".to_owned(), '.'),
        (format!("GET {pod}/proxy/x"), '.'),
        (format!("GET {pod}/proxy/x+"), 's'),
        (format!("GET {pod}/exec"), 's'),
        (format!("GET {pod}/exec+"), 's'),
        (format!("POST {pod}/exec+"), 's'),
        (format!("GET {pod}+"), 's'),
        (format!("GET {pod}/portforward+"), 's'),
        (format!("DELETE {pod}"), 's'),
        ("GET /api/v1/secrets".to_owned(), 's'),
        // Open with every scope: the queries of the caller's own permissions, and the way to send
        // them.
        ("GET /apis".to_owned(), '.'),
        ("GET /apis+".to_owned(), 's'),
        ("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned(), '.'),
        ("POST /apis/authorization.k8s.io/v1/subjectaccessreviews".to_owned(), 's'),
        ("GET /metrics".to_owned(), 's'),
    ] {
        assert_eq!(asked(&policy, &reader, CLUSTER, &request), want, "{request}");
    }
    for place in [SPACE, BY_PLACE, OF_PROJECT] {
        for request in ["GET /api/v1/namespaces/own/pods/x", "GET /version"] {
            assert_eq!(asked(&policy, &reader, place, request), 's', "{request} {place:?}");
        }
    }
}

#[test]
fn a_space_in_a_scope_is_all_of_that_space_and_nothing_else() {
    let (project, space) = ("p".to_owned(), "s".to_owned());
    let scope = Scope { spaces: vec![ScopeSpace { project, space }], ..Scope::default() };
    let (policy, key) = (all_usable(), scoped(&scope));
    for (place, request, want) in [
        (SPACE, "POST /api/v1/namespaces/own/pods/x/exec+", '.'),
        (SPACE, "DELETE /api/v1/namespaces/own/secrets", '.'),
        (SPACE, "GET /api/v1/namespaces/other/pods", 'o'),
        (CLUSTER, "GET /api/v1/namespaces/own/pods", 's'),
        (CLUSTER, "GET /version", 's'),
        (OF_PROJECT, "GET /api/v1/namespaces/own/pods", 's'),
    ] {
        assert_eq!(asked(&policy, &key, place, request), want, "{request} {place:?}");
    }
}

/// siderolabs/omni#1002: `--as` is honoured or refused, never dropped.
#[test]
fn omni_1002_the_forwarded_identity_is_the_whole_of_what_was_asked_for() {
    let groups = ["platform:team:red", "ops", "dev", "system:nodes", "system:authenticated"];
    let bob = Identity {
        name: "bob".to_owned(),
        uid: "u1".to_owned(),
        groups: texts(&[&groups[..], &["system:masters"]].concat()),
        ..Identity::default()
    };
    let of = |identity: &Identity, wanted: Option<&Impersonation>, forward: &[&str]| {
        ForwardedIdentity::of(identity, wanted, &texts(forward)).map(|one| one.groups)
    };
    let ours = texts(&["platform:team:red", "system:authenticated"]);
    assert_eq!(of(&bob, None, &[]), Ok(ours.clone()));
    let with_ops = texts(&["platform:team:red", "ops", "system:authenticated"]);
    assert_eq!(of(&bob, None, &["ops", "system:nodes", "system:masters"]), Ok(with_ops));
    let wanted = |groups: &[&str]| Impersonation {
        user: "bob".to_owned(),
        groups: texts(groups),
        ..Impersonation::default()
    };
    assert_eq!(of(&bob, Some(&wanted(&[])), &[]), Ok(ours.clone()));
    assert_eq!(of(&bob, Some(&wanted(&["platform:team:red"])), &[]), Ok(ours));
    for refused in [
        wanted(&["dev"]),
        wanted(&["system:masters"]),
        Impersonation { uid: "u1".to_owned(), ..wanted(&[]) },
        Impersonation { extra: [("k".to_owned(), texts(&["v"]))].into(), ..wanted(&[]) },
    ] {
        let result = of(&bob, Some(&refused), &["system:masters"]);
        assert!(matches!(result, Err(TargetRefusal::NotForwarded(_))), "{refused:?}");
    }
    for name in ["", "system:kube-scheduler", "system:serviceaccount:kube-system:x"] {
        let system = Identity { name: name.to_owned(), ..bob.clone() };
        assert!(matches!(of(&system, None, &[]), Err(TargetRefusal::SystemIdentity(_))), "{name}");
        assert_eq!(asked(&all_usable(), &system, CLUSTER, "GET /version"), 'i', "{name}");
    }
    let nobody = Identity { groups: texts(&["system:unauthenticated"]), ..bob };
    assert!(of(&nobody, None, &[]).is_err());
}

#[test]
fn headers_have_the_identity_and_nothing_else() {
    let forwarded =
        ForwardedIdentity { user: "zoë".to_owned(), groups: texts(&["platform:user:zoë", "b"]) };
    let headers = forwarded.headers().unwrap();
    let lines: Vec<_> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let want = [
        ("impersonate-user", "zoë".as_bytes()),
        ("impersonate-group", "platform:user:zoë".as_bytes()),
        ("impersonate-group", b"b"),
    ];
    assert_eq!(lines, want);
    let broken = ForwardedIdentity { user: "a\r\nx: y".to_owned(), groups: Vec::new() };
    assert!(broken.headers().is_none());
}

fn on(verbs: &[&str], resources: &[&str]) -> PolicyRule {
    PolicyRule {
        verbs: texts(verbs),
        api_groups: texts(&[""]),
        resources: texts(resources),
        ..PolicyRule::default()
    }
}

fn paths(verbs: &[&str], paths: &[&str]) -> PolicyRule {
    let (verbs, non_resource_urls) = (texts(verbs), texts(paths));
    PolicyRule { verbs, non_resource_urls, ..PolicyRule::default() }
}

#[test]
fn rules_of_a_target_are_cut_to_what_gets_there() {
    let rules = || RulesOf {
        resource_rules: vec![
            on(&["get", "delete"], &["pods", "secrets"]),
            on(&["get"], &["pods/exec"]),
        ],
        non_resource_rules: vec![paths(&["get"], &["/version", "/metrics"])],
        incomplete: false,
    };
    let policy = all_usable();
    let cut = |identity: &Identity, place| policy.rules_at_target(identity, &place, "own", rules());
    assert_eq!(cut(&ada(), CLUSTER), rules());
    let read = RulesOf {
        resource_rules: vec![on(&["get"], &["pods"])],
        non_resource_rules: vec![paths(&["get"], &["/version"])],
        incomplete: true,
    };
    assert_eq!(cut(&scoped(&reader()), CLUSTER), read);
    let in_space = RulesOf {
        non_resource_rules: vec![paths(&["get"], &["/version"])],
        incomplete: true,
        ..rules()
    };
    assert_eq!(cut(&ada(), SPACE), in_space);
    let nodes = RulesOf { resource_rules: vec![on(&["get"], &["nodes"])], ..RulesOf::default() };
    let left = policy.rules_at_target(&ada(), &SPACE, "own", nodes);
    assert_eq!(left, RulesOf { incomplete: true, ..RulesOf::default() });
    let elsewhere = policy.rules_at_target(&ada(), &SPACE, "other", rules());
    assert_eq!(elsewhere, RulesOf { incomplete: true, ..RulesOf::default() });
    let names: Vec<String> = (0..300).map(|number| format!("r{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let long = RulesOf { resource_rules: vec![on(&names, &names)], ..RulesOf::default() };
    let left = policy.rules_at_target(&scoped(&reader()), &CLUSTER, "own", long);
    assert_eq!(left, RulesOf { incomplete: true, ..RulesOf::default() });
}

#[test]
fn a_review_of_access_is_asked_about_as_the_request_would_be() {
    let policy = all_usable();
    let review = |identity: &Identity, place, verb, resource, namespace, name| {
        let group = "";
        let (resource, subresource) =
            Option::unwrap_or(str::split_once(resource, '/'), (resource, ""));
        let attributes =
            Attributes::Resource { verb, group, resource, subresource, namespace, name };
        policy.decide_at_target(identity, &TargetRequest::of_review(place, attributes)).is_ok()
    };
    let reader = scoped(&reader());
    assert!(review(&reader, CLUSTER, "get", "pods", "own", ""));
    assert!(!review(&reader, CLUSTER, "delete", "pods", "own", ""));
    assert!(!review(&reader, CLUSTER, "get", "pods/exec", "own", "x"));
    assert!(!review(&reader, CLUSTER, "*", "*", "", ""));
    assert!(review(&ada(), SPACE, "get", "pods", "own", ""));
    assert!(!review(&ada(), SPACE, "get", "pods", "", ""));
    // Clients put their namespace into reviews about kinds that have none.
    assert!(review(&ada(), SPACE, "get", "namespaces", "own", "own"));
    assert!(!review(&ada(), SPACE, "get", "nodes", "own", "n"));
}
