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
use self::secret::{Unread, Way};
pub use self::service::ClusterDomain;

/// Virtual clusters whose Secrets are followed. With more, the one goes that was not in use for the longest time, if
/// that is long enough: one caller who goes through many takes no other's place.
const MAX_FOLLOWED: usize = 512;
const SHORTEST_STAY: Duration = Duration::from_secs(10);

/// How long after a Secret was read it is not read again, and how much longer when nothing points to a change.
const SHORTEST_READ_INTERVAL: Duration = Duration::from_secs(1);
const LONGER_READ_INTERVAL: Duration = Duration::from_secs(2);

/// A virtual cluster that was not in use for this long is not followed any more.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);

/// How long the first request waits until the way is known.
const FIRST_READ_TIMEOUT: Duration = Duration::from_secs(20);

/// Seconds after which a client may try again, when the cluster may answer then.
const RETRY_AFTER_SECONDS: u32 = 1;

/// Where a virtual cluster is in its cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// The namespace.
    pub(crate) namespace: String,
    /// The name there.
    pub(crate) name: String,
}

impl Place {
    /// The name of the Secret with its kubeconfig.
    fn secret(&self) -> String {
        format!("vc-{}", self.name)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The virtual clusters that are in use.
pub(crate) struct VirtualClusters {
    reader: Arc<Reader>,
    followed: Mutex<HashMap<Place, Arc<Followed>>>,
    tasks: Mutex<JoinSet<()>>,
}

/// A virtual cluster whose Secret is followed.
struct Followed {
    place: Place,
    found: watch::Sender<Found>,
    used_at: Mutex<Instant>,
    /// Has the Secret read soon.
    suspected: Arc<Notify>,
}

/// The known route to a virtual cluster.
#[derive(Clone, Debug)]
enum Found {
    /// The Secret was not read yet.
    Unread,
    Way(Arc<Way>),
    /// There is none.
    None(Unread),
}

/// The way of one request. While it is there, the virtual cluster is followed.
#[derive(Clone)]
pub(crate) struct Reached {
    followed: Arc<Followed>,
    way: Arc<Way>,
}

impl VirtualClusters {
    /// The virtual clusters, none of which is in use.
    pub(crate) fn new(reader: Reader) -> Arc<Self> {
        let (followed, tasks) = (Mutex::default(), Mutex::default());
        Arc::new(Self { reader: Arc::new(reader), followed, tasks })
    }

    /// How many are followed.
    pub(crate) fn followed(&self) -> usize {
        self.followed.lock().len()
    }

    /// The way to a virtual cluster.
    ///
    /// # Errors
    /// 503 that says why there is none.
    pub(crate) async fn reach(self: &Arc<Self>, place: &Place) -> Result<Reached, ApiError> {
        let followed = self.follow(place).ok_or_else(|| {
            let message = "the agent follows too many virtual clusters: try again in a moment";
            ApiError::unavailable(message, Some(RETRY_AFTER_SECONDS))
        })?;
        let mut found = followed.found.subscribe();
        let known = found.wait_for(|found| !matches!(found, Found::Unread));
        let known = match timeout(FIRST_READ_TIMEOUT, known).await {
            Ok(Ok(known)) => known.clone(),
            Ok(Err(_)) | Err(_) => Found::Unread,
        };
        match known {
            Found::Way(way) => Ok(Reached { followed, way }),
            Found::None(why) => {
                followed.suspected.notify_one();
                Err(no_way(&why))
            }
            Found::Unread => Err(no_way(&Unread::silent("it took too long"))),
        }
    }

    /// A virtual cluster, whose Secret is followed from now on; `None` when there are too many.
    fn follow(self: &Arc<Self>, place: &Place) -> Option<Arc<Followed>> {
        let mut all = self.followed.lock();
        if let Some(followed) = all.get(place) {
            *followed.used_at.lock() = Instant::now();
            return Some(followed.clone());
        }
        if all.len() >= MAX_FOLLOWED {
            let oldest = all.values().min_by_key(|one| *one.used_at.lock())?;
            if oldest.used_at.lock().elapsed() < SHORTEST_STAY {
                return None;
            }
            let oldest = oldest.place.clone();
            all.remove(&oldest);
        }
        let followed = Arc::new(Followed {
            place: place.clone(),
            found: watch::Sender::new(Found::Unread),
            used_at: Mutex::new(Instant::now()),
            suspected: Arc::default(),
        });
        all.insert(place.clone(), followed.clone());
        drop(all);
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(read_on(Arc::downgrade(&followed), Arc::downgrade(self), self.reader.clone()));
        drop(tasks);
        Some(followed)
    }

    /// Stops following a virtual cluster that was not used lately. `followed` is the only reference besides that
    /// in the map then.
    fn forget_if_idle(&self, followed: &Arc<Followed>) {
        let mut all = self.followed.lock();
        let is_idle = followed.used_at.lock().elapsed() >= IDLE_TIMEOUT;
        // In its place, there may be another one since.
        let is_it = all.get(&followed.place).is_some_and(|one| Arc::ptr_eq(one, followed));
        if is_it && is_idle && Arc::strong_count(followed) <= 2 {
            all.remove(&followed.place);
        }
    }
}

/// Reads the Secret of a virtual cluster again and again, until it is followed no more.
async fn read_on(followed: Weak<Followed>, all: Weak<VirtualClusters>, reader: Arc<Reader>) {
    loop {
        let turn = reader.turn().await;
        let Some(one) = followed.upgrade() else { return };
        one.read(&reader).await;
        drop(turn);
        let suspected = one.suspected.clone();
        let Some(all) = all.upgrade() else { return };
        all.forget_if_idle(&one);
        drop((one, all));
        sleep(SHORTEST_READ_INTERVAL).await;
        tokio::select! {
            () = suspected.notified() => {}
            () = sleep(LONGER_READ_INTERVAL) => {}
        }
    }
}

impl Followed {
    /// Reads the Secret once. A cluster that does not answer takes no known way away.
    async fn read(&self, reader: &Reader) {
        let last = match &*self.found.borrow() {
            Found::Way(way) => Some(way.clone()),
            Found::Unread | Found::None(_) => None,
        };
        match reader.way(&self.place, last.as_deref()).await {
            Ok(None) => {}
            Ok(Some(way)) => {
                tracing::info!(at = %self.place, "the way to a virtual cluster is known");
                self.found.send_replace(Found::Way(Arc::new(way)));
            }
            Err(why) => {
                let is_known = matches!(&*self.found.borrow(), Found::None(known) if known == &why);
                if !is_known {
                    let at = &self.place;
                    tracing::warn!(%at, "no way to a virtual cluster: {}", why.for_log());
                }
                if last.is_none() || !why.may_pass() {
                    self.found.send_replace(Found::None(why));
                }
            }
        }
    }
}

impl Reached {
    /// The upstream of the requests.
    pub(crate) fn upstream(&self) -> &Upstream {
        &self.way.upstream
    }

    /// Waits until there is another way, or none.
    pub(crate) async fn changed(&self) {
        let mut found = self.followed.found.subscribe();
        let is_same =
            |found: &Found| matches!(found, Found::Way(way) if Arc::ptr_eq(way, &self.way));
        let _ = found.wait_for(|found| !is_same(found)).await;
    }

    /// Has the Secret read soon: the virtual cluster does not take the credential, say.
    pub(crate) fn suspect(&self) {
        self.followed.suspected.notify_one();
    }

    /// Has it read soon where an error may come from a kubeconfig that is out of date.
    pub(crate) fn suspect_after(&self, error: &ProxyError) {
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
            self.suspect();
        }
    }
}

/// The 503 of a virtual cluster that cannot be reached. It asks the client to try again only where the
/// cluster may answer later. Otherwise an operator has to act first.
fn no_way(why: &Unread) -> ApiError {
    let message = format!("there is no way to the target: {why}");
    ApiError::unavailable(message, why.may_pass().then_some(RETRY_AFTER_SECONDS))
}
