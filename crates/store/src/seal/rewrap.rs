//! Rewrapping after a rotation of the at-rest key: encrypts old values with the new key, and finds the keys
//! that are still in use.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::wrapped::is_record;
use super::{KeyId, Keyring, MARKER, Sealed, envelope, open, seal};
use crate::{
    Change, Condition, Entry, Error, ListRequest, Page, Position, Result, Txn, WithOld, limits,
};

/// The part of the bytes that the store accepts in one transaction. The rest is for keys. A larger value is rewritten
/// alone.
const REWRITE_PART: usize = 4;
/// Attempts to read what compaction can overtake.
const HISTORY_ATTEMPTS: usize = 8;

/// The progress of [`Sealed::rewrap`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Storage keys that were read, including the marker and wrapped keys.
    pub seen: u64,
    /// Storage keys with values that this call encrypted with the current key.
    pub rewritten: u64,
    /// Storage keys with values that cannot be decrypted. They were left as they are.
    pub corrupt: u64,
    /// Storage keys still to be read, as far as is known.
    pub remaining: u64,
}

/// The key that a value is encrypted with. A wrapped key is not encrypted with any of them.
fn key_of(entry: &Entry) -> Option<KeyId> {
    envelope::key_id(&entry.value).filter(|_| !is_record(&entry.key))
}

impl Sealed {
    /// Encrypts every live value of an older key with the current key, and returns the final
    /// progress. The changes are rewrites: positions stay, and watches get no events. Values that are
    /// changed in the meantime are skipped, because a change encrypts them with the current key anyway.
    ///
    /// `report` is called after each page. The future can be dropped and the call repeated at any time.
    /// Old history is not rewritten: compaction removes it.
    pub async fn rewrap(&self, mut report: impl FnMut(Progress) + Send) -> Result<Progress> {
        let mut progress = Progress::default();
        let mut after = None;
        let all = self.raw_count().await?;
        loop {
            let page = self.raw_page(after).await?;
            after = page.last_key().cloned();
            progress.seen += (page.entries.len() + page.corrupt.len()) as u64;
            progress.corrupt += page.corrupt.len() as u64;
            // As far as is known: others write meanwhile.
            let remaining = all.saturating_sub(progress.seen);
            progress.remaining = if after.is_some() { remaining } else { 0 };
            self.rewrap_page(page, &mut progress).await?;
            report(progress);
            if after.is_none() {
                return Ok(progress);
            }
        }
    }

    /// The at-rest keys that are in use: by live values, and by the history that is kept. Any other
    /// key can be dropped from the keyring, except the current one. The current key is among them
    /// as soon as one value is encrypted with it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when history holds a corrupt record: compact it first.
    pub async fn key_ids_in_use(&self) -> Result<BTreeSet<KeyId>> {
        let mut attempt = 1;
        loop {
            match self.try_key_ids_in_use().await {
                Err(Error::Compacted { .. }) if attempt < HISTORY_ATTEMPTS => attempt += 1,
                result => return result,
            }
        }
    }

    /// Reads the live values first, and then history up to the revision of the last page. A value that
    /// is replaced in between is found as the previous value of its replacement.
    async fn try_key_ids_in_use(&self) -> Result<BTreeSet<KeyId>> {
        let mut ids = BTreeSet::new();
        let mut after = None;
        let revision = loop {
            let page = self.raw_page(after).await?;
            after = page.last_key().cloned();
            ids.extend(page.entries.iter().filter_map(key_of));
            if after.is_none() {
                break page.revision;
            }
        };
        let mut scanned = self.inner.compacted().await?;
        let start = if scanned == 0 { Position::ZERO } else { Position::end_of(scanned) };
        let mut watch = self.inner.watch("", start, WithOld::Yes).await?;
        while scanned < revision {
            let batch = watch.next().await?;
            scanned = batch.revision;
            for event in batch.events.iter().filter(|event| !is_record(&event.key)) {
                ids.extend(event.value.as_deref().and_then(envelope::key_id));
                ids.extend(event.replaced.entry().and_then(key_of));
            }
        }
        Ok(ids)
    }

    /// The number of encrypted values, including the marker.
    async fn raw_count(&self) -> Result<u64> {
        let page = self.inner.list(ListRequest { limit: 1, ..ListRequest::default() }).await?;
        Ok((page.entries.len() + page.corrupt.len()) as u64 + page.remaining)
    }

    /// The next page of encrypted values, including the marker, as they are now; a page without
    /// keys is the last one. A list with a limit would read all that come after it, to count them.
    async fn raw_page(&self, after: Option<Arc<str>>) -> Result<Page> {
        let mut attempt = 1;
        loop {
            let at = self.inner.revision().await?;
            match self.inner.next_page("", at, after.clone()).await {
                Err(Error::Compacted { .. }) if attempt < HISTORY_ATTEMPTS => attempt += 1,
                page => return page,
            }
        }
    }

    /// The keyring to rewrap with. It may become another one meanwhile: on a shared store, the second part is the
    /// condition that it does not.
    async fn rewrap_keyring(&self) -> Result<(Arc<Keyring>, Option<Condition>)> {
        if !self.keys.is_shared() {
            return Ok((self.keyring(), None));
        }
        self.read_marker().await?;
        let changing = || Error::Unavailable("the active at-rest key keeps changing".to_owned());
        let (keyring, position) = self.keys.agreed().ok_or_else(changing)?;
        Ok((keyring, Some(Condition::At(MARKER.into(), position))))
    }

    async fn rewrap_page(&self, page: Page, progress: &mut Progress) -> Result<()> {
        let (keyring, agreement) = self.rewrap_keyring().await?;
        let keyring = &*keyring;
        let mut txn = Txn::default();
        let (mut bytes, most_bytes) = (0, self.inner.limits().txn_bytes / REWRITE_PART);
        for entry in page.entries {
            // On a shared store, the key of the marker is the one that the servers have agreed on.
            let is_agreement = self.keys.is_shared() && &*entry.key == MARKER;
            if is_agreement
                || is_record(&entry.key)
                || envelope::key_id(&entry.value) == Some(keyring.current())
            {
                continue;
            }
            let value = match open(keyring, &entry.key, entry.value) {
                Ok(value) => value,
                Err(reason) => {
                    tracing::warn!(key = %entry.key, %reason, "a value cannot be rewrapped");
                    progress.corrupt += 1;
                    continue;
                }
            };
            let is_full =
                bytes + value.len() > most_bytes || txn.changes.len() == limits::CHANGES_PER_TXN;
            if is_full && !txn.changes.is_empty() {
                progress.rewritten +=
                    self.rewrite(std::mem::take(&mut txn), agreement.as_ref()).await?;
                bytes = 0;
            }
            bytes += value.len();
            let Entry { key, position, .. } = entry;
            let value = seal(keyring, &key, &value)?;
            txn.conditions.push(Condition::At(Arc::clone(&key), position));
            txn.changes.push(Change::Rewrite { key, value });
        }
        progress.rewritten += self.rewrite(txn, agreement.as_ref()).await?;
        Ok(())
    }

    /// Commits all rewrites of a transaction. If one of its keys was changed in the meantime, it
    /// commits only the rewrites of unchanged keys. Gives the number of committed rewrites.
    async fn rewrite(&self, txn: Txn, agreement: Option<&Condition>) -> Result<u64> {
        if txn.changes.is_empty() {
            return Ok(0);
        }
        let count = txn.changes.len() as u64;
        let mut all = txn.clone();
        all.conditions.extend(agreement.cloned());
        match self.inner.commit(all).await {
            Ok(_) => return Ok(count),
            Err(Error::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
        let mut done = 0;
        for (condition, change) in txn.conditions.into_iter().zip(txn.changes) {
            let conditions = std::iter::once(condition).chain(agreement.cloned()).collect();
            let one = Txn { conditions, changes: vec![change] };
            match self.inner.commit(one).await {
                Ok(_) => done += 1,
                Err(Error::Conflict { .. } | Error::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}
