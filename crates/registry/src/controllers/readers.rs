//! Stores the readers of secrets.

use std::sync::Arc;
use std::time::Duration;

use postern_meta::status::ApiError;
use postern_telemetry::log_limited;
use tokio::time::MissedTickBehavior;

use crate::registry::Registry;

/// The readers of a secret are stored at most this often (`docs/reference/shared-secrets.md#readers`). A crash loses the
/// notes since then.
const INTERVAL: Duration = Duration::from_mins(1);

/// The time for the notes at the end of the server. It is shorter than the time that the server waits for all of it.
const FINISH_TIMEOUT: Duration = Duration::from_secs(3);

/// Runs until it is dropped.
pub async fn run(registry: Arc<Registry>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        log_error(registry.store_readers().await);
    }
}

/// Stores the notes since the last interval at the end of the server, or stores that they are lost.
pub async fn finish(registry: &Registry) {
    log_error(registry.finish_readers(FINISH_TIMEOUT).await);
}

fn log_error(stored: Result<(), ApiError>) {
    if let Err(error) = stored {
        log_limited!(warn, inner = error.inner(), "the readers of secrets could not be stored");
    }
}
