//! Encryption at rest: a store that encrypts the values of another store.
//!
//! Values are sealed before the inner store gets them (`envelope`), with keys from a [`Keyring`],
//! which is kept in a file of its own (`keyring_file`). *Not* hidden from readers of the
//! database: the storage keys, which are the names of all objects; the length of each value; and the
//! order of changes. Sealing protects copies of the database, such as backups and discarded disks. It
//! does not protect the machine on which the server runs.
//!
//! A sealed database contains a marker, sealed like every value, under a reserved storage key. It is
//! written when an empty database is opened for the first time, and opened at each later start, so
//! that a wrong keyring is detected before anything is served. Callers cannot see or change it.

mod derived;
mod envelope;
mod keyring;
mod keyring_file;
mod rewrap;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::RwLock;
use tokio::task::spawn_blocking;

pub(crate) use self::keyring::KEY_ID_BYTES;
pub use self::keyring::{KeyId, Keyring, KeyringError};
pub use self::rewrap::Progress;

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
/// The value of the marker.
const MARKER_VALUE: &[u8] = b"this database is sealed";
/// The most values that are opened on the caller's thread. More values are opened on a thread for
/// blocking work, so that a long list does not delay other tasks.
const OPENED_INLINE: usize = 64;

type SharedKeyring = Arc<RwLock<Arc<Keyring>>>;

/// A [`Store`] whose values are encrypted in an inner store.
pub struct Sealed {
    inner: Arc<dyn Store>,
    keyring: SharedKeyring,
}

impl Sealed {
    /// A sealed store over another store. An empty inner store gets its marker.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the store does not belong to this keyring: it is sealed with
    /// another key, or it holds data and no marker.
    pub async fn open(inner: Arc<dyn Store>, keyring: Keyring) -> Result<Self> {
        let sealed = Self { inner, keyring: Arc::new(RwLock::new(Arc::new(keyring))) };
        if sealed.inner.get(MARKER).await?.value.is_none() {
            sealed.write_marker().await?;
        }
        sealed.check_marker(&sealed.keyring()).await?;
        Ok(sealed)
    }

    /// The inner store, which holds the sealed values and the marker.
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
        self.check_marker(&keyring).await?;
        *self.keyring.write() = Arc::new(keyring);
        Ok(())
    }

    /// The ids of the keys in the keyring that is in use.
    pub fn key_ids(&self) -> Vec<String> {
        self.keyring().ids().iter().map(ToString::to_string).collect()
    }

    /// The number of keys in the keyring that is in use.
    pub fn key_count(&self) -> usize {
        self.keyring().ids().len()
    }

    /// Whether a keyring has the key for new values.
    pub fn is_current_key_in(&self, keyring: &Keyring) -> bool {
        keyring.holds(self.keyring().current())
    }

    /// The keyring that is in use now.
    pub(crate) fn keyring(&self) -> Arc<Keyring> {
        Arc::clone(&self.keyring.read())
    }

    async fn write_marker(&self) -> Result<()> {
        if self.inner.revision().await? != 0 {
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

    async fn check_marker(&self, keyring: &Keyring) -> Result<()> {
        let wrong_keyring = |why: String| {
            Error::Unavailable(format!(
                "the keyring does not belong to this database: {why}; start with the keyring that \
                 the database was written with"
            ))
        };
        let marker = self.inner.get(MARKER).await?.value;
        let marker =
            marker.ok_or_else(|| wrong_keyring("the encryption marker is missing".to_owned()))?;
        let value = envelope::open(|id| keyring.find(id), MARKER, marker.value)
            .map_err(|error| wrong_keyring(format!("encryption marker: {error}")))?;
        if value != MARKER_VALUE {
            return Err(wrong_keyring("the encryption marker has another value".to_owned()));
        }
        Ok(())
    }

    /// A page of the inner store, without the marker. When the marker may be on the page, one
    /// entry more is requested, so that the caller gets as many entries as the limit allows.
    async fn list_inner(&self, mut request: ListRequest) -> Result<Page> {
        let marker_is_ahead = MARKER.starts_with(&request.prefix)
            && request.after.as_deref().is_none_or(|after| after < MARKER);
        if !marker_is_ahead {
            return self.inner.list(request).await;
        }
        let limit = request.limit;
        if limit != 0 {
            request.limit = limit.saturating_add(1);
        }
        let mut page = self.inner.list(request).await?;
        let found = page.entries.len() + page.corrupt.len();
        page.entries.retain(|entry| &*entry.key != MARKER);
        page.corrupt.retain(|corrupt| &*corrupt.key != MARKER);
        if found == page.entries.len() + page.corrupt.len() {
            // The marker is after this page, or did not exist yet.
            page.remaining = page.remaining.saturating_sub(1);
            if limit != 0 && found > limit {
                remove_last(&mut page);
            }
        }
        Ok(page)
    }
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

/// Opens a sealed value, or returns why it does not open. Does not copy it when nothing else refers
/// to the sealed bytes.
fn open(keyring: &Keyring, key: &str, sealed: Bytes) -> std::result::Result<Bytes, String> {
    envelope::open(|id| keyring.find(id), key, sealed).map_err(|error| error.to_string())
}

/// Whether a storage key is that of the marker.
pub(crate) fn is_marker(key: &str) -> bool {
    key == MARKER
}

/// The id of the key with which a value is sealed, or why it does not open.
pub(crate) fn check_value(
    keyring: &Keyring,
    key: &str,
    sealed: &Bytes,
) -> std::result::Result<KeyId, String> {
    open(keyring, key, sealed.clone())?;
    envelope::key_id(sealed).ok_or_else(|| envelope::OpenError::NotSealed.to_string())
}

fn open_value(keyring: &Keyring, key: &Arc<str>, value: Bytes) -> Result<Bytes> {
    open(keyring, key, value)
        .map_err(|reason| Error::Corrupt { key: Some(Arc::clone(key)), reason })
}

fn open_entry(keyring: &Keyring, entry: Entry) -> Result<Entry> {
    let value = open_value(keyring, &entry.key, entry.value)?;
    Ok(Entry { value, ..entry })
}

fn open_page(keyring: &Keyring, page: Page) -> Page {
    let mut opened = Page { entries: Vec::with_capacity(page.entries.len()), ..page };
    for Entry { key, value, position } in page.entries {
        match open(keyring, &key, value) {
            Ok(value) => opened.entries.push(Entry { key, value, position }),
            Err(reason) => opened.corrupt.push(CorruptEntry { key, position, reason }),
        }
    }
    opened.corrupt.sort_by(|one, other| one.key.cmp(&other.key));
    opened
}

fn open_batch(keyring: &Keyring, mut batch: Batch, old: WithOld) -> Result<Batch> {
    batch.events.retain(|event| &*event.key != MARKER);
    for event in &mut batch.events {
        if let Some(value) = &mut event.value {
            *value = open_value(keyring, &event.key, std::mem::take(value))?;
        }
        if let Replaced::Old(previous) = &mut event.replaced {
            let wanted = previous.take().filter(|_| old == WithOld::Yes);
            *previous = wanted.and_then(|previous| open_previous(keyring, previous));
        }
    }
    Ok(batch)
}

fn open_events(keyring: &Keyring, read: Events) -> Result<Events> {
    let open = |event: Event| {
        let value = event.value.map(|value| open_value(keyring, &event.key, value)).transpose()?;
        let replaced = match event.replaced {
            Replaced::Old(Some(previous)) => Replaced::Old(Some(open_entry(keyring, previous)?)),
            replaced => replaced,
        };
        Ok(Event { value, replaced, ..event })
    };
    let events = read.events.into_iter().filter(|event| &*event.key != MARKER);
    Ok(Events { events: events.map(open).collect::<Result<_>>()?, through: read.through })
}

/// The entry that a change replaced; `None` when it is corrupt, as the contract says.
fn open_previous(keyring: &Keyring, previous: Entry) -> Option<Entry> {
    match open_entry(keyring, previous) {
        Ok(entry) => Some(entry),
        Err(error) => {
            tracing::warn!(%error, "a replaced value is corrupt; its event is without it");
            None
        }
    }
}

fn check_not_reserved(txn: &Txn) -> Result<()> {
    let conditions = txn.conditions.iter().map(|condition| match condition {
        Condition::Absent(key) | Condition::At(key, _) => key,
    });
    match conditions.chain(txn.changes.iter().map(Change::key)).find(|k| k.starts_with(RESERVED)) {
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
        self.inner.revision().await
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
        let value = found.value.filter(|entry| &*entry.key != MARKER);
        let value = value.map(|entry| open_entry(&self.keyring(), entry)).transpose()?;
        Ok(Snapshot { value, revision: found.revision })
    }

    async fn list(&self, request: ListRequest) -> Result<Page> {
        let page = self.list_inner(request).await?;
        let keyring = self.keyring();
        if page.entries.len() <= OPENED_INLINE {
            return Ok(open_page(&keyring, page));
        }
        spawn_blocking(move || open_page(&keyring, page))
            .await
            .map_err(|error| Error::Unavailable(error.to_string()))
    }

    async fn next_page(&self, prefix: &str, at: u64, mut after: Option<Arc<str>>) -> Result<Page> {
        let keyring = self.keyring();
        loop {
            let mut page = self.inner.next_page(prefix, at, after).await?;
            after = page.last_key().cloned();
            page.entries.retain(|entry| &*entry.key != MARKER);
            page.corrupt.retain(|corrupt| &*corrupt.key != MARKER);
            if page.last_key().is_none() && after.is_some() {
                // Only the marker was on it, so it is not the last page.
                continue;
            }
            return spawn_blocking(move || open_page(&keyring, page))
                .await
                .map_err(|error| Error::Unavailable(error.to_string()));
        }
    }

    async fn scan(&self, at: u64, visit: Visitor) -> Result<()> {
        let keyring = self.keyring();
        let visit = move |mut page: Page| {
            page.entries.retain(|entry| &*entry.key != MARKER);
            page.corrupt.retain(|corrupt| &*corrupt.key != MARKER);
            visit(open_page(&keyring, page));
        };
        self.inner.scan(at, Arc::new(visit)).await
    }

    async fn commit(&self, txn: Txn) -> Result<u64> {
        check::txn(&txn, self.limits(), Overhead::None)?;
        check_not_reserved(&txn)?;
        let keyring = self.keyring();
        let changes = txn.changes.into_iter().map(|change| seal_change(&keyring, change));
        let changes = changes.collect::<Result<_>>()?;
        self.inner.commit(Txn { changes, ..txn }).await
    }

    async fn watch(&self, prefix: &str, after: Position, old: WithOld) -> Result<Box<dyn Watch>> {
        let inner = self.inner.watch(prefix, after, old).await?;
        Ok(Box::new(SealedWatch { inner, keyring: Arc::clone(&self.keyring), old }))
    }

    async fn next_events(&self, prefix: &str, after: Position, until: Position) -> Result<Events> {
        let read = self.inner.next_events(prefix, after, until).await?;
        let keyring = self.keyring();
        spawn_blocking(move || open_events(&keyring, read))
            .await
            .map_err(|error| Error::Unavailable(error.to_string()))?
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
    keyring: SharedKeyring,
    old: WithOld,
}

#[async_trait]
impl Watch for SealedWatch {
    async fn next(&mut self) -> Result<Batch> {
        let batch = self.inner.next().await?;
        let keyring = Arc::clone(&self.keyring.read());
        open_batch(&keyring, batch, self.old)
    }
}
