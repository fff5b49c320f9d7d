//! The life of keys after a rotation: bringing old values under the new key, and finding out
//! which keys are still needed.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{KeyId, Keyring, Sealed, envelope, open, seal};
use crate::{
    Change, Condition, Entry, Error, ListRequest, Page, Position, Result, Store, Txn, limits,
};

/// Keys that are read at once. With values of the greatest length that is 64 MiB.
const PAGE_KEYS: usize = 16;
/// Bytes that one transaction rewrites. One value more may be in it.
const REWRITE_BYTES: usize = limits::TXN_BYTES / 4;
/// Times that the reading of history starts over, because compaction overtook it.
const HISTORY_ATTEMPTS: usize = 8;

/// How far [`Sealed::reseal`] has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Keys looked at, the store's own marker among them.
    pub seen: u64,
    /// Keys whose value is now under the current seal key and was not before.
    pub rewritten: u64,
    /// Keys whose value does not open, and was left as it is.
    pub corrupt: u64,
    /// Keys still to be looked at, as far as is known.
    pub remaining: u64,
}

impl<S: Store> Sealed<S> {
    /// Seals every live value under the current key, unless it is already. These are rewrites:
    /// positions stay, watches see nothing. Values that somebody changes meanwhile are passed
    /// by, since a change brings them under the current key anyway.
    ///
    /// `report` is called after each batch. Can be stopped (dropped) and started over at any
    /// time. Old history is not rewritten: it goes with compaction.
    pub async fn reseal(&self, mut report: impl FnMut(Progress) + Send) -> Result<Progress> {
        let ring = self.ring();
        let mut progress = Progress::default();
        let mut after = None;
        loop {
            let page = self.raw_page(after).await?;
            progress.seen += (page.entries.len() + page.corrupt.len()) as u64;
            progress.corrupt += page.corrupt.len() as u64;
            progress.remaining = page.remaining;
            after = page.last_key().cloned();
            self.reseal_page(&ring, page, &mut progress).await?;
            report(progress);
            if progress.remaining == 0 || after.is_none() {
                return Ok(progress);
            }
        }
    }

    /// The keys that something in the store still needs: live values, and the history that is
    /// kept. A key that is not among them can be dropped from the keyring. The key that new
    /// values are sealed with is always needed, and among them once there is such a value.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when history holds a damaged record: compact beyond it first.
    pub async fn key_ids_in_use(&self) -> Result<BTreeSet<KeyId>> {
        let mut attempt = 1;
        loop {
            match self.try_key_ids_in_use().await {
                Err(Error::Compacted { .. }) if attempt < HISTORY_ATTEMPTS => attempt += 1,
                result => return result,
            }
        }
    }

    /// Live values first, and then history up to where the last of them was read: a value that
    /// is replaced in between shows up as the previous value of its replacement.
    async fn try_key_ids_in_use(&self) -> Result<BTreeSet<KeyId>> {
        let mut ids = BTreeSet::new();
        let mut after = None;
        let revision = loop {
            let page = self.raw_page(after).await?;
            after = page.last_key().cloned();
            ids.extend(page.entries.iter().filter_map(|entry| envelope::key_id(&entry.value)));
            if page.remaining == 0 || after.is_none() {
                break page.revision;
            }
        };
        let mut reached = self.inner.compacted().await?;
        let start = if reached == 0 { Position::ZERO } else { Position::end_of(reached) };
        let mut watch = self.inner.watch("", start).await?;
        while reached < revision {
            let batch = watch.next().await?;
            reached = batch.revision;
            for event in batch.events {
                ids.extend(event.value.as_deref().and_then(envelope::key_id));
                ids.extend(event.previous.and_then(|entry| envelope::key_id(&entry.value)));
            }
        }
        Ok(ids)
    }

    /// Sealed values, marker and all.
    async fn raw_page(&self, after: Option<Arc<str>>) -> Result<Page> {
        let request = ListRequest { after, limit: PAGE_KEYS, ..ListRequest::default() };
        self.inner.list(request).await
    }

    async fn reseal_page(&self, ring: &Keyring, page: Page, progress: &mut Progress) -> Result<()> {
        let mut txn = Txn::default();
        let mut bytes = 0;
        for entry in page.entries {
            if envelope::key_id(&entry.value) == Some(ring.current()) {
                continue;
            }
            let value = match open(ring, &entry.key, entry.value) {
                Ok(value) => value,
                Err(reason) => {
                    tracing::warn!(key = %entry.key, reason, "a value cannot be resealed");
                    progress.corrupt += 1;
                    continue;
                }
            };
            bytes += value.len();
            let Entry { key, position, .. } = entry;
            let value = seal(ring, &key, &value)?;
            txn.conditions.push(Condition::At(Arc::clone(&key), position));
            txn.changes.push(Change::Rewrite { key, value });
            if bytes >= REWRITE_BYTES {
                progress.rewritten += self.rewrite(std::mem::take(&mut txn)).await?;
                bytes = 0;
            }
        }
        progress.rewritten += self.rewrite(txn).await?;
        Ok(())
    }

    /// All of a batch, or, when somebody changed one of its keys meanwhile, each that nobody
    /// changed. Answers how many that were.
    async fn rewrite(&self, txn: Txn) -> Result<u64> {
        if txn.changes.is_empty() {
            return Ok(0);
        }
        let count = txn.changes.len() as u64;
        match self.inner.commit(txn.clone()).await {
            Ok(_) => return Ok(count),
            Err(Error::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
        let mut done = 0;
        for (condition, change) in txn.conditions.into_iter().zip(txn.changes) {
            let one = Txn { conditions: vec![condition], changes: vec![change] };
            match self.inner.commit(one).await {
                Ok(_) => done += 1,
                Err(Error::Conflict { .. } | Error::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}
