//! The tunnels that the agent opens to the central server (`docs/reference/clusters.md#tunnels`). Requests that come
//! through them are answered like those of the listener.
//!
//! `tunnel_pool` decides how many tunnels are opened and when, `tunnel` is one of them, and `report` writes the condition of
//! the Cluster.

mod report;
mod tunnel;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

pub(crate) use self::report::report;
use self::tunnel::Dialler;
use crate::serve::Agent;
use crate::tunnel_pool::Pool;

/// The parts of the agent that open tunnels.
pub(crate) struct Tunnels {
    agent: Arc<Agent>,
    dialler: Arc<Dialler>,
    pool: Arc<Pool>,
}

impl Tunnels {
    /// No tunnels yet. `name` is the name of this agent.
    pub(crate) fn new(
        agent: Arc<Agent>,
        upgrader: postern_client::Upgrader,
        name: String,
        pool: Arc<Pool>,
    ) -> Self {
        let dialler = Dialler { upgrader, cluster: agent.cluster.clone(), name };
        Self { agent, dialler: Arc::new(dialler), pool }
    }

    /// Keeps tunnels open until the agent drains. Then idle tunnels are closed, and requests in the others have `grace`
    /// to end.
    pub(crate) async fn run(self, grace: Duration) {
        let (mut tasks, mut draining) = (JoinSet::new(), self.agent.draining.subscribe());
        // Without a configuration, the agent can answer no request.
        tokio::select! {
            () = self.agent.state.configured() => {}
            _ = draining.wait_for(|draining| *draining) => return,
        }
        loop {
            let servers = self.agent.state.servers();
            let plan = self.pool.plan(&servers, Instant::now());
            for _ in 0..plan.dial {
                let (agent, dialler) = (self.agent.clone(), self.dialler.clone());
                let slot = self.pool.dial(Instant::now());
                tasks.spawn(tunnel::run(agent, dialler, slot));
            }
            tokio::select! {
                _ = tasks.join_next(), if !tasks.is_empty() => {}
                () = self.pool.changed() => {}
                () = sleep_until(plan.next) => {}
                _ = draining.wait_for(|draining| *draining) => break,
            }
        }
        // The others are ended.
        let _ = timeout(grace, async { while tasks.join_next().await.is_some() {} }).await;
        tasks.shutdown().await;
    }
}
