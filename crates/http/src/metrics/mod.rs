//! Metrics, with the names that kube-apiserver uses, so that its dashboards work.
//!
//! They use no library: all series are known when the server starts. So a request costs an index and a
//! few atomic additions, with no lock, no hash and no allocation. Requests for unknown kinds and paths
//! share one series, so that no client can add series. No label contains a name, a user or a key.
//!
//! `owners.rs` is a separate page with a separate permission, because its labels are names of
//! owners. `text.rs` writes the text format. `state.rs` has the state of the server's dependencies,
//! and `remote.rs` that of a store on other machines. `process.rs` reads the figures of this
//! process from the system.

mod agents;
pub mod connections;
mod format;
mod owners;
mod process;
mod remote;
mod state;
mod text;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use http::{Method, StatusCode};
use postern_kinds::{Info, Verb, all};
use postern_meta::time::Timestamp;
use postern_registry::permit::ResourceTarget;
use tokio::time::Instant;

use self::agents::{AgentMeter, Agents};
use self::connections::Connections;
use crate::stages::parse::{Document, Parsed, Target};

pub use owners::write as write_owners;
pub use state::StateReadings;
pub use text::{CONTENT_TYPE, Readings, TunnelCounts, write};

/// The upper bounds of the histogram of durations, in microseconds. They are eight of the 23 of kube-apiserver: most
/// series of the metrics are buckets.
const BUCKETS_MICROSECONDS: [u64; 8] =
    [5_000, 25_000, 100_000, 400_000, 1_000_000, 5_000_000, 30_000_000, 60_000_000];

/// The status codes that have their own count; 0 stands for all others.
const CODES: [u16; 24] = [
    200, 201, 202, 204, 301, 304, 400, 401, 403, 404, 405, 406, 408, 409, 410, 413, 415, 422, 429,
    500, 501, 503, 504, 0,
];

/// The scopes of requests, in kube-apiserver's words.
const SCOPES: [&str; 3] = ["resource", "namespace", "cluster"];

/// The paths that are not resources. The last one stands for all other requests.
const PATHS: [&str; 12] = [
    "/api",
    "/apis",
    "/openapi/v2",
    "/openapi/v3",
    "/metrics",
    "/version",
    "/livez",
    "/readyz",
    "/healthz",
    "/gateway",
    "/auth",
    "",
];

/// The index of the series in which a request is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SeriesIndex(usize);

impl SeriesIndex {
    const OTHER: Self = Self::path(PATHS.len() - 1);

    const fn path(index: usize) -> Self {
        Self(index)
    }

    fn of_path(path: &str) -> Self {
        PATHS.iter().position(|known| *known == path).map_or(Self::OTHER, Self::path)
    }

    fn of_resource(target: &ResourceTarget) -> Self {
        let Some(kind) = counted_index(target) else { return Self::OTHER };
        let verb = Verb::ALL.iter().position(|verb| *verb == target.verb).unwrap_or_default();
        Self(PATHS.len() + (kind * Verb::ALL.len() + verb) * SCOPES.len() + scope_index(target))
    }

    fn of(parsed: &Parsed) -> Self {
        let document = match parsed.target() {
            Target::Resource(target) => return Self::of_resource(target),
            Target::Document(document) => document,
            Target::Gateway(_) => return Self::of_path("/gateway"),
            Target::Nothing => return Self::OTHER,
        };
        if !matches!(*parsed.method(), Method::GET | Method::HEAD) {
            return Self::OTHER;
        }
        Self::of_path(match document {
            Document::CoreVersions => "/api",
            Document::Resources(version) if version.group.is_empty() => "/api",
            Document::Groups | Document::Group(_) | Document::Resources(_) => "/apis",
            Document::OpenApiV2 => "/openapi/v2",
            Document::OpenApiIndex | Document::OpenApi(_) => "/openapi/v3",
            Document::Metrics | Document::OwnerMetrics => "/metrics",
        })
    }
}

/// The kinds and subresources that have their own series: every kind, and then the subresources of each.
fn counted() -> impl Iterator<Item = (&'static Info, &'static str)> {
    let kinds = all().iter().map(|kind| (kind.info(), ""));
    let subresources = all()
        .iter()
        .flat_map(|kind| kind.info().subresources().map(|subresource| (kind.info(), subresource)));
    kinds.chain(subresources)
}

fn counted_index(target: &ResourceTarget) -> Option<usize> {
    let wanted = target.kind.info();
    if target.subresource().is_empty() {
        return kind_index(wanted);
    }
    counted().position(|(info, subresource)| {
        subresource == target.subresource()
            && info.plural == wanted.plural
            && info.version == wanted.version
    })
}

fn kind_index(info: &Info) -> Option<usize> {
    all().iter().position(|kind| {
        let known = kind.info();
        known.plural == info.plural && known.version == info.version
    })
}

fn scope_index(target: &ResourceTarget) -> usize {
    if target.name.is_some() || target.verb == Verb::Create {
        0
    } else if target.namespace.is_some() {
        1
    } else {
        2
    }
}

/// A request that is being served: its series, and the time at which it started.
pub struct Measured {
    started: Instant,
    series: SeriesIndex,
    dry_run: bool,
}

impl Measured {
    /// Starts the measurement. The series is not known yet.
    pub fn begin() -> Self {
        Self { started: Instant::now(), series: SeriesIndex::OTHER, dry_run: false }
    }

    /// Sets the series of a request that has been parsed.
    pub fn set_request(&mut self, parsed: &Parsed) {
        self.series = SeriesIndex::of(parsed);
        self.dry_run = parsed.query().get("dryRun") == Some("All");
    }

    /// Sets the series of a path that needs no credential, such as `/readyz` or `/readyz/ping`.
    pub fn set_public_path(&mut self, path: &str) {
        let end = path.get(1..).and_then(|rest| rest.find('/')).map_or(path.len(), |at| at + 1);
        self.series = SeriesIndex::of_path(&path[..end]);
    }
}

/// The counts of one kind of request.
struct Series {
    /// By whether it is a dry run, and by code.
    codes: [[AtomicU64; CODES.len()]; 2],
    /// The count of each bucket alone, not cumulative. The last one has no upper bound.
    buckets: [AtomicU64; BUCKETS_MICROSECONDS.len() + 1],
    microseconds: AtomicU64,
}

impl Series {
    fn new() -> Self {
        let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
        Self {
            codes: [zeros(), zeros()],
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            microseconds: AtomicU64::new(0),
        }
    }
}

/// The watches of one kind.
struct Watches {
    /// Open watches, by scope.
    open: [AtomicI64; SCOPES.len()],
    /// Events that were sent.
    events: AtomicU64,
}

/// All counters.
pub struct Metrics {
    requests: Vec<Series>,
    watches: Vec<Watches>,
    started: Timestamp,
    /// The counters of connections.
    pub connections: Connections,
    agents: Arc<Agents>,
}

impl Metrics {
    /// All counters at zero; `started` is the time at which the process started to serve.
    pub fn new(started: Timestamp) -> Self {
        let series = PATHS.len() + counted().count() * Verb::ALL.len() * SCOPES.len();
        let watches = || Watches {
            open: std::array::from_fn(|_| AtomicI64::new(0)),
            events: AtomicU64::new(0),
        };
        Self {
            requests: std::iter::repeat_with(Series::new).take(series).collect(),
            watches: std::iter::repeat_with(watches).take(all().len()).collect(),
            started,
            connections: Connections::default(),
            agents: Arc::default(),
        }
    }

    /// Counts a request when its response is ready. The duration ends there: it does not include the time to
    /// send the response, or the rest of a watch.
    pub fn count(&self, measured: &Measured, code: StatusCode) {
        let Some(series) = self.requests.get(measured.series.0) else { return };
        let code = CODES.iter().position(|known| *known == code.as_u16());
        let code = code.unwrap_or(CODES.len() - 1);
        series.codes[usize::from(measured.dry_run)][code].fetch_add(1, Ordering::Relaxed);
        let elapsed = u64::try_from(measured.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let bucket = BUCKETS_MICROSECONDS.partition_point(|bound| *bound < elapsed);
        series.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        series.microseconds.fetch_add(elapsed, Ordering::Relaxed);
    }

    /// Counts a watch as open for as long as the meter lives.
    pub fn watch(self: &Arc<Self>, target: &ResourceTarget) -> WatchMeter {
        self.meter(target, None)
    }

    /// Counts a watch of the agent of a cluster, as [`Metrics::watch`] does, and the agent as connected.
    pub fn watch_of_agent(self: &Arc<Self>, target: &ResourceTarget, cluster: &str) -> WatchMeter {
        self.meter(target, Some(self.agents.connect(cluster)))
    }

    fn meter(self: &Arc<Self>, target: &ResourceTarget, agent: Option<AgentMeter>) -> WatchMeter {
        let kind = kind_index(target.kind.info()).unwrap_or_default();
        let scope = scope_index(target);
        self.watches[kind].open[scope].fetch_add(1, Ordering::Relaxed);
        WatchMeter { metrics: self.clone(), kind, scope, _agent: agent }
    }
}

/// An open watch.
pub struct WatchMeter {
    metrics: Arc<Metrics>,
    kind: usize,
    scope: usize,
    _agent: Option<AgentMeter>,
}

impl WatchMeter {
    /// Counts events that were sent.
    pub fn sent(&self, events: usize) {
        self.metrics.watches[self.kind].events.fetch_add(events as u64, Ordering::Relaxed);
    }
}

impl Drop for WatchMeter {
    fn drop(&mut self) {
        self.metrics.watches[self.kind].open[self.scope].fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_has_a_series() {
        let metrics = Metrics::new(Timestamp::from_unix_seconds(0));
        let mut seen = std::collections::BTreeSet::new();
        for kind in all() {
            for verb in Verb::ALL {
                for (namespace, name) in [(None, None), (Some("n"), None), (Some("n"), Some("o"))] {
                    let target = ResourceTarget {
                        kind: *kind,
                        verb: *verb,
                        namespace: namespace.map(str::to_owned),
                        name: name.map(str::to_owned),
                        action: None,
                        version: None,
                    };
                    let series = SeriesIndex::of_resource(&target);
                    assert!(metrics.requests.len() > series.0);
                    assert!(series.0 > SeriesIndex::OTHER.0);
                    // A create counts as a request for one object, on every path.
                    assert!(seen.insert(series.0) || *verb == Verb::Create);
                }
            }
        }
        assert_eq!(SeriesIndex::of_path("/metrics"), SeriesIndex::path(4));
        assert_eq!(SeriesIndex::of_path("/whatever"), SeriesIndex::OTHER);
    }

    #[test]
    fn paths_of_single_health_checks_count_as_their_endpoint() {
        for (path, want) in [
            ("/readyz/ping", "/readyz"),
            ("/readyz", "/readyz"),
            ("/auth/token", "/auth"),
            ("/x/y", ""),
            ("", ""),
            ("/", ""),
        ] {
            let mut measured = Measured::begin();
            measured.set_public_path(path);
            assert_eq!(PATHS[measured.series.0], want, "{path}");
        }
    }

    #[test]
    fn a_watch_is_open_while_its_meter_lives() {
        let metrics = Arc::new(Metrics::new(Timestamp::from_unix_seconds(0)));
        let target = ResourceTarget {
            kind: all()[0],
            verb: Verb::Watch,
            namespace: None,
            name: None,
            action: None,
            version: None,
        };
        let meter = metrics.watch(&target);
        meter.sent(3);
        assert_eq!(metrics.watches[0].open[2].load(Ordering::Relaxed), 1);
        drop(meter);
        assert_eq!(metrics.watches[0].open[2].load(Ordering::Relaxed), 0);
        assert_eq!(metrics.watches[0].events.load(Ordering::Relaxed), 3);
    }
}
