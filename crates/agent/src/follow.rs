//! Asks the central server for the agent's configuration, again and again.
//!
//! The API serves no watch of a subresource, so the agent asks twice a second: a revocation counts here
//! within a second. The central server makes the answer anew only when something has changed, and sends it only then:
//! otherwise it says that it is the one with the same `ETag`.

use std::sync::Arc;
use std::time::Duration;

use postern_client::{Client, Collection, decode_fields};
use postern_kinds::agent_config::{AgentConfig, Spec};
use postern_kinds::cluster::Cluster;
use tokio::time::{Instant, sleep};

use crate::state::State;
use crate::state_dir::{Heard, StateDir};

/// How often the central server is asked.
const INTERVAL: Duration = Duration::from_millis(500);

/// How often the time of the last answer is kept, when the answer has not changed: after a restart the agent
/// may think that it has heard nothing for so much longer.
const KEEP_INTERVAL: Duration = Duration::from_mins(1);

/// How often the log says that the central server is not reached.
const WARNING_INTERVAL: Duration = Duration::from_mins(1);

/// Follows the configuration of a cluster. It returns never.
pub(crate) async fn follow(state: Arc<State>, mut client: Client, cluster: String, dir: StateDir) {
    let (mut kept, mut warned): (Option<Instant>, Option<Instant>) = (None, None);
    let mut known = None;
    loop {
        // The time before the request: it may take a while.
        let at = state.now();
        match ask(&mut client, &cluster, &mut known).await {
            Ok(changed) => {
                if warned.take().is_some() {
                    tracing::info!("the central server answers again");
                }
                let is_new = match changed {
                    Some(spec) => state.hear(spec, at),
                    None => state.hear_the_same(at),
                };
                let is_due = is_new || kept.is_none_or(|kept| kept.elapsed() >= KEEP_INTERVAL);
                if is_due && let Some(spec) = state.heard() {
                    kept = Some(Instant::now());
                    keep(&dir, Heard { at, spec }).await;
                }
            }
            Err(error) if warned.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) => {
                warned = Some(Instant::now());
                tracing::warn!("the central server does not answer: {error:#}");
            }
            Err(_) => {}
        }
        sleep(INTERVAL).await;
    }
}

/// Asks for the configuration. Returns `None` when it is the one that is known.
async fn ask(
    client: &mut Client,
    cluster: &str,
    known: &mut Option<String>,
) -> anyhow::Result<Option<Spec>> {
    let clusters = Collection::of::<Cluster>(None);
    let mut tag = known.clone();
    let config = client.get_changed(clusters, cluster, "agentconfig", &mut tag).await?;
    let Some(config) = config else { return Ok(None) };
    let spec = decode_fields::<AgentConfig>(&config)?.spec;
    anyhow::ensure!(
        spec.cluster.name == cluster && !spec.cluster.uid.is_empty(),
        "its answer is not about this cluster"
    );
    *known = tag;
    Ok(Some(spec))
}

async fn keep(dir: &StateDir, heard: Heard) {
    let dir = dir.clone();
    let kept = tokio::task::spawn_blocking(move || dir.keep(&heard)).await;
    if let Ok(Err(error)) = kept {
        tracing::error!("what the central server says is not kept for a restart: {error:#}");
    }
}
