//! The parts of the server that every request works with, and that outlive a request.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postern_flow::{Flow, Limits};
use postern_registry::clock::Source;
use postern_registry::registry::Registry;
use postern_store::Store as _;
use postern_store::seal::{Keyring, Sealed};
use tokio::sync::watch;

use crate::audit::Audit;
use crate::endpoints::health::Condition;
use crate::gateway::{Gateway, GatewaySettings};
use crate::metrics::{Metrics, Readings, StateReadings};
use crate::supervise::Restarts;
use crate::tls::ServedCertificate;

/// At a shutdown, watches end within this time, so that their clients do not come back all at once. It is
/// less where a drain has little time.
const LONGEST_SPREAD: Duration = Duration::from_secs(2);

/// The parts of the server that every request works with.
pub(crate) struct Server {
    pub(super) registry: Arc<Registry>,
    pub(super) source: Arc<dyn Source>,
    pub(super) audit: Arc<Audit>,
    pub(super) flow: Arc<Flow>,
    pub(super) metrics: Arc<Metrics>,
    loaded: AtomicBool,
    pub(super) gateway: Gateway,
    unready: AtomicBool,
    draining: watch::Sender<bool>,
    /// Within which time watches end, once the server is being shut down.
    watches_end: watch::Sender<Option<Duration>>,
    storage: Storage,
    certificate: ServedCertificate,
    restarts: Arc<Restarts>,
}

/// The store, and the file with its keys.
pub(crate) struct Storage {
    /// The store, which is asked for its health.
    pub(crate) sealed: Arc<Sealed>,
    /// The path of the keyring.
    pub(crate) keyring: PathBuf,
}

impl Server {
    /// A server of these parts, whose cache is not loaded yet.
    pub(crate) fn new(
        registry: Arc<Registry>,
        source: Arc<dyn Source>,
        audit: Arc<Audit>,
        limits: Limits,
        storage: Storage,
        certificate: ServedCertificate,
        gateway: GatewaySettings,
    ) -> Self {
        let metrics = Arc::new(Metrics::new(source.now()));
        Self {
            registry,
            source,
            audit,
            flow: Arc::new(Flow::new(limits)),
            metrics,
            loaded: AtomicBool::new(false),
            gateway: Gateway::new(gateway),
            unready: AtomicBool::new(false),
            draining: watch::Sender::new(false),
            watches_end: watch::Sender::new(None),
            storage,
            certificate,
            restarts: Arc::default(),
        }
    }

    /// Flow control, which limits what goes on at once.
    pub(crate) fn flow(&self) -> &Arc<Flow> {
        &self.flow
    }

    /// The counts for the metrics.
    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// A subscription to whether the server is being shut down.
    pub(crate) fn draining(&self) -> watch::Receiver<bool> {
        self.draining.subscribe()
    }

    /// A subscription to the time within which watches are to end, once the server is being shut
    /// down.
    pub(crate) fn watches_end(&self) -> watch::Receiver<Option<Duration>> {
        self.watches_end.subscribe()
    }

    /// Whether the server is being shut down.
    pub(crate) fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// Says that the cache has been loaded: from now on, requests are served.
    pub(crate) fn set_loaded(&self) {
        self.loaded.store(true, Ordering::Release);
    }

    /// Whether everything that decides has been loaded.
    pub(super) fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Acquire)
    }

    /// Starts a shutdown: readiness fails, so that load balancers choose another server, but all
    /// requests are still served.
    pub(crate) fn fail_readiness(&self) {
        self.unready.store(true, Ordering::Release);
    }

    /// Continues a shutdown: watches end, one after the other, and new requests are rejected. Requests that are
    /// under way have `grace` to end.
    pub(crate) fn drain(&self, grace: Duration) {
        self.watches_end.send_replace(Some(LONGEST_SPREAD.min(grace / 2)));
        self.draining.send_replace(true);
    }

    /// Ends what goes to clusters: what is under way has `grace` to end.
    pub(crate) async fn end_gateway(&self, grace: Duration) {
        self.gateway.proxy().drain(grace).await;
    }

    /// How often background tasks were started again.
    pub(crate) fn restarts(&self) -> &Arc<Restarts> {
        &self.restarts
    }

    /// The condition that the health endpoints report.
    pub(super) fn condition(&self) -> Condition {
        Condition {
            storage: self.storage.sealed.health().is_ok(),
            audit: self.audit.works(),
            cache: self.is_loaded() && self.registry.cache().keeps_up(),
            draining: self.unready.load(Ordering::Acquire),
        }
    }

    /// The state that the metrics report.
    fn state(&self) -> StateReadings {
        let Storage { sealed, keyring } = &self.storage;
        let file = Keyring::load(keyring);
        StateReadings {
            checks: self.condition().readiness().to_vec(),
            store: sealed.figures(),
            is_keyring_readable: file.is_ok_and(|file| sealed.is_current_key_in(&file)),
            keyring_keys: sealed.key_count(),
            certificate_expires_at: self.certificate.expires_at(),
            clusters: self.registry.cluster_counts(),
        }
    }

    /// The values that the metrics report in addition to their own counts.
    pub(super) fn readings(&self) -> Readings {
        let cache = self.registry.cache();
        let objects = cache.resources().iter();
        let audit = self.audit.counts();
        Readings {
            flow: self.flow.counts(),
            queues: self.flow.totals(),
            owners: self.flow.busiest(),
            watches_per_owner: self.flow.watches_per_owner(),
            state: self.state(),
            connections: self.metrics.connections.counts(),
            objects: objects
                .map(|one| (one.kind().info(), one.count()))
                .filter(|(info, _)| info.is_stored())
                .collect(),
            corrupt_records: cache.corrupt_records(),
            revision: cache.applied(),
            audit_events: audit.events,
            audit_errors: audit.errors,
            audit_rejected: audit.rejected,
            gateway: self.gateway.proxy().counts(),
            restarts: self.restarts.counts(),
        }
    }
}
