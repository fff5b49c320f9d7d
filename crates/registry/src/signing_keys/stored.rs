//! Reads and writes the signing keys in the store: one value, changed only if it is as it was read.

use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use postern_meta::decode::decode_typed;
use postern_meta::time::Timestamp;
use postern_store::{Change, Condition, Error, Store, Txn};

use super::{KeyList, Rotation, TokenPolicy};
use crate::storage_key::SIGNING_KEYS;

/// Attempts at one change while other servers change the keys.
const ATTEMPTS: usize = 8;

/// Makes the first key of a store without keys, which signs at once. If several servers start at once, one of them
/// makes it.
///
/// # Errors
/// The errors of the store.
pub async fn prepare(
    store: &Arc<dyn Store>,
    now: Timestamp,
    policy: &TokenPolicy,
) -> anyhow::Result<()> {
    match store.get(SIGNING_KEYS).await {
        Ok(found) if found.value.is_some() => Ok(()),
        // A start does not replace a corrupt value.
        Err(Error::Corrupt { reason, .. }) => {
            tracing::error!(
                "the signing keys of endpoint tokens are corrupt, and no token is issued: run postern admin \
                 rotate-signing-key --force ({reason})"
            );
            Ok(())
        }
        Err(error) => Err(error.into()),
        Ok(_) => keep_rotating(store, now, policy).await,
    }
}

/// Removes keys after the expiry of their last token, and announces the next key, when these are
/// due.
///
/// # Errors
/// The errors of the store; an error if the stored value cannot be decoded.
pub async fn keep_rotating(
    store: &Arc<dyn Store>,
    now: Timestamp,
    policy: &TokenPolicy,
) -> anyhow::Result<()> {
    change(store, false, |list| Ok((list.maintained(now, policy)?, ()))).await
}

/// Makes a new key: a published key that signs later, or with `force` a key that signs at once. With `force`, a
/// corrupt value is replaced.
///
/// # Errors
/// The errors of the store; an error if the stored value cannot be decoded.
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

/// Removes a key at once: the tokens that it signed are no longer valid.
///
/// # Errors
/// An error if the key does not exist or signs now; the errors of the store.
pub async fn drop_key(store: &Arc<dyn Store>, now: Timestamp, kid: &str) -> anyhow::Result<()> {
    change(store, false, |list| Ok((Some(list.without(kid, now)?), ()))).await
}

/// Changes the list. If `change` returns `None`, the list stays.
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
                    Err(error) => return Err(error).context("the signing keys cannot be decoded"),
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
    anyhow::bail!("other servers keep changing the signing keys: try again")
}
