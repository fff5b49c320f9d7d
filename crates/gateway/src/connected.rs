//! Writes the agents that have tunnels to this server into the status of their Clusters.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use postern_registry::controllers::connected_agents;
use postern_registry::registry::Registry;
use postern_telemetry::log_limited;
use tokio::time::{Instant, sleep, timeout_at};

use super::tunnels::{AgentsOfCluster, TunnelRegistry};

/// The time in which changes are collected and then written together.
const BATCH_INTERVAL: Duration = Duration::from_millis(200);

/// How long a server lists agents that were connected before it started: most of them connect again.
const GRACE: Duration = Duration::from_secs(5);

/// How often the lists are checked for agents of servers that are gone.
const CHECK_INTERVAL: Duration = Duration::from_secs(15);

/// Runs until it is dropped.
pub async fn report(registry: Arc<Registry>, tunnels: Arc<TunnelRegistry>) {
    let (mut changes, mut next_check) = (tunnels.subscribe(), Instant::now() + GRACE);
    loop {
        changes.mark_unchanged();
        let is_check = Instant::now() >= next_check;
        if is_check {
            next_check = Instant::now() + CHECK_INTERVAL;
        }
        write_all(&registry, &tunnels, is_check).await;
        sleep(BATCH_INTERVAL).await;
        // Either is a reason to look again.
        let _ = timeout_at(next_check, changes.changed()).await;
    }
}

/// Writes the lists that have changed; with `is_check`, also those of clusters without a tunnel here.
async fn write_all(registry: &Arc<Registry>, tunnels: &TunnelRegistry, is_check: bool) {
    let servers = live_servers(registry, tunnels);
    let is_live = |server: &str| servers.contains(server);
    let known = tunnels.agents();
    let names: HashSet<&str> = known.iter().map(|cluster| cluster.name.as_str()).collect();
    let others =
        if is_check { connected_agents::clusters_with_agents(registry) } else { Vec::new() };
    let others = others.into_iter().filter(|name| !names.contains(name.as_str()));
    let others = others.map(|name| (name, None, Vec::new())).collect::<Vec<_>>();
    let known = known.iter().map(|AgentsOfCluster { name, uid, agents }| {
        (name.clone(), Some(uid.clone()), agents.clone())
    });
    for (name, uid, agents) in known.chain(others) {
        let (uid, server) = (uid.as_deref(), tunnels.server());
        let written = connected_agents::write(registry, &name, uid, server, &agents, is_live).await;
        if let Err(error) = written {
            log_limited!(warn, for &name, cluster = name, "cannot write the connected agents: {error}");
        }
    }
}

/// The names of the servers that run.
fn live_servers(registry: &Registry, tunnels: &TunnelRegistry) -> HashSet<String> {
    let members = registry.servers().members();
    let members = members.map(|members| members.borrow().clone());
    let others = members.iter().flat_map(|members| members.iter());
    let others = others.map(|member| member.address.clone());
    others.chain([tunnels.server().to_owned()]).collect()
}
