//! How many clusters are stored, by how they are reached and by their phase. Metrics report it, without names.

use std::collections::BTreeMap;

use postern_kinds::AnyKind as _;
use postern_kinds::cluster::Cluster;
use postern_meta::decode::decode_typed;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::Registry;

/// The phases that a cluster can have.
const PHASES: [&str; 3] = ["Ready", "Pending", "Failed"];

/// The label of every other phase.
const UNKNOWN: &str = "Unknown";

/// A way to clusters and a phase, as labels of a metric.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ClusterClass {
    /// `kubeconfig` or `agent`.
    pub connection: &'static str,
    /// `Ready`, `Pending`, `Failed` or `Unknown`.
    pub phase: &'static str,
}

/// The fields of a Cluster that count here.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Stored {
    spec: StoredSpec,
    status: StoredStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredSpec {
    config: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredStatus {
    phase: String,
}

impl Stored {
    fn class(&self) -> ClusterClass {
        let connection = if self.spec.config.is_some() { "kubeconfig" } else { "agent" };
        let known = PHASES.into_iter().find(|phase| *phase == self.status.phase);
        ClusterClass { connection, phase: known.unwrap_or(UNKNOWN) }
    }
}

impl Registry {
    /// The number of clusters in each class, also in those that have none. Clusters that cannot be read are left out.
    pub fn cluster_counts(&self) -> BTreeMap<ClusterClass, usize> {
        let mut counts = BTreeMap::new();
        for connection in ["kubeconfig", "agent"] {
            for phase in PHASES.into_iter().chain([UNKNOWN]) {
                counts.insert(ClusterClass { connection, phase }, 0);
            }
        }
        for cluster in self.cache.of(Cluster.info()).page(None, usize::MAX) {
            let Ok(stored) = decode_typed::<Stored>(&cluster.json()) else { continue };
            *counts.entry(stored.class()).or_default() += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_labels_are_from_a_short_list() {
        for (json, connection, phase) in [
            ("{}", "agent", "Unknown"),
            (
                r#"{"spec":{"config":{"secretName":"x"}},"status":{"phase":"Ready"}}"#,
                "kubeconfig",
                "Ready",
            ),
            (r#"{"spec":{"config":null},"status":{"phase":"Failed"}}"#, "agent", "Failed"),
            (r#"{"status":{"phase":"of a client"}}"#, "agent", "Unknown"),
        ] {
            let stored: Stored = decode_typed(json.as_bytes()).unwrap();
            assert_eq!(stored.class(), ClusterClass { connection, phase }, "{json}");
        }
    }
}
