//! Compacts history that is older than the server keeps.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::registry::Registry;

/// A window is compacted in this many steps, so that the history that is kept is never much longer
/// than was asked for.
const STEPS: u32 = 5;

/// Runs until it is dropped. Compacts up to the revision that was the newest one window ago. After
/// a restart the window starts again: history is then kept longer, never shorter.
pub(crate) async fn run(registry: Arc<Registry>, window: Duration) {
    let mut seen: VecDeque<(Instant, u64)> = VecDeque::new();
    let mut ticks = tokio::time::interval((window / STEPS).max(Duration::from_millis(10)));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let now = ticks.tick().await;
        let mut due = None;
        while seen.front().is_some_and(|(at, _)| now.duration_since(*at) >= window) {
            due = seen.pop_front().map(|(_, revision)| revision);
        }
        seen.push_back((now, registry.cache().applied()));
        // One less: the state at the newest revision must stay listable, however idle it is.
        let revision = due.map_or(0, |revision| revision.saturating_sub(1));
        if revision == 0 {
            continue;
        }
        match registry.store().compact(revision).await {
            Ok(()) => registry.cache().forget(revision),
            Err(error) => tracing::warn!(revision, "history could not be compacted: {error}"),
        }
    }
}
