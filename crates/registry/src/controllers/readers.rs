//! Stores the readers of secrets.

use std::sync::Arc;
use std::time::Duration;

use postern_telemetry::log_limited;
use tokio::time::MissedTickBehavior;

use crate::registry::Registry;

/// The readers of a secret are stored at most this often (`docs/reference/shared-secrets.md#readers`). A crash loses the
/// notes since then.
const INTERVAL: Duration = Duration::from_mins(1);

/// Runs until it is dropped.
pub async fn run(registry: Arc<Registry>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        finish(&registry).await;
    }
}

/// Stores the notes since the last interval: in each interval, and at the end of the server.
pub async fn finish(registry: &Registry) {
    if let Err(error) = registry.store_readers().await {
        log_limited!(warn, inner = error.inner(), "the readers of secrets could not be stored");
    }
}
