//! Synchronizes the agent's configuration with the central server, by watches of its two parts.
//! Each watch has its own connection, so that no revocation waits for data about the cluster. An
//! idle agent costs only heartbeats. They show that nothing has changed and that the connection
//! works.
//!
//! Without a watch, the agent requests the whole configuration, twice a second. This happens with
//! an older central server, and if the agent's access key has no permission to watch.
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
use crate::state_dir::StoredConfig;

/// How often the central server is asked, and how long it is at least from one watch to the next.
const INTERVAL: Duration = Duration::from_millis(500);

/// The longest silence of a watch: the central server sends a heartbeat every 5 seconds.
const SILENCE: Duration = Duration::from_secs(15);

/// How long the agent polls before it tries to watch again: the central server may have been upgraded.
const POLL_PERIOD: Duration = Duration::from_mins(1);

/// How often the time of the last contact is stored while the configuration does not change. After a restart the
/// stored time can be this much too old.
const KEEP_INTERVAL: Duration = Duration::from_mins(1);

/// The interval of warnings that the central server does not answer.
const WARNING_INTERVAL: Duration = Duration::from_mins(1);

/// The status codes of a watch that the server does not offer: not served, not allowed, or too many watches.
const NO_WATCH: [u16; 5] = [400, 403, 404, 405, 429];

/// A message from the central server.
enum Received {
    /// Another document: a part, or the whole.
    Changed(Box<Spec>),
    /// The one of last time.
    Same,
}

/// Applies the configuration of the central server, and offers it for storage.
struct ConfigSync {
    state: Arc<State>,
    cluster: String,
    /// The configuration to store: the newest counts.
    to_store: watch::Sender<Option<Arc<StoredConfig>>>,
    /// When a configuration was last offered for storage.
    given: Mutex<Option<Instant>>,
    /// The time of the last warning that the central server does not answer; `None` while it answers.
    warned: Mutex<Option<Instant>>,
}

impl ConfigSync {
    fn new(
        state: Arc<State>,
        cluster: String,
        to_store: watch::Sender<Option<Arc<StoredConfig>>>,
    ) -> Self {
        Self { state, cluster, to_store, given: Mutex::default(), warned: Mutex::default() }
    }

    /// Applies a message about a part, or about the whole, that was received at a time.
    fn receive(&self, part: Option<Part>, received: Received, at: i64) {
        if self.warned.lock().take().is_some() {
            tracing::info!("the central server answers again");
        }
        let is_new = match (received, part) {
            (Received::Changed(spec), Some(part)) => self.state.apply_part(part, *spec, at),
            (Received::Changed(spec), None) => self.state.apply_config(*spec, at),
            (Received::Same, part) => {
                self.state.confirm_unchanged(part, at);
                false
            }
        };
        let mut given = self.given.lock();
        let is_due = is_new || given.is_none_or(|given| given.elapsed() >= KEEP_INTERVAL);
        if is_due && let Some((spec, at)) = self.state.last_config() {
            *given = Some(Instant::now());
            drop(given);
            self.to_store.send_replace(Some(Arc::new(StoredConfig { at, spec })));
        }
    }

    /// Logs that the central server does not answer, at most once per [`WARNING_INTERVAL`].
    fn warn_unreachable(&self, error: &anyhow::Error) {
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
            "the response is not about this cluster"
        );
        anyhow::ensure!(
            spec.part == part.map(Part::as_str).unwrap_or_default(),
            "the response is about another part"
        );
        Ok(spec)
    }

    /// Watches a part until the watch ends.
    ///
    /// # Errors
    /// Why the watch failed.
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
            self.receive(Some(part), received, at);
        }
        Ok(())
    }

    /// Watches a part, and reconnects after failures. Returns the error when the server does not offer the watch.
    async fn watch_until_unsupported(&self, client: &mut Client, part: Part) -> Error {
        loop {
            let next = Instant::now() + INTERVAL;
            if let Err(error) = self.watch(client, part).await {
                match error.downcast::<Error>() {
                    Ok(error) if is_watch_unsupported(&error) => return error,
                    // 410 after a change of permissions is no failure: watch again.
                    Ok(Error::Status(status)) if status.code == 410 => {}
                    Ok(error) => self.warn_unreachable(&error.into()),
                    Err(error) => self.warn_unreachable(&error),
                }
            }
            sleep_until(next).await;
        }
    }

    /// Polls the whole configuration until it is time to try a watch again.
    async fn poll_for_a_while(&self, client: &mut Client) {
        let (mut known, until) = (None, Instant::now() + POLL_PERIOD);
        while Instant::now() < until {
            // The time before the request: it may take a while.
            let at = self.state.now();
            match self.poll(client, &mut known).await {
                Ok(received) => self.receive(None, received, at),
                Err(error) => self.warn_unreachable(&error),
            }
            sleep(INTERVAL).await;
        }
    }

    /// Asks for the configuration.
    async fn poll(
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

/// Whether an error says that the server does not offer the watch.
fn is_watch_unsupported(error: &Error) -> bool {
    match error {
        Error::NoWatch => true,
        Error::Status(status) => NO_WATCH.contains(&status.code),
        _ => false,
    }
}

/// Synchronizes the configuration of a cluster, with a client for each part, and offers it [for storage](store_latest).
/// Never returns.
pub(crate) async fn run(
    state: Arc<State>,
    [mut of_tokens, mut of_places]: [Client; 2],
    cluster: String,
    to_store: watch::Sender<Option<Arc<StoredConfig>>>,
) {
    let sync = ConfigSync::new(state, cluster, to_store);
    let mut last: Option<String> = None;
    loop {
        let why = tokio::select! {
            why = sync.watch_until_unsupported(&mut of_tokens, Part::Tokens) => why,
            why = sync.watch_until_unsupported(&mut of_places, Part::Places) => why,
        };
        let why = why.to_string();
        if last.as_ref() != Some(&why) {
            tracing::info!(
                "polling twice a second, because the configuration cannot be watched: {why}"
            );
            last = Some(why);
        }
        sync.poll_for_a_while(&mut of_tokens).await;
    }
}

/// Stores the newest configuration, one after another. Returns when the sender is gone and the last one is stored.
pub(crate) async fn store_latest(
    mut given: watch::Receiver<Option<Arc<StoredConfig>>>,
    write: impl Fn(&StoredConfig) -> anyhow::Result<()> + Clone + Send + 'static,
) {
    while given.changed().await.is_ok() {
        let Some(newest) = given.borrow_and_update().clone() else { continue };
        let write = write.clone();
        let kept = tokio::task::spawn_blocking(move || write(&newest)).await;
        if let Ok(Err(error)) = kept {
            tracing::error!("cannot store the configuration for a restart: {error:#}");
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
        let (to_store, given) = watch::channel(None);
        let sync = ConfigSync::new(state.clone(), "c".to_owned(), to_store);
        let (began, mut writes) = mpsc::unbounded_channel();
        let (go_on, gate) = std::sync::mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let keeping = tokio::spawn(store_latest(given, move |stored| {
            began.send((stored.at, stored.spec.max_offline_seconds))?;
            Ok(gate.lock().recv()?)
        }));
        let key = SigningKey::generate().unwrap();
        let spec = |seconds: i64| {
            Received::Changed(Box::new(Spec { max_offline_seconds: seconds, ..spec_with(&key) }))
        };
        sync.receive(None, spec(1), NOW);
        assert_eq!(writes.recv().await, Some((NOW, 1)));
        for more in 2..5 {
            sync.receive(None, spec(more), NOW + more);
            assert_eq!(
                state.last_config().unwrap().0.max_offline_seconds,
                more,
                "the disk still writes"
            );
        }
        sync.receive(None, Received::Same, NOW + 5);
        go_on.send(()).unwrap();
        assert_eq!(writes.recv().await, Some((NOW + 4, 4)), "what is not new is kept later");
        sync.receive(None, spec(6), NOW + 6);
        // The end of the agent waits for the last one.
        drop(sync);
        for _ in 0..2 {
            go_on.send(()).unwrap();
        }
        keeping.await.unwrap();
        assert_eq!(writes.recv().await, Some((NOW + 6, 6)));
        assert_eq!(writes.recv().await, None);
    }
}
