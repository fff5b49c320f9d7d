//! A watch: a cursor that moves forward in the history of a kind.
//!
//! A watcher has no queue. It reads the events of the cache after its cursor, as fast as its client takes them. It
//! reads events that the cache no longer has from the store's history. If that is compacted, the watch ends. It never
//! skips an event.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use postern_flow::large::LargeWork;
use postern_kinds::AnyKind;
use postern_meta::event::WatchEventType;
use postern_meta::options::{ListOptions, RequestedVersion};
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;
use postern_store::{Error, Position};
use postern_telemetry::log_limited;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until};

use super::observe::observed;
use super::read::{BYTES_BETWEEN_PAUSES, Selection};
use super::visibility::{Visibility, permissions_changed};
use crate::cache::{Cache, CacheEvent, CachedObject, Next, OlderEvents};
use crate::clock::Source;
use crate::permit::Permit;
use crate::registry::Registry;

/// How often a watcher with `allowWatchBookmarks` gets a bookmark.
const BOOKMARK_INTERVAL: Duration = Duration::from_mins(1);

/// A watcher also gets a bookmark after this time without data: load balancers cut silent connections.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);

/// The shortest timeout of a watch if the client sends no timeout. The longest one is twice as
/// long.
const SHORTEST_DEFAULT_TIMEOUT_SECONDS: u64 = 1800;

/// The longest timeout of a watch. Clients then connect again, perhaps to another server.
const LONGEST_TIMEOUT_SECONDS: u64 = 24 * 3600;

/// An expiring key is checked at least this often.
const LONGEST_CHECK_INTERVAL: Duration = Duration::from_hours(1);

/// The approximate maximum of object bytes that one read returns. They may be copies, which wait for the client.
const BYTES_PER_READ: usize = 64 * 1024;

/// The maximum of objects of the initial state that one read returns.
const INITIAL_PER_READ: usize = 64;

/// One item that a watcher returns.
pub enum Delivery {
    /// A change, or an object of the initial state.
    Event {
        /// The type for this watcher: with selectors, a change can be ADDED or DELETED.
        event_type: WatchEventType,
        /// The object's state.
        object: Arc<CachedObject>,
        /// The cached event. Watchers share its encodings.
        shared: Option<Arc<CacheEvent>>,
    },
    /// All events up to a position have been returned.
    Bookmark {
        /// The position.
        position: Position,
        /// Whether this is the end of the initial state.
        initial_end: bool,
    },
    /// The watch cannot continue.
    Failed(ApiError),
}

impl Delivery {
    /// Whether other watchers get the same bytes.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Event { shared: Some(_), .. })
    }

    /// The bytes of the object that it is made from.
    pub fn source_bytes(&self) -> usize {
        match self {
            Self::Event { object, .. } => object.bytes(),
            Self::Bookmark { .. } | Self::Failed(_) => 0,
        }
    }
}

/// A running watch.
pub struct Watcher {
    cache: Arc<Cache>,
    source: Arc<dyn Source>,
    kind: &'static dyn AnyKind,
    selection: Selection,
    cursor: Position,
    initial: VecDeque<Arc<CachedObject>>,
    initial_end_due: bool,
    bookmarks: bool,
    next_bookmark: Instant,
    /// The time at which something was last returned.
    last_sent: Instant,
    ends: Instant,
    /// Wakes the watcher at the next of these times. The timer is reused: a new timer for each event of each watcher
    /// would take the runtime's lock on all timers.
    timer: Pin<Box<Sleep>>,
    has_ended: bool,
    subscription: watch::Receiver<u64>,
    /// The time within which watches end, once the server shuts down.
    ending: watch::Receiver<Option<Duration>>,
    /// The part of that time after which this watch ends, in thousandths; `None` once it is applied.
    end_share: Option<u32>,
    access: WatchAccess,
    /// The threads on which it reads history.
    large: LargeWork,
    /// The error of a watch that cannot start: its client has to list again.
    expired: Option<ApiError>,
}

/// Checks whether the caller may still watch: the key must be valid, and the visible objects must be the same.
struct WatchAccess {
    visible: Visibility,
    /// Whether responses tell the caller its permissions on each object.
    is_extended: bool,
    source: Arc<dyn Source>,
    changes: watch::Receiver<u64>,
    /// The expiry of the key as far as it is known, in seconds since 1970.
    ends_at: Option<i64>,
    /// The time of the next check, if nothing changes before.
    next_check: Option<Instant>,
}

impl WatchAccess {
    fn new(registry: &Registry, permit: Permit, prefix: String, is_extended: bool) -> Self {
        let mut access = Self {
            visible: Visibility::new(permit, prefix),
            is_extended,
            source: registry.source.clone(),
            changes: registry.cache().subscribe_to_access(),
            ends_at: None,
            next_check: None,
        };
        // Checked before the first event: the key may have expired since the request.
        access.changes.mark_changed();
        access
    }

    /// Checks, if there is a reason, that the key is valid and that the caller may still see the same objects.
    ///
    /// # Errors
    /// 401 if the key is not valid. 410 if the caller may see other objects now: the client then lists again. A
    /// change of another caller's permissions is no error.
    fn check(&mut self, cache: &Cache) -> Result<(), ApiError> {
        let time = self.source.now();
        let now = time.unix_seconds();
        let changed = self.changes.has_changed().unwrap_or(true);
        let ended = self.ends_at.is_some_and(|end| end <= now);
        if !changed && !ended && self.next_check.is_none_or(|at| Instant::now() < at) {
            return Ok(());
        }
        self.changes.mark_unchanged();
        let credential = self.visible.newest().credential();
        let current = credential.current(cache, &cache.policy(), time)?;
        let Some(current) = current else { return Ok(()) };
        // A caller that impersonates needs the permission to impersonate for as long as the watch lasts.
        let impersonator_changed =
            credential.is_acting() && current.key.identity != *credential.shared_bearer();
        if current.is_disabled() || impersonator_changed {
            return Err(permissions_changed());
        }
        if current.identity() != credential.identity() {
            let credential = credential.renewed(&current);
            self.visible.change_identity(credential)?;
        }
        self.visible.apply_policy_changes(cache)?;
        self.ends_at = current.key.ends_at();
        self.next_check = self.ends_at.map(|end| {
            let wait = Duration::from_secs(u64::try_from(end.saturating_sub(now)).unwrap_or(0));
            Instant::now() + wait.min(LONGEST_CHECK_INTERVAL)
        });
        Ok(())
    }
}

impl Registry {
    /// Starts a watch, which reads history as large work. When `ending` has a time, all watches end
    /// within it. Each one ends after a random part of that time, so that the clients do not
    /// reconnect all at once.
    ///
    /// # Errors
    /// 504 if the cache does not reach the revision of the initial state in time.
    pub async fn watch(
        &self,
        permit: &Permit,
        options: &ListOptions,
        ending: watch::Receiver<Option<Duration>>,
        large: LargeWork,
    ) -> Result<Watcher, ApiError> {
        let kind = permit.kind();
        let selection = Selection::new(permit, options);
        let prefix = selection.prefix.clone();
        let initial_wanted = wants_initial(options);
        self.wait_for_start(options, permit.oldest_revision()).await?;
        let resource = self.cache().of(kind.info());
        let subscription = resource.subscribe();
        let mut expired = None;
        let (cursor, initial, permit) = match options.resource_version {
            Some(RequestedVersion::At(version)) if !initial_wanted => {
                let cursor = Position::from_packed(version);
                let then = self.permit_at(permit, cursor.revision()).await;
                expired = then.as_ref().err().cloned();
                (cursor, VecDeque::new(), then.unwrap_or_else(|_| permit.clone()))
            }
            _ => {
                let (list, permit) = self.visible(permit, &selection, None, 0).await?;
                let objects = if initial_wanted { list.objects.into() } else { VecDeque::new() };
                (Position::end_of(list.revision), objects, permit)
            }
        };
        let now = Instant::now();
        let ends = now + self.timeout_of(options);
        Ok(Watcher {
            cache: self.cache().clone(),
            source: self.source.clone(),
            kind,
            selection,
            cursor,
            initial,
            initial_end_due: initial_wanted && options.allow_bookmarks,
            bookmarks: options.allow_bookmarks,
            next_bookmark: now + BOOKMARK_INTERVAL,
            last_sent: now,
            ends,
            timer: Box::pin(sleep_until(ends)),
            has_ended: false,
            subscription,
            ending,
            end_share: u32::try_from(random_below(self.source(), 1000)).ok(),
            access: WatchAccess::new(self, permit, prefix, options.extended),
            large,
            expired,
        })
    }

    async fn wait_for_start(
        &self,
        options: &ListOptions,
        as_of: Option<u64>,
    ) -> Result<(), ApiError> {
        match options.resource_version {
            None => self.cache().wait_for_request(as_of).await,
            Some(RequestedVersion::Any) => Ok(()),
            // Without an initial state there is no reason to wait: the events come later.
            Some(RequestedVersion::At(_)) if !wants_initial(options) => Ok(()),
            Some(RequestedVersion::At(version)) => {
                self.cache().wait_for_revision(Position::from_packed(version)).await
            }
        }
    }

    pub(crate) fn timeout_of(&self, options: &ListOptions) -> Duration {
        let seconds = options.timeout_seconds.filter(|seconds| *seconds > 0).unwrap_or_else(|| {
            // Random, so that watches that started together do not end together.
            SHORTEST_DEFAULT_TIMEOUT_SECONDS
                + random_below(self.source(), SHORTEST_DEFAULT_TIMEOUT_SECONDS)
        });
        Duration::from_secs(seconds.min(LONGEST_TIMEOUT_SECONDS))
    }
}

/// A random number below `bound`.
pub(crate) fn random_below(source: &dyn Source, bound: u64) -> u64 {
    let mut random = [0; 8];
    source.fill(&mut random);
    u64::from_le_bytes(random) % bound.max(1)
}

/// Whether a watch starts with the initial state. Without a version to start from, it does, unless the options say
/// otherwise. This is upstream's default for `sendInitialEvents`.
fn wants_initial(options: &ListOptions) -> bool {
    options
        .send_initial_events
        .unwrap_or(!matches!(options.resource_version, Some(RequestedVersion::At(_))))
}

impl Watcher {
    /// The kind that is watched.
    pub(crate) fn kind(&self) -> &'static dyn AnyKind {
        self.kind
    }

    /// The time.
    pub(crate) fn now(&self) -> Timestamp {
        self.access.source.now()
    }

    /// Waits for the next deliveries, at least one; `None` after the end of the watch. If the future is dropped, no
    /// event is lost.
    pub(crate) async fn next(&mut self) -> Option<Vec<Delivery>> {
        let next = self.next_deliveries().await;
        self.last_sent = Instant::now();
        next
    }

    async fn next_deliveries(&mut self) -> Option<Vec<Delivery>> {
        if self.has_ended {
            return None;
        }
        if let Err(error) = self.expired.take().map_or_else(|| self.access.check(&self.cache), Err)
        {
            return Some(self.fail(error));
        }
        if !self.initial.is_empty() {
            return Some(self.take_initial());
        }
        if std::mem::take(&mut self.initial_end_due) {
            return Some(vec![Delivery::Bookmark { position: self.cursor, initial_end: true }]);
        }
        loop {
            // Marked as seen before the read: a later event wakes this task.
            self.subscription.mark_unchanged();
            match self.cache.of(self.kind.info()).events_after(self.cursor) {
                Next::Events(events) => {
                    if let Some(next) = self.process(&events, None) {
                        return next;
                    }
                    // Events of other watchers would otherwise be passed without a pause.
                    tokio::task::yield_now().await;
                }
                Next::Expired(oldest) => {
                    let next = match self.read_history(oldest).await {
                        Ok(older) => self.process(&older.events, Some(older.through)),
                        Err(error) => return Some(self.fail(error)),
                    };
                    if let Some(next) = next {
                        return next;
                    }
                }
                Next::Idle(revision) => {
                    self.cursor = self.cursor.max(Position::end_of(revision));
                    if let Some(due) = self.due() {
                        return due;
                    }
                    self.wait().await;
                    if let Err(error) = self.access.check(&self.cache) {
                        return Some(self.fail(error));
                    }
                }
            }
        }
    }

    /// Processes events. `through` is the position up to which they were read from the store. Returns the deliveries,
    /// if there are any.
    #[expect(clippy::option_option, reason = "nothing to return; or the end; or deliveries")]
    fn process(
        &mut self,
        events: &[Arc<CacheEvent>],
        through: Option<Position>,
    ) -> Option<Option<Vec<Delivery>>> {
        // Also checked here, because there may always be one more event.
        if let Some(due) = self.due() {
            return Some(due);
        }
        // The permissions are at least as new as these events.
        if let Err(error) = self.access.visible.apply_policy_changes(&self.cache) {
            return Some(Some(self.fail(error)));
        }
        let deliveries = self.take(events, through.is_none());
        if events.last().is_none_or(|last| last.position() <= self.cursor) {
            self.cursor = self.cursor.max(through.unwrap_or(self.cursor));
        }
        self.access.visible.forget_before(self.cursor.revision());
        (!deliveries.is_empty()).then_some(Some(deliveries))
    }

    /// The deliveries that are due by time: a bookmark at each interval and after silence, and the end. A bookmark
    /// also comes before the end, so that the client resumes here and not at an old version.
    #[expect(clippy::option_option, reason = "nothing is due; or the end; or a bookmark")]
    fn due(&mut self) -> Option<Option<Vec<Delivery>>> {
        let now = Instant::now();
        self.note_shutdown(now);
        self.has_ended = now >= self.ends;
        if self.bookmarks && now >= self.next_bookmark().min(self.ends) {
            self.next_bookmark = now + BOOKMARK_INTERVAL;
            if !self.cache.is_confirmed() {
                // The client would take it that nothing has happened.
                self.last_sent = now;
                return self.has_ended.then_some(None);
            }
            let bookmark = Delivery::Bookmark { position: self.cursor, initial_end: false };
            return Some(Some(vec![bookmark]));
        }
        self.has_ended.then_some(None)
    }

    /// Sets the end of the watch once the server shuts down.
    fn note_shutdown(&mut self, now: Instant) {
        let Some(within) = *self.ending.borrow() else { return };
        let Some(share) = self.end_share.take() else { return };
        self.ends = self.ends.min(now + within / 1000 * share);
    }

    fn next_bookmark(&self) -> Instant {
        self.next_bookmark.min(self.last_sent + LONGEST_SILENCE)
    }

    fn take_initial(&mut self) -> Vec<Delivery> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while bytes < BYTES_PER_READ && taken.len() < INITIAL_PER_READ {
            let Some(object) = self.initial.pop_front() else { break };
            bytes += object.json().len();
            let object = self.observed(object);
            let event_type = WatchEventType::Added;
            taken.push(Delivery::Event { event_type, object, shared: None });
        }
        taken
    }

    /// Takes the next of these events, which other watchers may share. It reads the others again later.
    fn take(&mut self, events: &[Arc<CacheEvent>], are_shared: bool) -> Vec<Delivery> {
        let (mut taken, mut bytes, mut checked) = (Vec::new(), 0, 0);
        for event in events {
            if bytes >= BYTES_PER_READ || checked >= BYTES_BETWEEN_PAUSES {
                break;
            }
            checked += self.selection.bytes_per_check(&event.object);
            self.cursor = event.position();
            if let Some(delivery) = self.selected(event, are_shared) {
                bytes += event.object.json().len();
                taken.push(delivery);
            }
        }
        taken
    }

    /// An event for this watcher. With selectors, an object can be added or deleted for the watcher without being
    /// created or removed.
    fn selected(&self, event: &Arc<CacheEvent>, is_shared: bool) -> Option<Delivery> {
        let revision = event.position().revision();
        let visible = &self.access.visible;
        let (then, since) = (visible.at(revision.saturating_sub(1)), visible.at(revision));
        let before = event.previous.as_ref();
        let [fields_now, fields_before] = &event.fields;
        let before =
            before.filter(|object| self.selection.matches_under(then, object, fields_before));
        let now = event.event_type != WatchEventType::Deleted
            && self.selection.matches_under(since, &event.object, fields_now);
        let event_type = match (before, now) {
            (None, false) => return None,
            (None, true) => WatchEventType::Added,
            (Some(_), true) => WatchEventType::Modified,
            (Some(_), false) => WatchEventType::Deleted,
        };
        let left =
            event_type == WatchEventType::Deleted && event.event_type != WatchEventType::Deleted;
        let object = match before {
            Some(before) if left => Arc::new(before.restated(event.position(), event_type)),
            _ => event.object.clone(),
        };
        if self.kind.info().observed_status.is_some() {
            // Shared bytes must not have the fields that are observed for one caller.
            let object = self.observed(object);
            return Some(Delivery::Event { event_type, object, shared: None });
        }
        let shared = is_shared.then(|| event.clone());
        Some(Delivery::Event { event_type, object, shared })
    }

    fn observed(&self, object: Arc<CachedObject>) -> Arc<CachedObject> {
        let WatchAccess { visible, is_extended, .. } = &self.access;
        observed(&self.cache, &*self.source, visible.newest(), *is_extended, object)
    }

    /// Reads the next events, which are no longer in memory, from the store up to a position.
    ///
    /// # Errors
    /// 410 if the store does not have them either: the client has to list again. 429 if too many watches of the
    /// caller read history at once.
    async fn read_history(&self, until: Position) -> Result<OlderEvents, ApiError> {
        let (cache, kind, after) = (self.cache.clone(), self.kind, self.cursor);
        let reading = async move { cache.older_events(kind, after, until).await };
        self.large.run_async(reading).await?.map_err(|error| {
            if !matches!(error, Error::Compacted { .. }) {
                log_limited!(warn, "a watch ends because history cannot be read: {error}");
            }
            ApiError::expired(format!("too old resource version: {after} ({until})"))
        })
    }

    fn fail(&mut self, error: ApiError) -> Vec<Delivery> {
        self.has_ended = true;
        vec![Delivery::Failed(error)]
    }

    /// Waits until there may be something to return.
    async fn wait(&mut self) {
        let bookmark = self.bookmarks.then(|| self.next_bookmark());
        let times = [bookmark, self.access.next_check];
        let wake_at = times.into_iter().flatten().fold(self.ends, Instant::min);
        // If the timer is early, it only wakes the watcher once without need.
        if self.timer.is_elapsed() || self.timer.deadline() > wake_at {
            self.timer.as_mut().reset(wake_at);
        }
        tokio::select! {
            _ = self.access.changes.changed() => self.access.changes.mark_changed(),
            _ = self.subscription.changed() => {}
            () = self.timer.as_mut() => {}
            _ = self.ending.wait_for(Option::is_some), if self.end_share.is_some() => {}
        }
    }
}

/// The deliveries of a watch, step by step.
pub trait Deliveries: Send + 'static {
    /// The kind that is watched.
    fn kind(&self) -> &'static dyn AnyKind;

    /// The time.
    fn now(&self) -> Timestamp;

    /// Waits for the next deliveries, at least one; `None` after the end of the watch.
    fn next(&mut self) -> impl Future<Output = Option<Vec<Delivery>>> + Send;
}

impl Deliveries for Watcher {
    fn kind(&self) -> &'static dyn AnyKind {
        Self::kind(self)
    }

    fn now(&self) -> Timestamp {
        Self::now(self)
    }

    fn next(&mut self) -> impl Future<Output = Option<Vec<Delivery>>> + Send {
        Self::next(self)
    }
}
