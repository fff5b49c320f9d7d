//! Asks the central server for the agent's configuration, again and again.
//!
//! The API serves no watch of a subresource, so the agent asks twice a second: a revocation counts here
//! within a second. The central server makes the answer anew only when something has changed, and sends it only then:
//! otherwise it says that it is the one with the same `ETag`.
//!
//! What is heard counts at once. It is written to disk by a task of its own: no revocation waits for a slow disk.

use std::sync::Arc;
use std::time::Duration;

use postern_client::{Client, Collection, decode_fields};
use postern_kinds::agent_config::{AgentConfig, Spec};
use postern_kinds::cluster::Cluster;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::state::State;
use crate::state_dir::Heard;

/// How often the central server is asked.
const INTERVAL: Duration = Duration::from_millis(500);

/// How often the time of the last answer is kept, when the answer has not changed: after a restart the agent
/// may think that it has heard nothing for so much longer.
const KEEP_INTERVAL: Duration = Duration::from_mins(1);

/// How often the log says that the central server is not reached.
const WARNING_INTERVAL: Duration = Duration::from_mins(1);

/// Takes what is heard.
struct Follower {
    state: Arc<State>,
    /// What is to be kept: the newest counts.
    to_keep: watch::Sender<Option<Arc<Heard>>>,
    /// When something was last given to be kept.
    given: Option<Instant>,
}

impl Follower {
    /// Takes what the central server said at a time; `None` when it was the same as last time.
    fn hear(&mut self, changed: Option<Spec>, at: i64) {
        let is_new = match changed {
            Some(spec) => self.state.hear(spec, at),
            None => self.state.hear_the_same(at),
        };
        let is_due = is_new || self.given.is_none_or(|given| given.elapsed() >= KEEP_INTERVAL);
        if is_due && let Some(spec) = self.state.heard() {
            self.given = Some(Instant::now());
            self.to_keep.send_replace(Some(Arc::new(Heard { at, spec })));
        }
    }
}

/// Follows the configuration of a cluster, and gives what is [to be kept](keep). It returns never.
pub(crate) async fn follow(
    state: Arc<State>,
    mut client: Client,
    cluster: String,
    to_keep: watch::Sender<Option<Arc<Heard>>>,
) {
    let mut follower = Follower { state, to_keep, given: None };
    let (mut known, mut warned): (_, Option<Instant>) = (None, None);
    loop {
        // The time before the request: it may take a while.
        let at = follower.state.now();
        match ask(&mut client, &cluster, &mut known).await {
            Ok(changed) => {
                if warned.take().is_some() {
                    tracing::info!("the central server answers again");
                }
                follower.hear(changed, at);
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

/// Keeps the newest of what is given, one after another. It returns when nothing more is given, and the last is kept.
pub(crate) async fn keep(
    mut given: watch::Receiver<Option<Arc<Heard>>>,
    write: impl Fn(&Heard) -> anyhow::Result<()> + Clone + Send + 'static,
) {
    while given.changed().await.is_ok() {
        let Some(newest) = given.borrow_and_update().clone() else { continue };
        let write = write.clone();
        let kept = tokio::task::spawn_blocking(move || write(&newest)).await;
        if let Ok(Err(error)) = kept {
            tracing::error!("what the central server says is not kept for a restart: {error:#}");
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tasks of a test end with its runtime")]
mod tests {
    use parking_lot::Mutex;
    use postern_auth::endpoint_token::SigningKey;
    use tokio::sync::mpsc;

    use super::*;
    use crate::testing::{NOW, at_second, spec_with};

    #[tokio::test]
    async fn what_is_heard_counts_while_the_disk_is_slow_and_the_newest_is_kept() {
        let state = Arc::new(State::new(Arc::new(|| at_second(NOW)), 500));
        let (to_keep, given) = watch::channel(None);
        let mut follower = Follower { state: state.clone(), to_keep, given: None };
        let (began, mut writes) = mpsc::unbounded_channel();
        let (go_on, gate) = std::sync::mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let keeping = tokio::spawn(keep(given, move |heard| {
            began.send((heard.at, heard.spec.max_offline_seconds))?;
            Ok(gate.lock().recv()?)
        }));
        let key = SigningKey::generate().unwrap();
        let spec = |seconds: i64| Some(Spec { max_offline_seconds: seconds, ..spec_with(&key) });
        follower.hear(spec(1), NOW);
        assert_eq!(writes.recv().await, Some((NOW, 1)));
        for more in 2..5 {
            follower.hear(spec(more), NOW + more);
            assert_eq!(state.heard().unwrap().max_offline_seconds, more, "the disk still writes");
        }
        follower.hear(None, NOW + 5);
        go_on.send(()).unwrap();
        assert_eq!(writes.recv().await, Some((NOW + 4, 4)), "what is not new is kept later");
        follower.hear(spec(6), NOW + 6);
        // The end of the agent waits for the last one.
        drop(follower);
        for _ in 0..2 {
            go_on.send(()).unwrap();
        }
        keeping.await.unwrap();
        assert_eq!(writes.recv().await, Some((NOW + 6, 6)));
        assert_eq!(writes.recv().await, None);
    }
}
