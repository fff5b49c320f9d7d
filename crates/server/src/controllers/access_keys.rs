//! Stores when access keys were used, removes those that expired long ago or have lost their owner, and records
//! events about those that expire.

use std::sync::Arc;
use std::time::Duration;

use postern_kinds::AnyKind as _;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_meta::object::Object;

use crate::events::{self, Happening};
use crate::operations;
use crate::registry::Registry;
use crate::storage_key;

/// A key's use is stored at most this often (decision 3). A crash loses the uses since then, which
/// can only make a key expire earlier.
const INTERVAL: Duration = Duration::from_mins(1);

/// How long before its end the owner of a key is warned, and the life of keys from which on there is a warning:
/// it should not come at once.
const WARNING_SECONDS: i64 = 24 * 3600;
const LONG_LIFE_SECONDS: i64 = 2 * WARNING_SECONDS;

/// An end, or the time of a warning, is told of for as long as its event lives: after that it would come again.
const TOLD_FOR_SECONDS: i64 = 3600;

/// Events about keys in one interval, of each reason. More are left out: keys that end all the time must not
/// fill the store.
const MAX_EVENTS: usize = 100;

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
        record_ends(&registry).await;
    }
}

/// Stores the uses since the last interval, when the server ends.
pub(crate) async fn finish(registry: &Registry) {
    if let Err(error) = registry.store_activity().await {
        tracing::warn!(inner = error.inner(), "uses of access keys could not be stored");
    }
}

/// Records which keys have expired, and which will within a day. Each is told of once, however many servers
/// there are, and however often they start.
pub(crate) async fn record_ends(registry: &Registry) {
    let now = registry.source().now().unix_seconds();
    for key in keys_that_end(registry, now - TOLD_FOR_SECONDS, now) {
        let message = "the access key has expired: make a new one";
        events::warn_once(registry, &Happening { object: &key, reason: "KeyExpired", message })
            .await;
    }
    let soon = now + WARNING_SECONDS;
    for key in keys_that_end(registry, soon - TOLD_FOR_SECONDS, soon) {
        let ttl = key.fields.get("spec").and_then(|spec| spec.get("ttl")?.as_i64());
        if ttl.is_some_and(|ttl| ttl >= LONG_LIFE_SECONDS) {
            let message =
                "the access key expires within 24 hours: replace it, or let it live longer";
            let what = Happening { object: &key, reason: "KeyExpiresSoon", message };
            events::warn_once(registry, &what).await;
        }
    }
}

/// Returns the keys that end from one time on, and before another, in seconds since 1970; not more than there
/// are events about.
fn keys_that_end(registry: &Registry, from: i64, until: i64) -> Vec<Object> {
    let principals = registry.cache().principals();
    let names = principals.ended_before(until);
    let names = names.filter(|name| !principals.has_ended_before(name, from)).take(MAX_EVENTS);
    let info = OwnedAccessKey.info();
    let found = names.filter_map(|name| {
        let found = registry.cache().of(info).get(&storage_key::object(info, None, name));
        found.ok().flatten()?.decode().ok()
    });
    found.collect()
}
