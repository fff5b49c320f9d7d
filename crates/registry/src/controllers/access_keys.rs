//! Stores when access keys were used, removes those that expired long ago or have lost their owner, and records
//! events about those that expire.

use std::sync::Arc;
use std::time::Duration;

use postern_kinds::AnyKind as _;
use postern_kinds::owned_access_key::OwnedAccessKey;

use crate::events::{self, Happening};
use crate::operations;
use crate::registry::Registry;
use crate::storage_key;

/// A key's use is stored at most this often (`docs/reference/access-keys.md#lifetime`). A crash loses the uses
/// since then, which can only make a key expire earlier.
const INTERVAL: Duration = Duration::from_mins(1);

/// How long before its end the owner of a key is warned, and the life of keys from which on there is a warning:
/// it should not come at once.
const WARNING_SECONDS: i64 = 24 * 3600;
const LONG_LIFE_SECONDS: i64 = 2 * WARNING_SECONDS;

/// Why there is an event about a key that is to end.
const EXPIRES_SOON: &str = "KeyExpiresSoon";

/// An end, or the time of a warning, is told of for as long as its event lives: after that it would come again.
const TOLD_FOR_SECONDS: i64 = 3600;

/// Events about keys in one interval, of each reason. The others follow in the next: keys that end all the
/// time must not fill the store.
const MAX_EVENTS: usize = 100;

/// Runs until it is dropped.
pub async fn run(registry: Arc<Registry>) {
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
            tracing::warn!(inner = error.inner(), "an ownerless access key could not be removed");
        }
        if let Err(error) = operations::remove_keys_without_maker(&registry).await {
            tracing::warn!(inner = error.inner(), "a key without a maker could not be removed");
        }
        record_ends(&registry).await;
    }
}

/// Stores the uses since the last interval, when the server ends.
pub async fn finish(registry: &Registry) {
    if let Err(error) = registry.store_activity().await {
        tracing::warn!(inner = error.inner(), "uses of access keys could not be stored");
    }
}

/// Records which keys have expired, and which will within a day. Each is told of once, however many servers
/// there are, and however often they start.
pub(crate) async fn record_ends(registry: &Registry) {
    let now = registry.source().now().unix_seconds();
    record(registry, now, "KeyExpired", "the access key has expired: make a new one").await;
    let soon = "the access key expires within 24 hours: replace it, or let it live longer";
    record(registry, now + WARNING_SECONDS, EXPIRES_SOON, soon).await;
}

/// Records an event about each key that has reached a time at its end, or before.
async fn record(registry: &Registry, until: i64, reason: &'static str, message: &str) {
    let mut left = MAX_EVENTS;
    for name in keys_that_end(registry, until - TOLD_FOR_SECONDS, until) {
        // There may be many, and most have been told of.
        tokio::task::consume_budget().await;
        let stored = storage_key::object(OwnedAccessKey.info(), None, &name);
        let key = registry.cache().of(OwnedAccessKey.info()).get(&stored).ok().flatten();
        let Some(key) = key.and_then(|key| key.decode().ok()) else { continue };
        let ttl = key.fields.get("spec").and_then(|spec| spec.get("ttl")?.as_i64());
        if reason == EXPIRES_SOON && ttl.is_none_or(|ttl| ttl < LONG_LIFE_SECONDS) {
            continue;
        }
        if events::warn_once(registry, &Happening { object: &key, reason, message }).await {
            left -= 1;
            if left == 0 {
                return;
            }
        }
    }
}

/// The names of the keys that end from one time on, and before another, in seconds since 1970.
fn keys_that_end(registry: &Registry, from: i64, until: i64) -> Vec<String> {
    let principals = registry.cache().principals();
    let names = principals.ended_before(until);
    names.filter(|name| !principals.has_ended_before(name, from)).map(str::to_owned).collect()
}
