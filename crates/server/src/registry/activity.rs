//! When access keys were used last: kept in records of their own, so that a use changes no
//! resourceVersion and sends no event (decision 3). `observe` puts it into answers.

use std::sync::Arc;

use bytes::Bytes;
use postern_kinds::AnyKind as _;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_meta::decode::decode_typed;
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;
use postern_store::{Change, Condition, Error, Txn, limits};

use super::Registry;
use crate::cache::ActivityRecord;
use crate::errors::from_store;
use crate::storage_key;

/// Uses that are stored by one transaction: each takes a condition on its key, and one on its
/// record.
const USES_PER_TXN: usize = limits::CHANGES_PER_TXN / 2;

/// The last use of one key.
struct KeyUse {
    name: String,
    uid: String,
    at_unix_seconds: i64,
}

impl Registry {
    /// Stores the uses that are not stored yet, in batches. What another server has stored meanwhile
    /// is never replaced by something older.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn store_activity(&self) -> Result<(), ApiError> {
        let mut due = self.due_activity();
        while !due.is_empty() {
            let batch = due.split_off(due.len().saturating_sub(USES_PER_TXN));
            self.store_batch(batch).await?;
        }
        Ok(())
    }

    fn due_activity(&self) -> Vec<KeyUse> {
        let principals = self.cache().principals();
        let due = principals.unstored_activities();
        due.map(|(name, uid, at_unix_seconds)| KeyUse {
            name: name.to_owned(),
            uid: uid.to_owned(),
            at_unix_seconds,
        })
        .collect()
    }

    async fn store_batch(&self, batch: Vec<KeyUse>) -> Result<(), ApiError> {
        let mut txn = Txn::default();
        for used in &batch {
            if let Some((conditions, change)) = self.activity_change(used).await? {
                txn.conditions.extend(conditions);
                txn.changes.push(change);
            }
        }
        if txn.changes.is_empty() {
            return Ok(());
        }
        match self.store().commit(txn).await {
            Ok(_) => Ok(()),
            // A key has changed or gone, or another server has stored a use: half of them is tried
            // again now, so that one key that changes all the time does not keep the others.
            Err(Error::Conflict { .. }) if batch.len() > 1 => {
                let mut first = batch;
                let second = first.split_off(first.len() / 2);
                Box::pin(self.store_batch(first)).await?;
                Box::pin(self.store_batch(second)).await
            }
            // The next round comes to it.
            Err(Error::Conflict { .. }) => Ok(()),
            Err(error) => Err(from_store(error)),
        }
    }

    /// A use, on the condition that the key is still there (a record must not outlive its key), and
    /// that the stored record is older.
    async fn activity_change(
        &self,
        used: &KeyUse,
    ) -> Result<Option<([Condition; 2], Change)>, ApiError> {
        let info = OwnedAccessKey.info();
        let key = storage_key::object(info, None, &used.name);
        let Ok(Some(object)) = self.cache().of(info).get(&key) else { return Ok(None) };
        let record_key = storage_key::activity(info, &used.name);
        let stored = self.store().get(&record_key).await.map_err(from_store)?.value;
        let record = stored.as_ref().and_then(|entry| decode_typed(&entry.value).ok());
        if record.is_some_and(|record| is_newer(&record, used)) {
            return Ok(None);
        }
        let is_as_read = match &stored {
            Some(entry) => Condition::At(record_key.clone(), entry.position),
            None => Condition::Absent(record_key.clone()),
        };
        let last_activity = Timestamp::from_unix_seconds(used.at_unix_seconds);
        let record = ActivityRecord { uid: used.uid.clone(), last_activity };
        let value = serde_json::to_vec(&record)
            .map_err(|error| ApiError::internal("a record could not be encoded", error))?;
        let change = Change::Put { key: Arc::clone(&record_key), value: Bytes::from(value) };
        Ok(Some(([Condition::At(key, object.position()), is_as_read], change)))
    }
}

fn is_newer(stored: &ActivityRecord, used: &KeyUse) -> bool {
    stored.uid == used.uid && stored.last_activity.unix_seconds() >= used.at_unix_seconds
}
