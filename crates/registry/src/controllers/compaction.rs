//! Compacts history that is older than the server keeps. How old it is, the store knows: so a restart
//! does not make it young again, and several servers on one store agree.

use std::sync::Arc;
use std::time::Duration;

use postern_store::HISTORY_STEPS;

use crate::registry::Registry;

/// The shortest time between two compactions.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// Runs until it is dropped.
pub async fn run(registry: Arc<Registry>, history: Duration) {
    let mut ticks = tokio::time::interval((history / HISTORY_STEPS).max(SHORTEST_INTERVAL));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = compact(&registry, history).await {
            tracing::warn!("history could not be compacted: {error}");
        }
    }
}

/// Tells the store the time, and compacts what is older than the server keeps.
///
/// # Errors
/// The store's.
pub(crate) async fn compact(registry: &Registry, history: Duration) -> postern_store::Result<()> {
    let now = registry.source().now_micro().unix_microseconds();
    let now = Duration::from_micros(u64::try_from(now).unwrap_or(0));
    let old = registry.store().age_history(now, history).await?;
    // One less: the state at the newest revision must stay listable, however idle it is.
    let revision = old.saturating_sub(1);
    if revision == 0 {
        return Ok(());
    }
    let collections = registry.cache().collections();
    registry.store().compact_noting(revision, &collections).await?;
    registry.cache().forget(revision);
    Ok(())
}
