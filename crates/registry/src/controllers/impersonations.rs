//! Revokes endpoint tokens that were issued under impersonation, when the impersonation is no longer permitted.

use postern_telemetry::log_limited;
use std::sync::Arc;
use std::time::Duration;

use crate::registry::Registry;

/// The time in which changes are collected and then checked together.
const BATCH_INTERVAL: Duration = Duration::from_millis(20);

/// The time between a failure and the next attempt.
const RETRY: Duration = Duration::from_millis(500);

/// Runs until it is dropped.
pub async fn run(registry: Arc<Registry>) {
    let mut access = registry.cache().subscribe_to_access();
    loop {
        registry.servers().turn("impersonations").await;
        access.mark_unchanged();
        if let Err(error) = registry.revoke_ended_impersonations().await {
            let inner = error.inner().unwrap_or_default();
            log_limited!(
                warn,
                inner,
                "tokens of an ended impersonation could not be revoked: {error}"
            );
            tokio::time::sleep(RETRY).await;
            continue;
        }
        if access.changed().await.is_err() {
            return;
        }
        tokio::time::sleep(BATCH_INTERVAL).await;
    }
}
