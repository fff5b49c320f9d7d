//! The tunnels that agents have opened to this server (`docs/reference/clusters.md#tunnels`). This
//! module limits their number, knows the agent of each, and ends them when an agent loses its
//! right.

use std::collections::{BTreeMap, HashMap};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{FusedFuture, FutureExt as _};
use http::HeaderName;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use postern_kinds::cluster::ConnectedAgent;
use postern_meta::status::{ApiError, Reason};
use postern_meta::time::Timestamp;
use postern_proxy::{Proxy, Tunnels};
use postern_registry::clock::Source;
use postern_registry::registry::agent_configs::access::AgentAccess;
use postern_telemetry::log_limited;
use postern_tunnel::{End, WAITING};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use postern_http::metrics::TunnelCounts;

/// The most tunnels of one cluster. Each request, watch and stream under way takes one.
const MAX_TUNNELS_OF_CLUSTER: usize = 2048;

/// The part of all tunnels that one cluster may have.
const MAX_FRACTION_OF_CLUSTER: usize = 4;

/// The most agents of one cluster that are distinguished. Tunnels of further agents are refused.
const MAX_AGENTS_OF_CLUSTER: usize = 100;

/// How long a request waits for the first tunnel of a cluster. It waits if the cluster had tunnels
/// shortly before, or if the server has just started and all agents connect again.
const RECONNECT_WAIT: Duration = Duration::from_secs(2);
const RECONNECT_PERIOD: Duration = Duration::from_secs(30);

/// The tunnels of all clusters.
pub struct TunnelRegistry {
    /// The name of this server.
    server: String,
    source: Arc<dyn Source>,
    max_open: usize,
    open: AtomicUsize,
    started: Instant,
    clusters: Mutex<HashMap<String, ClusterTunnels>>,
    /// A number that rises when an agent opens its first tunnel, or closes its last.
    changes: watch::Sender<u64>,
}

/// The tunnels of one cluster.
struct ClusterTunnels {
    /// The name of the Cluster.
    name: String,
    tunnels: Tunnels,
    open: usize,
    agents: BTreeMap<String, OpenAgent>,
    /// The keys that agents of the cluster use, by name.
    keys: HashMap<String, Arc<KeyAccess>>,
    /// When the last tunnel was closed, if none is open.
    closed_at: Option<Instant>,
}

struct OpenAgent {
    open: usize,
    since: Timestamp,
}

/// The right of one key. One of its tunnels watches the right for all of them.
struct KeyAccess {
    access: tokio::sync::Mutex<AgentAccess>,
    lost: CancellationToken,
    open: AtomicUsize,
}

/// The agents of one cluster that have tunnels.
pub struct AgentsOfCluster {
    /// The name of the Cluster.
    pub name: String,
    /// The uid of the Cluster.
    pub uid: String,
    /// The agents.
    pub agents: Vec<ConnectedAgent>,
}

/// An open tunnel. It is counted until it is dropped.
pub struct OpenTunnel {
    registry: Arc<TunnelRegistry>,
    cluster_uid: String,
    agent: String,
    tunnels: Tunnels,
    key_name: String,
    key: Arc<KeyAccess>,
}

impl TunnelRegistry {
    /// No tunnels. There may be `max_open` of them.
    pub fn new(server: String, source: Arc<dyn Source>, max_open: usize) -> Arc<Self> {
        Arc::new(Self {
            server,
            source,
            max_open,
            open: AtomicUsize::new(0),
            started: Instant::now(),
            clusters: Mutex::default(),
            changes: watch::Sender::new(0),
        })
    }

    /// The name of this server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// How many tunnels are open.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// The counts for the metrics.
    pub fn counts(&self) -> TunnelCounts {
        let clusters = self.clusters.lock();
        let idle = clusters.values().map(|cluster| cluster.tunnels.idle()).sum();
        TunnelCounts { idle, open: self.open(), limit: self.max_open }
    }

    /// A subscription to changes of the agents that have tunnels.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The agents of all clusters that have, or had, tunnels.
    pub fn agents(&self) -> Vec<AgentsOfCluster> {
        let clusters = self.clusters.lock();
        let of = |(uid, cluster): (&String, &ClusterTunnels)| {
            let agents = cluster.agents.iter().map(|(name, agent)| ConnectedAgent {
                name: name.clone(),
                server: self.server.clone(),
                since: Some(agent.since),
            });
            let (name, uid) = (cluster.name.clone(), uid.clone());
            AgentsOfCluster { name, uid, agents: agents.collect() }
        };
        clusters.iter().map(of).collect()
    }

    /// Counts a new tunnel of an agent.
    ///
    /// # Errors
    /// 429 when there are too many.
    pub fn admit(
        self: &Arc<Self>,
        access: AgentAccess,
        agent: &str,
    ) -> Result<OpenTunnel, ApiError> {
        let uid = access.cluster_uid().to_owned();
        let mut clusters = self.clusters.lock();
        clusters.retain(|_, one| one.closed_at.is_none_or(|at| at.elapsed() <= RECONNECT_PERIOD));
        let cluster =
            clusters.entry(uid.clone()).or_insert_with(|| ClusterTunnels::new(access.cluster()));
        let max_of_cluster = (self.max_open / MAX_FRACTION_OF_CLUSTER).min(MAX_TUNNELS_OF_CLUSTER);
        if cluster.open >= max_of_cluster || self.open() >= self.max_open {
            return Err(too_many("tunnels"));
        }
        if !cluster.agents.contains_key(agent) && cluster.agents.len() >= MAX_AGENTS_OF_CLUSTER {
            return Err(too_many("agents"));
        }
        access.cluster().clone_into(&mut cluster.name);
        cluster.open += 1;
        cluster.closed_at = None;
        self.open.fetch_add(1, Ordering::Relaxed);
        let since = self.source.now();
        let entry = cluster.agents.entry(agent.to_owned());
        let entry = entry.or_insert(OpenAgent { open: 0, since });
        entry.open += 1;
        let is_first = entry.open == 1;
        let key_name = access.key().to_owned();
        let key = cluster.keys.get(&key_name).filter(|key| !key.lost.is_cancelled()).cloned();
        let key = key.unwrap_or_else(|| {
            let key = Arc::new(KeyAccess {
                access: tokio::sync::Mutex::new(access),
                lost: CancellationToken::new(),
                open: AtomicUsize::new(0),
            });
            cluster.keys.insert(key_name.clone(), key.clone());
            key
        });
        key.open.fetch_add(1, Ordering::Relaxed);
        let (tunnels, agent) = (cluster.tunnels.clone(), agent.to_owned());
        drop(clusters);
        if is_first {
            self.changes.send_modify(|version| *version += 1);
        }
        Ok(OpenTunnel { registry: self.clone(), cluster_uid: uid, agent, tunnels, key_name, key })
    }

    /// The tunnels of a cluster, if it has any.
    pub fn of_cluster(&self, uid: &str) -> Option<Tunnels> {
        let clusters = self.clusters.lock();
        clusters.get(uid).filter(|cluster| cluster.open > 0).map(|cluster| cluster.tunnels.clone())
    }

    /// Waits a moment for a tunnel of a cluster, if one is likely to come.
    pub async fn wait_for(&self, uid: &str) -> Option<Tunnels> {
        let had_one = || {
            let clusters = self.clusters.lock();
            clusters.get(uid).and_then(|cluster| cluster.closed_at)
        };
        let is_likely = self.started.elapsed() < RECONNECT_PERIOD
            || had_one().is_some_and(|at| at.elapsed() < RECONNECT_PERIOD);
        if !is_likely {
            return None;
        }
        let (mut changes, until) = (self.changes.subscribe(), Instant::now() + RECONNECT_WAIT);
        loop {
            if let Some(tunnels) = self.of_cluster(uid) {
                return Some(tunnels);
            }
            timeout_at(until, changes.changed()).await.ok()?.ok()?;
        }
    }

    fn close(&self, tunnel: &OpenTunnel) {
        let OpenTunnel { cluster_uid, agent, key, key_name, .. } = tunnel;
        self.open.fetch_sub(1, Ordering::Relaxed);
        let is_last_of_key = key.open.fetch_sub(1, Ordering::Relaxed) == 1;
        let mut clusters = self.clusters.lock();
        let Some(cluster) = clusters.get_mut(cluster_uid) else { return };
        cluster.open -= 1;
        if cluster.open == 0 {
            cluster.closed_at = Some(Instant::now());
        }
        if is_last_of_key && cluster.keys.get(key_name).is_some_and(|one| Arc::ptr_eq(one, key)) {
            cluster.keys.remove(key_name);
        }
        let Some(entry) = cluster.agents.get_mut(agent) else { return };
        entry.open -= 1;
        if entry.open == 0 {
            cluster.agents.remove(agent);
            drop(clusters);
            self.changes.send_modify(|version| *version += 1);
        }
    }
}

impl ClusterTunnels {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            tunnels: Tunnels::new(HeaderName::from_static(WAITING)),
            open: 0,
            agents: BTreeMap::new(),
            keys: HashMap::new(),
            closed_at: None,
        }
    }
}

impl OpenTunnel {
    /// Serves the tunnel until it ends, or the agent loses its right to it. Its bytes and HTTP on top of them are one task,
    /// because a task on another processor would have to be woken for each request.
    pub async fn serve(self, proxy: Proxy, upgraded: Upgraded) {
        let (stream, carried) = postern_tunnel::server_end(TokioIo::new(upgraded));
        // Boxed: this future, and that of each function that gets it, would keep room for it.
        let carried = Box::pin(carried);
        let driven = match proxy.offer(&self.tunnels, Box::new(stream)).await {
            Ok(driven) => driven,
            Err(error) => return tracing::debug!("a tunnel was not taken: {error}"),
        };
        let mut driven = pin!(driven.fuse());
        self.carry(carried, driven.as_mut()).await;
        // The bytes that have arrived are still read, but the connection is no longer a tunnel.
        drop(self);
        if !driven.is_terminated() {
            driven.await;
        }
    }

    async fn carry(
        &self,
        mut carried: Pin<Box<impl Future<Output = End> + Send>>,
        mut driven: Pin<&mut (impl FusedFuture<Output = ()> + Send)>,
    ) {
        let watched = async {
            let mut access = self.key.access.lock().await;
            let why = access.lost().await;
            let (cluster, key) = (access.cluster(), access.key());
            log_limited!(info, for cluster, cluster, key, "tunnels end: {why}");
            self.key.lost.cancel();
        };
        let (cluster, agent) = (&self.cluster_uid, &self.agent);
        let mut watched = pin!(watched);
        loop {
            tokio::select! {
                end = carried.as_mut() => match end {
                    End::Done | End::Closed => tracing::debug!(cluster, agent, "a tunnel has ended"),
                    end => {
                        log_limited!(info, for cluster, cluster, agent, "a tunnel has ended: {}", end.as_str());
                    }
                },
                () = self.key.lost.cancelled() => {}
                () = watched.as_mut() => {}
                // The stream of an upgraded request may go on.
                () = driven.as_mut(), if !driven.is_terminated() => continue,
            }
            return;
        }
    }
}

impl Drop for OpenTunnel {
    fn drop(&mut self) {
        let registry = self.registry.clone();
        registry.close(self);
    }
}

fn too_many(what: &str) -> ApiError {
    let message = format!("the cluster has too many {what}: close some, or try again later");
    ApiError::new(429, Reason::TooManyRequests, message)
}
