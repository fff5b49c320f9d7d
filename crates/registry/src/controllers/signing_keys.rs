//! Announces the next signing key of endpoint tokens when it is time, and drops keys, notes and revocations that
//! no token needs any more.

use std::sync::Arc;
use std::time::Duration;

use crate::registry::Registry;
use crate::signing_keys;

/// A key is dropped, and the next one announced, at most so much later than it could be.
const INTERVAL: Duration = Duration::from_mins(1);

/// The records about tokens are tidied so often: what an owner can make them grow by meanwhile is little.
const TIDY_INTERVAL: Duration = Duration::from_secs(1);

/// Runs until it is dropped.
pub async fn run(registry: Arc<Registry>) {
    tokio::join!(rotate(&registry), tidy(&registry));
}

async fn tidy(registry: &Registry) {
    let mut ticks = tokio::time::interval(TIDY_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = registry.tidy_token_records().await {
            tracing::warn!(inner = error.inner(), "old revocations could not be dropped");
        }
    }
}

async fn rotate(registry: &Registry) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = registry.source().now();
        let policy = registry.token_policy();
        if let Err(error) = signing_keys::keep_rotating(registry.store(), now, policy).await {
            tracing::warn!("the signing keys of endpoint tokens could not be rotated: {error:#}");
        }
    }
}
