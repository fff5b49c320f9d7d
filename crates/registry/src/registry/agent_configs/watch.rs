//! A watch on the configuration of an agent: the document first, then each changed document. Bookmarks in between
//! tell the agent that nothing has changed.
//!
//! It ends as watches of objects do: with 401 when the key is no longer valid, and with 410 when the caller may no
//! longer read the configuration.

use std::sync::Arc;
use std::time::Duration;

use postern_kinds::AnyKind;
use postern_kinds::agent_config::{AgentConfig, Part};
use postern_kinds::cluster::Cluster;
use postern_meta::event::WatchEventType;
use postern_meta::options::ListOptions;
use postern_meta::status::{ApiError, Reason};
use postern_meta::time::Timestamp;
use postern_store::Position;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::uses::INSTANCES;
use crate::permit::Permit;
use crate::registry::Registry;
use crate::registry::visibility::permissions_changed;
use crate::registry::watch::Deliveries;
use crate::registry::watch::{Delivery, random_below};

/// The interval of the bookmarks. The agent treats a connection as dead after some intervals without data.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The shortest time between two checks for changes. The first check has no delay.
const TOKENS_PAUSE: Duration = Duration::from_millis(50);
const PLACES_PAUSE: Duration = Duration::from_millis(300);

/// The bytes of a sent document for which the next pause is one second longer. So a user that keeps changing one of
/// many instances does not keep the agents busy with all of them.
const BYTES_PER_SECOND: u64 = 4 * 1024 * 1024;

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The shortest time until the next check, after a document of this size was sent; 0 if none was sent.
fn pause_after(part: Option<Part>, sent_bytes: usize) -> Duration {
    let least = match part {
        Some(Part::Tokens) => return TOKENS_PAUSE,
        Some(Part::Places) | None => PLACES_PAUSE,
    };
    let sent_bytes = u64::try_from(sent_bytes).unwrap_or(u64::MAX);
    let more = Duration::from_millis(sent_bytes.saturating_mul(1000) / BYTES_PER_SECOND);
    (least + more).min(LONGEST_PAUSE)
}

/// A running watch.
pub struct AgentWatcher {
    registry: Arc<Registry>,
    permit: Permit,
    part: Option<Part>,
    /// The hash of the last sent document.
    sent: Option<String>,
    bookmarks: bool,
    next_bookmark: Instant,
    next_check: Instant,
    ends: Instant,
    has_ended: bool,
    /// The expiry of the key as far as it is known, in seconds since 1970.
    key_ends_at: Option<i64>,
    /// The sources of changes to the document.
    changes: Vec<watch::Receiver<u64>>,
    /// The time within which watches end, once the server shuts down.
    ending: watch::Receiver<Option<Duration>>,
    /// The part of that time after which this watch ends, in thousandths; `None` once it is applied.
    end_share: Option<u32>,
}

impl AgentWatcher {
    /// Begins a watch.
    ///
    /// # Errors
    /// 404 if the cluster does not exist; 504 if the cache does not catch up with the store.
    pub async fn begin(
        registry: &Arc<Registry>,
        permit: &Permit,
        part: Option<Part>,
        options: &ListOptions,
        ending: watch::Receiver<Option<Duration>>,
    ) -> Result<Self, ApiError> {
        let cache = registry.cache();
        cache.wait_until_current().await?;
        let mut changes = vec![cache.subscribe_to_access(), cache.of(Cluster.info()).subscribe()];
        if part != Some(Part::Places) {
            changes.push(cache.subscribe_to_tokens());
        }
        if part != Some(Part::Tokens) {
            changes.extend(INSTANCES.map(|kind| cache.of(kind.info()).subscribe()));
        }
        // A missing cluster is reported by the response, not by an event.
        registry.agent_config(permit.name(), Some(Part::Tokens)).await?;
        let now = Instant::now();
        Ok(Self {
            registry: registry.clone(),
            permit: permit.clone(),
            part,
            sent: None,
            bookmarks: options.allow_bookmarks,
            next_bookmark: now + HEARTBEAT,
            next_check: now,
            ends: now + registry.timeout_of(options),
            has_ended: false,
            key_ends_at: None,
            changes,
            ending,
            end_share: u32::try_from(random_below(registry.source(), 1000)).ok(),
        })
    }

    /// Checks that the key is valid and that the caller may still read the configuration.
    ///
    /// # Errors
    /// 401 if the key is not valid; 410 if the caller may no longer read it.
    fn check(&mut self) -> Result<(), ApiError> {
        let (cache, now) = (self.registry.cache(), self.registry.source().now());
        let credential = self.permit.credential();
        let current = credential.current(cache, &cache.policy(), now)?;
        if let Some(current) = current {
            let impersonator_changed =
                credential.is_acting() && current.key.identity != *credential.shared_bearer();
            if current.is_disabled() || impersonator_changed {
                return Err(permissions_changed());
            }
            self.key_ends_at = current.key.ends_at();
        }
        match self.permit.renewed(cache, self.registry.source()) {
            Ok(None) => Ok(()),
            Ok(Some(renewed)) => {
                self.permit = renewed;
                Ok(())
            }
            Err(error) if error.reason() == Reason::Unauthorized => Err(error),
            Err(_) => Err(permissions_changed()),
        }
    }

    /// The document, if it differs from the last sent one.
    async fn changed_document(&mut self) -> Result<Option<Delivery>, ApiError> {
        let document = self.registry.agent_config(self.permit.name(), self.part).await?;
        let is_same = self.sent.as_ref() == Some(&document.hash);
        let sent_bytes = if is_same { 0 } else { document.object.bytes() };
        self.next_check = Instant::now() + pause_after(self.part, sent_bytes);
        if is_same {
            return Ok(None);
        }
        let is_first = self.sent.replace(document.hash.clone()).is_none();
        let event_type = if is_first { WatchEventType::Added } else { WatchEventType::Modified };
        Ok(Some(Delivery::Event { event_type, object: document.object.clone(), shared: None }))
    }

    /// The bookmark that is due. It tells that the last sent document is current.
    async fn bookmark(&mut self) -> Result<Option<Delivery>, ApiError> {
        if !self.bookmarks || Instant::now() < self.next_bookmark {
            return Ok(None);
        }
        self.registry.cache().wait_until_current().await?;
        if let Some(changed) = self.changed_document().await? {
            return Ok(Some(changed));
        }
        let position = Position::end_of(self.registry.cache().applied());
        Ok(Some(Delivery::Bookmark { position, initial_end: false }))
    }

    async fn next_delivery(&mut self) -> Result<Option<Delivery>, ApiError> {
        loop {
            // Marked as seen before the check: a later change wakes this task.
            self.changes.iter_mut().for_each(watch::Receiver::mark_unchanged);
            self.check()?;
            self.note_shutdown();
            if Instant::now() >= self.ends {
                return Ok(None);
            }
            if let Some(changed) = self.changed_document().await? {
                return Ok(Some(changed));
            }
            if let Some(bookmark) = self.bookmark().await? {
                return Ok(Some(bookmark));
            }
            self.wait().await;
        }
    }

    /// Sets the end of the watch once the server shuts down.
    fn note_shutdown(&mut self) {
        let Some(within) = *self.ending.borrow() else { return };
        let Some(share) = self.end_share.take() else { return };
        self.ends = self.ends.min(Instant::now() + within / 1000 * share);
    }

    /// Waits until there may be something to send.
    async fn wait(&mut self) {
        let now = self.registry.source().now().unix_seconds();
        let key_ends = self.key_ends_at.map(|end| {
            let left = u64::try_from(end.saturating_sub(now)).unwrap_or_default();
            Instant::now() + Duration::from_secs(left).min(HEARTBEAT)
        });
        let times = [Some(self.next_bookmark).filter(|_| self.bookmarks), key_ends];
        let wake_at = times.into_iter().flatten().fold(self.ends, Instant::min);
        let changed = self.changes.iter_mut().map(|one| Box::pin(one.changed()));
        let changed = futures_util::future::select_all(changed);
        tokio::select! {
            _ = changed => {}
            () = sleep_until(wake_at) => {}
            _ = self.ending.wait_for(Option::is_some), if self.end_share.is_some() => return,
        }
        sleep_until(self.next_check.min(self.ends)).await;
    }
}

impl Deliveries for AgentWatcher {
    fn kind(&self) -> &'static dyn AnyKind {
        &AgentConfig
    }

    fn now(&self) -> Timestamp {
        self.registry.source().now()
    }

    async fn next(&mut self) -> Option<Vec<Delivery>> {
        if self.has_ended {
            return None;
        }
        let next = self.next_delivery().await;
        self.next_bookmark = Instant::now() + HEARTBEAT;
        match next {
            Ok(Some(delivery)) => Some(vec![delivery]),
            Ok(None) => {
                self.has_ended = true;
                None
            }
            Err(error) => {
                self.has_ended = true;
                Some(vec![Delivery::Failed(error)])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_document_is_followed_by_a_longer_pause_and_a_revocation_never_waits_for_it() {
        let of_places = |bytes| pause_after(Some(Part::Places), bytes).as_millis();
        assert_eq!([0, 1000, 2 << 20, 4 << 20].map(of_places), [300, 300, 800, 1300]);
        assert_eq!([of_places(1 << 30), of_places(usize::MAX)], [5000, 5000]);
        assert_eq!(pause_after(None, 4 << 20), pause_after(Some(Part::Places), 4 << 20));
        assert_eq!(pause_after(Some(Part::Tokens), usize::MAX), TOKENS_PAUSE);
    }
}
