//! Tests of agent configurations: their updates compared with a full computation, and their watch.

use std::collections::BTreeSet;

use postern_auth::attributes::Attributes;
use postern_auth::digest::Digest;
use postern_auth::policy::WhoCan;
use postern_kinds::MANAGEMENT_V1;
use postern_kinds::agent_config::Part;
use postern_kinds::cluster::Cluster;
use postern_kinds::cluster_role::ClusterRole;
use postern_kinds::cluster_role_binding::ClusterRoleBinding;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::project::Project;
use postern_kinds::rbac::BoundSubject;
use postern_kinds::role::Role;
use postern_kinds::role_binding::RoleBinding;
use postern_kinds::space_instance::SpaceInstance;
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_kinds::virtual_cluster_instance::VirtualClusterInstance;
use serde_json::{Value, json};

use super::*;
use crate::permit::ResourceTarget;
use crate::registry::agent_configs::watch::AgentWatcher;
use crate::registry::watch::Deliveries as _;

const INSTANCES: [AnyKindRef; 2] = [&VirtualClusterInstance, &SpaceInstance];
const CLUSTERS: [&str; 2] = ["c", "d"];
const NAMESPACES: [&str; 2] = ["p-a", "p-b"];
const NAMES: [&str; 3] = ["x", "y", "z"];
const RBAC: &str = "rbac.authorization.k8s.io";

/// The content of a document.
async fn said(server: &Fixture, cluster: &str, part: Option<Part>) -> Value {
    server.current().await;
    let document = server.registry.agent_config(cluster, part).await.unwrap();
    document.object.decode().unwrap().into_value()["spec"].clone()
}

/// The holders of `use` on an object, by the decisions themselves.
fn holders(server: &Fixture, resource: &str, namespace: &str, name: &str) -> Value {
    let (verb, group, subresource) = ("use", MANAGEMENT_V1.group, "");
    let attributes = Attributes::Resource { verb, group, resource, subresource, namespace, name };
    let who = server.registry.cache().policy().who_can(&attributes);
    let subjects = who.into_iter().map(|grantee| match grantee.who {
        WhoCan::Subject(BoundSubject::User(user)) => json!({ "user": user }),
        WhoCan::Subject(BoundSubject::Group(group)) => json!({ "group": group }),
        WhoCan::Subject(BoundSubject::Principal { group, uid }) => {
            json!({ "group": group, "uid": uid })
        }
        WhoCan::Owner { uid } => json!({ "uid": uid }),
        other => panic!("{other:?}"),
    });
    let texts: BTreeSet<String> = subjects.map(|one| one.to_string()).collect();
    json!([resource, namespace, name, texts])
}

/// The lists that the agent of a cluster must have, computed from all stored objects.
fn computed(server: &Fixture, cluster: &str) -> (Vec<Value>, Vec<Value>) {
    let cache = server.registry.cache();
    let (mut instances, mut uses) = (Vec::new(), vec![holders(server, "clusters", "", cluster)]);
    for kind in INSTANCES {
        let objects = cache.of(kind.info());
        for object in objects.list_intact(objects.prefix(), None, 0).objects {
            let object = object.decode().unwrap().into_value();
            let (metadata, at) = (&object["metadata"], &object["spec"]["clusterRef"]);
            if at["cluster"] != cluster {
                continue;
            }
            let namespace = metadata["namespace"].as_str().unwrap();
            let name = metadata["name"].as_str().unwrap();
            instances.push(json!([
                object["kind"],
                namespace,
                name,
                metadata["uid"],
                at["namespace"]
            ]));
            uses.push(holders(server, kind.info().plural, namespace, name));
        }
    }
    (instances, uses)
}

/// The same lists in the document for the agent.
async fn made(server: &Fixture, cluster: &str) -> (Vec<Value>, Vec<Value>) {
    let spec = said(server, cluster, Some(Part::Places)).await;
    let text = |one: &Value, name: &str| one[name].as_str().unwrap_or_default().to_owned();
    let instances = spec["instances"].as_array().unwrap().iter().map(|one| {
        let at = &one["clusterRef"]["namespace"];
        json!([text(one, "kind"), text(one, "namespace"), text(one, "name"), text(one, "uid"), at])
    });
    let uses = spec["use"].as_array().unwrap().iter().map(|one| {
        let subjects = one["subjects"].as_array().into_iter().flatten();
        let texts: BTreeSet<String> = subjects.map(Value::to_string).collect();
        json!([text(one, "resource"), text(one, "namespace"), text(one, "name"), texts])
    });
    (instances.collect(), uses.collect())
}

/// Creates, changes or removes a random object. A rejected request changes nothing.
async fn change_at_random(server: &Fixture, pick: &mut impl FnMut(usize) -> usize) {
    let namespace = NAMESPACES[pick(2)];
    let name = NAMES[pick(3)];
    let (kind, namespace): (AnyKindRef, _) = match pick(9) {
        0..=2 => (INSTANCES[0], Some(namespace)),
        3 => (INSTANCES[1], Some(namespace)),
        4 => (&Role, Some(namespace)),
        5 => (&RoleBinding, Some(namespace)),
        6 => (&ClusterRole, None),
        7 => (&ClusterRoleBinding, None),
        _ => (&Team, None),
    };
    let owner = ["ada", "eve"][pick(2)];
    let verbs = [["use"], ["*"], ["get"]][pick(3)];
    let resources = [["virtualclusterinstances"], ["*"], ["sharedsecrets"], ["clusters"]][pick(4)];
    let names = [json!([]), json!(["x"]), json!(["c", "y"])][pick(3)].clone();
    let (role, is_cluster_role) = (NAMES[pick(3)], namespace.is_none() || pick(2) == 0);
    let subject = [("User", "eve@example.com"), ("Group", "platform:team:x")][pick(2)];
    let body = match kind.info().kind {
        "Role" | "ClusterRole" => json!({ "rules": [{ "verbs": verbs, "resources": resources,
            "apiGroups": [MANAGEMENT_V1.group], "resourceNames": names }] }),
        "RoleBinding" | "ClusterRoleBinding" => json!({
            "roleRef": { "apiGroup": RBAC, "name": role,
                "kind": if is_cluster_role { "ClusterRole" } else { "Role" } },
            "subjects": [{ "apiGroup": RBAC, "kind": subject.0, "name": subject.1 }] }),
        "Team" => json!({ "spec": { "users": [owner] } }),
        _ => json!({ "spec": { "owner": { "user": owner },
            "clusterRef": { "cluster": CLUSTERS[pick(2)], "namespace": role },
            "access": [{ "verbs": verbs, "users": [owner] }] } }),
    };
    let mut whole = body;
    if kind.info().plural == VirtualClusterInstance.info().plural {
        whole["spec"]["clusterRef"]["virtualCluster"] = name.into();
    }
    let at = At { kind, namespace, name };
    match pick(4) {
        0 => {
            let _ = server.try_delete(at, DeleteOptions::default()).await;
        }
        1 => {
            let set = |value: &mut Value| {
                for field in ["spec", "rules", "subjects"] {
                    if let Some(new) = whole.get(field) {
                        value[field] = new.clone();
                    }
                }
            };
            let _ = server.try_change(at, set).await;
        }
        _ => {
            let _ = server.try_make(at, whole).await;
        }
    }
}

/// Two users, two clusters and two projects.
async fn scene() -> Fixture {
    let server = fixture().await;
    for name in ["ada", "eve"] {
        let spec = json!({ "spec": { "subject": format!("{name}@example.com") } });
        server.make(at(&User, name), spec).await;
    }
    for name in CLUSTERS {
        server.make(at(&Cluster, name), json!({})).await;
    }
    for name in ["a", "b"] {
        server.make(at(&Project, name), json!({})).await;
    }
    server.current().await;
    server
}

#[tokio::test]
async fn what_is_kept_in_step_is_what_a_computation_of_everything_gives() {
    let (mut most_instances, mut most_subjects) = (0, 0);
    for seed in 1..=3_u64 {
        let server = scene().await;
        let mut state = seed;
        let mut pick = |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % below
        };
        for step in 0..150 {
            change_at_random(&server, &mut pick).await;
            for cluster in CLUSTERS {
                let found = made(&server, cluster).await;
                let want = computed(&server, cluster);
                assert_eq!(found, want, "seed {seed}, step {step}, cluster {cluster}");
                let subjects = want.1.iter().map(|one| one[3].as_array().unwrap().len()).sum();
                most_instances = most_instances.max(want.0.len());
                most_subjects = most_subjects.max(subjects);
            }
        }
    }
    assert!(most_instances > 2 && most_subjects > 8, "{most_instances} {most_subjects}");
}

/// Gives ada's key the configuration of the agent of `c`, by a role.
async fn agent_key(server: &Fixture) -> Digest {
    let rule = json!({ "verbs": ["get", "watch"], "apiGroups": [MANAGEMENT_V1.group],
        "resources": ["clusters/agentconfig"], "resourceNames": ["c"] });
    server.make(at(&ClusterRole, "agent"), json!({ "rules": [rule] })).await;
    let binding = json!({
        "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": "agent" },
        "subjects": [{ "apiGroup": RBAC, "kind": "User", "name": "ada@example.com" }] });
    server.make(at(&ClusterRoleBinding, "agent"), binding).await;
    server.key_of("agent", "ada", json!({ "scope": { "rules": [{}] } })).await
}

async fn watch_of(server: &Fixture, digest: Digest, part: Option<Part>) -> AgentWatcher {
    server.current().await;
    let action = Cluster.info().action("agentconfig", Verb::Watch);
    let target =
        ResourceTarget { action, ..ResourceTarget::object(&Cluster, Verb::Watch, None, "c") };
    let policy = server.registry.cache().policy();
    let permit = Permit::decide(policy, server.credential(digest), target).unwrap();
    let (options, ending) = (options("watch=1&allowWatchBookmarks=1"), server.ending.subscribe());
    AgentWatcher::begin(&server.registry, &permit, part, &options, ending).await.unwrap()
}

async fn next(watcher: &mut AgentWatcher) -> String {
    names(&watcher.next().await.unwrap()).join(",")
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_what_changes_then_that_nothing_does_and_ends_with_its_key() {
    let server = scene().await;
    let digest = agent_key(&server).await;
    let mut all = Vec::new();
    for part in [None, Some(Part::Tokens), Some(Part::Places)] {
        let mut watcher = watch_of(&server, digest, part).await;
        assert_eq!(next(&mut watcher).await, "ADDED c");
        assert_eq!(next(&mut watcher).await, "BOOKMARK false", "{part:?}");
        all.push(watcher);
    }
    let [whole, tokens, places] = &mut all[..] else { unreachable!() };
    let instance = json!({ "spec": { "owner": { "user": "eve" },
        "clusterRef": { "cluster": "c", "namespace": "n" } } });
    server.make(within("p-a", &SpaceInstance, "x"), instance).await;
    assert_eq!(next(whole).await, "MODIFIED c");
    assert_eq!(next(places).await, "MODIFIED c");
    assert_eq!(next(tokens).await, "BOOKMARK false", "it is of the other part");
    server.delete(at(&OwnedAccessKey, "agent")).await;
    for watcher in &mut all {
        let mut last = String::new();
        while let Some(deliveries) = watcher.next().await {
            last = names(&deliveries).join(",");
        }
        assert_eq!(last, "ERROR 401");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_when_its_caller_may_not_watch_any_more() {
    let server = scene().await;
    let digest = agent_key(&server).await;
    let mut watcher = watch_of(&server, digest, Some(Part::Tokens)).await;
    assert_eq!(next(&mut watcher).await, "ADDED c");
    server.delete(at(&ClusterRoleBinding, "agent")).await;
    assert_eq!(next(&mut watcher).await, "ERROR 410");
    assert!(watcher.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_revocation_waits_for_nothing_that_is_on_the_cluster() {
    let server = scene().await;
    let digest = agent_key(&server).await;
    let revoked = server.key_of("other", "eve", json!({})).await;
    server.token(&revoked).await;
    let mut watcher = watch_of(&server, digest, Some(Part::Tokens)).await;
    assert_eq!(next(&mut watcher).await, "ADDED c");
    let before = said(&server, "c", Some(Part::Tokens)).await;
    let held = server.registry.agent_configs().block_places().await;
    server.delete(at(&OwnedAccessKey, "other")).await;
    assert_eq!(next(&mut watcher).await, "MODIFIED c");
    let after = said(&server, "c", Some(Part::Tokens)).await;
    let count = |spec: &Value| spec["revocations"].as_array().map_or(0, Vec::len);
    assert!(count(&after) > count(&before), "{after}");
    assert!(after.get("instances").is_none_or(|all| all == &json!([])));
    drop(held);
    let whole = said(&server, "c", None).await;
    assert_eq!(whole["revocations"], after["revocations"], "an older agent asks for the whole");
    assert!(whole.get("part").is_none() && whole["use"].is_array(), "{whole}");
}

#[tokio::test]
async fn a_change_of_other_rules_makes_nothing_anew() {
    let server = scene().await;
    let places = async || {
        server.current().await;
        server.registry.agent_config("c", Some(Part::Places)).await.unwrap()
    };
    let bind = async |name: &str, verbs: Value, resource: &str| {
        let rule = json!({ "verbs": verbs, "apiGroups": [MANAGEMENT_V1.group],
            "resources": [resource] });
        server.make(within("p-a", &Role, name), json!({ "rules": [rule] })).await;
        let binding = json!({
            "roleRef": { "apiGroup": RBAC, "kind": "Role", "name": name },
            "subjects": [{ "apiGroup": RBAC, "kind": "User", "name": "eve@example.com" }] });
        server.make(within("p-a", &RoleBinding, name), binding).await;
    };
    let instance = json!({ "spec": { "owner": { "user": "ada" },
        "clusterRef": { "cluster": "c", "namespace": "n" } } });
    server.make(within("p-a", &SpaceInstance, "x"), instance).await;
    let first = places().await;
    bind("secrets", json!(["*"]), "sharedsecrets").await;
    bind("reads", json!(["get"]), "spaceinstances").await;
    assert!(Arc::ptr_eq(&first, &places().await), "nothing is about use");
    let looks = server.registry.agent_configs().checks().await;
    bind("more", json!(["use"]), "projectsecrets").await;
    places().await;
    assert_eq!(server.registry.agent_configs().checks().await, looks, "no instance is looked at");
    bind("uses", json!(["use"]), "spaceinstances").await;
    let second = places().await;
    assert!(!Arc::ptr_eq(&first, &second));
    assert!(said(&server, "c", Some(Part::Places)).await.to_string().contains("eve"));
}
