//! The stored readers of secrets: a record next to each secret, and one record for all.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postern_kinds::{AnyKind, Info, all};
use postern_meta::decode::decode_typed;
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;
use postern_store::{Change, Condition, Entry, Error, Txn};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::notes::{Note, Reader, Row, SecretNotes, push_out, uid_of};
use crate::errors::from_store;
use crate::registry::Registry;
use crate::storage_key;

/// The secrets whose notes are stored in one round. The others wait for the next round, so that a client that lists many
/// secrets cannot fill the store with writes.
const SECRETS_PER_ROUND: usize = 16_384;

/// The bytes of the records that are stored in one round, for the same reason. The last transaction may exceed it.
const BYTES_PER_ROUND: usize = 32 * 1024 * 1024;

/// The records in one transaction. A record has less than 90 KiB, and an engine may take 1.4 MB.
const RECORDS_PER_TXN: usize = 12;

/// The readers of one secret.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SecretReaders {
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

impl Row for StoredReader {
    fn reader(&self) -> &Reader<'static> {
        &self.reader
    }

    fn times(&self) -> [i64; 2] {
        [self.last_time.unix_seconds(), self.first_time.unix_seconds()]
    }
}

/// What a round has stored.
#[derive(Default)]
struct Round {
    bytes: usize,
    /// The last error. The notes that it is about are tried again in the next round.
    error: Option<ApiError>,
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
    /// The number of the store's epoch. A restore begins another one, and has lost the readers since the backup.
    #[serde(default)]
    epoch: u32,
}

impl SecretReaders {
    /// Adds notes of this server.
    fn add(&mut self, notes: &SecretNotes) {
        self.truncated |= notes.is_truncated;
        for Note { reader, first_unix_seconds, last_unix_seconds, count, .. } in &notes.readers {
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
        self.truncated |= !push_out(&mut self.readers).is_empty();
    }
}

/// The kind with readers whose object has a storage key.
fn kind_of(key: &str) -> Option<&'static Info> {
    let infos = all().iter().map(|kind| kind.info());
    let mut noted = infos.filter(|info| info.notes_readers());
    noted.find(|info| key.starts_with(&storage_key::collection(info)))
}

impl Registry {
    /// Stores the notes of readers: adds them to what this and other servers have stored. Notes that cannot be stored are
    /// tried again in the next round.
    ///
    /// # Errors
    /// The last error of the store.
    pub(crate) async fn store_readers(&self) -> Result<(), ApiError> {
        self.reader_log().await?;
        let due = self.reader_notes().oldest(SECRETS_PER_ROUND);
        // A secret that the cache does not have yet would count as gone.
        self.cache().wait_until_current().await?;
        let mut round = Round::default();
        for batch in due.chunks(RECORDS_PER_TXN) {
            if round.bytes >= BYTES_PER_ROUND {
                break;
            }
            self.store_readers_of(batch, &mut round).await;
        }
        round.error.map_or(Ok(()), Err)
    }

    /// Stores all notes of readers, at the end of the server. Those that are not stored in this time are lost.
    ///
    /// # Errors
    /// The errors of the store.
    pub(crate) async fn finish_readers(&self, timeout: Duration) -> Result<(), ApiError> {
        let stored = tokio::time::timeout(timeout, self.store_all_readers()).await;
        if self.reader_notes().len() > 0 {
            self.reader_notes().lose();
            self.reader_log().await?;
        }
        stored.unwrap_or(Ok(()))
    }

    /// Stores notes of readers in rounds, until there are none or a round stores none.
    async fn store_all_readers(&self) -> Result<(), ApiError> {
        loop {
            let before = self.reader_notes().len();
            self.store_readers().await?;
            let after = self.reader_notes().len();
            if after == 0 || after >= before {
                return Ok(());
            }
        }
    }

    /// Stores the notes of the secrets with these uids.
    async fn store_readers_of(&self, batch: &[Arc<str>], round: &mut Round) {
        let storing = self.reader_notes().storing.lock().await;
        let (mut txn, mut bytes) = (Txn::default(), 0);
        let mut handled = Vec::with_capacity(batch.len());
        for uid in batch {
            let Some(notes) = self.reader_notes().of(uid) else { continue };
            match self.readers_change(uid, &notes).await {
                Ok(Some((conditions, change))) => {
                    bytes += if let Change::Put { value, .. } = &change { value.len() } else { 0 };
                    txn.conditions.extend(conditions);
                    txn.changes.push(change);
                }
                Ok(None) => {}
                Err(error) => {
                    round.error = Some(error);
                    continue;
                }
            }
            handled.push((uid, notes));
        }
        if !txn.changes.is_empty() {
            match self.store().commit(txn).await {
                Ok(_) => round.bytes += bytes,
                // A secret has changed or is gone, another server has stored notes, or the engine takes less at once. Each
                // half is tried again at once. A conflict on a single secret is tried again in the next round.
                Err(Error::Conflict { .. } | Error::TooLarge { .. }) if batch.len() > 1 => {
                    drop(storing);
                    let (first, second) = batch.split_at(batch.len() / 2);
                    Box::pin(self.store_readers_of(first, round)).await;
                    return Box::pin(self.store_readers_of(second, round)).await;
                }
                Err(Error::Conflict { .. }) => return,
                Err(error) => {
                    round.error = Some(from_store(error));
                    return;
                }
            }
        }
        for (uid, notes) in handled {
            self.reader_notes().remove(uid, &notes);
        }
        drop(storing);
    }

    /// The change that stores notes, and its conditions; `None` if the secret is gone. The secret must be as it was read,
    /// because a record must not outlive its secret.
    async fn readers_change(
        &self,
        uid: &str,
        notes: &SecretNotes,
    ) -> Result<Option<(Vec<Condition>, Change)>, ApiError> {
        let Some(info) = kind_of(&notes.key) else { return Ok(None) };
        // The state of a corrupt secret is not known: it is an error, and not gone.
        let Some(secret) = self.cache().of(info).get(&notes.key)? else { return Ok(None) };
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
    ) -> Result<SecretReaders, ApiError> {
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
        Ok(SecretReaders { since: Some(since), ..readers })
    }

    /// What is known about the notes of all secrets. It is stored by the first call, by the first call after a restore, and
    /// when this server has lost notes.
    async fn reader_log(&self) -> Result<ReaderLog, ApiError> {
        let key: Arc<str> = storage_key::READER_LOG.into();
        let stored = self.stored_record(&key).await?;
        let known: Option<ReaderLog> = stored.decoded();
        let epoch = self.store().epoch().await.map_err(from_store)?.number;
        let is_restored = known.as_ref().is_some_and(|known| known.epoch != epoch);
        let has_losses = self.reader_notes().have_losses() || is_restored;
        if let Some(known) = known.clone().filter(|_| !has_losses) {
            return Ok(known);
        }
        let now = self.source().now();
        let since = known.map_or(now, |known| known.since);
        let log = ReaderLog { since, lost_at: has_losses.then_some(now), epoch };
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
fn readers_in(stored: &StoredRecord, uid: &str) -> SecretReaders {
    let record: Option<SecretReaders> = stored.decoded();
    let truncated = record.is_none() && (stored.entry.is_some() || stored.condition.is_none());
    let own = record.filter(|record| record.uid == uid);
    own.unwrap_or_else(|| SecretReaders {
        uid: uid.to_owned(),
        truncated,
        ..SecretReaders::default()
    })
}

fn encoded(record: &impl Serialize) -> Result<Bytes, ApiError> {
    let value = serde_json::to_vec(record);
    let value =
        value.map_err(|error| ApiError::internal("a record could not be encoded", error))?;
    Ok(Bytes::from(value))
}
