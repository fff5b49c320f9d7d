//! Removes objects that were deleted with a grace period, when the period is over.
//!
//! It has no separate list: the due times are in the objects' deletionTimestamps. So a restart
//! loses nothing.

use std::sync::Arc;
use std::time::Duration;

use postern_kinds::Verb;
use postern_meta::time::Timestamp;
use postern_telemetry::log_limited;
use serde::Deserialize;

use crate::cache::{CachedObject, ResourceCache};
use crate::operations;
use crate::permit::Permit;
use crate::registry::Registry;
use crate::storage_key;

/// Timestamps have whole seconds, so a shorter interval finds nothing more.
const INTERVAL: Duration = Duration::from_secs(1);

/// Runs until it is dropped.
pub async fn run(registry: Arc<Registry>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        registry.servers().turn("reaper").await;
        for resource in registry.cache().resources() {
            for object in resource.deleting() {
                reap(&registry, resource, &object).await;
            }
        }
    }
}

#[derive(Deserialize)]
struct TerminatingObject {
    metadata: TerminatingMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TerminatingMeta {
    deletion_timestamp: Option<Timestamp>,
    #[serde(default)]
    finalizers: Vec<String>,
}

async fn reap(registry: &Registry, resource: &ResourceCache, object: &CachedObject) {
    let decoded = postern_meta::decode::decode_typed::<TerminatingObject>(&object.json());
    let Ok(TerminatingObject { metadata }) = decoded else { return };
    let due = metadata.deletion_timestamp.is_some_and(|due| due <= registry.source().now());
    if !due || !metadata.finalizers.is_empty() {
        return;
    }
    let (namespace, name) = storage_key::split(resource.prefix(), object.key());
    let permit = Permit::for_server(resource.kind(), Verb::Delete, namespace, name);
    // A release without a change removes an object if nothing blocks its deletion.
    if let Err(error) = operations::release(registry, &permit, |_| {}).await
        && error.code() != 404
    {
        let inner = error.inner().unwrap_or_default();
        log_limited!(warn, key = %object.key(), inner, "{}", error.status().message);
    }
}
