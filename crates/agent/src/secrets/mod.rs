//! Native Secrets of the cluster, and of virtual clusters in it, that take their data from project secrets
//! (`docs/reference/clusters.md#secrets-in-connected-clusters`).
//!
//! `watcher` reads the metadata of labelled Secrets into the `table`. `subscription` posts them to the central server, and
//! receives their data. `fill` decides what is written, and `sync` writes it through `cluster_api`. `events` tells the
//! writers of the Secrets why one has no data.
//!
//! A value is in memory between its arrival and the response of the cluster, and nowhere else. The table has names and
//! versions alone.

mod cluster_api;
mod events;
mod fill;
mod location;
mod native;
mod subscription;
mod sync;
mod table;
#[cfg(test)]
mod tests;
mod tracked;
mod watcher;

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use postern_client::Client;
use tokio::task::JoinSet;

use self::sync::SecretSync;
use crate::serve::Agent;

/// The interval at which the agent lists the labelled Secrets of a virtual cluster, unless the operator sets another one.
pub const VIRTUAL_CLUSTER_INTERVAL: Duration = Duration::from_secs(30);

/// The Secrets that the agent fills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecretsMode {
    /// None. The agent reads no Secret for this.
    #[default]
    Off,
    /// Those in namespaces of spaces in which the agent has the permission.
    Bound,
    /// Those in all namespaces of spaces, by one watch of the cluster.
    All,
}

impl FromStr for SecretsMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "bound" => Ok(Self::Bound),
            "all" => Ok(Self::All),
            _ => Err("must be off, bound or all".to_owned()),
        }
    }
}

/// The operator's settings of the secret sync into the cluster.
#[derive(Clone, Copy, Debug)]
pub struct SecretsSettings {
    /// The Secrets that the agent fills.
    pub mode: SecretsMode,
    /// The interval at which it lists those of a virtual cluster.
    pub virtual_cluster_interval: Duration,
}

/// Fills Secrets until the agent drains. An open watch would keep it from stopping.
pub(crate) async fn run(agent: Arc<Agent>, settings: SecretsSettings, client: Client) {
    if settings.mode == SecretsMode::Off {
        return;
    }
    let mut draining = agent.draining.subscribe();
    tokio::select! {
        () = fill(SecretSync::new(agent, settings), client) => {}
        _ = draining.wait_for(|draining| *draining) => {}
    }
}

async fn fill(sync: Arc<SecretSync>, client: Client) {
    // An old configuration from the disk may lack a new instance.
    sync.heard_since_start().await;
    let mut tasks = JoinSet::new();
    tasks.spawn(watcher::run(sync.clone()));
    tasks.spawn(sync::verify_changed(sync.clone()));
    tasks.spawn(subscription::keep_namespaces(sync.clone()));
    tasks.spawn(subscription::run(sync, client));
    // None of them ends.
    tasks.join_next().await;
}
