//! How many clusters are stored, by how they are reached and by their phase, and which ones are reached by agents. Metrics
//! report it, without names.

use std::collections::BTreeMap;

use postern_kinds::AnyKind as _;
use postern_kinds::cluster::Cluster;
use postern_meta::decode::decode_typed;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::registry::Registry;
use crate::registry::deciding::StoredMetadata;
use crate::storage_key;

/// The phases that a cluster can have.
const PHASES: [&str; 3] = ["Ready", "Pending", "Failed"];

/// The label of every other phase.
const UNKNOWN: &str = "Unknown";

/// The label of clusters without a kubeconfig.
const AGENT: &str = "agent";

/// A way to clusters and a phase, as labels of a metric.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ClusterClass {
    /// `kubeconfig` or `agent`.
    pub connection: &'static str,
    /// `Ready`, `Pending`, `Failed` or `Unknown`.
    pub phase: &'static str,
}

/// A cluster that is reached by its agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentCluster {
    /// The name.
    pub name: String,
    /// The uid.
    pub uid: String,
}

/// The clusters, as metrics report them.
#[derive(Default, Debug)]
pub struct ClusterFigures {
    /// The number of clusters in each class, also in those that have none.
    pub counts: BTreeMap<ClusterClass, usize>,
    /// Those that are reached by an agent, in the order of their names.
    pub with_agents: Vec<AgentCluster>,
}

/// The fields of a Cluster that count here.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Stored {
    metadata: StoredMetadata,
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
        let connection = if self.spec.config.is_some() { "kubeconfig" } else { AGENT };
        let known = PHASES.into_iter().find(|phase| *phase == self.status.phase);
        ClusterClass { connection, phase: known.unwrap_or(UNKNOWN) }
    }
}

impl Registry {
    /// The figures of the stored clusters. Clusters that cannot be read are left out.
    pub fn cluster_figures(&self) -> ClusterFigures {
        let mut figures = ClusterFigures::default();
        for connection in ["kubeconfig", AGENT] {
            for phase in PHASES.into_iter().chain([UNKNOWN]) {
                figures.counts.insert(ClusterClass { connection, phase }, 0);
            }
        }
        for cluster in self.cache.of(Cluster.info()).page(None, usize::MAX) {
            let Ok(stored) = decode_typed::<Stored>(&cluster.json()) else { continue };
            let class = stored.class();
            *figures.counts.entry(class).or_default() += 1;
            if class.connection == AGENT {
                let name = storage_key::name_of(cluster.key()).1.to_owned();
                figures.with_agents.push(AgentCluster { name, uid: stored.metadata.uid });
            }
        }
        figures
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
