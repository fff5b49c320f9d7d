//! The time of the last use of each access key.
//!
//! It is stored in a separate record, so a use changes no resourceVersion and sends no event
//! (`docs/reference/access-keys.md#lifetime`). `observe` puts it into responses.

use bytes::Bytes;
use postern_auth::resolved_key::ResolvedKey;
use postern_kinds::AnyKind as _;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_meta::decode::decode_typed;
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;
use postern_store::{Change, Condition, Error, Txn, limits};
use tokio::sync::Notify;

use super::Registry;
use crate::cache::ActivityRecord;
use crate::errors::from_store;
use crate::storage_key;

/// The uses in one transaction. Each use has a condition on its key and a condition on its record.
const USES_PER_TXN: usize = limits::CHANGES_PER_TXN / 2;

/// A use of a key is stored at once if the last stored use keeps the key alive for less than this. Other servers know
/// only stored uses, and would let the key expire. It is longer than the time in which other uses are stored.
const URGENT_SECONDS: i64 = 120;

/// Notes the uses of keys.
#[derive(Default)]
pub struct KeyUses {
    urgent: Notify,
}

impl KeyUses {
    /// Notes that a key is used now, in seconds since 1970.
    pub fn note(&self, key: &ResolvedKey, now_unix_seconds: i64) {
        let is_urgent = key.lifetime.counts_uses()
            && key
                .lifetime
                .ends_at(key.activity.last())
                .is_some_and(|end| end.saturating_sub(now_unix_seconds) < URGENT_SECONDS);
        key.activity.note(now_unix_seconds);
        if is_urgent {
            self.urgent.notify_one();
        }
    }

    /// Waits until a use must be stored at once.
    pub(crate) async fn until_urgent(&self) {
        self.urgent.notified().await;
    }
}

/// The last use of one key.
struct KeyUse {
    name: String,
    uid: String,
    at_unix_seconds: i64,
}

impl KeyUse {
    fn new((name, uid, at_unix_seconds): (&str, &str, i64)) -> Self {
        Self { name: name.to_owned(), uid: uid.to_owned(), at_unix_seconds }
    }
}

impl Registry {
    /// Stores the new uses, in batches. If another server has stored a newer record in the meantime, that record
    /// stays.
    ///
    /// # Errors
    /// The errors of the store.
    pub(crate) async fn store_activity(&self) -> Result<(), ApiError> {
        let due = self.unstored_uses(|_| true);
        self.store_uses(due).await
    }

    /// Stores the new uses without which other servers would soon let a key expire.
    ///
    /// # Errors
    /// The errors of the store.
    pub(crate) async fn store_urgent_activity(&self) -> Result<(), ApiError> {
        let until = self.source().now().unix_seconds().saturating_add(URGENT_SECONDS);
        let due = self.unstored_uses(|stored_end| stored_end.is_some_and(|end| end < until));
        self.store_uses(due).await
    }

    /// The uses that are not stored yet. `is_due` gets the time at which the key expires for other servers, in seconds
    /// since 1970; `None` if uses do not count.
    fn unstored_uses(&self, is_due: impl Fn(Option<i64>) -> bool) -> Vec<KeyUse> {
        let principals = self.cache().principals();
        let uses = principals.unstored_activities();
        uses.filter(|(name, ..)| is_due(principals.stored_end_of(name))).map(KeyUse::new).collect()
    }

    async fn store_uses(&self, mut due: Vec<KeyUse>) -> Result<(), ApiError> {
        while !due.is_empty() {
            let batch = due.split_off(due.len().saturating_sub(USES_PER_TXN));
            self.store_batch(batch).await?;
        }
        Ok(())
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
            // A key has changed or is gone, or another server has stored a use. Each half is tried again at once, so
            // that one key that changes all the time does not block the other keys.
            Err(Error::Conflict { .. }) if batch.len() > 1 => {
                let mut first = batch;
                let second = first.split_off(first.len() / 2);
                Box::pin(self.store_batch(first)).await?;
                Box::pin(self.store_batch(second)).await
            }
            // A conflict on a single key is tried again in the next round.
            Ok(_) | Err(Error::Conflict { .. }) => Ok(()),
            Err(error) => Err(from_store(error)),
        }
    }

    /// The change that stores a use, and its conditions; `None` if the stored record is newer. The key must still
    /// exist, because a record must not outlive its key. The stored record must be as it was read.
    async fn activity_change(
        &self,
        used: &KeyUse,
    ) -> Result<Option<(Vec<Condition>, Change)>, ApiError> {
        let info = OwnedAccessKey.info();
        let key = storage_key::object(info, None, &used.name);
        let Ok(Some(object)) = self.cache().of(info).get(&key) else { return Ok(None) };
        let record_key = storage_key::activity(info, &used.name);
        let mut conditions = vec![Condition::At(key, object.position())];
        let stored = match self.store().get(&record_key).await {
            Ok(found) => found.value,
            // A use replaces a corrupt record unconditionally.
            Err(Error::Corrupt { .. }) => return Ok(Some((conditions, record_of(used)?))),
            Err(error) => return Err(from_store(error)),
        };
        let record = stored.as_ref().and_then(|entry| decode_typed(&entry.value).ok());
        if record.is_some_and(|record| is_newer(&record, used)) {
            return Ok(None);
        }
        conditions.push(match &stored {
            Some(entry) => Condition::At(record_key, entry.position),
            None => Condition::Absent(record_key),
        });
        Ok(Some((conditions, record_of(used)?)))
    }
}

/// The change that stores a use.
fn record_of(used: &KeyUse) -> Result<Change, ApiError> {
    let last_activity = Timestamp::from_unix_seconds(used.at_unix_seconds);
    let record = ActivityRecord { uid: used.uid.clone(), last_activity };
    let value = serde_json::to_vec(&record)
        .map_err(|error| ApiError::internal("a record could not be encoded", error))?;
    let key = storage_key::activity(OwnedAccessKey.info(), &used.name);
    Ok(Change::Put { key, value: Bytes::from(value) })
}

fn is_newer(stored: &ActivityRecord, used: &KeyUse) -> bool {
    stored.uid == used.uid && stored.last_activity.unix_seconds() >= used.at_unix_seconds
}
