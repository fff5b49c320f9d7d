//! The state of the server's dependencies: its health checks, its store, its keyring, its
//! certificate, and the clusters. A figure that is not known is left out.

use std::fmt::Write as _;

use postern_registry::registry::agent_configs::cluster_counts::{ClusterClass, ClusterFigures};
use postern_registry::registry::secret_uses::SubscriptionCounts;
use postern_store::Figures;

use super::agents::Agents;
use super::format::{head, seconds};
use super::remote;

/// The state at one moment.
#[derive(Default)]
pub struct StateReadings {
    /// The checks of `/readyz`, and whether each passes.
    pub checks: Vec<(&'static str, bool)>,
    /// The figures of the store.
    pub store: Figures,
    /// Whether the keyring can be read that the next start needs.
    pub is_keyring_readable: bool,
    /// The number of keys in the keyring in use.
    pub keyring_keys: usize,
    /// When the certificate of the listener expires, in seconds since 1970.
    pub certificate_expires_at: Option<i64>,
    /// The clusters.
    pub clusters: ClusterFigures,
    /// The subscriptions of agents to project secrets.
    pub subscriptions: SubscriptionCounts,
    /// How far the clock is from those of the other servers; `None` if it is compared with no other one.
    pub clock_deviation_milliseconds: Option<i64>,
}

/// Appends the metrics of the state.
pub(super) fn write(text: &mut String, readings: &StateReadings, agents: &Agents) {
    let name = "kubernetes_healthcheck";
    head(text, name, "gauge", "Whether a health check passes: 1 if so.");
    for (check, passed) in &readings.checks {
        let _ = writeln!(text, "{name}{{name=\"{check}\",type=\"readyz\"}} {}", u8::from(*passed));
    }
    store(text, &readings.store);
    remote::write(text, readings.store.remote.as_ref());
    let name = "postern_keyring_readable";
    head(
        text,
        name,
        "gauge",
        "Whether the next start can use the keyring: its file, or the KMS that has wrapped it.",
    );
    let _ = writeln!(text, "{name} {}", u8::from(readings.is_keyring_readable));
    let name = "postern_keyring_keys";
    head(text, name, "gauge", "Keys in the keyring in use.");
    let _ = writeln!(text, "{name} {}", readings.keyring_keys);
    let name = "postern_certificate_expiry_timestamp_seconds";
    head(
        text,
        name,
        "gauge",
        "When the certificate of the listener expires, in seconds since 1970.",
    );
    if let Some(at) = readings.certificate_expires_at {
        let _ = writeln!(text, "{name} {at}");
    }
    let name = "postern_clock_deviation_seconds";
    let help = "How far the clock is certainly ahead of those of most other servers on the store.";
    head(text, name, "gauge", help);
    if let Some(milliseconds) = readings.clock_deviation_milliseconds {
        let (sign, off) = (if milliseconds < 0 { "-" } else { "" }, milliseconds.unsigned_abs());
        let _ = writeln!(text, "{name} {sign}{}.{:03}", off / 1000, off % 1000);
    }
    let name = "postern_clusters";
    head(text, name, "gauge", "Clusters, by how they are reached and by their phase.");
    for (ClusterClass { connection, phase }, count) in &readings.clusters.counts {
        let _ = writeln!(text, "{name}{{connection=\"{connection}\",phase=\"{phase}\"}} {count}");
    }
    let name = "postern_agent_connected";
    let help = "Whether the agent of a cluster watches its configuration at this server: 1 if so.";
    head(text, name, "gauge", help);
    for cluster in &readings.clusters.with_agents {
        let is_connected = u8::from(agents.is_connected(&cluster.name));
        let _ = writeln!(text, "{name}{{cluster_uid=\"{}\"}} {is_connected}", cluster.uid);
    }
    subscriptions(text, readings.subscriptions);
}

fn subscriptions(text: &mut String, counts: SubscriptionCounts) {
    let SubscriptionCounts { open, secrets, delivered, refused } = counts;
    let name = "postern_secret_subscriptions";
    head(text, name, "gauge", "Open subscriptions of agents to project secrets.");
    let _ = writeln!(text, "{name} {open}");
    let name = "postern_subscribed_secrets";
    head(text, name, "gauge", "Secrets of connected clusters with the data of a project secret.");
    let _ = writeln!(text, "{name} {secrets}");
    let name = "postern_secret_deliveries_total";
    head(text, name, "counter", "Deliveries to subscribed Secrets, by whether they had data.");
    let _ = writeln!(text, "{name}{{result=\"data\"}} {delivered}");
    let _ = writeln!(text, "{name}{{result=\"not_offered\"}} {refused}");
}

fn store(text: &mut String, figures: &Figures) {
    let mut gauge = |name: &str, help: &str, labels: &str, value: Option<u64>| {
        head(text, name, "gauge", help);
        if let Some(value) = value {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    let help = "Free bytes of the disk of the database.";
    gauge("postern_store_free_bytes", help, "", figures.free_bytes);
    let help = "Writes fail when fewer bytes of the disk are free.";
    gauge("postern_store_reserve_bytes", help, "", figures.reserve_bytes);
    let help = "Bytes of the database and of its write-ahead log.";
    let labels = "{storage_cluster_id=\"postern\"}";
    gauge("apiserver_storage_size_bytes", help, labels, figures.size_bytes);
    let help = "The newest revision in the database. Later ones are in the write-ahead log.";
    gauge("postern_store_applied_revision", help, "", figures.applied_revision);
    let name = "postern_store_failed_commits_total";
    let help =
        "Commits that failed: the disk was full or failed, or the audit log was not written.";
    head(text, name, "counter", help);
    let _ = writeln!(text, "{name} {}", figures.failed_commits);
    let name = "postern_store_commit_duration_seconds";
    let help =
        "Seconds until a commit is durable. One commit is for all writes that waited together.";
    head(text, name, "histogram", help);
    for (bound, count) in figures.commits.at_most() {
        let _ = writeln!(text, "{name}_bucket{{le=\"{}\"}} {count}", seconds(bound));
    }
    let (count, sum) = (figures.commits.count(), seconds(figures.commits.microseconds()));
    let _ = writeln!(
        text,
        "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}"
    );
}
