//! The engine that keeps everything in memory: for tests, and for trying Postern out. Nothing here
//! outlives the process, and nothing here does I/O.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use crate::age::Ages;
use crate::check::{self, Overhead};
use crate::cursor::{Cursor, EventsPage};
use crate::last_change::{ChangeCollector, NotedChanges, Search};
use crate::published::{Published, wait_for_revision_after};
use crate::{
    Batch, Change, Condition, Entry, Epoch, Error, Event, Events, Gate, ListRequest, Page,
    Position, Replaced, RestoreTarget, Result, Snapshot, Store, Txn, Watch, WithOld,
};

/// Changes that one read of a watch looks at before it releases the lock.
const WATCH_SCAN_CHANGES: usize = 4096;
/// Keys on a page of [`Store::next_page`]. Their values are shared, not copied.
const PAGE_KEYS: usize = 256;

/// A store in memory. Several clients in one process can share it behind one `Arc`. Dropping it closes
/// it.
#[derive(Debug)]
pub struct Memory {
    shared: Arc<Shared>,
}

/// The state that the store, its watches and its commits share.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    published: watch::Sender<Published>,
    /// The gate before each commit, once it is set.
    gate: OnceLock<Gate>,
}

#[derive(Debug, Default)]
struct State {
    is_closed: bool,
    revision: u64,
    compacted: u64,
    epoch: Epoch,
    /// Whether transactions leave revisions out, as in a store that takes revisions for something else.
    is_sparse: bool,
    /// All changes that are kept, by packed position.
    changes: BTreeMap<u64, Record>,
    /// The packed positions of each key's changes, rising.
    versions: BTreeMap<Arc<str>, Vec<u64>>,
    noted: NotedChanges,
    ages: Ages,
}

#[derive(Debug)]
struct Record {
    key: Arc<str>,
    /// `None` for a tombstone.
    value: Option<Bytes>,
    /// The live version that this one replaced.
    previous: Option<u64>,
}

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        Self { shared: Arc::default() }
    }

    /// An empty store with gaps between the revisions of its transactions.
    pub(crate) fn sparse() -> Self {
        let memory = Self::new();
        memory.shared.state.lock().is_sparse = true;
        memory
    }
}

/// A store in memory that is being made from entries.
#[derive(Debug)]
pub struct MemoryRestore {
    state: State,
}

impl MemoryRestore {
    /// Begins a store with the given newest revision.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a revision that no store can have.
    pub fn begin(revision: u64) -> Result<Self> {
        Self::begin_epoch(Epoch { number: 1, begins: revision })
    }

    /// Begins a store with an epoch.
    pub(crate) fn begin_epoch(epoch: Epoch) -> Result<Self> {
        let revision = epoch.begins;
        check::restored_revision(revision)?;
        Ok(Self { state: State { revision, compacted: revision - 1, epoch, ..State::default() } })
    }

    /// The same, with transactions that leave revisions out.
    pub(crate) fn sparse(mut self) -> Self {
        self.state.is_sparse = true;
        self
    }
}

impl RestoreTarget for MemoryRestore {
    type Output = Memory;

    fn add(&mut self, entry: Entry) -> Result<()> {
        check::restored_entry(self.state.revision, &entry)?;
        let packed = entry.position.packed();
        if self.state.versions.contains_key(&entry.key) || self.state.changes.contains_key(&packed)
        {
            return Err(check::restored_twice(&entry));
        }
        let Entry { key, value, .. } = entry;
        self.state.versions.insert(Arc::clone(&key), vec![packed]);
        self.state.changes.insert(packed, Record { key, value: Some(value), previous: None });
        Ok(())
    }

    fn finish(self) -> Result<Memory> {
        let published = Published { revision: self.state.revision, closed: false };
        let shared = Shared {
            state: Mutex::new(self.state),
            published: watch::Sender::new(published),
            gate: OnceLock::new(),
        };
        Ok(Memory { shared: Arc::new(shared) })
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Shared {
    /// Locks the state, unless the store is closed.
    fn lock(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state.lock();
        if state.is_closed { Err(Error::closed()) } else { Ok(state) }
    }

    /// Runs the gate and commits. The gate may block, so it runs without the lock: reads go on.
    fn commit(&self, txn: Txn) -> Result<u64> {
        drop(self.lock()?);
        if let Some(gate) = self.gate.get() {
            gate().map_err(Error::Gated)?;
        }
        let mut state = self.lock()?;
        let revision = state.commit(txn)?;
        // Published under the lock, so that watches never see the revision go back.
        self.published.send_modify(|published| published.revision = revision);
        Ok(revision)
    }

    fn close(&self) {
        self.state.lock().is_closed = true;
        self.published.send_modify(|published| published.closed = true);
    }
}

#[async_trait]
impl Store for Memory {
    fn revision_here(&self) -> Option<Result<u64>> {
        Some(self.shared.lock().map(|state| state.revision))
    }

    async fn revision(&self) -> Result<u64> {
        Ok(self.shared.lock()?.revision)
    }

    async fn epoch(&self) -> Result<Epoch> {
        Ok(self.shared.lock()?.epoch)
    }

    async fn compacted(&self) -> Result<u64> {
        Ok(self.shared.lock()?.compacted)
    }

    async fn get(&self, key: &str) -> Result<Snapshot<Option<Entry>>> {
        let state = self.shared.lock()?;
        let value = state.live(key).and_then(|position| state.entry(position));
        Ok(Snapshot { value, revision: state.revision })
    }

    async fn list(&self, request: ListRequest) -> Result<Page> {
        self.shared.lock()?.list(&request)
    }

    async fn next_page(&self, prefix: &str, at: u64, after: Option<Arc<str>>) -> Result<Page> {
        let state = self.shared.lock()?;
        state.check_not_below_compacted(at)?;
        let prefix = prefix.to_owned();
        let request = ListRequest { prefix, after, limit: PAGE_KEYS, ..ListRequest::default() };
        state.list_at(&request, at)
    }

    async fn commit(&self, txn: Txn) -> Result<u64> {
        check::txn(&txn, self.limits(), Overhead::Envelope)?;
        if self.shared.gate.get().is_none() {
            return self.shared.commit(txn);
        }
        let shared = Arc::clone(&self.shared);
        spawn_blocking(move || shared.commit(txn))
            .await
            .unwrap_or_else(|error| Err(Error::Unknown(error.to_string())))
    }

    async fn watch(&self, prefix: &str, after: Position, _: WithOld) -> Result<Box<dyn Watch>> {
        let cursor = Cursor::new(prefix, after);
        cursor.check_not_compacted(self.shared.lock()?.compacted)?;
        let published = self.shared.published.subscribe();
        Ok(Box::new(MemoryWatch { shared: Arc::clone(&self.shared), published, cursor }))
    }

    async fn next_events(&self, prefix: &str, after: Position, until: Position) -> Result<Events> {
        self.shared.lock()?.next_events(&Cursor::new(prefix, after), until)
    }

    async fn compact_noting(&self, revision: u64, prefixes: &[String]) -> Result<()> {
        check::prefixes(prefixes)?;
        self.shared.lock()?.compact(revision, prefixes)
    }

    async fn last_changes(&self, prefixes: &[String], at: u64) -> Result<Vec<Position>> {
        check::prefixes(prefixes)?;
        self.shared.lock()?.last_changes(prefixes, at)
    }

    async fn age_history(&self, now: Duration, keep: Duration) -> Result<u64> {
        let mut state = self.shared.lock()?;
        let newest = state.revision;
        Ok(state.ages.note(now, keep, newest).revision)
    }

    fn set_gate(&self, gate: Gate) {
        if self.shared.gate.set(gate).is_err() {
            tracing::error!("a store has one gate; a second one was not taken");
        }
    }

    fn health(&self) -> Result<()> {
        self.shared.lock().map(drop)
    }

    fn silence(&self) -> Duration {
        Duration::ZERO
    }

    async fn recover(&self) -> Result<()> {
        self.health()
    }

    async fn close(&self) {
        self.shared.close();
    }
}

impl State {
    /// The packed position of a key's live version.
    fn live(&self, key: &str) -> Option<u64> {
        let newest = *self.versions.get(key)?.last()?;
        self.changes.get(&newest)?.value.as_ref().map(|_| newest)
    }

    fn entry(&self, packed: u64) -> Option<Entry> {
        let record = self.changes.get(&packed)?;
        let value = record.value.clone()?;
        Some(Entry { key: Arc::clone(&record.key), value, position: Position::from_packed(packed) })
    }

    fn list(&self, request: &ListRequest) -> Result<Page> {
        let revision = request.at.unwrap_or(self.revision);
        let is_compacted = self.compacted > 0 && revision <= self.compacted;
        if request.at.is_some() && is_compacted {
            return Err(Error::Compacted { compacted: self.compacted });
        }
        self.list_at(request, revision)
    }

    fn list_at(&self, request: &ListRequest, revision: u64) -> Result<Page> {
        if revision > self.revision {
            return Err(Error::Future { current: self.revision });
        }
        let prefix = request.prefix.as_str();
        let from = match request.after.as_deref() {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let limit = if request.limit == 0 { usize::MAX } else { request.limit };
        let mut page = Page { revision, ..Page::default() };
        for (_, versions) in self
            .versions
            .range::<str, _>((from, Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
        {
            let end = Position::end_of(revision).packed();
            let seen = versions.partition_point(|packed| *packed <= end);
            let Some(entry) = seen.checked_sub(1).and_then(|last| self.entry(versions[last]))
            else {
                continue;
            };
            if page.entries.len() < limit {
                page.entries.push(entry);
            } else {
                page.remaining += 1;
            }
        }
        Ok(page)
    }

    fn commit(&mut self, txn: Txn) -> Result<u64> {
        for condition in &txn.conditions {
            let (key, wanted) = match condition {
                Condition::Absent(key) => (key, None),
                Condition::At(key, position) => (key, Some(position.packed())),
            };
            let found = self.live(key);
            if found != wanted {
                return Err(conflict(key, found));
            }
        }
        for change in &txn.changes {
            let must_exist = !matches!(change, Change::Put { .. });
            if must_exist && self.live(change.key()).is_none() {
                return Err(conflict(change.key(), None));
            }
        }
        if !txn.changes.is_empty() {
            // 1 to 4, and not always the same.
            self.revision += if self.is_sparse { 1 + self.revision * 7 / 3 % 4 } else { 1 };
        }
        for (index, change) in (0_u8..).zip(txn.changes) {
            self.apply(Position::new(self.revision, index).packed(), change);
        }
        Ok(self.revision)
    }

    fn apply(&mut self, packed: u64, change: Change) {
        let previous = self.live(change.key());
        let (key, value) = match change {
            Change::Rewrite { value, .. } => {
                if let Some(record) = previous.and_then(|live| self.changes.get_mut(&live)) {
                    record.value = Some(value);
                }
                return;
            }
            Change::Put { key, value } => (key, Some(value)),
            Change::Delete { key } => (key, None),
        };
        self.versions.entry(Arc::clone(&key)).or_default().push(packed);
        self.changes.insert(packed, Record { key, value, previous });
    }

    fn check_not_below_compacted(&self, revision: u64) -> Result<()> {
        if revision < self.compacted {
            return Err(Error::Compacted { compacted: self.compacted });
        }
        Ok(())
    }

    fn last_changes(&self, prefixes: &[String], at: u64) -> Result<Vec<Position>> {
        if at > self.revision {
            return Err(Error::Future { current: self.revision });
        }
        self.check_not_below_compacted(at)?;
        let mut search = Search::new(prefixes);
        for (packed, record) in self.changes_after_compacted(at).rev() {
            if search.see(Some(&record.key), *packed).is_break() {
                break;
            }
        }
        Ok(search.finish(&self.noted, self.compacted))
    }

    /// The changes after the compacted revision, up to a revision.
    fn changes_after_compacted(
        &self,
        revision: u64,
    ) -> std::collections::btree_map::Range<'_, u64, Record> {
        let from = Position::end_of(self.compacted).packed();
        let to = Position::end_of(revision).packed();
        self.changes.range((Bound::Excluded(from), Bound::Included(to)))
    }

    fn compact(&mut self, revision: u64, prefixes: &[String]) -> Result<()> {
        if revision > self.revision {
            return Err(Error::Future { current: self.revision });
        }
        if revision <= self.compacted {
            return Ok(());
        }
        let mut collector = ChangeCollector::new(prefixes, &self.noted, self.compacted);
        let mut removed = Vec::new();
        for (packed, record) in self.changes_after_compacted(revision) {
            collector.see(Some(&record.key), *packed);
            removed.extend(record.previous);
            if record.value.is_none() {
                removed.push(*packed);
            }
        }
        for packed in removed {
            self.remove(packed);
        }
        self.noted = collector.finish(revision);
        self.compacted = revision;
        Ok(())
    }

    fn remove(&mut self, packed: u64) {
        let Some(record) = self.changes.remove(&packed) else { return };
        if let Some(versions) = self.versions.get_mut(&record.key) {
            versions.retain(|version| *version != packed);
            if versions.is_empty() {
                self.versions.remove(&record.key);
            }
        }
    }

    fn event(&self, packed: u64, record: &Record) -> Event {
        Event {
            key: Arc::clone(&record.key),
            position: Position::from_packed(packed),
            value: record.value.clone(),
            replaced: match record.previous {
                Some(previous) => Replaced::Old(self.entry(previous)),
                None => Replaced::New,
            },
        }
    }

    fn next_events(&self, cursor: &Cursor, until: Position) -> Result<Events> {
        cursor.check_not_compacted(self.compacted)?;
        let mut page = EventsPage::new(cursor, self.revision, until);
        let Some(first) = cursor.first_packed() else { return Ok(page.finish()) };
        for (packed, record) in self.changes.range(first..) {
            if page.see(*packed).is_break() {
                break;
            }
            if cursor.covers(&record.key) {
                page.add(self.event(*packed, record));
            }
        }
        Ok(page.finish())
    }

    /// The events of the next transaction that a cursor covers, or a batch without events that
    /// reports up to where there are none.
    fn next_batch(&self, cursor: &Cursor) -> Result<Batch> {
        cursor.check_not_compacted(self.compacted)?;
        let mut batch = Batch { events: Vec::new(), revision: self.revision };
        let Some(first) = cursor.first_packed() else { return Ok(batch) };
        for (scanned, (packed, record)) in self.changes.range(first..).enumerate() {
            let revision = Position::from_packed(*packed).revision();
            let begun = batch.events.last().map(|event| event.position.revision());
            if begun.is_some_and(|begun| begun != revision) {
                break;
            }
            if scanned >= WATCH_SCAN_CHANGES && begun.is_none() {
                batch.revision = revision - 1;
                break;
            }
            if cursor.covers(&record.key) {
                batch.events.push(self.event(*packed, record));
                batch.revision = revision;
            }
        }
        Ok(batch)
    }
}

fn conflict(key: &Arc<str>, found: Option<u64>) -> Error {
    Error::Conflict { key: Arc::clone(key), found: found.map(Position::from_packed) }
}

struct MemoryWatch {
    shared: Arc<Shared>,
    published: watch::Receiver<Published>,
    cursor: Cursor,
}

#[async_trait]
impl Watch for MemoryWatch {
    async fn next(&mut self) -> Result<Batch> {
        wait_for_revision_after(self.cursor.delivered_revision(), &mut self.published).await?;
        let batch = self.shared.lock()?.next_batch(&self.cursor)?;
        self.cursor.advance_to(batch.revision);
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn dropping_it_ends_its_watches() {
        let store = Memory::new();
        let mut watch = store.watch("", Position::ZERO, WithOld::Yes).await.unwrap();
        drop(store);
        assert!(matches!(watch.next().await, Err(Error::Unavailable(_))));
    }
}
