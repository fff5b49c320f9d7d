//! Removes events after an hour, and records events for exceeded quotas.
//!
//! An event lives for an hour after its last write, as in Kubernetes. To find the time of the write without decoding,
//! the revision of the store is recorded each minute. For events from before the start of this server, the times in
//! the event decide.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use postern_kinds::event::Event;
use postern_kinds::project::Project;
use postern_kinds::{AnyKind, Verb};
use postern_meta::decode::decode_typed;
use postern_meta::options::DeleteOptions;
use postern_meta::time::Timestamp;
use postern_telemetry::log_limited;
use serde::Deserialize;
use tokio::time::MissedTickBehavior;

use crate::cache::CachedObject;
use crate::events::{self, NewEvent};
use crate::operations;
use crate::permit::Permit;
use crate::registry::Registry;
use crate::storage_key;

/// The lifetime of an event (`docs/reference/api.md#events`).
const LIFE_SECONDS: i64 = 3600;

/// The interval of the search for expired events.
const INTERVAL: Duration = Duration::from_mins(1);

/// The events that are read in one step, and those that are removed in parallel.
const EVENTS_PER_READ: usize = 256;
const REMOVED_AT_ONCE: usize = 16;

/// Removes events; runs until it is dropped.
pub async fn run(registry: Arc<Registry>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut sweep = Sweep::new(&registry);
    loop {
        ticks.tick().await;
        registry.servers().turn("events").await;
        sweep.run(&registry).await;
    }
}

/// Records rejections by quotas; runs until it is dropped.
pub async fn run_quotas(registry: Arc<Registry>) {
    loop {
        for (project, message) in registry.refused_quotas().take().await {
            let key = storage_key::object(Project.info(), None, &project);
            let found = registry.cache().of(Project.info()).get(&key);
            let Ok(Some(Ok(object))) = found.map(|found| found.map(|found| found.decode())) else {
                continue;
            };
            let (object, message) = (&object, &*message);
            events::warn(&registry, &NewEvent { object, reason: "ExceededQuota", message }).await;
        }
    }
}

/// The times of an event. Each of them can be missing.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Times {
    metadata: CreationTime,
    last_timestamp: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CreationTime {
    creation_timestamp: Option<Timestamp>,
}

/// The times at which events were written, as far as they are known.
pub(crate) struct Sweep {
    /// The revision at the start.
    started_at: u64,
    /// Times, in seconds since 1970, each with the revision at that time. The first is at least an hour old.
    marks: VecDeque<(i64, u64)>,
}

impl Sweep {
    /// A sweep at the start, which knows only the present revision.
    pub(crate) fn new(registry: &Registry) -> Self {
        Self { started_at: registry.cache().applied(), marks: VecDeque::new() }
    }

    /// Removes all expired events.
    pub(crate) async fn run(&mut self, registry: &Registry) {
        let now = registry.source().now().unix_seconds();
        self.marks.push_back((now, registry.cache().applied()));
        while self.marks.get(1).is_some_and(|(time, _)| *time <= now - LIFE_SECONDS) {
            self.marks.pop_front();
        }
        let old = self.marks.front().filter(|(time, _)| *time <= now - LIFE_SECONDS);
        let old = old.map_or(0, |(_, revision)| *revision);
        for page in registry.cache().of(Event.info()).pages(EVENTS_PER_READ) {
            let due = page.into_iter().filter(|event| self.is_due(event, old, now));
            let due: Vec<_> = due.collect();
            let removals = futures_util::stream::iter(due)
                .map(|event| async move { remove(registry, &event).await });
            removals.buffer_unordered(REMOVED_AT_ONCE).collect::<()>().await;
            tokio::task::yield_now().await;
        }
    }

    /// Whether an event has expired. `old` is the newest revision that is known to be an hour old.
    fn is_due(&self, event: &CachedObject, old: u64, now: i64) -> bool {
        let revision = event.position().revision();
        if revision > self.started_at || revision <= old {
            return revision <= old;
        }
        let Ok(times) = decode_typed::<Times>(&event.json()) else { return true };
        let times = [times.last_timestamp, times.metadata.creation_timestamp];
        // A time in the future must not keep an event forever.
        let times = times.into_iter().flatten().map(Timestamp::unix_seconds);
        let last = times.filter(|time| *time <= now).max();
        last.is_none_or(|last| last <= now - LIFE_SECONDS)
    }
}

/// Removes an event, unless it was written again in the meantime.
async fn remove(registry: &Registry, event: &CachedObject) {
    let (namespace, name) = storage_key::name_of(event.key());
    let permit = Permit::for_server(&Event, Verb::Delete, namespace, name);
    let precondition_resource_version = Some(event.position().to_string());
    let options = DeleteOptions { precondition_resource_version, ..DeleteOptions::default() };
    if let Err(error) = operations::delete(registry, &permit, &options).await
        && !matches!(error.code(), 404 | 409)
    {
        let inner = error.inner().unwrap_or_default();
        log_limited!(warn, event = name, inner, "an old event could not be removed: {error}");
    }
}
