//! The stored readers of secrets: a record next to each secret, and one record for all.

use std::sync::Arc;

use bytes::Bytes;
use postern_kinds::shared_secret_readers::MAX_READERS;
use postern_kinds::{AnyKind, Info, all};
use postern_meta::decode::decode_typed;
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;
use postern_store::{Change, Condition, Entry, Error, Txn};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::notes::{Note, Reader, SecretNotes, uid_of};
use crate::errors::from_store;
use crate::registry::Registry;
use crate::storage_key;

/// The secrets whose notes are stored in one round. The others wait for the next round, so that a client that lists many
/// secrets cannot fill the store with writes.
const SECRETS_PER_ROUND: usize = 16_384;

/// The records in one transaction. A record has less than 90 KiB, and an engine may take 1.4 MB.
const RECORDS_PER_TXN: usize = 12;

/// The readers of one secret.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Readers {
    /// The uid of the secret. A later secret of the same name is another secret.
    uid: String,
    /// Whether there were more readers than are kept.
    pub(crate) truncated: bool,
    /// The one that was sent values last is the first.
    pub(crate) readers: Vec<StoredReader>,
    /// The time since which readers are noted.
    #[serde(skip)]
    pub(crate) since: Option<Timestamp>,
}

/// A reader of a secret.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredReader {
    pub(crate) reader: Reader<'static>,
    pub(crate) first_time: Timestamp,
    pub(crate) last_time: Timestamp,
    pub(crate) count: u64,
}

/// A record as it was read.
struct StoredRecord {
    /// The record; `None` if there is none, or a corrupt one.
    entry: Option<Entry>,
    /// The condition that it has not changed since. A corrupt record is replaced unconditionally.
    condition: Option<Condition>,
}

impl StoredRecord {
    fn decoded<T: DeserializeOwned>(&self) -> Option<T> {
        self.entry.as_ref().and_then(|entry| decode_typed(&entry.value).ok())
    }
}

/// What is known about the notes of all secrets.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReaderLog {
    /// The time of the first start of a server that notes readers.
    since: Timestamp,
    /// The last time at which notes were lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lost_at: Option<Timestamp>,
}

impl Readers {
    /// Adds notes of this server.
    fn add(&mut self, notes: &SecretNotes) {
        self.truncated |= notes.is_truncated;
        for Note { reader, first_unix_seconds, last_unix_seconds, count } in &notes.readers {
            let first_time = Timestamp::from_unix_seconds(*first_unix_seconds);
            let last_time = Timestamp::from_unix_seconds(*last_unix_seconds);
            match self.readers.iter_mut().find(|known| known.reader == **reader) {
                Some(known) => {
                    known.first_time = known.first_time.min(first_time);
                    known.last_time = known.last_time.max(last_time);
                    known.count = known.count.saturating_add(*count);
                }
                None => self.readers.push(StoredReader {
                    reader: Reader::clone(reader),
                    first_time,
                    last_time,
                    count: *count,
                }),
            }
        }
        self.readers.sort_by_key(|known| std::cmp::Reverse((known.last_time, known.first_time)));
        if self.readers.len() > MAX_READERS {
            self.truncated = true;
            self.readers.truncate(MAX_READERS);
        }
    }
}

/// The kind with readers whose object has a storage key.
fn kind_of(key: &str) -> Option<&'static Info> {
    let infos = all().iter().map(|kind| kind.info());
    let mut noted = infos.filter(|info| info.notes_readers());
    noted.find(|info| key.starts_with(&storage_key::collection(info)))
}

impl Registry {
    /// Stores the notes of readers: adds them to what this and other servers have stored.
    ///
    /// # Errors
    /// The errors of the store.
    pub(crate) async fn store_readers(&self) -> Result<(), ApiError> {
        self.reader_log().await?;
        let mut due = self.reader_notes().oldest(SECRETS_PER_ROUND);
        while !due.is_empty() {
            let batch = due.split_off(due.len().saturating_sub(RECORDS_PER_TXN));
            self.store_readers_of(batch).await?;
        }
        Ok(())
    }

    /// Stores the notes of the secrets with these uids.
    async fn store_readers_of(&self, batch: Vec<Arc<str>>) -> Result<(), ApiError> {
        // Otherwise a secret that was created just now would be taken for one that is gone.
        self.cache().wait_until_current().await?;
        let storing = self.reader_notes().storing.lock().await;
        let (mut txn, mut noted) = (Txn::default(), Vec::with_capacity(batch.len()));
        for uid in &batch {
            let Some(notes) = self.reader_notes().of(uid) else { continue };
            if let Some((conditions, change)) = self.readers_change(uid, &notes).await? {
                txn.conditions.extend(conditions);
                txn.changes.push(change);
            }
            noted.push((uid, notes));
        }
        if !txn.changes.is_empty() {
            match self.store().commit(txn).await {
                Ok(_) => {}
                // A secret has changed or is gone, or another server has stored notes. Each half is tried again at
                // once. A conflict on a single secret is tried again in the next round.
                Err(Error::Conflict { .. }) if batch.len() > 1 => {
                    drop(storing);
                    let mut first = batch;
                    let second = first.split_off(first.len() / 2);
                    Box::pin(self.store_readers_of(first)).await?;
                    return Box::pin(self.store_readers_of(second)).await;
                }
                Err(Error::Conflict { .. }) => return Ok(()),
                Err(error) => return Err(from_store(error)),
            }
        }
        for (uid, notes) in noted {
            self.reader_notes().remove(uid, &notes);
        }
        drop(storing);
        Ok(())
    }

    /// The change that stores notes, and its conditions; `None` if the secret is gone. The secret must be as it was read,
    /// because a record must not outlive its secret.
    async fn readers_change(
        &self,
        uid: &str,
        notes: &SecretNotes,
    ) -> Result<Option<(Vec<Condition>, Change)>, ApiError> {
        let Some(info) = kind_of(&notes.key) else { return Ok(None) };
        let Ok(Some(secret)) = self.cache().of(info).get(&notes.key) else { return Ok(None) };
        if uid_of(&secret.json()) != Some(uid) {
            return Ok(None);
        }
        let key = storage_key::readers(&notes.key);
        let stored = self.stored_record(&key).await?;
        let mut readers = readers_in(&stored, uid);
        readers.add(notes);
        let of_secret = Condition::At(notes.key.clone(), secret.position());
        let conditions = stored.condition.into_iter().chain([of_secret]).collect();
        Ok(Some((conditions, Change::Put { key, value: encoded(&readers)? })))
    }

    /// The record with a key.
    async fn stored_record(&self, key: &Arc<str>) -> Result<StoredRecord, ApiError> {
        let entry = match self.store().get(key).await {
            Ok(found) => found.value,
            Err(Error::Corrupt { .. }) => return Ok(StoredRecord { entry: None, condition: None }),
            Err(error) => return Err(from_store(error)),
        };
        let condition = match &entry {
            Some(entry) => Condition::At(key.clone(), entry.position),
            None => Condition::Absent(key.clone()),
        };
        Ok(StoredRecord { entry, condition: Some(condition) })
    }

    /// The readers of a secret: those that are stored, and the notes of this server.
    ///
    /// # Errors
    /// The errors of the store.
    pub(crate) async fn readers_of(
        &self,
        kind: &dyn AnyKind,
        secret: &Object,
    ) -> Result<Readers, ApiError> {
        let metadata = &secret.metadata;
        let key = storage_key::object(kind.info(), Some(&metadata.namespace), &metadata.name);
        let log = self.reader_log().await?;
        let storing = self.reader_notes().storing.lock().await;
        let stored = self.stored_record(&storage_key::readers(&key)).await?;
        let mut readers = readers_in(&stored, &metadata.uid);
        if let Some(notes) = self.reader_notes().of(&metadata.uid) {
            readers.add(&notes);
        }
        drop(storing);
        let created = metadata.creation_timestamp;
        let since = created.map_or(log.since, |created| created.max(log.since));
        readers.truncated |= log.lost_at.is_some_and(|lost_at| lost_at >= since);
        Ok(Readers { since: Some(since), ..readers })
    }

    /// What is known about the notes of all secrets. It is stored by the first call, and when this server has lost notes.
    async fn reader_log(&self) -> Result<ReaderLog, ApiError> {
        let key: Arc<str> = storage_key::READER_LOG.into();
        let stored = self.stored_record(&key).await?;
        let known: Option<ReaderLog> = stored.decoded();
        let has_losses = self.reader_notes().have_losses();
        if let Some(known) = known.clone().filter(|_| !has_losses) {
            return Ok(known);
        }
        let now = self.source().now();
        let since = known.map_or(now, |known| known.since);
        let log = ReaderLog { since, lost_at: has_losses.then_some(now) };
        let changes = vec![Change::Put { key, value: encoded(&log)? }];
        let conditions = stored.condition.into_iter().collect();
        match self.store().commit(Txn { conditions, changes }).await {
            Ok(_) => self.reader_notes().forget_losses(),
            // Another server has stored it. Losses are stored by the next call.
            Err(Error::Conflict { .. }) => {}
            Err(error) => return Err(from_store(error)),
        }
        Ok(log)
    }
}

/// The readers in a record of the secret with this uid. Those in a record that cannot be read are missing.
fn readers_in(stored: &StoredRecord, uid: &str) -> Readers {
    let record: Option<Readers> = stored.decoded();
    let truncated = record.is_none() && (stored.entry.is_some() || stored.condition.is_none());
    let own = record.filter(|record| record.uid == uid);
    own.unwrap_or_else(|| Readers { uid: uid.to_owned(), truncated, ..Readers::default() })
}

fn encoded(record: &impl Serialize) -> Result<Bytes, ApiError> {
    let value = serde_json::to_vec(record);
    let value =
        value.map_err(|error| ApiError::internal("a record could not be encoded", error))?;
    Ok(Bytes::from(value))
}
