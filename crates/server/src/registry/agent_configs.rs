//! What was made for the agents of clusters lately. Making it takes as long as there are instances and
//! bindings, and agents ask twice a second.

use std::sync::Arc;

use parking_lot::Mutex;
use postern_kinds::agent_config::{Instance, Use};

/// Clusters whose places are kept.
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

/// The places that were made last, by cluster.
#[derive(Default)]
pub(crate) struct AgentConfigs {
    kept: Mutex<Vec<(String, Arc<Places>)>>,
}

impl AgentConfigs {
    /// Returns the places of a cluster, if they are of this state.
    pub(crate) fn get(&self, cluster: &str, state: PlacesState) -> Option<Arc<Places>> {
        let kept = self.kept.lock();
        let (_, last) = kept.iter().find(|(name, _)| name == cluster)?;
        Some(last.clone()).filter(|last| last.state == state)
    }

    /// Keeps the places of a cluster.
    pub(crate) fn keep(&self, cluster: &str, places: Arc<Places>) {
        let mut kept = self.kept.lock();
        kept.retain(|(name, _)| name != cluster);
        if kept.len() >= MAX_KEPT {
            kept.remove(0);
        }
        kept.push((cluster.to_owned(), places));
    }
}
