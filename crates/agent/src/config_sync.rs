//! Follows the agent's configuration at the central server: by watches of its two parts, each over a connection of
//! its own, so that no revocation waits for what is on the cluster. An idle agent costs nothing but heartbeats, by which
//! it knows that nothing has changed and that the connection lives.
//!
//! Where there is no watch, the agent asks for the whole, twice a second. That is so at an older central server, and
//! where its access key may not watch.
//!
//! A new configuration takes effect at once. A separate task writes it to disk: no revocation waits for a slow
//! disk.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use postern_client::{Client, Collection, Error, WatchEvent, decode_fields};
use postern_kinds::agent_config::{AgentConfig, Part, Spec};
use postern_kinds::cluster::Cluster;
use postern_meta::object::Object;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::state::State;
use crate::state_dir::Heard;

/// How often the central server is asked, and how long it is at least from one watch to the next.
const INTERVAL: Duration = Duration::from_millis(500);

/// A watch of which nothing is heard for so long is dead: the central server sends a heartbeat every 5 seconds.
const SILENCE: Duration = Duration::from_secs(15);

/// How long it asks before it tries to watch again: the central server may be a newer one by then.
const ASKING: Duration = Duration::from_mins(1);

/// How often the time of the last answer is kept, when the answer has not changed: after a restart the agent
/// may think that it has heard nothing for so much longer.
const KEEP_INTERVAL: Duration = Duration::from_mins(1);

/// How often the log says that the central server is not reached.
const WARNING_INTERVAL: Duration = Duration::from_mins(1);

/// The codes of answers that say that there is no watch to be had: it is not served, not allowed, or there are too
/// many.
const NO_WATCH: [u16; 5] = [400, 403, 404, 405, 429];

/// A message from the central server.
enum Received {
    /// Another document: a part, or the whole.
    Changed(Box<Spec>),
    /// The one of last time.
    Same,
}

/// Takes what is heard.
struct Follower {
    state: Arc<State>,
    cluster: String,
    /// The configuration to store: the newest counts.
    to_keep: watch::Sender<Option<Arc<Heard>>>,
    /// When something was last given to be kept.
    given: Mutex<Option<Instant>>,
    /// When the log said last that the central server is not reached; `None` while it is.
    warned: Mutex<Option<Instant>>,
}

impl Follower {
    fn new(state: Arc<State>, cluster: String, to_keep: watch::Sender<Option<Arc<Heard>>>) -> Self {
        Self { state, cluster, to_keep, given: Mutex::default(), warned: Mutex::default() }
    }

    /// Takes what the central server said at a time about a part, or about the whole.
    fn hear(&self, part: Option<Part>, received: Received, at: i64) {
        if self.warned.lock().take().is_some() {
            tracing::info!("the central server answers again");
        }
        let is_new = match (received, part) {
            (Received::Changed(spec), Some(part)) => self.state.hear_part(part, *spec, at),
            (Received::Changed(spec), None) => self.state.hear(*spec, at),
            (Received::Same, part) => {
                self.state.hear_the_same(part, at);
                false
            }
        };
        let mut given = self.given.lock();
        let is_due = is_new || given.is_none_or(|given| given.elapsed() >= KEEP_INTERVAL);
        if is_due && let Some((spec, at)) = self.state.heard() {
            *given = Some(Instant::now());
            drop(given);
            self.to_keep.send_replace(Some(Arc::new(Heard { at, spec })));
        }
    }

    /// Notes that nothing is heard.
    fn fail(&self, error: &anyhow::Error) {
        let mut warned = self.warned.lock();
        if warned.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
            *warned = Some(Instant::now());
            drop(warned);
            tracing::warn!("the central server does not answer: {error:#}");
        }
    }

    /// The configuration in a document.
    fn spec_of(&self, config: &Object, part: Option<Part>) -> anyhow::Result<Spec> {
        let spec = decode_fields::<AgentConfig>(config)?.spec;
        anyhow::ensure!(
            spec.cluster.name == self.cluster && !spec.cluster.uid.is_empty(),
            "its answer is not about this cluster"
        );
        anyhow::ensure!(
            spec.part == part.map(Part::as_str).unwrap_or_default(),
            "its answer is about another part"
        );
        Ok(spec)
    }

    /// Watches a part for as long as that goes well.
    ///
    /// # Errors
    /// Why it does not any more.
    async fn watch(&self, client: &mut Client, part: Part) -> anyhow::Result<()> {
        let clusters = Collection::of::<Cluster>(None);
        let query = format!("{}={}", Part::PARAMETER, part.as_str());
        let watch = client.watch_part(clusters, &self.cluster, "agentconfig", &query);
        let mut watch = watch.await?;
        while let Some(event) = watch.next(SILENCE).await? {
            let at = self.state.now();
            let received = match event {
                WatchEvent::Object(config) => {
                    Received::Changed(Box::new(self.spec_of(&config, Some(part))?))
                }
                WatchEvent::Bookmark => Received::Same,
            };
            self.hear(Some(part), received, at);
        }
        Ok(())
    }

    /// Watches a part, again and again. It returns when there is no watch to be had, and why.
    async fn watch_on(&self, client: &mut Client, part: Part) -> Error {
        loop {
            let next = Instant::now() + INTERVAL;
            if let Err(error) = self.watch(client, part).await {
                match error.downcast::<Error>() {
                    Ok(error) if is_without_watch(&error) => return error,
                    // Rights that are others now are looked at anew: that is no fault.
                    Ok(Error::Status(status)) if status.code == 410 => {}
                    Ok(error) => self.fail(&error.into()),
                    Err(error) => self.fail(&error),
                }
            }
            sleep_until(next).await;
        }
    }

    /// Asks for the whole, again and again, until it is time to try to watch.
    async fn ask_on(&self, client: &mut Client) {
        let (mut known, until) = (None, Instant::now() + ASKING);
        while Instant::now() < until {
            // The time before the request: it may take a while.
            let at = self.state.now();
            match self.ask(client, &mut known).await {
                Ok(received) => self.hear(None, received, at),
                Err(error) => self.fail(&error),
            }
            sleep(INTERVAL).await;
        }
    }

    /// Asks for the configuration.
    async fn ask(
        &self,
        client: &mut Client,
        known: &mut Option<String>,
    ) -> anyhow::Result<Received> {
        let clusters = Collection::of::<Cluster>(None);
        let mut tag = known.clone();
        let config = client.get_changed(clusters, &self.cluster, "agentconfig", &mut tag).await?;
        let Some(config) = config else { return Ok(Received::Same) };
        let spec = self.spec_of(&config, None)?;
        *known = tag;
        Ok(Received::Changed(Box::new(spec)))
    }
}

/// Does an error say that there is no watch to be had?
fn is_without_watch(error: &Error) -> bool {
    match error {
        Error::NoWatch => true,
        Error::Status(status) => NO_WATCH.contains(&status.code),
        _ => false,
    }
}

/// Follows the configuration of a cluster, with a client for each part, and gives what is [to be kept](keep). It
/// returns never.
pub(crate) async fn follow(
    state: Arc<State>,
    [mut of_tokens, mut of_places]: [Client; 2],
    cluster: String,
    to_keep: watch::Sender<Option<Arc<Heard>>>,
) {
    let follower = Follower::new(state, cluster, to_keep);
    let mut last: Option<String> = None;
    loop {
        let why = tokio::select! {
            why = follower.watch_on(&mut of_tokens, Part::Tokens) => why,
            why = follower.watch_on(&mut of_places, Part::Places) => why,
        };
        let why = why.to_string();
        if last.as_ref() != Some(&why) {
            tracing::info!("the agent asks twice a second, because it cannot watch: {why}");
            last = Some(why);
        }
        follower.ask_on(&mut of_tokens).await;
    }
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
mod watching;

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tasks of a test end with its runtime")]
mod tests {
    use postern_auth::endpoint_token::SigningKey;
    use tokio::sync::mpsc;

    use super::*;
    use crate::testing::{NOW, at_second, spec_with};

    #[tokio::test]
    async fn what_is_heard_counts_while_the_disk_is_slow_and_the_newest_is_kept() {
        let state = Arc::new(State::new(Arc::new(|| at_second(NOW)), 500));
        let (to_keep, given) = watch::channel(None);
        let follower = Follower::new(state.clone(), "c".to_owned(), to_keep);
        let (began, mut writes) = mpsc::unbounded_channel();
        let (go_on, gate) = std::sync::mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let keeping = tokio::spawn(keep(given, move |heard| {
            began.send((heard.at, heard.spec.max_offline_seconds))?;
            Ok(gate.lock().recv()?)
        }));
        let key = SigningKey::generate().unwrap();
        let spec = |seconds: i64| {
            Received::Changed(Box::new(Spec { max_offline_seconds: seconds, ..spec_with(&key) }))
        };
        follower.hear(None, spec(1), NOW);
        assert_eq!(writes.recv().await, Some((NOW, 1)));
        for more in 2..5 {
            follower.hear(None, spec(more), NOW + more);
            assert_eq!(state.heard().unwrap().0.max_offline_seconds, more, "the disk still writes");
        }
        follower.hear(None, Received::Same, NOW + 5);
        go_on.send(()).unwrap();
        assert_eq!(writes.recv().await, Some((NOW + 4, 4)), "what is not new is kept later");
        follower.hear(None, spec(6), NOW + 6);
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
