//! At-rest keys with seeds that are in the store, each wrapped by a KMS.
//!
//! A record has the storage key `/postern/seal/keys/ID`, and holds the wrapped seed of the at-rest
//! key with this id. Records are not encrypted by the store: they are read before it can decrypt
//! anything. The newest record is the current key. An id is derived from its seed, so a seed that
//! belongs to another id is noticed. Callers cannot see or change records. A backup has them.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;

use super::keyring::Key;
use super::kms::{Kms, WrappedSeed};
use super::{KeyId, Keyring, MARKER, MARKER_VALUE, Sealed, seal};
use crate::{Change, Condition, Entry, Error, ListRequest, Position, Result, Store, Txn};

/// The prefix of the storage keys of the records.
const RECORDS: &str = "/postern/seal/keys/";

/// Attempts at a change with an unknown outcome, or that another server has overtaken.
const ATTEMPTS: usize = 5;

/// Bytes in a record.
const MAX_RECORD_BYTES: usize = 64 * 1024;

/// The records of the wrapped seeds in a store or in a backup, oldest first.
#[derive(Clone, Debug, Default)]
pub struct WrappedKeys(Vec<Record>);

#[derive(Clone, Debug)]
struct Record {
    id: KeyId,
    wrapped: WrappedSeed,
    position: Position,
}

/// Whether a storage key is that of a record.
pub(crate) fn is_record(key: &str) -> bool {
    key.starts_with(RECORDS)
}

/// Checks the form of a record.
pub(crate) fn check_record(entry: &Entry) -> std::result::Result<(), String> {
    Record::parse(entry).map(drop)
}

impl Record {
    fn parse(entry: &Entry) -> std::result::Result<Self, String> {
        let id = entry.key.strip_prefix(RECORDS).and_then(|id| id.parse().ok());
        let id = id.ok_or("its storage key does not end with the id of a key")?;
        let wrapped = WrappedSeed::decode(entry.value.clone());
        let wrapped = wrapped.map_err(|_| "it is no wrapped at-rest key")?;
        if wrapped.kind.is_empty() || wrapped.ciphertext.is_empty() {
            return Err("it is no wrapped at-rest key".to_owned());
        }
        Ok(Self { id, wrapped, position: entry.position })
    }
}

impl WrappedKeys {
    /// The records among entries of a store.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a record that was not written by this module.
    pub(crate) fn of_entries(entries: &[Entry]) -> Result<Self> {
        let records = entries.iter().filter(|entry| is_record(&entry.key)).map(|entry| {
            Record::parse(entry)
                .map_err(|reason| Error::Corrupt { key: Some(Arc::clone(&entry.key)), reason })
        });
        let mut records: Vec<Record> = records.collect::<Result<_>>()?;
        records.sort_by_key(|record| record.position);
        Ok(Self(records))
    }

    /// The id of the key in a record; `None` for other entries.
    pub(crate) fn id_of(entry: &Entry) -> Option<KeyId> {
        is_record(&entry.key).then(|| Record::parse(entry).ok().map(|record| record.id)).flatten()
    }

    async fn read(store: &dyn Store) -> Result<Self> {
        let request = ListRequest { prefix: RECORDS.to_owned(), ..ListRequest::default() };
        let page = store.list(request).await?;
        if let Some(corrupt) = page.corrupt.into_iter().next() {
            return Err(Error::Corrupt { key: Some(corrupt.key), reason: corrupt.reason });
        }
        Self::of_entries(&page.entries)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Decrypts all seeds.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the reason, if the KMS does not decrypt one of them, or returns another seed.
    pub async fn unwrap(&self, kms: &dyn Kms) -> Result<Keyring> {
        self.unwrap_unknown(kms, None).await
    }

    /// Decrypts the seeds that a keyring does not have.
    async fn unwrap_unknown(&self, kms: &dyn Kms, known: Option<&Keyring>) -> Result<Keyring> {
        let mut keys = Vec::with_capacity(self.0.len());
        for Record { id, wrapped, .. } in &self.0 {
            keys.push(match known.and_then(|keyring| keyring.find(*id)) {
                Some(key) => key.clone(),
                None => unwrap(kms, *id, wrapped).await?,
            });
        }
        Keyring::of_keys(keys).ok_or_else(|| Error::Unavailable(NO_KEYS.to_owned()))
    }
}

const NO_KEYS: &str = "the store has no wrapped at-rest keys";

/// Decrypts a seed, and checks that it belongs to an id.
async fn unwrap(kms: &dyn Kms, id: KeyId, wrapped: &WrappedSeed) -> Result<Key> {
    if wrapped.kind != kms.kind() {
        return Err(Error::Unavailable(format!(
            "the at-rest key {id} was wrapped by a KMS of the kind {:?}, and --keyring is {}: pass that KMS",
            wrapped.kind,
            kms.address()
        )));
    }
    let seed = kms.unwrap(wrapped).await;
    let seed = seed.map_err(|error| {
        Error::Unavailable(format!("cannot unwrap the at-rest key {id}: {error}"))
    })?;
    Key::of_id(id, &seed).map_err(|why| {
        Error::Unavailable(format!(
            "{} returned {why} for the at-rest key {id}: use the KMS key that has wrapped it, or restore the record of \
             the key from a backup",
            kms.address()
        ))
    })
}

/// A new key, and its record.
async fn generate(kms: &dyn Kms) -> Result<(Key, Change)> {
    let crypto = |_| Error::Unavailable("the cryptographic library failed".to_owned());
    let key = Key::generate().map_err(crypto)?;
    let wrapped = kms.wrap(key.seed()).await;
    let wrapped = wrapped
        .map_err(|error| Error::Unavailable(format!("cannot wrap an at-rest key: {error}")))?;
    // A seed that cannot be decrypted again would lose all values that are encrypted with it.
    unwrap(kms, key.id(), &wrapped).await?;
    let has_seed = wrapped.ciphertext.windows(key.seed().len()).any(|part| part == key.seed());
    let value = Bytes::from(wrapped.encode_to_vec());
    if has_seed || value.len() > MAX_RECORD_BYTES {
        let why = if has_seed { "does not encrypt" } else { "returns too much" };
        return Err(Error::Unavailable(format!("{} {why}: use another KMS", kms.address())));
    }
    let storage_key = format!("{RECORDS}{}", key.id());
    Ok((key, Change::Put { key: storage_key.into(), value }))
}

impl Sealed {
    /// An encrypted store over another store, with at-rest keys that are in the store and wrapped
    /// by a KMS. If it is empty and `may_create` is true, it gets its first key and its marker in
    /// one transaction. Of two servers at once, one makes them, and the other uses them.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the KMS does not decrypt the keys, or if the store has none and gets none; and those
    /// of [`Sealed::open`].
    pub async fn open_with_kms(
        inner: Arc<dyn Store>,
        kms: &dyn Kms,
        may_create: bool,
    ) -> Result<Self> {
        let mut attempt = 1;
        let keys = loop {
            let keys = WrappedKeys::read(&*inner).await?;
            if !keys.is_empty() {
                break keys;
            }
            check_may_create(&*inner, may_create).await?;
            match create_first(&*inner, kms).await {
                Ok(_) | Err(Error::Conflict { .. }) => {}
                Err(Error::Unknown(_)) if attempt < ATTEMPTS => {}
                Err(error) => return Err(error),
            }
            attempt += 1;
        };
        let keyring = keys.unwrap(kms).await?;
        Self::open(inner, keyring).await
    }

    /// The keyring of the wrapped keys in the store. Asks the KMS only for keys that are not in use yet.
    ///
    /// # Errors
    /// As for [`WrappedKeys::unwrap`], and those of the store.
    pub async fn read_wrapped(&self, kms: &dyn Kms) -> Result<Keyring> {
        let keys = WrappedKeys::read(&**self.inner()).await?;
        keys.unwrap_unknown(kms, Some(&self.keyring())).await
    }

    /// Adds a key to the store, and returns the keyring with it as its current key. It is not in use yet.
    ///
    /// # Errors
    /// As for [`Sealed::read_wrapped`]; [`Error::Invalid`] if there are too many keys.
    pub async fn add_wrapped(&self, kms: &dyn Kms) -> Result<Keyring> {
        let before = self.read_wrapped(kms).await?;
        before.check_not_full().map_err(|error| Error::Invalid(error.to_string()))?;
        let (key, change) = generate(kms).await?;
        let txn = Txn {
            conditions: vec![Condition::Absent(Arc::clone(change.key()))],
            changes: vec![change],
        };
        let committed = self.inner().commit(txn).await;
        let keyring = self.read_wrapped(kms).await?;
        match committed {
            // The transaction may have been committed.
            Err(Error::Unknown(_)) if keyring.holds(key.id()) => Ok(keyring),
            Err(error) => Err(error),
            Ok(_) => Ok(keyring),
        }
    }

    /// Removes a key from the store, and returns the keyring without it. The caller must make sure
    /// that it is no longer in use: see [`Sealed::key_ids_in_use`].
    ///
    /// # Errors
    /// As for [`Sealed::read_wrapped`]; [`Error::Invalid`] for the current key, and for a key that
    /// does not exist.
    pub async fn remove_wrapped(&self, kms: &dyn Kms, id: KeyId) -> Result<Keyring> {
        let keys = WrappedKeys::read(&**self.inner()).await?;
        let keyring = keys.unwrap_unknown(kms, Some(&self.keyring())).await?;
        let left = keyring.without(id).map_err(|error| Error::Invalid(error.to_string()))?;
        let record = keys.0.iter().find(|record| record.id == id);
        if let Some(Record { position, .. }) = record {
            let key: Arc<str> = format!("{RECORDS}{id}").into();
            let txn = Txn {
                conditions: vec![Condition::At(Arc::clone(&key), *position)],
                changes: vec![Change::Delete { key }],
            };
            self.inner().commit(txn).await?;
        }
        Ok(left)
    }

    /// Checks that the KMS works, with the current key in the store.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if it does not, and those of the store.
    pub async fn check_kms(&self, kms: &dyn Kms) -> Result<()> {
        let keys = WrappedKeys::read(&**self.inner()).await?;
        let newest = keys.0.last().ok_or_else(|| Error::Unavailable(NO_KEYS.to_owned()))?;
        kms.check(&newest.wrapped).await.map_err(|error| Error::Unavailable(error.to_string()))
    }
}

/// Checks that a store without wrapped keys may get its first one.
async fn check_may_create(store: &dyn Store, may_create: bool) -> Result<()> {
    if store.revision().await? != 0 {
        return Err(Error::Unavailable(format!(
            "{NO_KEYS}, and it has data: its keys are in a keyring file, or the records of the keys are lost; start \
             without the KMS in --keyring and with that file, or restore a backup"
        )));
    }
    if !may_create {
        return Err(Error::Unavailable(NO_KEYS.to_owned()));
    }
    Ok(())
}

/// Writes the first key and the marker.
async fn create_first(store: &dyn Store, kms: &dyn Kms) -> Result<u64> {
    let (key, record) = generate(kms).await?;
    let keyring =
        Keyring::of_keys(vec![key]).ok_or_else(|| Error::Unavailable(NO_KEYS.to_owned()))?;
    let marker: Arc<str> = Arc::from(MARKER);
    let value = seal(&keyring, MARKER, MARKER_VALUE)?;
    let txn = Txn {
        conditions: vec![Condition::Absent(Arc::clone(&marker))],
        changes: vec![record, Change::Put { key: marker, value }],
    };
    store.commit(txn).await
}
