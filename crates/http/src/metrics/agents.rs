//! The clusters with agents that watch their configuration at this server now.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// The clusters with connected agents, each with the number of open watches.
#[derive(Default)]
pub(super) struct Agents(Mutex<HashMap<String, usize>>);

impl Agents {
    /// Counts a watch of the agent of a cluster for as long as the guard lives.
    pub(super) fn connect(self: &Arc<Self>, cluster: &str) -> AgentMeter {
        *self.0.lock().entry(cluster.to_owned()).or_default() += 1;
        AgentMeter { agents: self.clone(), cluster: cluster.to_owned() }
    }

    /// Whether the agent of a cluster is connected.
    pub(super) fn is_connected(&self, cluster: &str) -> bool {
        self.0.lock().contains_key(cluster)
    }
}

/// An open watch of an agent.
pub(super) struct AgentMeter {
    agents: Arc<Agents>,
    cluster: String,
}

impl Drop for AgentMeter {
    fn drop(&mut self) {
        let mut agents = self.agents.0.lock();
        if let Some(watches) = agents.get_mut(&self.cluster) {
            *watches -= 1;
            if *watches == 0 {
                agents.remove(&self.cluster);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_connected_until_its_last_watch_ends() {
        let agents = Arc::<Agents>::default();
        let meters = ["a", "a", "b"].map(|cluster| agents.connect(cluster));
        assert_eq!(["a", "b", "c"].map(|name| agents.is_connected(name)), [true, true, false]);
        let [first, second, other] = meters;
        drop((first, other));
        assert_eq!(["a", "b"].map(|name| agents.is_connected(name)), [true, false]);
        drop(second);
        assert!(!agents.is_connected("a"));
    }
}
