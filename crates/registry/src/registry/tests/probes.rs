//! Probes of routes, with a clock that the test moves.

use std::collections::BTreeMap;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use postern_auth::gateway_path::GatewayTarget;
use postern_kinds::cluster::{Cluster, DIRECT_ENDPOINT};
use postern_kinds::namespace::Namespace;
use postern_kinds::probe::ProbeResult;
use postern_kinds::project::Project;
use postern_kinds::virtual_cluster_instance::VirtualClusterInstance;

use super::*;
use crate::controllers::{namespaces, probes};

/// The namespace of the project with the instances.
const NAMESPACE: &str = "p-shop";

/// The targets, with their results and the attempts at them.
#[derive(Default)]
struct Targets {
    results: Mutex<BTreeMap<String, ProbeResult>>,
    attempts: Mutex<Vec<(u64, String)>>,
    under_way: Mutex<BTreeMap<String, usize>>,
}

impl Targets {
    fn set(&self, name: &str, result: ProbeResult) {
        self.results.lock().insert(name.to_owned(), result);
    }

    /// The seconds of the attempts at a target since the last call.
    fn take(&self, name: &str) -> Vec<u64> {
        let mut attempts = self.attempts.lock();
        let taken = attempts.iter().filter(|(_, of)| of == name).map(|(at, _)| *at).collect();
        attempts.retain(|(_, of)| of != name);
        taken
    }

    fn attempt(self: &Arc<Self>) -> probes::Attempt {
        let (targets, began) = (self.clone(), Instant::now());
        Arc::new(move |target| {
            let (group, name) = match target {
                GatewayTarget::Cluster { cluster } => (cluster.clone(), cluster),
                GatewayTarget::ProjectVirtualCluster { project, name } => (project, name),
                other => panic!("{other:?}"),
            };
            let targets = targets.clone();
            targets.attempts.lock().push((began.elapsed().as_secs(), name.clone()));
            async move {
                let count = *targets
                    .under_way
                    .lock()
                    .entry(group.clone())
                    .and_modify(|count| *count += 1)
                    .or_insert(1);
                assert_eq!(count, 1, "one attempt at a time in {group}");
                let result = targets.results.lock().get(&name).copied();
                let result = result.unwrap_or(ProbeResult::Reached);
                if result == ProbeResult::Failed {
                    tokio::time::sleep(Duration::from_secs(10)).await;
                }
                targets.under_way.lock().remove(&group);
                result
            }
            .boxed()
        })
    }
}

fn instance(name: &str) -> At<'_> {
    within(NAMESPACE, &VirtualClusterInstance, name)
}

/// Sets the endpoint of the agent of a Cluster, and returns the phase that it has then.
async fn annotate(server: &Fixture, cluster: &str, endpoint: &str) -> String {
    let set = |new: &mut Value| new["metadata"]["annotations"][DIRECT_ENDPOINT] = endpoint.into();
    phase_of(server.change(at(&Cluster, cluster), set).await)
}

fn phase_of(object: Object) -> String {
    let status = object.into_value()["status"].clone();
    let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
    format!("{} {}", text("phase"), text("reason")).trim().to_owned()
}

fn phase(server: &Fixture, at: At<'_>) -> String {
    let object = server.registry.cache().of(at.kind.info()).get(&at.key()).unwrap().unwrap();
    phase_of(object.decode().unwrap())
}

async fn endpoint_cluster(server: &Fixture, name: &str) {
    server.make(at(&Cluster, name), json!({})).await;
    assert_eq!(annotate(server, name, "agent.example:443").await, "Pending NotProbed");
}

async fn seconds(count: u64) {
    tokio::time::sleep(Duration::from_secs(count)).await;
}

#[tokio::test(start_paused = true)]
async fn a_route_is_tried_after_a_change_and_once_a_minute_and_less_often_while_it_fails() {
    let server = fixture().await;
    let targets = Arc::new(Targets::default());
    targets.set("bad", ProbeResult::Failed);
    let mut running = tokio::task::JoinSet::new();
    running.spawn(probes::run(server.registry.clone(), targets.attempt()));
    for name in ["good", "bad"] {
        endpoint_cluster(&server, name).await;
    }
    server.make(at(&Cluster, "none"), json!({})).await;
    seconds(1).await;
    assert_eq!(phase(&server, at(&Cluster, "good")), "Ready");
    seconds(12).await;
    assert_eq!(phase(&server, at(&Cluster, "bad")), "Failed Unreachable");
    seconds(277).await;
    assert_eq!(targets.take("good"), [0, 60, 120, 180, 240]);
    // Each attempt takes 10 s, and then come 1, 2, 4, 8, 16, 32, 64 s.
    assert_eq!(targets.take("bad"), [0, 11, 23, 37, 55, 81, 123, 197]);
    assert_eq!(phase(&server, at(&Cluster, "none")), "Pending NoAgent");
    assert!(targets.take("none").is_empty());
    seconds(4 * 3600).await;
    let attempts = targets.take("bad");
    let longest = attempts.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert_eq!(longest, Some(910));
    // A change of the route is tried at once.
    targets.set("bad", ProbeResult::Reached);
    assert_eq!(annotate(&server, "bad", "other.example:443").await, "Pending NotProbed");
    seconds(1).await;
    assert_eq!(
        (targets.take("bad").len(), phase(&server, at(&Cluster, "bad")).as_str()),
        (1, "Ready")
    );
    // A target that ends is noticed within a minute, and one that is back within seconds.
    targets.set("good", ProbeResult::Failed);
    seconds(71).await;
    assert_eq!(phase(&server, at(&Cluster, "good")), "Failed Unreachable");
    targets.set("good", ProbeResult::Reached);
    seconds(30).await;
    assert_eq!(phase(&server, at(&Cluster, "good")), "Ready");
}

#[tokio::test(start_paused = true)]
async fn the_instances_of_a_project_are_tried_one_after_another_and_old_results_are_unknown() {
    const DEAD: usize = 30;
    let server = fixture().await;
    let targets = Arc::new(Targets::default());
    let mut running = tokio::task::JoinSet::new();
    running.spawn(namespaces::run(server.registry.clone()));
    running.spawn(probes::run(server.registry.clone(), targets.attempt()));
    server.make(at(&Project, "shop"), json!({})).await;
    let key = at(&Namespace, NAMESPACE).key();
    while server.registry.cache().of(Namespace.info()).get(&key).unwrap().is_none() {
        seconds(1).await;
    }
    endpoint_cluster(&server, "east").await;
    let on_east = |name: &str| json!({ "spec": { "clusterRef": { "cluster": "east", "namespace": "n", "virtualCluster": name } } });
    server.make(instance("live"), on_east("live")).await;
    seconds(2).await;
    assert_eq!(phase(&server, instance("live")), "Ready");
    for number in 0..DEAD {
        let name = format!("dead{number}");
        targets.set(&name, ProbeResult::Failed);
        server.make(instance(&name), on_east(&name)).await;
    }
    let mut was_unknown = false;
    for _ in 0..600 {
        seconds(1).await;
        was_unknown |= phase(&server, instance("live")) == "Pending NotProbed";
        assert_eq!(phase(&server, at(&Cluster, "east")), "Ready", "other groups do not wait");
    }
    assert!(was_unknown, "a result of more than three minutes is unknown");
    assert_eq!(phase(&server, instance("dead0")), "Pending Unreachable");
    // The failing ones are tried less and less often, so the others get their turn again.
    seconds(3600).await;
    assert_eq!(phase(&server, instance("live")), "Ready");
}
