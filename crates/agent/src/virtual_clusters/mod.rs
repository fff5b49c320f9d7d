//! The routes to the virtual clusters in the agent's cluster. Each is in a kubeconfig in a Secret there
//! ([`secret`]), which names a Service ([`service`]). See
//! `docs/reference/clusters.md#virtual-clusters-through-agents`.
//!
//! For each virtual cluster in use, one task reads the Secret, and again every few seconds. So only the first
//! request waits for it. When a kubeconfig changes, requests that use the old one end. Access is decided before.

mod secret;
mod service;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use postern_meta::status::ApiError;
use postern_proxy::{ProxyError, Upstream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

pub(crate) use self::secret::Reader;
use self::secret::{NoRoute, ResolvedRoute};
pub use self::service::ClusterDomain;
use crate::rare_line::RareLines;

/// The maximum number of virtual clusters with tracked Secrets. A further one replaces the one that
/// was unused for the longest time, if that is at least [`MIN_TRACKED_TIME`]. So one caller with
/// many targets does not evict those of others.
const MAX_TRACKED: usize = 512;
const MIN_TRACKED_TIME: Duration = Duration::from_secs(10);

/// How long after a Secret was read it is not read again, and how much longer when nothing points to a change.
const SHORTEST_READ_INTERVAL: Duration = Duration::from_secs(1);
const LONGER_READ_INTERVAL: Duration = Duration::from_secs(2);

/// The time without requests after which a virtual cluster is no longer tracked.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);

/// How long the first request waits until the route is known.
const FIRST_READ_TIMEOUT: Duration = Duration::from_secs(20);

/// Seconds after which a client may try again, when the cluster may answer then.
const RETRY_AFTER_SECONDS: u32 = 1;

/// The namespace and name of a virtual cluster in its cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct VirtualClusterRef {
    /// The namespace.
    pub(crate) namespace: String,
    /// The name there.
    pub(crate) name: String,
}

impl VirtualClusterRef {
    /// The name of the Secret with its kubeconfig.
    fn secret(&self) -> String {
        format!("vc-{}", self.name)
    }
}

impl fmt::Display for VirtualClusterRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The virtual clusters that are in use.
pub(crate) struct VirtualClusters {
    reader: Arc<Reader>,
    tracked: Mutex<HashMap<VirtualClusterRef, Arc<Tracked>>>,
    tasks: Mutex<JoinSet<()>>,
}

/// A virtual cluster with a tracked Secret.
struct Tracked {
    place: VirtualClusterRef,
    found: watch::Sender<RouteState>,
    used_at: Mutex<Instant>,
    /// Wakes the task that reads the Secret.
    refresh: Arc<Notify>,
}

/// The known route to a virtual cluster.
#[derive(Clone, Debug)]
enum RouteState {
    /// The Secret was not read yet.
    Pending,
    Known(Arc<ResolvedRoute>),
    /// There is none.
    Unavailable(NoRoute),
}

/// The route of one request. While it exists, the virtual cluster is tracked.
#[derive(Clone)]
pub(crate) struct VirtualClusterRoute {
    tracked: Arc<Tracked>,
    route: Arc<ResolvedRoute>,
}

impl VirtualClusters {
    /// The virtual clusters, none of which is in use.
    pub(crate) fn new(reader: Reader) -> Arc<Self> {
        let (tracked, tasks) = (Mutex::default(), Mutex::default());
        Arc::new(Self { reader: Arc::new(reader), tracked, tasks })
    }

    /// The number of tracked virtual clusters.
    pub(crate) fn tracked(&self) -> usize {
        self.tracked.lock().len()
    }

    /// The route to a virtual cluster.
    ///
    /// # Errors
    /// 503 with the reason why there is none.
    pub(crate) async fn route_to(
        self: &Arc<Self>,
        place: &VirtualClusterRef,
    ) -> Result<VirtualClusterRoute, ApiError> {
        let tracked = self.track(place).ok_or_else(|| {
            let message = "the agent has reached its limit of virtual clusters: try again later";
            ApiError::unavailable(message, Some(RETRY_AFTER_SECONDS))
        })?;
        let mut found = tracked.found.subscribe();
        let known = found.wait_for(|found| !matches!(found, RouteState::Pending));
        let known = match timeout(FIRST_READ_TIMEOUT, known).await {
            Ok(Ok(known)) => known.clone(),
            Ok(Err(_)) | Err(_) => RouteState::Pending,
        };
        match known {
            RouteState::Known(route) => Ok(VirtualClusterRoute { tracked, route }),
            RouteState::Unavailable(why) => {
                tracked.refresh.notify_one();
                Err(no_route(&why))
            }
            RouteState::Pending => Err(no_route(&NoRoute::silent("it took too long"))),
        }
    }

    /// Starts or continues to track a virtual cluster; `None` when there are too many.
    fn track(self: &Arc<Self>, place: &VirtualClusterRef) -> Option<Arc<Tracked>> {
        let mut all = self.tracked.lock();
        if let Some(tracked) = all.get(place) {
            *tracked.used_at.lock() = Instant::now();
            return Some(tracked.clone());
        }
        if all.len() >= MAX_TRACKED {
            let oldest = all.values().min_by_key(|one| *one.used_at.lock())?;
            if oldest.used_at.lock().elapsed() < MIN_TRACKED_TIME {
                return None;
            }
            let oldest = oldest.place.clone();
            all.remove(&oldest);
        }
        let tracked = Arc::new(Tracked {
            place: place.clone(),
            found: watch::Sender::new(RouteState::Pending),
            used_at: Mutex::new(Instant::now()),
            refresh: Arc::default(),
        });
        all.insert(place.clone(), tracked.clone());
        drop(all);
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(refresh_loop(
            Arc::downgrade(&tracked),
            Arc::downgrade(self),
            self.reader.clone(),
        ));
        drop(tasks);
        Some(tracked)
    }

    /// Stops tracking a virtual cluster that was not used recently. `tracked` is then the only
    /// reference, apart from the one in the map.
    fn remove_if_idle(&self, tracked: &Arc<Tracked>) {
        let mut all = self.tracked.lock();
        let is_idle = tracked.used_at.lock().elapsed() >= IDLE_TIMEOUT;
        // By now, its place in the map may have another entry.
        let is_it = all.get(&tracked.place).is_some_and(|one| Arc::ptr_eq(one, tracked));
        if is_it && is_idle && Arc::strong_count(tracked) <= 2 {
            all.remove(&tracked.place);
        }
    }
}

/// Changes of routes. A tenant can change the Secret of a virtual cluster repeatedly.
static ROUTES: RareLines = RareLines::new();

/// Reads the Secret of a virtual cluster repeatedly while it is tracked.
async fn refresh_loop(tracked: Weak<Tracked>, all: Weak<VirtualClusters>, reader: Arc<Reader>) {
    loop {
        let permit = reader.read_permit().await;
        let Some(one) = tracked.upgrade() else { return };
        one.read(&reader).await;
        drop(permit);
        let refresh = one.refresh.clone();
        let Some(all) = all.upgrade() else { return };
        all.remove_if_idle(&one);
        drop((one, all));
        sleep(SHORTEST_READ_INTERVAL).await;
        tokio::select! {
            () = refresh.notified() => {}
            () = sleep(LONGER_READ_INTERVAL) => {}
        }
    }
}

impl Tracked {
    /// Reads the Secret once. A known route stays while the cluster does not answer.
    async fn read(&self, reader: &Reader) {
        let last = match &*self.found.borrow() {
            RouteState::Known(route) => Some(route.clone()),
            RouteState::Pending | RouteState::Unavailable(_) => None,
        };
        match reader.resolve(&self.place, last.as_deref()).await {
            Ok(None) => {}
            Ok(Some(route)) => {
                ROUTES.write("known", |left_out| {
                    let at = &self.place;
                    tracing::info!(%at, left_out, "the route to a virtual cluster is known");
                });
                self.found.send_replace(RouteState::Known(Arc::new(route)));
            }
            Err(why) => {
                let is_same = |found: &RouteState| match found {
                    RouteState::Unavailable(known) => known == &why,
                    RouteState::Pending | RouteState::Known(_) => false,
                };
                let is_known = is_same(&self.found.borrow());
                if !is_known {
                    ROUTES.write("none", |left_out| {
                        let at = &self.place;
                        tracing::warn!(%at, left_out, "no route to a virtual cluster: {}", why.for_log());
                    });
                }
                if last.is_none() || !why.may_pass() {
                    self.found.send_replace(RouteState::Unavailable(why));
                }
            }
        }
    }
}

impl VirtualClusterRoute {
    /// The upstream of the requests.
    pub(crate) fn upstream(&self) -> &Upstream {
        &self.route.upstream
    }

    /// Waits until there is another route, or none.
    pub(crate) async fn changed(&self) {
        let mut found = self.tracked.found.subscribe();
        let is_same = |found: &RouteState| match found {
            RouteState::Known(route) => Arc::ptr_eq(route, &self.route),
            RouteState::Pending | RouteState::Unavailable(_) => false,
        };
        let _ = found.wait_for(|found| !is_same(found)).await;
    }

    /// Reads the Secret soon, for example because the virtual cluster rejected the credential.
    pub(crate) fn refresh_soon(&self) {
        self.tracked.refresh.notify_one();
    }

    /// Reads the Secret soon if the error can come from an outdated kubeconfig.
    pub(crate) fn note_failure(&self, error: &ProxyError) {
        let is_suspect = matches!(
            error,
            ProxyError::Unreachable { .. }
                | ProxyError::AddressRefused { .. }
                | ProxyError::Tls { .. }
                | ProxyError::ConnectTimeout { .. }
                | ProxyError::AnswerTimeout { .. }
                | ProxyError::Lost { .. }
        );
        if is_suspect {
            self.refresh_soon();
        }
    }
}

/// The 503 of a virtual cluster that cannot be reached. It asks the client to try again only where the
/// cluster may answer later. Otherwise an operator has to act first.
fn no_route(why: &NoRoute) -> ApiError {
    let message = format!("no route to the target: {why}");
    ApiError::unavailable(message, why.may_pass().then_some(RETRY_AFTER_SECONDS))
}
