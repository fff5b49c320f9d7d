//! An agent decides as the central server does: for random policies, callers, scopes and requests.
//! Other tests show the effect of a configuration on tokens, each of which is a JWT.

use http::Request;
use postern_auth::attributes::Attributes;
use postern_auth::endpoint_token::{SigningKey, TokenRefusal};
use postern_auth::identity::Identity;
use postern_auth::kube_request::KubeRequest;
use postern_auth::policy::WhoCan;
use postern_auth::policy::target::TargetRequest;
use postern_auth::scope::ScopeRules;
use postern_kinds::agent_config::{ClusterId, Revocation};
use postern_kinds::scope::Scope;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::json;

use super::*;
use crate::lifespan::Lifespan;
use crate::state::{Refused, State};
use crate::testing::{NOW, at_second, claims, spec_with};

/// Resource, namespace and name of all that can be used.
const OBJECTS: [(&str, &str, &str); 5] = [
    ("clusters", "", "c"),
    ("spaceinstances", "p-p", "s"),
    ("spaceinstances", "p-q", "s"),
    ("virtualclusterinstances", "p-p", "v"),
    ("virtualclusterinstances", "p-q", "w"),
];

const REQUESTS: [(&str, &str); 10] = [
    ("GET", "/api/v1/namespaces/own/pods/x"),
    ("GET", "/api/v1/namespaces/own/pods?watch=1"),
    ("GET", "/api/v1/namespaces/own/pods/x/exec"),
    ("POST", "/api/v1/namespaces/own/pods"),
    ("DELETE", "/api/v1/namespaces/other/secrets/x"),
    ("GET", "/api/v1/namespaces/own"),
    ("GET", "/api/v1/nodes"),
    ("GET", "/version"),
    ("GET", "/metrics"),
    ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
];

fn scopes() -> Vec<serde_json::Value> {
    vec![
        json!({}),
        json!({ "projects": [{ "project": "p" }] }),
        json!({ "projects": [{ "project": "*" }] }),
        json!({ "spaces": [{ "project": "p", "space": "s" }] }),
        json!({ "spaces": [{ "project": "q", "space": "*" }] }),
        json!({ "virtualClusters": [{ "project": "p", "virtualCluster": "v" }] }),
        json!({ "rules": [{ "cluster": "c" }] }),
        json!({ "rules": [{ "cluster": "d" }] }),
        json!({ "rules": [{ "verbs": ["get"], "requestTargets": ["Cluster", "ProjectSpace"] }] }),
        json!({ "rules": [{ "resources": [{ "group": "", "resources": ["pods"] }] }] }),
        json!({ "allowPlatformCli": true }),
    ]
}

fn instance(index: usize) -> Instance {
    let (resource, namespace, name) = OBJECTS[index];
    let kinds = [VIRTUAL_CLUSTERS, SPACES];
    let (kind, _) = kinds.into_iter().find(|(_, plural)| *plural == resource).unwrap();
    Instance {
        kind: kind.to_owned(),
        project: namespace.strip_prefix("p-").unwrap().to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{index}"),
        cluster_ref: ClusterLocation {
            namespace: "own".to_owned(),
            virtual_cluster: String::new(),
        },
    }
}

/// The configuration that the central server makes from a policy.
fn spec_of(central: &Policy) -> Spec {
    let (verb, group, subresource) = ("use", MANAGEMENT_V1.group, "");
    let uses = OBJECTS.iter().map(|(resource, namespace, name)| {
        let attributes =
            Attributes::Resource { verb, group, resource, subresource, namespace, name };
        let subject = |who| match who {
            WhoCan::Owner { uid } => UseSubject { uid, ..UseSubject::default() },
            WhoCan::Subject(BoundSubject::User(user)) => {
                UseSubject { user, ..UseSubject::default() }
            }
            WhoCan::Subject(BoundSubject::Group(group)) => {
                UseSubject { group, ..UseSubject::default() }
            }
            WhoCan::Subject(BoundSubject::Principal { group, uid }) => {
                UseSubject { group, uid, ..UseSubject::default() }
            }
            other => panic!("unexpected holder of `use`: {other:?}"),
        };
        let subjects = central.who_can(&attributes).into_iter().map(|one| subject(one.who));
        Use {
            resource: (*resource).to_owned(),
            namespace: (*namespace).to_owned(),
            name: (*name).to_owned(),
            subjects: subjects.collect(),
        }
    });
    Spec {
        cluster: ClusterId { name: "c".to_owned(), uid: "u".to_owned() },
        uses: uses.collect(),
        instances: (1..OBJECTS.len()).map(instance).collect(),
        ..Spec::default()
    }
}

/// The place as the central server knows it.
fn central_place<'a>(target: &'a GatewayTarget, spec: &'a Spec) -> ResolvedTarget<'a> {
    let (project, name, resource) = match target {
        GatewayTarget::Space { project, name } => (project, name, SPACES),
        GatewayTarget::ProjectVirtualCluster { project, name } => (project, name, VIRTUAL_CLUSTERS),
        _ => {
            let target = target.request_target();
            return ResolvedTarget { target, instance: None, space_namespace: None };
        }
    };
    let is_it = |one: &&Instance| {
        (&one.project, &one.name, one.kind.as_str()) == (project, name, resource.0)
    };
    let found = spec.instances.iter().find(is_it);
    let instance = found.map(|one| InstanceRef {
        resource: resource.1,
        namespace: &one.namespace,
        name: &one.name,
    });
    let space = found.filter(|_| resource == SPACES);
    ResolvedTarget {
        target: target.request_target(),
        instance,
        space_namespace: space.map(|one| one.cluster_ref.namespace.as_str()),
    }
}

fn target() -> impl Strategy<Value = GatewayTarget> {
    let name = || select(vec!["s", "v", "w", "x"]).prop_map(str::to_owned);
    let project = || select(vec!["p", "q"]).prop_map(str::to_owned);
    prop_oneof![
        Just(GatewayTarget::Cluster { cluster: "c".to_owned() }),
        (project(), name()).prop_map(|(project, name)| GatewayTarget::Space { project, name }),
        (project(), name())
            .prop_map(|(project, name)| GatewayTarget::ProjectVirtualCluster { project, name }),
    ]
}

fn subject() -> impl Strategy<Value = BoundSubject> {
    prop_oneof![
        select(vec!["ada", "eve"]).prop_map(|name| BoundSubject::User(name.to_owned())),
        select(vec!["platform:user:ada", "platform:team:t", "system:authenticated", "g"])
            .prop_map(|name| BoundSubject::Group(name.to_owned())),
        select(vec!["platform:user:ada", "platform:team:t"]).prop_flat_map(|group| {
            select(vec!["uid-ada", "uid-t", "uid-old"]).prop_map(move |uid| {
                BoundSubject::Principal { group: group.to_owned(), uid: uid.to_owned() }
            })
        }),
    ]
}

fn texts(all: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> {
    subsequence(all, 0..=all.len()).prop_map(|some| some.into_iter().map(str::to_owned).collect())
}

type Granted = (Option<&'static str>, PolicyRule, Vec<BoundSubject>);

fn granted() -> impl Strategy<Value = Granted> {
    let rule = (
        texts(&["use", "get", "*"]),
        texts(&["management.platform.sh", "", "*"]),
        texts(&["clusters", "spaceinstances", "virtualclusterinstances", "*", "clusters/status"]),
        texts(&["c", "s", "v", "w"]),
    );
    let rule = rule.prop_map(|(verbs, api_groups, resources, resource_names)| PolicyRule {
        verbs,
        api_groups,
        resources,
        resource_names,
        ..PolicyRule::default()
    });
    let namespace = select(vec![None, Some("p-p"), Some("p-q")]);
    (namespace, rule, prop::collection::vec(subject(), 1..3))
}

fn central_of(granted: Vec<Granted>, owners: &[Option<&str>]) -> Policy {
    let mut central = Policy::default();
    for ((resource, namespace, name), owner) in OBJECTS.iter().zip(owners) {
        let kind = GroupResource { group: MANAGEMENT_V1.group, resource };
        let namespace = Some(*namespace).filter(|namespace| !namespace.is_empty());
        central.apply(namespace, name, PolicyChange::Owner(kind, owner.map(str::to_owned)));
    }
    for project in ["p", "q"] {
        let namespace = format!("p-{project}");
        central.apply(None, &namespace, PolicyChange::Namespace(Some(project.to_owned())));
    }
    for (index, (namespace, rule, subjects)) in granted.into_iter().enumerate() {
        let role = format!("r{index}");
        central.apply(namespace, &role, PolicyChange::Role(Some(vec![rule])));
        let is_cluster_role = namespace.is_none();
        let facts = BindingFacts { is_cluster_role, role: role.clone(), subjects };
        central.apply(namespace, &role, PolicyChange::Binding(Some(facts)));
    }
    central
}

fn identity() -> impl Strategy<Value = Identity> {
    let name = select(vec!["ada", "eve", "system:admin"]);
    let groups =
        texts(&["platform:user:ada", "platform:team:t", "system:masters", "g", "platform:x"]);
    let uids = texts(&["uid-ada", "uid-t"]);
    let scopes = prop::collection::vec(select(scopes()), 0..3);
    (name, groups, uids, scopes).prop_map(|(name, mut groups, principal_uids, scopes)| {
        groups.push("system:authenticated".to_owned());
        let scope = |value| {
            let scope: Scope = serde_json::from_value(value).unwrap();
            Arc::new(ScopeRules::new(&scope))
        };
        Identity {
            name: name.to_owned(),
            groups,
            principal_uids,
            scopes: scopes.into_iter().map(scope).collect(),
            ..Identity::default()
        }
    })
}

fn kube(method: &str, path: &str) -> KubeRequest {
    let (parts, ()) = Request::builder().method(method).uri(path).body(()).unwrap().into_parts();
    KubeRequest::parse(&parts, parts.uri.path()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn an_agent_decides_as_the_central_server_does(
        granted in prop::collection::vec(granted(), 0..5),
        owners in prop::collection::vec(select(vec![None, Some("uid-ada"), Some("uid-t")]), 5),
        identity in identity(),
        target in target(),
    ) {
        let central = central_of(granted, &owners);
        let config = ActiveConfig::new(spec_of(&central), None);
        for (method, path) in REQUESTS {
            let request = kube(method, path);
            let place = central_place(&target, &config.spec);
            let want = central.decide_at_target(&identity, &TargetRequest::new(place, &request));
            let here = TargetRequest::new(config.resolve(&target), &request);
            let found = config.policy.decide_at_target(&identity, &here);
            prop_assert_eq!(found, want, "{} {} at {:?}", method, path, target);
        }
    }
}

#[test]
fn what_is_heard_decides_at_once_and_silence_ends_it() {
    let time = Arc::new(std::sync::atomic::AtomicI64::new(NOW));
    let clock = {
        let time = time.clone();
        Arc::new(move || at_second(time.load(std::sync::atomic::Ordering::Relaxed)))
    };
    let at = |seconds| time.store(NOW + seconds, std::sync::atomic::Ordering::Relaxed);
    let state = State::new(clock, 500);
    let key = SigningKey::generate().unwrap();
    let token = key.issue(&claims()).unwrap();
    let cluster = GatewayTarget::Cluster { cluster: "c".to_owned() };
    let request = kube("GET", "/api/v1/pods?watch=1");
    let log = kube("GET", "/api/v1/namespaces/own/pods/x/log?follow=true");
    let exec = kube("GET", "/api/v1/namespaces/own/pods/x/exec");
    let decide = || state.decide(token.expose(), &cluster, &request);
    assert_eq!(decide().unwrap_err(), Refused::NotConfigured);
    assert!(state.apply_config(spec_with(&key), NOW));
    assert!(!state.apply_config(spec_with(&key), NOW), "nothing new");
    let allowed = decide().unwrap();
    assert_eq!(allowed.headers["impersonate-user"], "ada");
    assert_eq!(allowed.headers["impersonate-group"], "system:authenticated");
    let still = |kube: &KubeRequest| {
        let lifespan = Lifespan::of(kube, &allowed.token, true);
        state.still_allows(token.expose(), &allowed.token, &cluster, kube, lifespan)
    };

    let revocations = vec![Revocation { uid: "uid-k".to_owned(), revocation_revision: 11 }];
    let before = state.subscribe();
    assert!(state.apply_config(Spec { revocations, ..spec_with(&key) }, NOW));
    assert!(before.has_changed().unwrap(), "watchers look again");
    assert_eq!(decide().unwrap_err(), Refused::Token(TokenRefusal::Revoked));
    assert!(!still(&request) && !still(&exec));
    assert!(state.apply_config(Spec { uses: Vec::new(), ..spec_with(&key) }, NOW));
    assert!(matches!(decide().unwrap_err(), Refused::Target(_)));
    assert!(state.apply_config(Spec { keys: Vec::new(), ..spec_with(&key) }, NOW));
    assert_eq!(decide().unwrap_err(), Refused::Token(TokenRefusal::UnknownKey));
    state.apply_config(spec_with(&key), NOW);

    // The agent's own limit counts, or the central server's if that is shorter.
    at(500);
    assert!(decide().is_ok());
    at(501);
    assert_eq!(decide().unwrap_err(), Refused::Offline);
    assert!(!still(&exec));
    state.apply_config(Spec { max_offline_seconds: 10, ..spec_with(&key) }, NOW + 480);
    assert_eq!(decide().unwrap_err(), Refused::Offline);
    // A watch and a log end with their token; a stream goes on.
    at(700);
    state.apply_config(spec_with(&key), NOW + 700);
    assert!(!still(&request) && !still(&log) && still(&exec));
    assert_eq!(decide().unwrap_err(), Refused::Token(TokenRefusal::Expired));
}

#[test]
fn a_stream_goes_on_after_its_token_until_its_key_ends() {
    let time = Arc::new(std::sync::atomic::AtomicI64::new(NOW));
    let clock = {
        let time = time.clone();
        Arc::new(move || at_second(time.load(std::sync::atomic::Ordering::Relaxed)))
    };
    let at = |seconds| time.store(NOW + seconds, std::sync::atomic::Ordering::Relaxed);
    let state = State::new(clock, 5000);
    let key = SigningKey::generate().unwrap();
    state.apply_config(spec_with(&key), NOW);
    let mut says = claims();
    says.platform.keys_end = Some(NOW + 900);
    let token = key.issue(&says).unwrap();
    let cluster = GatewayTarget::Cluster { cluster: "c".to_owned() };
    let exec = kube("GET", "/api/v1/namespaces/own/pods/x/exec");
    let allowed = state.decide(token.expose(), &cluster, &exec).unwrap();
    let lifespan = Lifespan::of(&exec, &allowed.token, true);
    let still = || state.still_allows(token.expose(), &allowed.token, &cluster, &exec, lifespan);
    for (seconds, goes_on) in [(700, true), (899, true), (900, false)] {
        at(seconds);
        assert_eq!(still(), goes_on, "{seconds}");
    }
}

#[test]
fn tokens_that_were_verified_need_not_be_again_unless_they_are_for_somebody_else_now() {
    let key = SigningKey::generate().unwrap();
    let first = ActiveConfig::new(spec_with(&key), None);
    let second = ActiveConfig::new(Spec { uses: Vec::new(), ..spec_with(&key) }, Some(&first));
    assert!(Arc::ptr_eq(&first.verifier, &second.verifier));
    let other = Spec { audiences: vec!["x".to_owned()], ..spec_with(&key) };
    let third = ActiveConfig::new(other, Some(&second));
    let token = key.issue(&claims()).unwrap();
    assert!(second.verifier.verify(token.expose(), NOW).is_ok());
    assert_eq!(third.verifier.verify(token.expose(), NOW), Err(TokenRefusal::Audience));
}

/// The holders of `use` on each object, and the project of each namespace.
fn said(policy: &Policy) -> Vec<String> {
    let (verb, group, subresource) = ("use", MANAGEMENT_V1.group, "");
    let objects = OBJECTS.iter().map(|(resource, namespace, name)| {
        let attributes =
            Attributes::Resource { verb, group, resource, subresource, namespace, name };
        let who = policy.who_can(&attributes).into_iter().map(|grantee| format!("{grantee:?}"));
        let project = policy.projects().of(namespace);
        format!("{name} {project:?} {:?}", who.collect::<std::collections::BTreeSet<_>>())
    });
    objects.collect()
}

proptest! {
    /// A new configuration removes the permissions that only the earlier one gave.
    #[test]
    fn what_is_made_of_the_last_policy_is_what_is_made_anew(
        steps in prop::collection::vec(
            (
                prop::collection::vec(granted(), 0..6),
                prop::collection::vec(prop::option::of(select(vec!["uid-ada", "uid-team"])), 5),
                subsequence(vec![0, 1, 2, 3, 4], 0..=5),
                subsequence(vec![1, 2, 3, 4], 0..=4),
            ),
            1..8,
        ),
    ) {
        let mut last: Option<ActiveConfig> = None;
        for (granted, owners, uses, instances) in steps {
            let whole = spec_of(&central_of(granted, &owners));
            let spec = Spec {
                uses: uses.into_iter().map(|index: usize| whole.uses[index].clone()).collect(),
                instances: instances.into_iter().map(instance).collect(),
                ..whole
            };
            let next = ActiveConfig::new(spec.clone(), last.as_ref());
            prop_assert_eq!(said(&next.policy), said(&ActiveConfig::new(spec, None).policy));
            last = Some(next);
        }
    }
}
