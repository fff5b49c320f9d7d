//! Stores the last use of access keys. Removes keys that expired long ago or have lost their owner
//! or maker. Records events for expiring keys.

use std::sync::Arc;
use std::time::Duration;

use postern_kinds::AnyKind as _;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_telemetry::log_limited;

use crate::events::{self, NewEvent};
use crate::operations;
use crate::registry::Registry;
use crate::storage_key;

/// The use of a key is stored at most this often (`docs/reference/access-keys.md#lifetime`). A crash loses the uses
/// since then, so a key can only expire earlier.
const INTERVAL: Duration = Duration::from_mins(1);

/// The minimum interval between two writes of urgent uses: each time, all keys are checked.
const URGENT_INTERVAL: Duration = Duration::from_secs(1);

/// The time before the expiry at which the owner of a key is warned, and the shortest lifetime of
/// keys that get a warning. A warning right after the create has no use.
const WARNING_SECONDS: i64 = 24 * 3600;
const MIN_WARNED_LIFE_SECONDS: i64 = 2 * WARNING_SECONDS;

/// The reason of the event for a key that expires soon.
const EXPIRES_SOON: &str = "KeyExpiresSoon";

/// The time after an expiry or a warning is due in which its event is recorded: the lifetime of events. Later it
/// would be recorded again.
const EVENT_LIFE_SECONDS: i64 = 3600;

/// The maximum of events for keys in one interval, for each reason. The others follow in the next interval. So
/// expiring keys cannot fill the store.
const MAX_EVENTS: usize = 100;

/// Runs until it is dropped.
pub async fn run(registry: Arc<Registry>) {
    tokio::join!(run_regularly(&registry), store_urgent_uses(&registry));
}

async fn run_regularly(registry: &Registry) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        finish(registry).await;
        registry.servers().turn("access-keys").await;
        if let Err(error) = operations::remove_expired_keys(registry).await {
            log_limited!(warn, inner = error.inner(), "an expired access key could not be removed");
        }
        if let Err(error) = operations::remove_keys_without_owner(registry).await {
            log_limited!(
                warn,
                inner = error.inner(),
                "an access key without an owner could not be removed"
            );
        }
        if let Err(error) = operations::remove_keys_without_maker(registry).await {
            log_limited!(
                warn,
                inner = error.inner(),
                "an access key without a maker could not be removed"
            );
        }
        if let Err(error) = operations::remove_ended_codes(registry).await {
            log_limited!(
                warn,
                inner = error.inner(),
                "a login link of a disabled user could not be removed"
            );
        }
        record_expiries(registry).await;
    }
}

/// Stores uses of keys that would expire soon without them.
async fn store_urgent_uses(registry: &Registry) {
    loop {
        registry.key_uses().until_urgent().await;
        while let Err(error) = registry.store_urgent_activity().await {
            log_limited!(warn, inner = error.inner(), "a use of an access key could not be stored");
            tokio::time::sleep(URGENT_INTERVAL).await;
        }
        tokio::time::sleep(URGENT_INTERVAL).await;
    }
}

/// Stores the uses since the last interval: in each interval, and at the end of the server.
pub async fn finish(registry: &Registry) {
    if let Err(error) = registry.store_activity().await {
        log_limited!(
            warn,
            inner = error.inner(),
            "the last uses of access keys could not be stored"
        );
    }
}

/// Records the keys that have expired, and those that expire within a day. Each is recorded once, also with several
/// servers and after restarts.
pub(crate) async fn record_expiries(registry: &Registry) {
    let now = registry.source().now().unix_seconds();
    record(registry, now, "KeyExpired", "the access key has expired: create a new one").await;
    let soon = "the access key expires within 24 hours: replace it or extend its lifetime";
    record(registry, now + WARNING_SECONDS, EXPIRES_SOON, soon).await;
}

/// Records an event for each key that expires before `until`.
async fn record(registry: &Registry, until: i64, reason: &'static str, message: &str) {
    let mut left = MAX_EVENTS;
    for name in keys_that_expire(registry, until - EVENT_LIFE_SECONDS, until) {
        // There may be many keys, and most have their event already.
        tokio::task::consume_budget().await;
        let stored = storage_key::object(OwnedAccessKey.info(), None, &name);
        let key = registry.cache().of(OwnedAccessKey.info()).get(&stored).ok().flatten();
        let Some(key) = key.and_then(|key| key.decode().ok()) else { continue };
        let ttl = key.fields.get("spec").and_then(|spec| spec.get("ttl")?.as_i64());
        if reason == EXPIRES_SOON && ttl.is_none_or(|ttl| ttl < MIN_WARNED_LIFE_SECONDS) {
            continue;
        }
        if events::warn_once(registry, &NewEvent { object: &key, reason, message }).await {
            left -= 1;
            if left == 0 {
                return;
            }
        }
    }
}

/// The names of the keys that expire at or after `from` and before `until`, in seconds since 1970.
fn keys_that_expire(registry: &Registry, from: i64, until: i64) -> Vec<String> {
    let principals = registry.cache().principals();
    let names = principals.ended_before(until);
    // The end of a session is no news.
    let names = names.filter(|name| !principals.is_session(name));
    names.filter(|name| !principals.has_ended_before(name, from)).map(str::to_owned).collect()
}
