//! The configurations that were made for the agents of clusters lately. Making one takes as long as there are
//! instances and bindings, and agents ask twice a second.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use postern_kinds::agent_config::{Instance, Spec, Use};

/// Clusters whose configurations are kept.
const MAX_KEPT: usize = 1000;

/// As long as it is the same, places are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlacesState {
    /// The version of what decides.
    pub(crate) access: u64,
    /// The newest events of the kinds of instances.
    pub(crate) kinds: [u64; 2],
}

/// What is on a cluster, and who may use it, as of one state.
pub(crate) struct Places {
    pub(crate) state: PlacesState,
    pub(crate) instances: Vec<Instance>,
    pub(crate) uses: Vec<Use>,
}

/// A configuration, and what it was made of.
pub(crate) struct Made {
    pub(crate) places: Arc<Places>,
    /// Everything else in it.
    pub(crate) rest: Spec,
    /// The whole object.
    pub(crate) json: Bytes,
    /// Its hash, in hex.
    pub(crate) hash: String,
}

/// The configurations that were made last, by cluster.
#[derive(Default)]
pub(crate) struct AgentConfigs {
    last: Mutex<Vec<(String, Arc<Made>)>>,
}

impl AgentConfigs {
    /// Returns the configuration of a cluster that was made last.
    pub(crate) fn get(&self, cluster: &str) -> Option<Arc<Made>> {
        let last = self.last.lock();
        last.iter().find(|(name, _)| name == cluster).map(|(_, made)| made.clone())
    }

    /// Keeps the configuration of a cluster.
    pub(crate) fn keep(&self, cluster: &str, made: Arc<Made>) {
        let mut last = self.last.lock();
        last.retain(|(name, _)| name != cluster);
        if last.len() >= MAX_KEPT {
            last.remove(0);
        }
        last.push((cluster.to_owned(), made));
    }
}
