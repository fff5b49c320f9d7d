//! The metrics in Prometheus' text format. No label value needs escaping: all are names of kinds, verbs
//! and paths from this program.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use postern_kinds::{Info, Verb, all};
use postern_proxy::{Counts, Failure};

use postern_flow::{BusiestOwners, FlowCounts, QueueTotals};
use postern_registry::cache::Counted;

use super::connections::ConnectionCounts;
use super::format::{head, seconds};
use super::state::{self, StateReadings};
use super::{BUCKETS_MICROSECONDS, CODES, Metrics, PATHS, SCOPES, Series, counted, process};

/// The format's media type.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Values that are read from other parts of the server when a client requests the metrics.
#[derive(Default)]
pub struct Readings {
    /// The counts of flow control.
    pub flow: FlowCounts,
    /// The requests that waited or were rejected: reads, writes and requests to clusters.
    pub queues: [QueueTotals; 3],
    /// The owners with most requests and watches.
    pub owners: BusiestOwners,
    /// The most watches that one owner may have open.
    pub watches_per_owner: usize,
    /// The state of the server's dependencies.
    pub state: StateReadings,
    /// The counts of connections.
    pub connections: ConnectionCounts,
    /// The number of stored objects of each kind, and of corrupt ones among them.
    pub objects: Vec<(&'static Info, Counted)>,
    /// The number of corrupt records that are not objects.
    pub corrupt_records: usize,
    /// The revision of the cache, which the server serves.
    pub revision: u64,
    /// Records that were appended to the audit log.
    pub audit_events: u64,
    /// Writes to the audit log that failed.
    pub audit_errors: u64,
    /// Requests that were rejected because the audit log could not be written.
    pub audit_rejected: u64,
    /// The counts of the gateway.
    pub gateway: Counts,
    /// The tunnels of agents.
    pub tunnels: TunnelCounts,
    /// The number of restarts of each background task.
    pub restarts: Vec<(&'static str, u64)>,
}

/// The tunnels of all agents to this server.
#[derive(Clone, Copy, Default, Debug)]
pub struct TunnelCounts {
    /// Those that wait for a request.
    pub idle: usize,
    /// All that are open.
    pub open: usize,
    /// The most that may be open.
    pub limit: usize,
}

/// All metrics as text.
pub fn write(metrics: &Metrics, readings: &Readings) -> String {
    let mut text = String::new();
    requests(&mut text, metrics);
    durations(&mut text, metrics);
    in_flight(&mut text, readings);
    owners(&mut text, readings);
    connections(&mut text, &readings.connections);
    watches(&mut text, metrics);
    stored(&mut text, readings);
    audited(&mut text, readings);
    gateway(&mut text, readings);
    state::write(&mut text, &readings.state, &metrics.agents);
    let name = "postern_background_task_restarts_total";
    head(&mut text, name, "counter", "Background tasks that failed and were started again.");
    for (task, count) in &readings.restarts {
        let _ = writeln!(text, "{name}{{task=\"{task}\"}} {count}");
    }
    process::write(&mut text, metrics.started.unix_seconds());
    text
}

fn read(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

/// The labels of a series.
fn labels(index: usize) -> String {
    let Some(index) = index.checked_sub(PATHS.len()) else {
        let path = PATHS[index];
        let verb = if matches!(path, "" | "/gateway" | "/auth") { "other" } else { "GET" };
        return format!(
            "verb=\"{verb}\",group=\"\",version=\"\",resource=\"\",subresource=\"{path}\",scope=\"\""
        );
    };
    let scope = SCOPES[index % SCOPES.len()];
    let verb = Verb::ALL[index / SCOPES.len() % Verb::ALL.len()];
    let of = counted().nth(index / SCOPES.len() / Verb::ALL.len());
    let (resource, subresource) =
        of.map_or_else(Default::default, |(info, name)| (resource_labels(info), name));
    let verb = verb_label(verb);
    format!("verb=\"{verb}\",{resource},subresource=\"{subresource}\",scope=\"{scope}\"")
}

fn resource_labels(info: &Info) -> String {
    let (group, version) = (info.version.group, info.version.version);
    format!("group=\"{group}\",version=\"{version}\",resource=\"{}\"", info.plural)
}

/// The verb as a label: in capitals, or the HTTP method of a verb that writes.
fn verb_label(verb: Verb) -> &'static str {
    match verb {
        Verb::Get => "GET",
        Verb::List => "LIST",
        Verb::Watch => "WATCH",
        Verb::Create => "POST",
        Verb::Update => "PUT",
        Verb::Patch => "PATCH",
        Verb::Delete => "DELETE",
        Verb::DeleteCollection => "DELETECOLLECTION",
    }
}

fn requests(text: &mut String, metrics: &Metrics) {
    let name = "apiserver_request_total";
    head(text, name, "counter", "Requests, by verb, resource and the code of the response.");
    for (index, series) in metrics.requests.iter().enumerate() {
        for (dry_run, codes) in ["", "All"].iter().zip(&series.codes) {
            for (code, count) in CODES.iter().zip(codes) {
                let count = read(count);
                if count == 0 {
                    continue;
                }
                let code = if *code == 0 { "other".to_owned() } else { code.to_string() };
                let labels = labels(index);
                let _ = writeln!(
                    text,
                    "{name}{{{labels},component=\"apiserver\",code=\"{code}\",\
                     dry_run=\"{dry_run}\"}} {count}"
                );
            }
        }
    }
}

fn durations(text: &mut String, metrics: &Metrics) {
    let name = "apiserver_request_duration_seconds";
    let help = "Seconds from the head of a request to the head of its response.";
    head(text, name, "histogram", help);
    for (index, series) in metrics.requests.iter().enumerate() {
        histogram(text, name, index, series);
    }
}

fn histogram(text: &mut String, name: &str, index: usize, series: &Series) {
    let counts: Vec<u64> = series.buckets.iter().map(read).collect();
    let all: u64 = counts.iter().sum();
    if all == 0 {
        return;
    }
    let labels = format!("{},component=\"apiserver\"", labels(index));
    let mut below = 0;
    for (bound, count) in BUCKETS_MICROSECONDS.iter().zip(&counts) {
        below += count;
        let bound = seconds(*bound);
        let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{bound}\"}} {below}");
    }
    let sum = seconds(read(&series.microseconds));
    let _ = writeln!(
        text,
        "{name}_bucket{{{labels},le=\"+Inf\"}} {all}\n{name}_sum{{{labels}}} {sum}\n\
         {name}_count{{{labels}}} {all}"
    );
}

fn in_flight(text: &mut String, readings: &Readings) {
    let FlowCounts { reads, writes, proxied, body_bytes, response_bytes } = readings.flow;
    let name = "apiserver_current_inflight_requests";
    head(text, name, "gauge", "Requests in flight.");
    let _ = writeln!(text, "{name}{{request_kind=\"readOnly\"}} {}", reads.0);
    let _ = writeln!(text, "{name}{{request_kind=\"mutating\"}} {}", writes.0);
    let _ = writeln!(text, "{name}{{request_kind=\"proxied\"}} {}", proxied.0);
    let name = "apiserver_current_inqueue_requests";
    head(text, name, "gauge", "Requests that wait for a slot.");
    let _ = writeln!(text, "{name}{{request_kind=\"readOnly\"}} {}", reads.1);
    let _ = writeln!(text, "{name}{{request_kind=\"mutating\"}} {}", writes.1);
    let _ = writeln!(text, "{name}{{request_kind=\"proxied\"}} {}", proxied.1);
    let name = "postern_request_body_bytes";
    head(text, name, "gauge", "Bytes of request bodies in memory.");
    let _ = writeln!(text, "{name} {body_bytes}");
    let name = "postern_response_bytes_waiting";
    head(text, name, "gauge", "Bytes of responses that clients have not read yet.");
    let _ = writeln!(text, "{name} {response_bytes}");
}

/// The classes of requests, in the order in which flow control has them.
const CLASSES: [&str; 3] = ["readOnly", "mutating", "proxied"];

/// The owners are numbered by their rank: a name would be one of a user, and any number of series.
fn owners(text: &mut String, readings: &Readings) {
    let name = "postern_requests_queued_total";
    head(text, name, "counter", "Requests that had to wait for a slot.");
    for (class, totals) in CLASSES.iter().zip(readings.queues) {
        let _ = writeln!(text, "{name}{{request_kind=\"{class}\"}} {}", totals.queued);
    }
    let name = "postern_requests_rejected_total";
    let help = "Requests that got no slot: the queue of the owner was full, or the wait too long.";
    head(text, name, "counter", help);
    for (class, totals) in CLASSES.iter().zip(readings.queues) {
        let _ = writeln!(text, "{name}{{request_kind=\"{class}\"}} {}", totals.rejected);
    }
    let name = "postern_owner_requests";
    head(text, name, "gauge", "Requests of the owners that have most, by rank: 1 has most.");
    for (rank, load) in (1..).zip(&readings.owners.by_requests) {
        for (state, count) in [("in_flight", load.in_flight), ("waiting", load.waiting)] {
            let _ = writeln!(text, "{name}{{rank=\"{rank}\",state=\"{state}\"}} {count}");
        }
    }
    let name = "postern_owner_watches";
    head(text, name, "gauge", "Open watches of the owners that have most, by rank: 1 has most.");
    for (rank, watches) in (1..).zip(&readings.owners.by_watches) {
        let _ = writeln!(text, "{name}{{rank=\"{rank}\"}} {watches}");
    }
    let name = "postern_owner_watches_limit";
    head(text, name, "gauge", "Watches that one owner may have open.");
    let _ = writeln!(text, "{name} {}", readings.watches_per_owner);
}

fn connections(text: &mut String, counts: &ConnectionCounts) {
    let name = "postern_connections";
    head(text, name, "gauge", "Open connections.");
    let _ = writeln!(text, "{name} {}", counts.open);
    let name = "postern_connections_limit";
    head(text, name, "gauge", "Limit of open connections.");
    let _ = writeln!(text, "{name} {}", counts.limit);
    let name = "postern_connections_closed_total";
    head(text, name, "counter", "Connections that the server closed, by reason.");
    for (reason, count) in counts.closed {
        let _ = writeln!(text, "{name}{{reason=\"{reason}\"}} {count}");
    }
    let name = "postern_responses_reset_total";
    head(
        text,
        name,
        "counter",
        "Responses that the server aborted because the client did not read them.",
    );
    let _ = writeln!(text, "{name} {}", counts.reset_responses);
}

fn gateway(text: &mut String, readings: &Readings) {
    let counts = &readings.gateway;
    for (name, kind, help, count) in [
        ("requests_total", "counter", "Requests that were forwarded to clusters.", counts.requests),
        ("connections", "gauge", "Open connections to clusters.", counts.connections as u64),
        (
            "streams",
            "gauge",
            "Connections that were upgraded to another protocol.",
            counts.sessions as u64,
        ),
    ] {
        let name = format!("postern_gateway_{name}");
        head(text, &name, kind, help);
        let _ = writeln!(text, "{name} {count}");
    }
    let TunnelCounts { idle, open, limit } = readings.tunnels;
    let name = "postern_gateway_tunnels";
    head(text, name, "gauge", "Tunnels that agents have opened to this server, by state.");
    let _ = writeln!(text, "{name}{{state=\"idle\"}} {idle}");
    let _ = writeln!(text, "{name}{{state=\"busy\"}} {}", open.saturating_sub(idle));
    let name = "postern_gateway_tunnels_limit";
    head(text, name, "gauge", "Limit of tunnels to this server.");
    let _ = writeln!(text, "{name} {limit}");
    let name = "postern_gateway_failures_total";
    head(text, name, "counter", "Requests to clusters that failed on the way, by reason.");
    for failure in Failure::ALL {
        let count = counts.failures_of(failure);
        let _ = writeln!(text, "{name}{{reason=\"{}\"}} {count}", failure.name());
    }
}

fn watches(text: &mut String, metrics: &Metrics) {
    let name = "apiserver_longrunning_requests";
    head(text, name, "gauge", "Open watches.");
    for (kind, watches) in all().iter().zip(&metrics.watches) {
        for (scope, open) in SCOPES.iter().zip(&watches.open) {
            let labels = resource_labels(kind.info());
            let open = open.load(Ordering::Relaxed);
            if open > 0 {
                let _ = writeln!(
                    text,
                    "{name}{{verb=\"WATCH\",{labels},subresource=\"\",scope=\"{scope}\",\
                     component=\"apiserver\"}} {open}"
                );
            }
        }
    }
    let name = "apiserver_watch_events_total";
    head(text, name, "counter", "Events that were sent to watches, including bookmarks.");
    for (kind, watches) in all().iter().zip(&metrics.watches) {
        let labels = resource_labels(kind.info());
        let _ = writeln!(text, "{name}{{{labels}}} {}", read(&watches.events));
    }
}

fn stored(text: &mut String, readings: &Readings) {
    let name = "apiserver_storage_objects";
    head(text, name, "gauge", "Stored objects.");
    by_kind(text, name, readings, |counted| counted.all);
    let name = "postern_corrupt_objects";
    head(text, name, "gauge", "Stored objects that cannot be read because they are corrupt.");
    by_kind(text, name, readings, |counted| counted.corrupt);
    let name = "postern_corrupt_records";
    head(
        text,
        name,
        "gauge",
        "Corrupt records that are not objects: digests of access keys, write-only fields, unique names. \
         The log names them.",
    );
    let _ = writeln!(text, "{name} {}", readings.corrupt_records);
    let name = "postern_store_revision";
    head(text, name, "gauge", "The revision of the store: transactions since the first start.");
    let _ = writeln!(text, "{name} {}", readings.revision);
    let name = "postern_build_info";
    head(text, name, "gauge", "The version of this server, as a label.");
    let _ = writeln!(text, "{name}{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
}

fn by_kind(text: &mut String, name: &str, readings: &Readings, count: impl Fn(&Counted) -> usize) {
    for (info, counted) in &readings.objects {
        let (group, plural, count) = (info.version.group, info.plural, count(counted));
        let _ = writeln!(text, "{name}{{group=\"{group}\",resource=\"{plural}\"}} {count}");
    }
}

fn audited(text: &mut String, readings: &Readings) {
    let name = "apiserver_audit_event_total";
    head(text, name, "counter", "Records that were appended to the audit log.");
    let _ = writeln!(text, "{name} {}", readings.audit_events);
    let name = "apiserver_audit_error_total";
    head(text, name, "counter", "Writes to the audit log that failed, each attempt counted.");
    let _ = writeln!(text, "{name}{{plugin=\"log\"}} {}", readings.audit_errors);
    let name = "apiserver_audit_requests_rejected_total";
    let help = "Requests that were rejected because the audit log could not be written.";
    head(text, name, "counter", help);
    let _ = writeln!(text, "{name} {}", readings.audit_rejected);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn seconds_are_short() {
        for (microseconds, want) in
            [(5_000, "0.005"), (1_250_000, "1.25"), (60_000_000, "60"), (0, "0"), (1, "0.000001")]
        {
            assert_eq!(seconds(microseconds), want);
        }
    }

    #[test]
    fn labels_say_what_was_asked_for() {
        assert_eq!(
            labels(4),
            "verb=\"GET\",group=\"\",version=\"\",resource=\"\",subresource=\"/metrics\",scope=\"\""
        );
        let list = Verb::ALL.iter().position(|verb| *verb == Verb::List).unwrap();
        assert_eq!(
            labels(PATHS.len() + list * SCOPES.len() + 2),
            "verb=\"LIST\",group=\"\",version=\"v1\",resource=\"namespaces\",subresource=\"\",\
             scope=\"cluster\""
        );
    }

    #[test]
    fn the_reference_lists_every_metric_and_no_other() {
        let page = include_str!("../../../../docs/reference/metrics.md");
        let section = page.split("\n## ").find(|section| section.starts_with("Server")).unwrap();
        let mut listed = BTreeMap::new();
        for row in section.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = row.split(" | ").collect();
            for name in cells[0].split('`').filter(|name| name.contains('_')) {
                listed.insert(name, cells[1]);
            }
        }
        let metrics = Metrics::new(postern_meta::time::Timestamp::from_unix_seconds(0));
        let text = write(&metrics, &Readings::default());
        let written = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let written: BTreeMap<&str, &str> =
            written.filter(|(name, _)| !name.starts_with("process_")).collect();
        assert!(listed.remove("process_*").is_some());
        assert_eq!(listed, written);
    }
}
