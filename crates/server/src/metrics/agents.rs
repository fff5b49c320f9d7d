//! The agents that watch their configuration now. An agent is counted by its cluster, however many watches it has.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// The clusters whose agents are connected, each with the number of open watches.
#[derive(Default)]
pub(crate) struct Agents(Mutex<HashMap<String, usize>>);

impl Agents {
    /// Counts a watch of the agent of a cluster for as long as the guard lives.
    pub(crate) fn connect(self: &Arc<Self>, cluster: &str) -> AgentMeter {
        *self.0.lock().entry(cluster.to_owned()).or_default() += 1;
        AgentMeter { agents: self.clone(), cluster: cluster.to_owned() }
    }

    /// The number of connected agents.
    pub(super) fn connected(&self) -> usize {
        self.0.lock().len()
    }
}

/// An open watch of an agent.
pub(crate) struct AgentMeter {
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
        assert_eq!(agents.connected(), 2);
        let [first, second, other] = meters;
        drop((first, other));
        assert_eq!(agents.connected(), 1);
        drop(second);
        assert_eq!(agents.connected(), 0);
    }
}
