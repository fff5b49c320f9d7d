//! Encryption at rest: a store that encrypts the values of another store.
//!
//! Values are encrypted before the inner store gets them (`envelope`), with keys from a
//! [`Keyring`]. The keyring is kept in a separate file (`keyring_file`), or in the store, wrapped
//! by a KMS (`wrapped`). *Not* hidden from readers of the database: the storage keys, which are the
//! names of all objects; the length of each value; and the order of changes. Encryption protects
//! copies of the database, such as backups and discarded disks. It does not protect the machine on
//! which the server runs.
//!
//! An encrypted database contains a marker, encrypted like every value, under a reserved storage
//! key. It is written when an empty database is opened for the first time. It is decrypted at each
//! later start, so that a wrong keyring is detected before anything is served. Callers cannot see
//! or change it.

mod derived;
mod envelope;
mod key_id;
mod keyring;
mod keyring_file;
mod keys;
mod kms;
mod kms_v2;
mod rewrap;
mod wrapped;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::task::spawn_blocking;

pub(crate) use self::key_id::KEY_ID_BYTES;
pub use self::key_id::{KeyId, KeyringError};
pub use self::keyring::Keyring;
pub use self::kms::{Kms, KmsError, WrappedSeed};
pub use self::kms_v2::KmsV2;
pub use self::rewrap::Progress;
pub use self::wrapped::WrappedKeys;

use self::envelope::OpenError;
use self::keys::{Keys, Marker};

use crate::check::{self, Overhead};
use crate::{
    Batch, Change, Condition, CorruptEntry, Entry, Epoch, Error, Event, Events, Figures, Fleet,
    Gate, Limits, ListRequest, Page, Position, Replaced, Result, Snapshot, Store, Txn, Visitor,
    Watch, WithOld,
};

/// The storage key of the marker. Reserved, like everything under [`RESERVED`].
const MARKER: &str = "/postern/seal/marker";
/// The prefix of the storage keys that only this module may use.
const RESERVED: &str = "/postern/seal/";
/// The end of these storage keys in byte order: `0` follows `/`.
const RESERVED_END: &str = "/postern/seal0";
/// The value of the marker.
const MARKER_VALUE: &[u8] = b"this database is sealed";
/// The most values that are opened on the caller's thread. More values are opened on a thread for
/// blocking work, so that a long list does not delay other tasks.
const OPENED_INLINE: usize = 64;
/// Attempts at a transaction while the active key changes.
const MARKER_ATTEMPTS: usize = 8;

/// A [`Store`] that encrypts its values in an inner store.
pub struct Sealed {
    inner: Arc<dyn Store>,
    keys: Arc<Keys>,
    keyring_lock: tokio::sync::Mutex<()>,
}

impl Sealed {
    /// An encrypted store over another store. An empty inner store gets its marker.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the store does not belong to this keyring: it is encrypted with
    /// another key, or it holds data and no marker.
    pub async fn open(inner: Arc<dyn Store>, keyring: Keyring) -> Result<Self> {
        let is_shared = inner.fleet().is_some();
        let keys = Arc::new(Keys::new(keyring.clone(), is_shared));
        let sealed = Self { inner, keys, keyring_lock: tokio::sync::Mutex::default() };
        if sealed.inner.get(MARKER).await?.value.is_none() {
            sealed.write_marker().await?;
        }
        sealed.use_keyring(keyring).await?;
        Ok(sealed)
    }

    /// The inner store, which holds the encrypted values and the marker.
    pub fn inner(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    /// Uses another keyring from now on, as after a rotation. The caller must make sure that it still
    /// holds every key that values need: see [`Sealed::key_ids_in_use`].
    ///
    /// # Errors
    /// As with [`Sealed::open`], for a keyring that does not belong to this store. The old keyring
    /// then stays in use.
    pub async fn use_keyring(&self, keyring: Keyring) -> Result<()> {
        let marker = self.open_marker(&keyring).await?;
        self.keys.replace(keyring, marker)
    }

    /// A lock for reading or changing the keyring at its source, and then using it. Otherwise a keyring that was read
    /// before a rotation could be used after it.
    pub async fn lock_keyring(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.keyring_lock.lock().await
    }

    /// On a store that several servers share: the key that becomes active when all of them hold it. It is the current
    /// key in the keyring of this server, which was not active yet.
    pub fn prepared_key(&self) -> Option<KeyId> {
        self.keys.prepared()
    }

    /// Lets all servers encrypt with the prepared key from now on. The caller must make sure that all of them hold it.
    /// Does nothing if another server was first.
    ///
    /// # Errors
    /// The errors of the store.
    pub async fn activate_prepared_key(&self) -> Result<()> {
        let marker = self.inner.get(MARKER).await?.value;
        let Some(Entry { key, value: sealed, position }) = marker else {
            let reason = "the encryption marker is missing".to_owned();
            return Err(Error::Corrupt { key: Some(MARKER.into()), reason });
        };
        self.keys.note_change(sealed, position)?;
        let Some((keyring, value)) = self.keys.next() else { return Ok(()) };
        let value = seal(&keyring, MARKER, &value)?;
        let txn = Txn {
            conditions: vec![Condition::At(Arc::clone(&key), position)],
            changes: vec![Change::Put { key, value: value.clone() }],
        };
        match self.inner.commit(txn).await {
            Ok(revision) => self.keys.note_change(value, Position::new(revision, 0)),
            Err(Error::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The ids of the keys in the keyring that is in use.
    pub fn key_ids(&self) -> Vec<String> {
        self.keyring().ids().iter().map(ToString::to_string).collect()
    }

    /// The number of keys in the keyring that is in use.
    pub fn key_count(&self) -> usize {
        self.keyring().ids().len()
    }

    /// Whether a keyring differs from the one that is in use, apart from a rotation of all servers that has not ended.
    pub fn has_changed(&self, keyring: &Keyring) -> bool {
        self.keys.has_changed(keyring)
    }

    /// Whether a keyring has the key for new values.
    pub fn is_current_key_in(&self, keyring: &Keyring) -> bool {
        keyring.holds(self.keyring().current())
    }

    /// The key that new values are encrypted with, as far as this server knows.
    pub fn active_key(&self) -> KeyId {
        self.keyring().current()
    }

    /// The keyring that is in use now.
    pub(crate) fn keyring(&self) -> Arc<Keyring> {
        self.keys.in_use()
    }

    async fn write_marker(&self) -> Result<()> {
        if self.inner.revision().await? != 0 {
            // Another process may have written it since it was looked for.
            if self.inner.get(MARKER).await?.value.is_some() {
                return Ok(());
            }
            return Err(Error::Unavailable(
                "the database has data, but no encryption marker: it is not encrypted at rest, and \
                 cannot be encrypted in place"
                    .to_owned(),
            ));
        }
        let key = Arc::from(MARKER);
        let value = seal(&self.keyring(), MARKER, MARKER_VALUE)?;
        let txn = Txn {
            conditions: vec![Condition::Absent(Arc::clone(&key))],
            changes: vec![Change::Put { key, value }],
        };
        match self.inner.commit(txn).await {
            // Another process was first. The caller checks next whether its keyring is the same.
            Ok(_) | Err(Error::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Notes a restore of the store: the marker may be an older one.
    fn noted<T>(&self, result: Result<T>) -> Result<T> {
        if matches!(result, Err(Error::EpochChanged { .. })) {
            self.keys.forget_marker();
        }
        result
    }

    /// Reads the marker again after a restore of the store, so that nothing is encrypted with a key that the restore has
    /// taken back.
    async fn read_marker(&self) -> Result<()> {
        let missing = || Error::Corrupt {
            key: Some(MARKER.into()),
            reason: "the encryption marker is missing".to_owned(),
        };
        let marker = self.inner.get(MARKER).await?.value.ok_or_else(missing)?;
        self.keys.note_change(marker.value, marker.position)
    }

    /// Commits a transaction on a shared store. Its values are encrypted with the key that is active when it is committed:
    /// after `drop-key`, nothing is there that needs the dropped key, not even from a server that was stopped meanwhile.
    async fn commit_agreed(&self, txn: Txn) -> Result<u64> {
        for _ in 0..MARKER_ATTEMPTS {
            let Some((keyring, position)) = self.keys.agreed() else {
                self.read_marker().await?;
                continue;
            };
            let mut sealed = seal_txn(&keyring, txn.clone())?;
            // The last one, so that a conflict of the caller's conditions is reported first.
            sealed.conditions.push(Condition::At(MARKER.into(), position));
            match self.noted(self.inner.commit(sealed).await) {
                Err(Error::Conflict { key, .. }) if is_marker(&key) => self.read_marker().await?,
                result => return result,
            }
        }
        Err(Error::Unavailable("the active at-rest key keeps changing".to_owned()))
    }

    /// Whether no server can make a key the active one any more. Without that, it must not be dropped.
    pub fn is_retired(&self, id: KeyId) -> bool {
        self.keys.is_retired(id)
    }

    /// Decrypts the marker, which shows that a keyring belongs to this store.
    async fn open_marker(&self, keyring: &Keyring) -> Result<Marker> {
        let wrong_keyring = |why: String| {
            Error::Unavailable(format!(
                "the keyring does not belong to this database: {why}; start with the keyring that \
                 the database was written with{}",
                if self.keys.is_shared() { ", or copy that of another server" } else { "" }
            ))
        };
        let marker = self.inner.get(MARKER).await?.value;
        let marker =
            marker.ok_or_else(|| wrong_keyring("the encryption marker is missing".to_owned()))?;
        Marker::open(keyring, marker.value, marker.position)
            .map_err(|error| wrong_keyring(format!("encryption marker: {error}")))
    }

    /// A page of the inner store, without reserved keys. If they may be on the page, more entries are requested, so that
    /// the caller gets as many as the limit allows.
    async fn list_inner(&self, mut request: ListRequest) -> Result<Page> {
        let are_under_prefix =
            RESERVED.starts_with(&request.prefix) || request.prefix.starts_with(RESERVED);
        let are_ahead = request.after.as_deref().is_none_or(|after| after < RESERVED_END);
        if !are_under_prefix || !are_ahead {
            return self.inner.list(request).await;
        }
        let prefix = if request.prefix.len() > RESERVED.len() { &request.prefix } else { RESERVED };
        let reserved = ListRequest { prefix: prefix.to_owned(), limit: 0, ..request.clone() };
        let reserved = self.inner.list(reserved).await?;
        let mut reserved: Vec<_> = keys_of(&reserved).cloned().collect();
        let limit = request.limit;
        if limit != 0 {
            request.limit = limit.saturating_add(reserved.len());
        }
        let mut page = self.inner.list(request).await?;
        if let Some(last) = page.last_key() {
            reserved.retain(|key| key > last);
        }
        page.remaining = page.remaining.saturating_sub(reserved.len() as u64);
        retain_callers_keys(&mut page);
        while limit != 0 && page.entries.len() + page.corrupt.len() > limit {
            remove_last(&mut page);
        }
        Ok(page)
    }
}

/// The keys of a page, corrupt or not.
fn keys_of(page: &Page) -> impl Iterator<Item = &Arc<str>> {
    page.entries.iter().map(|entry| &entry.key).chain(page.corrupt.iter().map(|one| &one.key))
}

/// Removes reserved keys from a page.
fn retain_callers_keys(page: &mut Page) {
    page.entries.retain(|entry| !is_reserved(&entry.key));
    page.corrupt.retain(|corrupt| !is_reserved(&corrupt.key));
}

/// Removes the last key of a page, which then belongs to the next page.
fn remove_last(page: &mut Page) {
    let last = page.last_key().cloned();
    page.entries.retain(|entry| Some(&entry.key) != last.as_ref());
    page.corrupt.retain(|corrupt| Some(&corrupt.key) != last.as_ref());
    page.remaining += 1;
}

fn seal(keyring: &Keyring, key: &str, value: &[u8]) -> Result<Bytes> {
    envelope::seal(keyring.current_key(), key, value)
        .map_err(|_| Error::Unavailable("the cryptographic library failed".to_owned()))
}

fn seal_change(keyring: &Keyring, change: Change) -> Result<Change> {
    Ok(match change {
        Change::Put { key, value } => {
            let value = seal(keyring, &key, &value)?;
            Change::Put { key, value }
        }
        Change::Rewrite { key, value } => {
            let value = seal(keyring, &key, &value)?;
            Change::Rewrite { key, value }
        }
        delete @ Change::Delete { .. } => delete,
    })
}

fn seal_txn(keyring: &Keyring, txn: Txn) -> Result<Txn> {
    let changes = txn.changes.into_iter().map(|change| seal_change(keyring, change));
    Ok(Txn { changes: changes.collect::<Result<_>>()?, ..txn })
}

/// Whether a change stores a value.
fn stores_value(change: &Change) -> bool {
    !matches!(change, Change::Delete { .. })
}

/// Decrypts a value, or returns why that fails. Does not copy it when nothing else refers to the
/// encrypted bytes.
fn open(keyring: &Keyring, key: &str, sealed: Bytes) -> std::result::Result<Bytes, OpenError> {
    envelope::open(|id| keyring.find(id), key, sealed)
}

/// Decrypts a value of the inner store, or returns why that fails. A wrapped key is returned as it is.
pub(crate) fn decrypt(
    keyring: &Keyring,
    key: &str,
    sealed: Bytes,
) -> std::result::Result<Bytes, String> {
    if wrapped::is_record(key) {
        return Ok(sealed);
    }
    open(keyring, key, sealed).map_err(|error| error.to_string())
}

/// Whether a storage key is that of the marker.
pub(crate) fn is_marker(key: &str) -> bool {
    key == MARKER
}

/// Whether a storage key is hidden from callers.
pub(crate) fn is_reserved(key: &str) -> bool {
    key.starts_with(RESERVED)
}

/// The kind of an entry's value, or why it cannot be read.
pub(crate) fn check_entry(
    keyring: &Keyring,
    entry: &Entry,
) -> std::result::Result<ValueOf, String> {
    if wrapped::is_record(&entry.key) {
        return wrapped::check_record(entry).map(|()| ValueOf::WrappedKey);
    }
    open(keyring, &entry.key, entry.value.clone()).map_err(|error| error.to_string())?;
    let id = envelope::key_id(&entry.value);
    id.map(ValueOf::Sealed).ok_or_else(|| envelope::OpenError::NotSealed.to_string())
}

/// The kind of a stored value.
pub(crate) enum ValueOf {
    /// A value that is encrypted with the key of this id.
    Sealed(KeyId),
    /// An at-rest key that a KMS has wrapped.
    WrappedKey,
}

/// The keys with which the values of one answer are opened.
struct Opener {
    keys: Arc<Keys>,
    keyring: Arc<Keyring>,
}

impl Opener {
    fn new(keys: &Arc<Keys>) -> Self {
        Self { keyring: keys.in_use(), keys: Arc::clone(keys) }
    }

    fn value(&self, key: &Arc<str>, value: Bytes) -> Result<Bytes> {
        let opened = open(&self.keyring, key, value);
        opened.map_err(|error| self.keys.open_error(Arc::clone(key), error))
    }

    fn entry(&self, entry: Entry) -> Result<Entry> {
        let value = self.value(&entry.key, entry.value)?;
        Ok(Entry { value, ..entry })
    }

    /// A page on which corrupt values are listed apart. A value with an unknown at-rest key fails
    /// the whole page: the value is not corrupt.
    fn page(&self, page: Page) -> Result<Page> {
        let mut opened = Page { entries: Vec::with_capacity(page.entries.len()), ..page };
        for Entry { key, value, position } in page.entries {
            match self.value(&key, value) {
                Ok(value) => opened.entries.push(Entry { key, value, position }),
                Err(Error::Corrupt { reason, .. }) => {
                    opened.corrupt.push(CorruptEntry { key, position, reason });
                }
                Err(error) => return Err(error),
            }
        }
        opened.corrupt.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(opened)
    }

    fn events(&self, read: Events) -> Result<Events> {
        let open = |event: Event| {
            let value = event.value.map(|value| self.value(&event.key, value)).transpose()?;
            let replaced = match event.replaced {
                Replaced::Old(Some(previous)) => Replaced::Old(Some(self.entry(previous)?)),
                replaced => replaced,
            };
            Ok(Event { value, replaced, ..event })
        };
        let events = read.events.into_iter().filter(|event| !is_reserved(&event.key));
        Ok(Events { events: events.map(open).collect::<Result<_>>()?, through: read.through })
    }

    /// The entry that a change replaced; `None` when it is corrupt, as the contract says.
    fn previous(&self, previous: Entry) -> Option<Entry> {
        match self.entry(previous) {
            Ok(entry) => Some(entry),
            Err(error) => {
                tracing::warn!(%error, "a replaced value is corrupt; its event is without it");
                None
            }
        }
    }
}

fn open_batch(keys: &Arc<Keys>, mut batch: Batch, old: WithOld) -> Result<Batch> {
    for event in batch.events.extract_if(.., |event| is_reserved(&event.key)) {
        if let Some(marker) = event.value.filter(|_| is_marker(&event.key)) {
            keys.note_change(marker, event.position)?;
        }
    }
    let opener = Opener::new(keys);
    for event in &mut batch.events {
        if let Some(value) = &mut event.value {
            *value = opener.value(&event.key, std::mem::take(value))?;
        }
        if let Replaced::Old(previous) = &mut event.replaced {
            let wanted = previous.take().filter(|_| old == WithOld::Yes);
            *previous = wanted.and_then(|previous| opener.previous(previous));
        }
    }
    Ok(batch)
}

fn check_not_reserved(txn: &Txn) -> Result<()> {
    let conditions = txn.conditions.iter().map(|condition| match condition {
        Condition::Absent(key) | Condition::At(key, _) => key,
    });
    match conditions.chain(txn.changes.iter().map(Change::key)).find(|key| is_reserved(key)) {
        Some(key) => Err(Error::Invalid(format!("{key} is reserved"))),
        None => Ok(()),
    }
}

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealed").field("keyring", &self.keyring()).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for Sealed {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn revision_here(&self) -> Option<Result<u64>> {
        self.inner.revision_here()
    }

    async fn revision(&self) -> Result<u64> {
        self.noted(self.inner.revision().await)
    }

    async fn epoch(&self) -> Result<Epoch> {
        self.inner.epoch().await
    }

    fn fleet(&self) -> Option<&dyn Fleet> {
        self.inner.fleet()
    }

    async fn compacted(&self) -> Result<u64> {
        self.inner.compacted().await
    }

    async fn get(&self, key: &str) -> Result<Snapshot<Option<Entry>>> {
        let found = self.inner.get(key).await?;
        let value = found.value.filter(|entry| !is_reserved(&entry.key));
        let value = value.map(|entry| Opener::new(&self.keys).entry(entry)).transpose()?;
        Ok(Snapshot { value, revision: found.revision })
    }

    async fn list(&self, request: ListRequest) -> Result<Page> {
        let page = self.list_inner(request).await?;
        let opener = Opener::new(&self.keys);
        if page.entries.len() <= OPENED_INLINE {
            return opener.page(page);
        }
        spawn_blocking(move || opener.page(page)).await?
    }

    async fn next_page(&self, prefix: &str, at: u64, mut after: Option<Arc<str>>) -> Result<Page> {
        loop {
            let mut page = self.inner.next_page(prefix, at, after).await?;
            after = page.last_key().cloned();
            retain_callers_keys(&mut page);
            if page.last_key().is_none() && after.is_some() {
                // Only reserved keys were on it, so it is not the last page.
                continue;
            }
            let opener = Opener::new(&self.keys);
            return spawn_blocking(move || opener.page(page)).await?;
        }
    }

    async fn scan(&self, at: u64, visit: Visitor) -> Result<()> {
        let opener = Opener::new(&self.keys);
        let failed = Arc::new(Mutex::new(None));
        let failure = Arc::clone(&failed);
        let visit = move |mut page: Page| {
            retain_callers_keys(&mut page);
            match opener.page(page) {
                Ok(page) => visit(page),
                Err(error) => *failure.lock() = Some(error),
            }
        };
        self.inner.scan(at, Arc::new(visit)).await?;
        let failed = failed.lock().take();
        failed.map_or(Ok(()), Err)
    }

    async fn commit(&self, txn: Txn) -> Result<u64> {
        check::txn(&txn, self.limits(), Overhead::None)?;
        check_not_reserved(&txn)?;
        if self.keys.is_shared() && txn.changes.iter().any(stores_value) {
            return self.commit_agreed(txn).await;
        }
        self.noted(self.inner.commit(seal_txn(&self.keyring(), txn)?).await)
    }

    async fn watch(&self, prefix: &str, after: Position, old: WithOld) -> Result<Box<dyn Watch>> {
        let inner = self.inner.watch(prefix, after, old).await?;
        Ok(Box::new(SealedWatch { inner, keys: Arc::clone(&self.keys), old }))
    }

    async fn next_events(&self, prefix: &str, after: Position, until: Position) -> Result<Events> {
        let read = self.inner.next_events(prefix, after, until).await?;
        let opener = Opener::new(&self.keys);
        spawn_blocking(move || opener.events(read)).await?
    }

    async fn compact_noting(&self, revision: u64, prefixes: &[String]) -> Result<()> {
        self.inner.compact_noting(revision, prefixes).await
    }

    async fn last_changes(&self, prefixes: &[String], at: u64) -> Result<Vec<Position>> {
        self.inner.last_changes(prefixes, at).await
    }

    async fn age_history(&self, now: Duration, keep: Duration) -> Result<u64> {
        self.inner.age_history(now, keep).await
    }

    fn set_gate(&self, gate: Gate) {
        self.inner.set_gate(gate);
    }

    fn health(&self) -> Result<()> {
        self.inner.health()
    }

    fn silence(&self) -> Duration {
        self.inner.silence()
    }

    fn figures(&self) -> Figures {
        self.inner.figures()
    }

    async fn recover(&self) -> Result<()> {
        self.inner.recover().await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

struct SealedWatch {
    inner: Box<dyn Watch>,
    keys: Arc<Keys>,
    old: WithOld,
}

#[async_trait]
impl Watch for SealedWatch {
    async fn next(&mut self) -> Result<Batch> {
        let next = self.inner.next().await;
        if matches!(next, Err(Error::EpochChanged { .. })) {
            self.keys.forget_marker();
        }
        let batch = next?;
        open_batch(&self.keys, batch, self.old)
    }
}
