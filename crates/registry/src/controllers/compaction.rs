//! Compacts history that is older than `--history`. The store knows its age. So a restart does not reset the age, and
//! several servers on one store agree.

use std::sync::Arc;
use std::time::Duration;

use postern_store::HISTORY_STEPS;
use tokio::time::Interval;

use crate::registry::Registry;

/// The shortest time between two compactions.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// The time between a failure to get the lease and the next attempt.
const RETRY: Duration = Duration::from_secs(5);

/// The name of the lease of the server that compacts.
const LEASE: &str = "compaction";

/// Runs until it is dropped. Of several servers, one compacts, and the others follow.
pub async fn run(registry: Arc<Registry>, history: Duration) {
    let Some(fleet) = registry.store().fleet() else {
        return compact_regularly(&registry, history).await;
    };
    loop {
        let lease = tokio::select! {
            lease = fleet.lease(LEASE) => lease,
            () = forget_regularly(&registry, history) => return,
        };
        match lease {
            Ok(lease) => tokio::select! {
                () = lease.lost() => {}
                () = compact_regularly(&registry, history) => {}
            },
            Err(error) => {
                tracing::warn!("this server cannot compact history for the others: {error}");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

fn ticks(history: Duration) -> Interval {
    let mut ticks = tokio::time::interval((history / HISTORY_STEPS).max(SHORTEST_INTERVAL));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks
}

async fn compact_regularly(registry: &Registry, history: Duration) {
    let mut ticks = ticks(history);
    loop {
        ticks.tick().await;
        if let Err(error) = compact(registry, history).await {
            tracing::warn!("history could not be compacted: {error}");
        }
    }
}

/// Removes from the cache what another server has compacted in the store.
async fn forget_regularly(registry: &Registry, history: Duration) {
    let mut ticks = ticks(history);
    loop {
        ticks.tick().await;
        match registry.store().compacted().await {
            Ok(revision) => registry.cache().forget(revision),
            Err(error) => tracing::debug!("the compacted revision cannot be read: {error}"),
        }
    }
}

/// Tells the store the time, and compacts the history that is too old.
///
/// # Errors
/// The errors of the store.
pub(crate) async fn compact(registry: &Registry, history: Duration) -> postern_store::Result<()> {
    let now = registry.source().now_micro().unix_microseconds();
    let now = Duration::from_micros(u64::try_from(now).unwrap_or(0));
    let old = registry.store().age_history(now, history).await?;
    // One less: the state at the newest revision must stay listable, even if the store is idle.
    let revision = old.saturating_sub(1);
    if revision == 0 {
        return Ok(());
    }
    let collections = registry.cache().collections();
    registry.store().compact_noting(revision, &collections).await?;
    registry.cache().forget(revision);
    Ok(())
}
