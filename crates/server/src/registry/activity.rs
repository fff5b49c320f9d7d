//! When access keys were used last: kept apart from them, and put in where they are shown
//! (decision 3). So a use changes no resourceVersion and sends no event.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::{AnyKind, Verb};
use postern_meta::decode::decode_typed;
use postern_meta::options::{DeleteOptions, GetOptions};
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;
use postern_store::{Change, Condition, Error, Txn, limits};

use super::{Registry, decoded};
use crate::storage_key;
use serde::Deserialize;

use crate::cache::principals::ActivityRecord;
use crate::cache::{Cache, CachedObject};
use crate::errors::from_store;
use crate::stages::authorize::Permit;

/// How stored access keys end: the status is their last field, and nothing is stored in it.
const EMPTY_STATUS: &[u8] = b"\"status\":{}}";

/// Uses that are stored already: key → its uid and when.
pub(super) type Stored = HashMap<String, (String, i64)>;

/// Is this the kind whose objects have a last use?
pub(crate) fn has_activity(kind: &dyn AnyKind) -> bool {
    let (mine, own) = (kind.info(), OwnedAccessKey.info());
    mine.kind == own.kind && mine.version == own.version
}

/// An access key's JSON with its last use.
pub(crate) fn with_last_activity(json: &Bytes, unix_seconds: i64) -> Bytes {
    let Some(head) = json.strip_suffix(EMPTY_STATUS) else { return json.clone() };
    let at = Timestamp::from_unix_seconds(unix_seconds);
    let mut shown = BytesMut::with_capacity(json.len() + 48);
    shown.extend_from_slice(head);
    shown.extend_from_slice(format!("\"status\":{{\"lastActivity\":\"{at}\"}}}}").as_bytes());
    shown.freeze()
}

/// An object as it is shown.
pub(crate) fn shown(
    cache: &Cache,
    kind: &'static dyn AnyKind,
    object: Arc<CachedObject>,
) -> Arc<CachedObject> {
    if !has_activity(kind) {
        return object;
    }
    match last_activity(cache, &object.json()) {
        Some(at) => Arc::new(object.with_json(&with_last_activity(&object.json(), at))),
        None => object,
    }
}

/// When the very key that this is was used last: one in the past may have had a namesake since.
fn last_activity(cache: &Cache, json: &[u8]) -> Option<i64> {
    let key: Identified = decode_typed(json).ok()?;
    cache.principals().last_activity(&key.metadata.name, &key.metadata.uid)
}

#[derive(Deserialize)]
struct Identified {
    metadata: NameAndUid,
}

#[derive(Deserialize)]
struct NameAndUid {
    name: String,
    uid: String,
}

/// What is stored already when the server starts.
pub(super) fn stored(cache: &Cache) -> Stored {
    let principals = cache.principals();
    let known = principals.activities();
    known.map(|(name, uid, at)| (name.to_owned(), (uid.to_owned(), at))).collect()
}

impl Registry {
    /// The JSON of an object that answers a write, as it is shown.
    pub(super) fn shown_json(&self, kind: &'static dyn AnyKind, json: Bytes) -> Bytes {
        if !has_activity(kind) {
            return json;
        }
        match last_activity(self.cache(), &json) {
            Some(at) => with_last_activity(&json, at),
            None => json,
        }
    }

    /// Stores the uses that are not stored yet, in batches.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn store_activity(&self) -> Result<(), ApiError> {
        let mut stored = self.stored_activity.lock().await;
        let mut due = self.due_activity(&mut stored);
        while !due.is_empty() {
            let batch = due.split_off(due.len().saturating_sub(limits::CHANGES_PER_TXN));
            self.store_batch(batch, &mut stored).await?;
        }
        Ok(())
    }

    fn due_activity(&self, stored: &mut Stored) -> Vec<(String, String, i64)> {
        let principals = self.cache().principals();
        stored.retain(|name, (uid, _)| principals.is_key(name, uid));
        let due = principals
            .activities()
            .filter(|(name, _, at)| stored.get(*name).is_none_or(|(_, then)| then < at));
        due.map(|(name, uid, at)| (name.to_owned(), uid.to_owned(), at)).collect()
    }

    async fn store_batch(
        &self,
        mut batch: Vec<(String, String, i64)>,
        stored: &mut Stored,
    ) -> Result<(), ApiError> {
        loop {
            let mut txn = Txn::default();
            batch.retain(|(name, uid, at)| match self.activity_change(name, uid, *at) {
                Some((condition, change)) => {
                    txn.conditions.push(condition);
                    txn.changes.push(change);
                    true
                }
                None => false,
            });
            match self.store().commit(txn).await {
                Ok(_) => {
                    stored.extend(batch.into_iter().map(|(name, uid, at)| (name, (uid, at))));
                    return Ok(());
                }
                // A key has changed or gone meanwhile: its turn comes again.
                Err(Error::Conflict { key, .. }) => {
                    let left = batch.len();
                    batch.retain(|(name, ..)| {
                        storage_key::object(OwnedAccessKey.info(), None, name) != key
                    });
                    if batch.len() == left {
                        return Ok(());
                    }
                }
                Err(error) => return Err(from_store(error)),
            }
        }
    }

    /// A use, on the condition that the key is still there: a record must not outlive its key.
    fn activity_change(&self, name: &str, uid: &str, at: i64) -> Option<(Condition, Change)> {
        let key = storage_key::object(OwnedAccessKey.info(), None, name);
        let object = self.cache().of(OwnedAccessKey.info()).get(&key).ok()??;
        let last_activity = Timestamp::from_unix_seconds(at);
        let record = ActivityRecord { uid: uid.to_owned(), last_activity };
        let value = Bytes::from(serde_json::to_vec(&record).ok()?);
        let change = Change::Put { key: storage_key::activity(name), value };
        Some((Condition::At(key, object.position()), change))
    }

    /// Removes keys that expired long ago. One that cannot be removed does not keep the others.
    ///
    /// # Errors
    /// Those of the last deletion that failed.
    pub(crate) async fn remove_expired_keys(&self) -> Result<(), ApiError> {
        let limit = self.source().now().unix_seconds() - self.policy().expired_retention_seconds;
        let ended: Vec<String> =
            self.cache().principals().ended_before(limit).map(str::to_owned).collect();
        let mut failed = Ok(());
        for name in ended {
            match self.remove_expired_key(&name, limit).await {
                Ok(()) => tracing::info!(key = name, "removed an access key that expired long ago"),
                // It has been changed or removed meanwhile, perhaps to live on.
                Err(error) if error.code() == 404 || error.code() == 409 => {}
                Err(error) => failed = Err(error),
            }
        }
        failed
    }

    /// Removes one such key as it is now, or not at all.
    async fn remove_expired_key(&self, name: &str, limit: i64) -> Result<(), ApiError> {
        let reading = Permit::for_server(&OwnedAccessKey, Verb::Get, None, name);
        let found = decoded(&self.get(&reading, &GetOptions::default()).await?)?.metadata;
        if !self.cache().principals().has_ended_before(name, limit) {
            return Ok(());
        }
        let permit = Permit::for_server(&OwnedAccessKey, Verb::Delete, None, name);
        let options = DeleteOptions {
            precondition_uid: Some(found.uid),
            precondition_resource_version: Some(found.resource_version),
            ..DeleteOptions::default()
        };
        self.delete(&permit, &options).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_goes_where_the_status_is() {
        let json = Bytes::from_static(b"{\"spec\":{\"user\":\"a\"},\"status\":{}}");
        assert_eq!(
            &with_last_activity(&json, 1_700_000_000)[..],
            b"{\"spec\":{\"user\":\"a\"},\"status\":{\"lastActivity\":\"2023-11-14T22:13:20Z\"}}"
        );
    }
}
