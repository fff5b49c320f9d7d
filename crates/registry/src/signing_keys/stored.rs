//! The way of the signing keys into the store: one value, changed only as it was read.

use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use postern_meta::decode::decode_typed;
use postern_meta::time::Timestamp;
use postern_store::{Change, Condition, Error, Store, Txn};

use super::{KeyList, Rotation, TokenPolicy};
use crate::storage_key::SIGNING_KEYS;

/// How often a change is tried again because another server was faster.
const ATTEMPTS: usize = 8;

/// Makes the first key of a store that has none, which signs at once. Of several servers that start at
/// once, one makes it.
///
/// # Errors
/// The store's.
pub async fn prepare(
    store: &Arc<dyn Store>,
    now: Timestamp,
    policy: &TokenPolicy,
) -> anyhow::Result<()> {
    match store.get(SIGNING_KEYS).await {
        Ok(found) if found.value.is_some() => Ok(()),
        // A start does not replace what cannot be read.
        Err(Error::Corrupt { reason, .. }) => {
            tracing::error!(
                "the signing keys of endpoint tokens are corrupt, and no token is issued: make a new \
                 one with postern admin rotate-signing-key --force ({reason})"
            );
            Ok(())
        }
        Err(error) => Err(error.into()),
        Ok(_) => keep_rotating(store, now, policy).await,
    }
}

/// Does what is due: drops keys whose last token has expired, and announces the next one.
///
/// # Errors
/// The store's; when what is stored cannot be read.
pub async fn keep_rotating(
    store: &Arc<dyn Store>,
    now: Timestamp,
    policy: &TokenPolicy,
) -> anyhow::Result<()> {
    change(store, false, |list| Ok((list.maintained(now, policy)?, ()))).await
}

/// Makes a new key: one that is announced, or with `force` one that signs at once. With `force`, a value
/// that cannot be read is replaced.
///
/// # Errors
/// The store's; when what is stored cannot be read.
pub async fn rotate(
    store: &Arc<dyn Store>,
    now: Timestamp,
    policy: &TokenPolicy,
    force: bool,
) -> anyhow::Result<Rotation> {
    let rotated = |list: &KeyList| {
        let (list, rotation) = list.rotated(now, policy, force)?;
        Ok((Some(list), rotation))
    };
    change(store, force, rotated).await
}

/// Drops a key at once: tokens that it has signed count no more.
///
/// # Errors
/// When there is no such key, or it is the one that signs; the store's.
pub async fn drop_key(store: &Arc<dyn Store>, now: Timestamp, kid: &str) -> anyhow::Result<()> {
    change(store, false, |list| Ok((Some(list.without(kid, now)?), ()))).await
}

/// Changes the list as it is; `None` leaves it.
async fn change<T>(
    store: &Arc<dyn Store>,
    replaces_corrupt: bool,
    change: impl Fn(&KeyList) -> anyhow::Result<(Option<KeyList>, T)>,
) -> anyhow::Result<T> {
    for _ in 0..ATTEMPTS {
        let (list, condition) = match store.get(SIGNING_KEYS).await.map(|found| found.value) {
            Ok(None) => (KeyList::default(), Some(Condition::Absent(SIGNING_KEYS.into()))),
            Ok(Some(entry)) => {
                let as_read = Condition::At(SIGNING_KEYS.into(), entry.position);
                match decode_typed(&entry.value) {
                    Ok(list) => (list, Some(as_read)),
                    Err(_) if replaces_corrupt => (KeyList::default(), Some(as_read)),
                    Err(error) => return Err(error).context("the signing keys cannot be read"),
                }
            }
            Err(Error::Corrupt { .. }) if replaces_corrupt => (KeyList::default(), None),
            Err(error) => return Err(error.into()),
        };
        let (next, result) = change(&list)?;
        let Some(next) = next.filter(|next| *next != list) else { return Ok(result) };
        let value = Bytes::from(serde_json::to_vec(&next)?);
        let put = Change::Put { key: SIGNING_KEYS.into(), value };
        let conditions = condition.into_iter().collect();
        match store.commit(Txn { conditions, changes: vec![put] }).await {
            Ok(_) => return Ok(result),
            Err(Error::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    anyhow::bail!("other servers change the signing keys all the time: try again")
}
