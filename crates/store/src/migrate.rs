//! Copies of all live entries of one store to another, of another engine. What marks stores and opens them is up to
//! the caller.
//!
//! Values are copied as they are encrypted. The encryption binds a value to its storage key and to the keyring, and to
//! nothing else. So the keyring of the source opens the copy, and no value is in plain text on its way. Positions are
//! copied too. The target begins a new epoch above all of them.
//!
//! A copy to a store on other machines compares both stores in key order, and changes only what differs. So it can be interrupted and
//! repeated, and a second copy is short. History is not copied: watches from before get
//! [`Error::Compacted`].

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::task::spawn_blocking;

use crate::remote::{MigrationTarget, TargetChange};
use crate::seal::{self, Keyring, Sealed};
use crate::{CorruptEntry, Entry, Error, Limits, Position, RestoreTarget, Result, engine, limits};

/// The revisions by which a target begins above the newest one of its source.
pub const REVISION_GAP: u64 = 1 << 20;

/// The most keys that are named in an error.
const NAMED_KEYS: usize = 100;

/// Encrypted entries in key order, each once.
#[async_trait]
pub trait EntrySource: Send {
    /// The next entries; none at the end.
    async fn next_entries(&mut self) -> Result<Vec<Entry>>;
}

/// The entries of an encrypted store after one revision, with the marker of the encryption.
pub struct StoreEntries {
    store: Arc<Sealed>,
    at: u64,
    after: Option<Arc<str>>,
}

impl StoreEntries {
    /// The entries after a revision.
    pub fn new(store: Arc<Sealed>, at: u64) -> Self {
        Self { store, at, after: None }
    }
}

#[async_trait]
impl EntrySource for StoreEntries {
    async fn next_entries(&mut self) -> Result<Vec<Entry>> {
        let page = self.store.inner().next_page("", self.at, self.after.take()).await?;
        self.after = page.last_key().cloned();
        if let Some(CorruptEntry { key, reason, .. }) = page.corrupt.into_iter().next() {
            return Err(Error::Corrupt { key: Some(key), reason });
        }
        Ok(page.entries)
    }
}

/// The entries of a target, as they are.
struct TargetEntries<'a> {
    target: &'a dyn MigrationTarget,
    after: Option<Arc<str>>,
}

#[async_trait]
impl EntrySource for TargetEntries<'_> {
    async fn next_entries(&mut self) -> Result<Vec<Entry>> {
        let page = self.target.next_page(self.after.take().as_deref()).await?;
        self.after = page.last_key().cloned();
        // A corrupt value differs from each intact one.
        let corrupt = page.corrupt.into_iter();
        let corrupt = corrupt.map(|CorruptEntry { key, .. }| Entry {
            key,
            value: Bytes::new(),
            position: Position::ZERO,
        });
        let mut entries: Vec<Entry> = page.entries.into_iter().chain(corrupt).collect();
        entries.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(entries)
    }
}

/// The data that is to be copied.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// The values, with the marker of the encryption.
    pub values: u64,
    /// The bytes of keys and encrypted values.
    pub bytes: u64,
    /// The first values that do not open with the keyring.
    pub corrupt: Vec<CorruptEntry>,
    /// The first values that are larger than the target accepts, with their sizes without encryption.
    pub too_large: Vec<(Arc<str>, usize)>,
}

impl Survey {
    /// Checks that all values can be copied.
    ///
    /// # Errors
    /// [`Error::Corrupt`] or [`Error::Invalid`], which names a value that cannot.
    pub fn check(&self) -> Result<()> {
        if let Some(CorruptEntry { key, reason, .. }) = self.corrupt.first() {
            return Err(Error::Corrupt { key: Some(Arc::clone(key)), reason: reason.clone() });
        }
        match self.too_large.first() {
            None => Ok(()),
            Some((key, bytes)) => Err(Error::Invalid(format!(
                "{key} has {bytes} bytes, which is more than the target accepts, and so have {} others",
                self.too_large.len() - 1
            ))),
        }
    }
}

/// Reads all that is to be copied, and opens each value.
///
/// # Errors
/// Those of the source.
pub async fn survey(
    source: &mut dyn EntrySource,
    keyring: &Keyring,
    target: Limits,
    mut report: impl FnMut(u64) + Send,
) -> Result<Survey> {
    let mut survey = Survey::default();
    loop {
        let entries = source.next_entries().await?;
        if entries.is_empty() {
            return Ok(survey);
        }
        for entry in entries {
            let checked = seal::check_entry(keyring, &entry);
            let Entry { key, value, position } = entry;
            survey.values += 1;
            survey.bytes += (key.len() + value.len()) as u64;
            if value.len() > target.value_bytes + limits::ENVELOPE_BYTES
                && survey.too_large.len() < NAMED_KEYS
            {
                survey.too_large.push((Arc::clone(&key), value.len()));
            }
            if let Err(reason) = checked
                && survey.corrupt.len() < NAMED_KEYS
            {
                survey.corrupt.push(CorruptEntry { key, position, reason });
            }
        }
        report(survey.values);
    }
}

/// The result of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// The values of the source.
    pub values: u64,
    /// Values that differed in the target or were missing there, and were put.
    pub put: u64,
    /// Keys that only the target had, and that were removed.
    pub removed: u64,
}

/// Makes the entries of a target those of a source. Only what differs is written.
///
/// # Errors
/// Those of both sides. The call can be repeated then.
pub async fn copy_to_remote(
    source: &mut dyn EntrySource,
    target: &mut dyn MigrationTarget,
    mut report: impl FnMut(u64) + Send,
) -> Result<Copied> {
    let mut copied = Copied::default();
    let (mut wanted, mut found) = (ReadAhead::default(), ReadAhead::default());
    let mut after = None;
    loop {
        wanted.fill(source).await?;
        if found.needs_more() {
            // The added entries come before all entries that are still to be read.
            let mut rest = TargetEntries { target: &*target, after: after.take() };
            found.fill(&mut rest).await?;
            after = rest.after;
        }
        let change = match (wanted.entries.front(), found.entries.front()) {
            (None, None) => break,
            (Some(one), Some(other)) if one.key == other.key => {
                let is_equal = one == other;
                copied.values += 1;
                found.entries.pop_front();
                let entry = wanted.entries.pop_front();
                entry.filter(|_| !is_equal).map(TargetChange::Put)
            }
            (Some(one), other) if other.is_none_or(|other| one.key < other.key) => {
                copied.values += 1;
                wanted.entries.pop_front().map(TargetChange::Put)
            }
            _ => found.entries.pop_front().map(|entry| TargetChange::Remove(entry.key)),
        };
        let Some(change) = change else { continue };
        match &change {
            TargetChange::Put(_) => copied.put += 1,
            TargetChange::Remove(_) => copied.removed += 1,
        }
        target.change(change).await?;
        report(copied.values);
    }
    target.flush().await?;
    report(copied.values);
    Ok(copied)
}

/// Makes a store of this process from the entries of a source.
///
/// # Errors
/// Those of both sides. The target is dropped then.
pub async fn copy_to_new<T>(
    source: &mut dyn EntrySource,
    mut target: T,
    mut report: impl FnMut(u64) + Send,
) -> Result<T::Output>
where
    T: RestoreTarget + Send + 'static,
    T::Output: Send + 'static,
{
    let mut values = 0;
    loop {
        let entries = source.next_entries().await?;
        if entries.is_empty() {
            return blocking(move || target.finish()).await;
        }
        values += entries.len() as u64;
        target = blocking(move || {
            for entry in entries {
                target.add(entry)?;
            }
            Ok(target)
        })
        .await?;
        report(values);
    }
}

/// Makes a new database at a path from the entries of a source, with the engine for it. It begins at a revision.
///
/// # Errors
/// Those of the source; [`Error::Unavailable`] if there is a database already. There is none then.
pub async fn copy_to_path(
    source: &mut dyn EntrySource,
    path: PathBuf,
    revision: u64,
    report: impl FnMut(u64) + Send,
) -> Result<()> {
    let target = blocking(move || engine::begin_restore(path, revision)).await?;
    copy_to_new(source, target, report).await
}

/// The data that a comparison has found to be equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// The values, with the marker of the encryption.
    pub values: u64,
    /// The bytes of these values, without encryption.
    pub bytes: u64,
}

/// Compares the entries of a target with those of a source: keys, positions, and values after they were opened.
///
/// # Errors
/// [`Error::Corrupt`] names the first key that differs; those of both sides.
pub async fn verify_remote(
    source: &mut dyn EntrySource,
    target: &dyn MigrationTarget,
    keyring: &Keyring,
    report: impl FnMut(u64) + Send,
) -> Result<Verified> {
    let mut copy = TargetEntries { target, after: None };
    verify(source, &mut copy, keyring, report).await
}

/// Compares the entries of two stores: keys, positions, and values after they were opened.
///
/// # Errors
/// [`Error::Corrupt`] names the first key that differs; those of both sides.
pub async fn verify(
    source: &mut dyn EntrySource,
    copy: &mut dyn EntrySource,
    keyring: &Keyring,
    mut report: impl FnMut(u64) + Send,
) -> Result<Verified> {
    let mut verified = Verified::default();
    let (mut wanted, mut found) = (ReadAhead::default(), ReadAhead::default());
    loop {
        wanted.fill(source).await?;
        found.fill(copy).await?;
        let (one, other) = match (wanted.entries.pop_front(), found.entries.pop_front()) {
            (None, None) => return Ok(verified),
            (Some(one), Some(other)) if one.key == other.key => (one, other),
            (Some(one), other) if other.as_ref().is_none_or(|other| one.key < other.key) => {
                return Err(differs(&one.key, "it is missing in the copy"));
            }
            (one, other) => {
                let key = other.or(one).map_or_else(|| Arc::from(""), |entry| entry.key);
                return Err(differs(&key, "only the copy has it"));
            }
        };
        if one.position != other.position {
            return Err(differs(&one.key, "its position differs in the copy"));
        }
        let opened = |entry: Entry| {
            let Entry { key, value, .. } = entry;
            seal::decrypt(keyring, &key, value)
                .map_err(|reason| Error::Corrupt { key: Some(key), reason })
        };
        let key = Arc::clone(&one.key);
        let (one, other) = (opened(one)?, opened(other)?);
        if one != other {
            return Err(differs(&key, "its value differs in the copy"));
        }
        verified.values += 1;
        verified.bytes += one.len() as u64;
        report(verified.values);
    }
}

/// Entries that were read ahead.
#[derive(Default)]
struct ReadAhead {
    entries: VecDeque<Entry>,
    is_at_end: bool,
}

impl ReadAhead {
    fn needs_more(&self) -> bool {
        self.entries.is_empty() && !self.is_at_end
    }

    /// Reads the next entries if there are none.
    async fn fill(&mut self, source: &mut dyn EntrySource) -> Result<()> {
        if self.needs_more() {
            self.entries.extend(source.next_entries().await?);
            self.is_at_end = self.entries.is_empty();
        }
        Ok(())
    }
}

fn differs(key: &Arc<str>, how: &str) -> Error {
    Error::Corrupt { key: Some(Arc::clone(key)), reason: how.to_owned() }
}

async fn blocking<T: Send + 'static>(
    run: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    spawn_blocking(run).await?
}
