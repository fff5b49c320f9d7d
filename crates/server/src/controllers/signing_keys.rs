//! Announces the next signing key of endpoint tokens when it is time, and drops keys and revocations that no
//! token needs any more.

use std::sync::Arc;
use std::time::Duration;

use crate::registry::Registry;
use crate::signing_keys;

/// A key is dropped, and the next one announced, at most so much later than it could be.
const INTERVAL: Duration = Duration::from_mins(1);

/// Runs until it is dropped.
pub(crate) async fn run(registry: Arc<Registry>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = registry.source().now();
        let policy = registry.token_policy();
        if let Err(error) = signing_keys::keep_rotating(registry.store(), now, policy).await {
            tracing::warn!("the signing keys of endpoint tokens could not be rotated: {error:#}");
        }
        if let Err(error) = registry.drop_old_revocations().await {
            tracing::warn!(inner = error.inner(), "old revocations could not be dropped");
        }
    }
}
