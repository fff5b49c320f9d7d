//! `Server`: the parts of the server that all requests use.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postern_flow::{Flow, Limits};
use postern_meta::status::ApiError;
use postern_registry::clock::Source;
use postern_registry::registry::Registry;
use postern_store::Store as _;
use postern_store::seal::Sealed;
use tokio::sync::watch;

use super::client_address::ClientAddresses;
use super::login_failures::{LoginFailures, LoginKind};
use crate::endpoints::console::Console;
use crate::endpoints::health::Condition;
use crate::keyring::KeySource;
use crate::supervise::Restarts;
use crate::tls::ServedCertificate;
use postern_audit::Audit;
use postern_gateway::{Gateway, GatewaySettings, MemberTrust};
use postern_http::metrics::{Metrics, Readings, StateReadings};
use postern_sso::Sso;

/// The longest time over which a shutdown spreads the ends of watches, so that clients do not reconnect all at once. A
/// short drain uses half of its time.
const LONGEST_SPREAD: Duration = Duration::from_secs(2);

/// The failed logins of one address in a minute, unless the operator sets another number.
pub const DEFAULT_LOGIN_FAILURES: u32 = 30;

/// The parts of the server that all requests use.
pub(crate) struct Server {
    pub(super) registry: Arc<Registry>,
    pub(super) source: Arc<dyn Source>,
    pub(super) audit: Arc<Audit>,
    pub(super) flow: Arc<Flow>,
    pub(super) metrics: Arc<Metrics>,
    /// The limits of failed logins.
    login_failures: LoginFailures,
    /// How the address of a client is found behind proxies.
    pub(super) clients: ClientAddresses,
    /// The web console, if it is served.
    pub(super) console: Option<Console>,
    loaded: AtomicBool,
    pub(super) gateway: Arc<Gateway>,
    pub(super) sso: Arc<Sso>,
    /// Whether the shutdown has begun. Requests are still served.
    ending: watch::Sender<bool>,
    draining: watch::Sender<bool>,
    /// The time within which all watches end; `None` before the shutdown.
    watches_end: watch::Sender<Option<Duration>>,
    storage: Storage,
    certificate: ServedCertificate,
    restarts: Arc<Restarts>,
}

/// The store, and the source of its keys.
pub(crate) struct Storage {
    /// The store, which is asked for its health.
    pub(crate) sealed: Arc<Sealed>,
    /// Where its at-rest keys come from.
    pub(crate) keys: KeySource,
}

impl Server {
    /// A server of these parts. Its cache is not loaded yet. `gateway` has the settings of the
    /// gateway, the name of this server for agents, and how it reaches the other servers.
    pub(crate) fn new(
        registry: Arc<Registry>,
        source: Arc<dyn Source>,
        audit: Arc<Audit>,
        limits: Limits,
        storage: Storage,
        certificate: ServedCertificate,
        gateway: (GatewaySettings, String, MemberTrust),
    ) -> Self {
        let (gateway, name, members) = gateway;
        let addresses = gateway.upstream_addresses.clone();
        let gateway = Arc::new(Gateway::new(gateway, name, members, source.clone()));
        let (shared, of) = (gateway.clone(), registry.clone());
        let flow = Arc::new(Flow::new(limits));
        let sso = Sso::new(of, audit.clone(), source.clone(), shared, addresses, flow.clone());
        let sso = Arc::new(sso);
        let metrics = Arc::new(Metrics::new(source.now()));
        Self {
            registry,
            source,
            audit,
            flow,
            metrics,
            login_failures: LoginFailures::new(DEFAULT_LOGIN_FAILURES),
            clients: ClientAddresses::default(),
            console: None,
            loaded: AtomicBool::new(false),
            gateway,
            sso,
            ending: watch::Sender::new(false),
            draining: watch::Sender::new(false),
            watches_end: watch::Sender::new(None),
            storage,
            certificate,
            restarts: Arc::default(),
        }
    }

    /// The same server with the web console, or without it.
    #[must_use]
    pub(crate) fn with_console(self, console: Option<Console>) -> Self {
        Self { console, ..self }
    }

    /// The same server with settings for its clients: the proxies before them, and the failed logins that one address may
    /// have in a minute.
    #[must_use]
    pub(crate) fn with_clients(self, clients: ClientAddresses, max_login_failures: u32) -> Self {
        Self { clients, login_failures: LoginFailures::new(max_login_failures), ..self }
    }

    /// How the address of a client is found behind proxies.
    pub(crate) fn clients(&self) -> &ClientAddresses {
        &self.clients
    }

    /// Checks that an address has not failed too often to log in.
    ///
    /// # Errors
    /// 429 if it has.
    pub(super) fn check_failures(&self, kind: LoginKind, address: IpAddr) -> Result<(), ApiError> {
        self.login_failures.check(kind, address, self.source.now().unix_seconds())
    }

    /// Counts a failed login of an address.
    ///
    /// # Errors
    /// 429 if it has failed too often.
    pub(super) fn count_failure(&self, kind: LoginKind, address: IpAddr) -> Result<(), ApiError> {
        self.login_failures.count(kind, address, self.source.now().unix_seconds())
    }

    /// The clock and the random numbers.
    pub(crate) fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// Flow control: slots, byte budgets and rates.
    pub(crate) fn flow(&self) -> &Arc<Flow> {
        &self.flow
    }

    /// The counters of the metrics.
    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// A subscription to whether the server is being shut down.
    pub(crate) fn draining(&self) -> watch::Receiver<bool> {
        self.draining.subscribe()
    }

    /// A subscription to the time within which watches must end. It is set at the shutdown.
    pub(crate) fn watches_end(&self) -> watch::Receiver<Option<Duration>> {
        self.watches_end.subscribe()
    }

    /// Whether the server is being shut down.
    pub(crate) fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// Sets that the cache is loaded. From then on, requests are served.
    pub(crate) fn set_loaded(&self) {
        self.loaded.store(true, Ordering::Release);
    }

    /// Sets whether the cache is loaded, for tests of the start.
    #[cfg(test)]
    pub(crate) fn set_loaded_to(&self, is_loaded: bool) {
        self.loaded.store(is_loaded, Ordering::Release);
    }

    /// The number of audit records so far, for tests.
    #[cfg(test)]
    pub(crate) fn audit_records(&self) -> u64 {
        self.audit.counts().events
    }

    /// Whether the cache is loaded, with all keys and the whole policy.
    pub(super) fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Acquire)
    }

    /// Starts a shutdown. Readiness fails, so that load balancers choose another server, and each connection announces
    /// its end. All requests are still served.
    pub(crate) fn fail_readiness(&self) {
        self.ending.send_replace(true);
    }

    /// A subscription to whether the shutdown has begun.
    pub(crate) fn ending(&self) -> watch::Receiver<bool> {
        self.ending.subscribe()
    }

    /// Whether the shutdown has begun.
    pub(crate) fn is_ending(&self) -> bool {
        *self.ending.borrow()
    }

    /// Continues a shutdown. Watches end one after the other, and new requests are rejected. Requests in progress have
    /// `grace` to end.
    pub(crate) fn drain(&self, grace: Duration) {
        self.watches_end.send_replace(Some(LONGEST_SPREAD.min(grace / 2)));
        self.draining.send_replace(true);
    }

    /// Single sign-on.
    pub(crate) fn sso(&self) -> &Arc<Sso> {
        &self.sso
    }

    /// The gateway.
    pub(crate) fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// Ends the requests to clusters. They have `grace` to complete.
    pub(crate) async fn end_gateway(&self, grace: Duration) {
        self.gateway.proxy().drain(grace).await;
    }

    /// The restarts of background tasks.
    pub(crate) fn restarts(&self) -> &Arc<Restarts> {
        &self.restarts
    }

    /// The condition for the health endpoints.
    pub(crate) fn condition(&self) -> Condition {
        Condition {
            storage: self.storage.sealed.health().is_ok(),
            audit: self.audit.works(),
            cache: self.is_loaded() && self.registry.cache().keeps_up(),
            clock: self.registry.servers().check_clock().is_ok(),
            draining: self.is_ending(),
            shared_store: self.storage.sealed.fleet().is_some(),
        }
    }

    /// The state that the metrics report.
    fn state(&self) -> StateReadings {
        let Storage { sealed, keys } = &self.storage;
        StateReadings {
            checks: self.condition().readiness().to_vec(),
            store: sealed.figures(),
            is_keyring_readable: keys.is_readable(sealed),
            keyring_keys: sealed.key_count(),
            certificate_expires_at: self.certificate.expires_at(),
            clusters: self.registry.cluster_figures(),
            subscriptions: self.registry.secret_uses().counts(),
            clock_deviation_milliseconds: self.registry.servers().clock_deviation_milliseconds(),
        }
    }

    /// The values of other parts of the server for the metrics.
    pub(crate) fn readings(&self) -> Readings {
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
            tunnels: self.gateway.tunnels().counts(),
            restarts: self.restarts.counts(),
        }
    }
}
