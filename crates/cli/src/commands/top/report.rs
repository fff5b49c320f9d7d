//! What `postern top` shows: rates, latencies and states, from two scrapes. A figure that is not known is `None`: the
//! server does not report it, or there is no earlier scrape to compare with.

use std::collections::BTreeMap;

use super::quantile::Buckets;
use super::scrape::{Sample, Scrape};

/// One answer of the server, and when it was asked.
#[derive(Debug)]
pub(super) struct Reading {
    /// Seconds since any moment.
    pub(super) at_seconds: f64,
    /// `/metrics`
    pub(super) server: Scrape,
    /// `/metrics/owners`, or why it cannot be read.
    pub(super) owners: Result<Scrape, String>,
}

/// The state of a server at one moment, and what happened since an earlier one.
#[derive(Debug)]
pub(super) struct Report {
    /// The version of the server.
    pub(super) version: String,
    /// Seconds between the scrapes; `None` for the first scrape.
    pub(super) seconds: Option<f64>,
    /// Whether the server started again between the scrapes. There are no rates then.
    pub(super) is_restarted: bool,
    /// All requests.
    pub(super) requests: Traffic,
    /// The requests for each resource or path and verb, the most frequent first.
    pub(super) by_resource: Vec<RequestRow>,
    /// Requests in flight and waiting.
    pub(super) in_flight: Vec<InFlight>,
    /// Open connections, and the limit.
    pub(super) connections: (Option<f64>, Option<f64>),
    /// Open watches, and events per second.
    pub(super) watches: (f64, Option<f64>),
    /// The watches of each resource, the most first.
    pub(super) by_watched: Vec<WatchRow>,
    /// The store.
    pub(super) store: Store,
    /// The clusters.
    pub(super) clusters: Clusters,
    /// The process of the server.
    pub(super) process: ServerProcess,
    /// The owners with most requests, or why they cannot be read.
    pub(super) owners: Result<Vec<OwnerRow>, String>,
    /// What an operator has to look at.
    pub(super) problems: Vec<String>,
}

/// Some requests between two scrapes.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Traffic {
    /// Requests per second.
    pub(super) rate: Option<f64>,
    /// Responses with a status code from 500 on, per second.
    pub(super) errors: Option<f64>,
    /// Responses with status code 429, per second.
    pub(super) rejected: Option<f64>,
    /// The median of the seconds until the head of the response.
    pub(super) p50_seconds: Option<f64>,
    /// The same for 99 of 100 requests.
    pub(super) p99_seconds: Option<f64>,
}

/// The requests for one resource or path, with one verb.
#[derive(Debug, PartialEq)]
pub(super) struct RequestRow {
    /// The verb, in capitals.
    pub(super) verb: String,
    /// The API group; empty for the core group and for paths.
    pub(super) group: String,
    /// The resource with its subresource, or the path; empty for all others.
    pub(super) resource: String,
    /// Its requests.
    pub(super) traffic: Traffic,
}

/// Requests in flight of one class.
#[derive(Debug, PartialEq)]
pub(super) struct InFlight {
    /// `readOnly`, `mutating` or `proxied`.
    pub(super) class: String,
    /// Requests that have a slot.
    pub(super) running: f64,
    /// Requests that wait for one.
    pub(super) waiting: f64,
}

/// The watches of one resource.
#[derive(Debug, PartialEq)]
pub(super) struct WatchRow {
    /// The API group.
    pub(super) group: String,
    /// The resource.
    pub(super) resource: String,
    /// Open watches.
    pub(super) open: f64,
    /// Events per second.
    pub(super) events: Option<f64>,
}

/// The store.
#[derive(Debug, Default)]
pub(super) struct Store {
    /// The revision that is served.
    pub(super) revision: Option<f64>,
    /// Transactions per second.
    pub(super) transactions: Option<f64>,
    /// Revisions that are in the write-ahead log and not yet in the database.
    pub(super) lag: Option<f64>,
    /// The median of the seconds until a commit is durable.
    pub(super) commit_p50_seconds: Option<f64>,
    /// The same for 99 of 100 commits.
    pub(super) commit_p99_seconds: Option<f64>,
    /// Free bytes of the disk.
    pub(super) free_bytes: Option<f64>,
}

/// The clusters, and the requests to them.
#[derive(Debug, Default)]
pub(super) struct Clusters {
    /// Clusters that are stored.
    pub(super) stored: Option<f64>,
    /// The clusters in each phase that some have.
    pub(super) by_phase: BTreeMap<String, f64>,
    /// Clusters whose agents are connected.
    pub(super) agents: Option<f64>,
    /// Requests to clusters per second.
    pub(super) requests: Option<f64>,
    /// Those that failed on the way, per second.
    pub(super) failures: Option<f64>,
    /// Open connections to clusters.
    pub(super) connections: Option<f64>,
    /// Upgraded connections.
    pub(super) streams: Option<f64>,
}

/// The process of the server.
#[derive(Debug, Default)]
pub(super) struct ServerProcess {
    /// The processors in use: 1 is all of one.
    pub(super) processors: Option<f64>,
    /// Bytes in memory.
    pub(super) memory_bytes: Option<f64>,
    /// Open files.
    pub(super) open_files: Option<f64>,
}

/// The requests of one owner.
#[derive(Debug, PartialEq)]
pub(super) struct OwnerRow {
    /// The name of the owner.
    pub(super) owner: String,
    /// Requests per second.
    pub(super) rate: Option<f64>,
    /// The part of the requests of all owners in the list.
    pub(super) share: Option<f64>,
    /// Open watches, and requests to clusters that are under way.
    pub(super) watches: f64,
}

impl Report {
    /// The report of a scrape, compared with an earlier one.
    pub(super) fn new(before: Option<&Reading>, after: &Reading) -> Self {
        let server = &after.server;
        let window = before.and_then(|before| Window::new(before, after));
        let (requests, by_resource) = traffic(window.as_ref());
        let (watches, by_watched) = watches(server, window.as_ref());
        let mut report = Self {
            version: label_of(server, "postern_build_info", "version"),
            seconds: window.as_ref().map(|window| window.seconds),
            is_restarted: before.is_some() && window.is_none(),
            requests,
            by_resource,
            in_flight: in_flight(server),
            connections: (
                server.sum("postern_connections"),
                server.sum("postern_connections_limit"),
            ),
            watches,
            by_watched,
            store: store(server, window.as_ref()),
            clusters: clusters(server, window.as_ref()),
            process: ServerProcess {
                processors: rate(window.as_ref(), "process_cpu_seconds_total"),
                memory_bytes: server.sum("process_resident_memory_bytes"),
                open_files: server.sum("process_open_fds"),
            },
            owners: owners(window.as_ref(), after),
            problems: Vec::new(),
        };
        report.problems = problems(server, window.as_ref());
        if report.is_restarted {
            report
                .problems
                .insert(0, "the server started again: there are no rates yet".to_owned());
        }
        report
    }
}

/// Two scrapes of one process.
struct Window<'a> {
    before: &'a Reading,
    after: &'a Reading,
    seconds: f64,
}

impl<'a> Window<'a> {
    /// `None` if the server started again in between, or no time passed.
    fn new(before: &'a Reading, after: &'a Reading) -> Option<Self> {
        let seconds = after.at_seconds - before.at_seconds;
        let start = |reading: &Reading| reading.server.sum("process_start_time_seconds");
        // Two starts within a second have the same time, but the counts went back.
        let total = |reading: &Reading| reading.server.sum("apiserver_request_total");
        let is_same = start(before) == start(after) && total(before) <= total(after);
        (is_same && seconds > 0.0).then_some(Self { before, after, seconds })
    }

    /// How much each sample of a metric has grown. The server leaves out counts of 0, so a new sample began there.
    fn growth(&self, name: &str) -> impl Iterator<Item = (&'a Sample, f64)> + use<'a> {
        let growth = self.after.server.growth(&self.before.server, name);
        growth.map(|(sample, growth)| (sample, growth.unwrap_or(sample.value)))
    }

    /// `None` if the server does not report the metric.
    fn total_growth(&self, name: &str) -> Option<f64> {
        self.growth(name).map(|(_, growth)| growth).reduce(|sum, growth| sum + growth)
    }

    /// The growth of a histogram.
    fn buckets(&self, name: &str) -> Buckets {
        let mut buckets = Buckets::default();
        for (sample, growth) in self.growth(name) {
            buckets.add(sample.label("le"), growth);
        }
        buckets
    }
}

/// The growth of all samples of a metric per second.
fn rate(window: Option<&Window<'_>>, name: &str) -> Option<f64> {
    window.and_then(|window| Some(window.total_growth(name)? / window.seconds))
}

fn label_of(server: &Scrape, name: &str, label: &str) -> String {
    server.samples(name).first().map_or_else(String::new, |sample| sample.label(label).to_owned())
}

/// The counts of some requests between two scrapes.
#[derive(Default)]
struct Counts {
    all: f64,
    errors: f64,
    rejected: f64,
    durations: Buckets,
}

impl Counts {
    fn add(&mut self, code: &str, count: f64) {
        self.all += count;
        if code.starts_with('5') {
            self.errors += count;
        }
        if code == "429" {
            self.rejected += count;
        }
    }

    fn traffic(&self, seconds: f64) -> Traffic {
        Traffic {
            rate: Some(self.all / seconds),
            errors: Some(self.errors / seconds),
            rejected: Some(self.rejected / seconds),
            p50_seconds: self.durations.quantile(0.5),
            p99_seconds: self.durations.quantile(0.99),
        }
    }
}

/// All requests, and those of each verb and resource.
fn traffic(window: Option<&Window<'_>>) -> (Traffic, Vec<RequestRow>) {
    let Some(window) = window else { return Default::default() };
    let mut all = Counts::default();
    let mut by_resource: BTreeMap<[String; 3], Counts> = BTreeMap::new();
    let key = |sample: &Sample| {
        let (resource, subresource) = (sample.label("resource"), sample.label("subresource"));
        let between = if resource.is_empty() || subresource.is_empty() { "" } else { "/" };
        let resource = format!("{resource}{between}{subresource}");
        [sample.label("verb").to_owned(), sample.label("group").to_owned(), resource]
    };
    for (sample, growth) in window.growth("apiserver_request_total") {
        let code = sample.label("code");
        all.add(code, growth);
        by_resource.entry(key(sample)).or_default().add(code, growth);
    }
    for (sample, growth) in window.growth("apiserver_request_duration_seconds_bucket") {
        let bound = sample.label("le");
        all.durations.add(bound, growth);
        by_resource.entry(key(sample)).or_default().durations.add(bound, growth);
    }
    let with_requests = by_resource.into_iter().filter(|(_, counts)| counts.all > 0.0);
    let mut rows: Vec<RequestRow> = with_requests
        .map(|([verb, group, resource], counts)| {
            let traffic = counts.traffic(window.seconds);
            RequestRow { verb, group, resource, traffic }
        })
        .collect();
    rows.sort_by(|one, other| descending(one.traffic.rate, other.traffic.rate));
    (all.traffic(window.seconds), rows)
}

fn descending(one: Option<f64>, other: Option<f64>) -> std::cmp::Ordering {
    other.unwrap_or(-1.0).total_cmp(&one.unwrap_or(-1.0))
}

fn in_flight(server: &Scrape) -> Vec<InFlight> {
    let name = "apiserver_current_inflight_requests";
    let class = |sample: &Sample| {
        let class = sample.label("request_kind");
        let waiting = server.sum_where("apiserver_current_inqueue_requests", "request_kind", class);
        InFlight {
            class: class.to_owned(),
            running: sample.value,
            waiting: waiting.unwrap_or_default(),
        }
    };
    server.samples(name).iter().map(class).collect()
}

/// All watches, and those of each resource.
fn watches(server: &Scrape, window: Option<&Window<'_>>) -> ((f64, Option<f64>), Vec<WatchRow>) {
    let key =
        |sample: &Sample| (sample.label("group").to_owned(), sample.label("resource").to_owned());
    let mut rows: BTreeMap<(String, String), (f64, Option<f64>)> = BTreeMap::new();
    for sample in server.samples("apiserver_longrunning_requests") {
        rows.entry(key(sample)).or_default().0 += sample.value;
    }
    for (sample, growth) in window.iter().flat_map(|w| w.growth("apiserver_watch_events_total")) {
        let events = window.map(|window| growth / window.seconds);
        rows.entry(key(sample)).or_default().1 = events;
    }
    // The sum of no numbers would be -0.
    let all = rows.values().fold(0.0, |sum, (open, _)| sum + open);
    let in_use =
        |open: f64, events: Option<f64>| open > 0.0 || events.is_some_and(|rate| rate > 0.0);
    let rows = rows.into_iter().filter(|(_, (open, events))| in_use(*open, *events));
    let mut rows: Vec<WatchRow> = rows
        .map(|((group, resource), (open, events))| WatchRow { group, resource, open, events })
        .collect();
    rows.sort_by(|one, other| descending(Some(one.open), Some(other.open)));
    ((all, rate(window, "apiserver_watch_events_total")), rows)
}

fn store(server: &Scrape, window: Option<&Window<'_>>) -> Store {
    let revision = server.sum("postern_store_revision");
    let applied = server.sum("postern_store_applied_revision");
    let commits =
        window.map(|window| window.buckets("postern_store_commit_duration_seconds_bucket"));
    let quantile = |part| commits.as_ref().and_then(|commits| commits.quantile(part));
    Store {
        revision,
        transactions: rate(window, "postern_store_revision"),
        // The two are not read at the same moment.
        lag: revision.zip(applied).map(|(revision, applied)| (revision - applied).max(0.0)),
        commit_p50_seconds: quantile(0.5),
        commit_p99_seconds: quantile(0.99),
        free_bytes: server.sum("postern_store_free_bytes"),
    }
}

fn clusters(server: &Scrape, window: Option<&Window<'_>>) -> Clusters {
    let mut by_phase = BTreeMap::new();
    for sample in server.samples("postern_clusters").iter().filter(|sample| sample.value > 0.0) {
        *by_phase.entry(sample.label("phase").to_owned()).or_default() += sample.value;
    }
    Clusters {
        stored: server.sum_where("apiserver_storage_objects", "resource", "clusters"),
        by_phase,
        agents: server.sum("postern_agent_connected"),
        requests: rate(window, "postern_gateway_requests_total"),
        failures: rate(window, "postern_gateway_failures_total"),
        connections: server.sum("postern_gateway_connections"),
        streams: server.sum("postern_gateway_streams"),
    }
}

/// An owner that the earlier scrape did not list has no rate: its count is that of a longer time.
fn owners(window: Option<&Window<'_>>, after: &Reading) -> Result<Vec<OwnerRow>, String> {
    let name = "postern_owner_requests_total";
    let now = after.owners.as_ref().map_err(String::clone)?;
    let none = Scrape::default();
    let before = window.and_then(|window| window.before.owners.as_ref().ok()).unwrap_or(&none);
    let watches = |owner| now.sum_where("postern_owner_open_watches", "owner", owner);
    let mut rows: Vec<OwnerRow> = now
        .growth(before, name)
        .map(|(sample, growth)| {
            let owner = sample.label("owner");
            OwnerRow {
                owner: owner.to_owned(),
                rate: window.and_then(|window| Some(growth? / window.seconds)),
                share: None,
                watches: watches(owner).unwrap_or_default(),
            }
        })
        .collect();
    let all: f64 = rows.iter().filter_map(|row| row.rate).sum();
    for row in rows.iter_mut().filter(|_| all > 0.0) {
        row.share = row.rate.map(|rate| rate / all);
    }
    rows.sort_by(|one, other| descending(one.rate, other.rate));
    Ok(rows)
}

/// What should not be so, in sentences.
fn problems(server: &Scrape, window: Option<&Window<'_>>) -> Vec<String> {
    let mut problems = Vec::new();
    for sample in server.samples("kubernetes_healthcheck").iter().filter(|one| one.value == 0.0) {
        problems.push(format!("the check {} of /readyz fails", sample.label("name")));
    }
    if server.sum("postern_keyring_readable") == Some(0.0) {
        problems.push("the keyring's file cannot be read, or lacks the current key".to_owned());
    }
    let present = [
        ("postern_corrupt_objects", "corrupt objects are stored"),
        ("postern_corrupt_records", "corrupt records are stored"),
    ];
    for (name, what) in present {
        if let Some(count) = server.sum(name).filter(|count| *count > 0.0) {
            problems.push(format!("{count} {what}"));
        }
    }
    let growing = [
        ("apiserver_audit_error_total", "writes to the audit log failed"),
        ("apiserver_audit_requests_rejected_total", "requests were rejected: no audit log"),
        ("postern_store_failed_commits_total", "commits failed"),
        ("postern_background_task_restarts_total", "background tasks failed"),
    ];
    for (name, what) in growing {
        let growth = window.and_then(|window| window.total_growth(name));
        if let Some(count) = growth.filter(|count| *count > 0.0) {
            problems.push(format!("{count} {what} since the last scrape"));
        }
    }
    problems
}

#[cfg(test)]
mod tests;
