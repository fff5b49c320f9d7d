//! Stores when access keys were used, and removes those that expired long ago or have lost their owner.

use std::sync::Arc;
use std::time::Duration;

use crate::operations;
use crate::registry::Registry;

/// A key's use is stored at most this often (decision 3). A crash loses the uses since then, which
/// can only make a key expire earlier.
const INTERVAL: Duration = Duration::from_mins(1);

/// Runs until it is dropped.
pub(crate) async fn run(registry: Arc<Registry>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = registry.store_activity().await {
            tracing::warn!(inner = error.inner(), "uses of access keys could not be stored");
        }
        if let Err(error) = operations::remove_expired_keys(&registry).await {
            tracing::warn!(inner = error.inner(), "an expired access key could not be removed");
        }
        if let Err(error) = operations::remove_keys_without_owner(&registry).await {
            tracing::warn!(inner = error.inner(), "an access key of nobody could not be removed");
        }
    }
}

/// Stores the uses since the last interval, when the server ends.
pub(crate) async fn finish(registry: &Registry) {
    if let Err(error) = registry.store_activity().await {
        tracing::warn!(inner = error.inner(), "uses of access keys could not be stored");
    }
}
