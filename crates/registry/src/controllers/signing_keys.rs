//! Announces the next signing key of endpoint tokens when it is due, and removes keys, notes and revocations that no
//! token needs any more.

use std::sync::Arc;
use std::time::Duration;

use crate::registry::Registry;
use crate::signing_keys;

/// The interval of the rotation. A key is removed, and the next one announced, at most this much later than possible.
const INTERVAL: Duration = Duration::from_mins(1);

/// The interval of the clean-up of token records. An owner can add only few records in this time.
const CLEAN_UP_INTERVAL: Duration = Duration::from_secs(1);

/// Runs until it is dropped.
pub async fn run(registry: Arc<Registry>) {
    tokio::join!(rotate(&registry), clean_up(&registry));
}

async fn clean_up(registry: &Registry) {
    let mut ticks = tokio::time::interval(CLEAN_UP_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        registry.servers().turn("token-records").await;
        if let Err(error) = registry.clean_up_token_records().await {
            tracing::warn!(inner = error.inner(), "old token records could not be removed");
        }
    }
}

async fn rotate(registry: &Registry) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        registry.servers().turn("signing-keys").await;
        let now = registry.source().now();
        let policy = registry.token_policy();
        if let Err(error) = signing_keys::keep_rotating(registry.store(), now, policy).await {
            tracing::warn!("the signing keys of endpoint tokens could not be rotated: {error:#}");
        }
    }
}
