//! Notes until when endpoint tokens count that were issued, for the access keys that asked for them and for
//! all together. A note is stored before a token is given away. So a change of a key that has no note need
//! revoke nothing, and a revocation is kept as long as the tokens that it is about.

use std::sync::Arc;

use bytes::Bytes;
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;
use postern_store::{Change, Condition, Error, Position, Txn};
use serde::Serialize;

use super::Registry;
use crate::cache::IssuedRecord;
use crate::errors::from_store;
use crate::storage_key;

/// A note reaches so much further than the token that it is made for: the next ones need none.
const AHEAD_SECONDS: i64 = 3600;

impl Registry {
    /// Returns whether it is noted that tokens of these access keys, by uid, may count until a time. What
    /// changes one of the keys after this call revokes the tokens that are as old as this call.
    pub(crate) fn is_noted(&self, keys: &[&str], until: Timestamp) -> bool {
        let issued = |key: &Arc<str>| self.cache().issued_tokens(key);
        notes(keys).iter().all(|key| issued(key).is_some_and(|(_, note)| note.until >= until))
    }

    /// Notes that tokens of these access keys, by uid, may count until a time. It is in the store then, or
    /// somebody else has changed the notes meanwhile: [`Registry::is_noted`] says, once the cache is
    /// current.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn note(&self, keys: &[&str], until: Timestamp) -> Result<(), ApiError> {
        let ahead = until.unix_seconds().saturating_add(AHEAD_SECONDS);
        let note = IssuedRecord { until: Timestamp::from_unix_seconds(ahead) };
        let mut txn = Txn::default();
        for key in notes(keys) {
            let found = self.cache().issued_tokens(&key);
            if found.is_some_and(|(_, note)| note.until >= until) {
                continue;
            }
            txn.conditions.push(as_read(&key, found));
            txn.changes.push(Change::Put { key, value: encoded(&note)? });
        }
        if txn.changes.is_empty() {
            return Ok(());
        }
        match self.store().commit(txn).await {
            Ok(_) | Err(Error::Conflict { .. }) => Ok(()),
            Err(error) => Err(from_store(error)),
        }
    }
}

/// Returns the storage keys of the notes of these access keys, and of that of all.
fn notes(keys: &[&str]) -> Vec<Arc<str>> {
    let of_keys = keys.iter().map(|uid| storage_key::issued_tokens(uid));
    of_keys.chain([storage_key::ALL_ISSUED_TOKENS.into()]).collect()
}

/// Returns the condition that a note is as it was read.
pub(super) fn as_read(key: &Arc<str>, found: Option<(Position, IssuedRecord)>) -> Condition {
    match found {
        Some((position, _)) => Condition::At(key.clone(), position),
        None => Condition::Absent(key.clone()),
    }
}

/// Returns a record as it is stored.
///
/// # Errors
/// 500 when that fails: a bug.
pub(super) fn encoded(record: &impl Serialize) -> Result<Bytes, ApiError> {
    let bytes = serde_json::to_vec(record);
    bytes
        .map(Bytes::from)
        .map_err(|error| ApiError::internal("a record could not be encoded", error))
}
