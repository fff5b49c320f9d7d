//! Removes objects whose deletion was asked for with a grace period, when that has passed.
//!
//! It keeps no list of its own: what is due is in the objects' deletionTimestamps, so a restart
//! forgets nothing.

use std::sync::Arc;
use std::time::Duration;

use postern_kinds::Verb;
use postern_meta::time::Timestamp;
use serde::Deserialize;

use crate::cache::{CachedObject, ResourceCache};
use crate::operations;
use crate::registry::Registry;
use crate::stages::authorize::Permit;
use crate::storage_key;

/// Timestamps have whole seconds, so looking more often finds nothing more.
const INTERVAL: Duration = Duration::from_secs(1);

/// Runs until it is dropped.
pub(crate) async fn run(registry: Arc<Registry>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for resource in registry.cache().resources() {
            for object in resource.deleting() {
                reap(&registry, resource, &object).await;
            }
        }
    }
}

#[derive(Deserialize)]
struct Marked {
    metadata: Marks,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Marks {
    deletion_timestamp: Option<Timestamp>,
    #[serde(default)]
    finalizers: Vec<String>,
}

async fn reap(registry: &Registry, resource: &ResourceCache, object: &CachedObject) {
    let Ok(marked) = postern_meta::decode::decode_typed::<Marked>(&object.json()) else { return };
    let due = marked.metadata.deletion_timestamp.is_some_and(|due| due <= registry.source().now());
    if !due || !marked.metadata.finalizers.is_empty() {
        return;
    }
    let (namespace, name) = storage_key::split(resource.prefix(), object.key());
    let permit = Permit::for_server(resource.kind(), Verb::Delete, namespace, name);
    // Nothing to change: looking at the object again is what ends it.
    if let Err(error) = operations::release(registry, &permit, |_| {}).await
        && error.code() != 404
    {
        let inner = error.inner().unwrap_or_default();
        tracing::warn!(key = %object.key(), inner, "{}", error.status().message);
    }
}
