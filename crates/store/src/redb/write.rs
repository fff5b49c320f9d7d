//! Writes to the database: one group of transactions in one durable commit. No threads here, and no
//! replies to callers: the committer sends them when the commit has returned.

use std::sync::Arc;
use std::time::Duration;

use ::redb::{Database, Durability, ReadableTable, Table, TableHandle, WriteTransaction};
use bytes::Bytes;

use super::history::Forgetting;
use super::layout::{
    self, Before, Body, FORMAT, Head, LIVE, META, NOTES, PUT, SEGMENTS, STATE, State, TOMBSTONE,
};
use super::read::{corrupt_database, corrupt_key, engine_error, state};
use super::tail::Recorded;
use super::{migrate, notes};
use crate::check;
use crate::{Change, Condition, Entry, Error, Event, Options, Position, Result, Txn};

/// Bytes of records in one segment. The last transaction may exceed them.
const SEGMENT_BYTES: u64 = 1024 * 1024;

/// What callers ask of the committer.
#[derive(Debug)]
pub(super) enum Task {
    /// Commits a transaction. Returns its revision.
    Commit(Txn),
    /// Does one step of a compaction, unless another one came before it. Returns the compacted revision.
    Forget(Forgetting),
    /// Notes the time. Returns the revision up to which history is older than it is kept.
    Age {
        /// The time, since 1970.
        now: Duration,
        /// How long history is kept.
        keep: Duration,
    },
    /// Checks whether the database takes writes. When it is known not to and `now` is set, tries to
    /// open it again without waiting for the next attempt that is due. Returns the newest revision.
    Recover {
        /// Whether to try without waiting.
        now: bool,
    },
}

/// The outcome of a group. All of it is durable.
#[derive(Debug, Default)]
pub(super) struct GroupOutcome {
    /// The result of each task, in the order of the tasks.
    pub(super) results: Vec<Result<u64>>,
    /// The new revisions, in order.
    pub(super) recorded: Vec<Recorded>,
}

/// The error of a group of which nothing was acknowledged.
#[derive(Debug)]
pub(super) struct GroupError {
    /// What went wrong.
    pub(super) error: Error,
    /// Whether the commit had started, so that the group may be durable after all.
    pub(super) commit_attempted: bool,
}

/// Creates the tables in an empty database, and brings one of an older layout up to date; refuses a
/// database of another one.
pub(super) fn prepare(database: &Database, segment_revisions: u64) -> Result<()> {
    let transaction = begin(database)?;
    let is_new = transaction.list_tables().map_err(engine_error)?.next().is_none();
    let format = {
        let mut meta = transaction.open_table(META).map_err(engine_error)?;
        if is_new {
            meta.insert(layout::META_FORMAT, FORMAT).map_err(engine_error)?;
        }
        let format = meta.get(layout::META_FORMAT).map_err(engine_error)?;
        format.map(|format| format.value())
    };
    match format {
        Some(FORMAT) => {}
        Some(migrate::FORMAT) => migrate::migrate(&transaction, segment_revisions)?,
        Some(format) => {
            return Err(Error::Unavailable(format!(
                "the database has layout {format}, and this program knows layout {FORMAT}"
            )));
        }
        None => {
            return Err(corrupt_database("database file: the version of its layout is missing"));
        }
    }
    let has_notes = !is_new && has_table(&transaction, "notes")?;
    drop(transaction.open_table(NOTES).map_err(engine_error)?);
    if is_new {
        drop(transaction.open_table(LIVE).map_err(engine_error)?);
        drop(transaction.open_table(SEGMENTS).map_err(engine_error)?);
        let mut state = transaction.open_table(STATE).map_err(engine_error)?;
        let bytes = State::default().encode();
        state.insert(layout::STATE_NOW, bytes.as_slice()).map_err(engine_error)?;
    }
    if has_notes && format == Some(FORMAT) {
        transaction.abort().map_err(engine_error)
    } else {
        transaction.commit().map_err(engine_error)
    }
}

fn has_table(transaction: &WriteTransaction, name: &str) -> Result<bool> {
    let mut tables = transaction.list_tables().map_err(engine_error)?;
    Ok(tables.any(|table| table.name() == name))
}

/// Returns an error when the database does not take writes.
pub(super) fn probe(database: &Database) -> Result<()> {
    begin(database)?.abort().map_err(engine_error)
}

/// Adds entries to a database that is being restored.
pub(super) fn restore(database: &Database, entries: &[Entry]) -> Result<()> {
    let transaction = begin(database)?;
    let mut tables = Tables::open(&transaction, Options::DEFAULT_SEGMENT_REVISIONS)?;
    for entry in entries {
        if tables.live.get(entry.key.as_bytes()).map_err(engine_error)?.is_some() {
            return Err(check::restored_twice(entry));
        }
        let packed = entry.position.packed();
        tables.put_row(&entry.key, PUT, packed, &layout::encode_value(packed, &entry.value), 0)?;
    }
    tables.finish()?;
    transaction.commit().map_err(engine_error)
}

/// Sets the newest revision of a database that was restored. Everything before it is compacted.
pub(super) fn finish_restore(database: &Database, revision: u64) -> Result<()> {
    let transaction = begin(database)?;
    let mut tables = Tables::open(&transaction, Options::DEFAULT_SEGMENT_REVISIONS)?;
    tables.state.revision = revision;
    tables.state.compacted = revision.saturating_sub(1);
    // The restore itself, which has no changes, is a revision of history.
    tables.begin_segment(revision)?;
    tables.finish()?;
    transaction.commit().map_err(engine_error)
}

/// Records what the rows of all keys add up to.
pub(super) fn record_sum(database: &Database, live: u64) -> Result<()> {
    let transaction = begin(database)?;
    let mut tables = Tables::open(&transaction, Options::DEFAULT_SEGMENT_REVISIONS)?;
    (tables.state.live, tables.state.unsummed) = (live, 0);
    tables.finish()?;
    transaction.commit().map_err(engine_error)
}

/// Performs tasks in order, and commits their changes in one transaction of the database.
pub(super) fn group<'a>(
    database: &Database,
    segment_revisions: u64,
    tasks: impl Iterator<Item = &'a Task>,
) -> std::result::Result<GroupOutcome, GroupError> {
    let not_attempted = |error| GroupError { error, commit_attempted: false };
    let transaction = begin(database).map_err(not_attempted)?;
    let (outcome, changed) =
        perform(&transaction, segment_revisions, tasks).map_err(not_attempted)?;
    if changed {
        let attempted = |error| GroupError { error: engine_error(error), commit_attempted: true };
        transaction.commit().map_err(attempted)?;
    } else {
        transaction.abort().map_err(|error| not_attempted(engine_error(error)))?;
    }
    Ok(outcome)
}

/// Begins a transaction that is durable when its commit returns. It commits in two phases, so that
/// nothing is trusted that was half written, and saves which pages are free (quick repair). Without
/// that, a start after a crash would read all pages to find out, and redb refuses a file in which one of them
/// is damaged.
fn begin(database: &Database) -> Result<WriteTransaction> {
    let mut transaction = database.begin_write().map_err(engine_error)?;
    transaction.set_durability(Durability::Immediate).map_err(engine_error)?;
    transaction.set_two_phase_commit(true);
    transaction.set_quick_repair(true);
    Ok(transaction)
}

fn perform<'a>(
    transaction: &WriteTransaction,
    segment_revisions: u64,
    tasks: impl Iterator<Item = &'a Task>,
) -> Result<(GroupOutcome, bool)> {
    let mut tables = Tables::open(transaction, segment_revisions)?;
    let mut outcome = GroupOutcome::default();
    let (before, mut noted) = (tables.state, false);
    for task in tasks {
        let result = match task {
            Task::Commit(txn) => tables.commit(txn)?.map(|recorded| {
                outcome.recorded.extend(recorded);
                tables.state.revision
            }),
            Task::Forget(step) => tables.forget(step).map(Ok)?,
            Task::Age { now, keep } => {
                let (old, changed) = tables.age(*now, *keep)?;
                noted |= changed;
                Ok(old)
            }
            Task::Recover { .. } => Ok(tables.state.revision),
        };
        outcome.results.push(result);
    }
    let changed = tables.state != before;
    if changed {
        tables.finish()?;
    }
    Ok((outcome, changed || noted))
}

/// The tables, open for writing.
pub(super) struct Tables<'t> {
    live: Table<'t, &'static [u8], &'static [u8]>,
    /// The newest segment, once it is needed.
    newest: Option<Table<'t, u64, &'static [u8]>>,
    /// What is true with all that was written.
    pub(super) state: State,
    /// Revisions in one segment of history.
    segment_revisions: u64,
    /// Opens the tables that most transactions do not need.
    transaction: &'t WriteTransaction,
}

/// The version of a key that a change replaces.
#[derive(Default)]
struct Replaced {
    /// The key's newest version.
    before: Before,
    /// Its value with its checksum, neither of them checked.
    body: Bytes,
    /// What the key's row adds to the sum of its table; 0 for none.
    sum: u64,
}

impl<'t> Tables<'t> {
    pub(super) fn open(transaction: &'t WriteTransaction, segment_revisions: u64) -> Result<Self> {
        let state = state(&transaction.open_table(STATE).map_err(engine_error)?)?;
        let live = transaction.open_table(LIVE).map_err(engine_error)?;
        Ok(Self { live, newest: None, state, segment_revisions, transaction })
    }

    /// Writes what is true of the database as a whole.
    pub(super) fn finish(self) -> Result<()> {
        let mut table = self.transaction.open_table(STATE).map_err(engine_error)?;
        let bytes = self.state.encode();
        table.insert(layout::STATE_NOW, bytes.as_slice()).map(drop).map_err(engine_error)
    }

    /// Performs one transaction. The inner error concerns this transaction only. `None` is returned for
    /// a transaction without changes.
    fn commit(&mut self, txn: &Txn) -> Result<Result<Option<Recorded>>> {
        let replaced = match self.check_conditions(txn) {
            Ok(Ok(replaced)) => replaced,
            // A corrupt key fails the transaction that names it, and no other of the group.
            Ok(Err(refusal)) | Err(refusal @ Error::Corrupt { key: Some(_), .. }) => {
                return Ok(Err(refusal));
            }
            Err(error) => return Err(error),
        };
        if txn.changes.is_empty() {
            return Ok(Ok(None));
        }
        let revision = self.state.revision + 1;
        let mut recorded = Recorded { revision, events: Vec::new(), complete: true };
        self.begin_segment(revision)?;
        for ((index, change), replaced) in (0_u8..).zip(&txn.changes).zip(&replaced) {
            let position = Position::new(revision, index);
            match change {
                Change::Rewrite { key, value } => {
                    self.rewrite(key, value, replaced)?;
                    recorded.complete = false;
                }
                Change::Put { .. } | Change::Delete { .. } => {
                    recorded.events.push(event(change, position, replaced));
                    self.apply(change, position.packed(), replaced)?;
                }
            }
        }
        self.state.revision = revision;
        Ok(Ok(Some(recorded)))
    }

    /// Checks the conditions of a transaction, and returns the version that each change replaces.
    /// Writes nothing.
    fn check_conditions(&self, txn: &Txn) -> Result<Result<Vec<Replaced>>> {
        for condition in &txn.conditions {
            let (key, wanted) = match condition {
                Condition::Absent(key) => (key, None),
                Condition::At(key, position) => (key, Some(position.packed())),
            };
            let found = self.live_position(key)?;
            if found != wanted {
                return Ok(Err(conflict(key, found)));
            }
        }
        let mut all = Vec::with_capacity(txn.changes.len());
        for change in &txn.changes {
            let key = change.key();
            let replaced = self.replaced(key)?;
            let exists = matches!(replaced.before, Before::Value(_) | Before::Corrupt);
            if !exists && !matches!(change, Change::Put { .. }) {
                return Ok(Err(conflict(key, None)));
            }
            if let Change::Rewrite { .. } = change
                && let Err(refusal) = self.check_rewrite(key, &replaced)?
            {
                return Ok(Err(refusal));
            }
            all.push(replaced);
        }
        Ok(Ok(all))
    }

    /// Returns the packed position of a key's live version; 0 for a key whose row is corrupt, as in lists.
    fn live_position(&self, key: &str) -> Result<Option<u64>> {
        let found = self.live.get(key.as_bytes()).map_err(engine_error)?;
        let Some(bytes) = found else { return Ok(None) };
        Ok(match layout::decode_row(key.as_bytes(), bytes.value()) {
            Ok(row) => (row.mark == PUT).then_some(row.packed),
            Err(_) => Some(0),
        })
    }

    fn replaced(&self, key: &str) -> Result<Replaced> {
        let found = self.live.get(key.as_bytes()).map_err(engine_error)?;
        let Some(bytes) = found else { return Ok(Replaced::default()) };
        let Ok(row) = layout::decode_row(key.as_bytes(), bytes.value()) else {
            return Ok(Replaced { before: Before::Corrupt, ..Replaced::default() });
        };
        Ok(if row.mark == PUT {
            let body = Bytes::copy_from_slice(row.body.bytes());
            Replaced { before: Before::Value(row.packed), body, sum: row.sum }
        } else {
            let before = Before::Tombstone(row.packed);
            Replaced { before, sum: row.sum, ..Replaced::default() }
        })
    }

    /// Refuses to rewrite a value that is corrupt, or whose change is.
    fn check_rewrite(&self, key: &str, replaced: &Replaced) -> Result<Result<()>> {
        let packed = replaced.before.packed();
        if let Err(reason) = Body::new(packed, &replaced.body).check() {
            return Ok(Err(corrupt_key(key, reason)));
        }
        let Some(first) = self.segment_of(packed)? else { return Ok(Ok(())) };
        self.with_segment(first, |segment| {
            let found = segment.get(packed).map_err(engine_error)?;
            let Some(bytes) = found else {
                return Ok(Err(corrupt_key(key, "a change of its history does not exist")));
            };
            Ok(layout::decode_record(packed, bytes.value())
                .map(drop)
                .map_err(|reason| corrupt_key(key, reason)))
        })
    }

    /// Writes a row in the place of one that added `replaced` to the sum of the table.
    pub(super) fn put_row(
        &mut self,
        key: &str,
        mark: u8,
        packed: u64,
        body: &[u8],
        replaced: u64,
    ) -> Result<()> {
        let (row, sum) = layout::encode_row(key, mark, packed, body);
        self.live.insert(key.as_bytes(), row.as_slice()).map_err(engine_error)?;
        self.state.live = self.state.live.wrapping_sub(replaced).wrapping_add(sum);
        Ok(())
    }

    fn apply(&mut self, change: &Change, packed: u64, replaced: &Replaced) -> Result<()> {
        let (mark, value) = match change {
            Change::Put { value, .. } => (PUT, value.as_ref()),
            Change::Delete { .. } | Change::Rewrite { .. } => (TOMBSTONE, [].as_slice()),
        };
        let (key, body) = (change.key(), layout::encode_value(packed, value));
        self.put_row(key, mark, packed, &body, replaced.sum)?;
        self.state.unsummed += u64::from(replaced.before == Before::Corrupt);
        let head = Head { mark, before: replaced.before, key };
        let value = self.is_in_older_segment(replaced.before).then_some(&*replaced.body);
        self.put_record(packed, head, value, &body)
    }

    /// Returns whether a value that a change replaces has to be in its record. One that was set in the
    /// newest segment is there already.
    pub(super) fn is_in_older_segment(&self, before: Before) -> bool {
        let revision = Position::from_packed(before.packed()).revision();
        matches!(before, Before::Value(_)) && revision < self.state.segment
    }

    /// Writes a record at the end of history.
    pub(super) fn put_record(
        &mut self,
        packed: u64,
        head: Head<'_>,
        replaced: Option<&[u8]>,
        body: &[u8],
    ) -> Result<()> {
        let (record, sum) = layout::encode_record(packed, head, replaced, body);
        self.put_record_bytes(packed, &record)?;
        self.state.segment_sum = self.state.segment_sum.wrapping_add(sum);
        Ok(())
    }

    /// Writes the bytes of a record at the end of history, which may be corrupt.
    pub(super) fn put_record_bytes(&mut self, packed: u64, record: &[u8]) -> Result<()> {
        let newest = match self.newest.take() {
            Some(newest) => newest,
            None => open_segment(self.transaction, self.state.segment)?,
        };
        self.newest.insert(newest).insert(packed, record).map_err(engine_error)?;
        self.state.segment_bytes += record.len() as u64;
        Ok(())
    }

    /// Begins a segment with a revision, if there is none yet or the newest one is full.
    pub(super) fn begin_segment(&mut self, revision: u64) -> Result<()> {
        let State { segment, segment_sum, segment_bytes, .. } = self.state;
        let is_full =
            revision - segment >= self.segment_revisions || segment_bytes >= SEGMENT_BYTES;
        if segment != 0 && !is_full {
            return Ok(());
        }
        let mut segments = self.transaction.open_table(SEGMENTS).map_err(engine_error)?;
        if segment != 0 {
            let sum = layout::encode_sum(segment, segment_sum);
            segments.insert(segment, sum.as_slice()).map_err(engine_error)?;
        }
        let sum = layout::encode_sum(revision, 0);
        segments.insert(revision, sum.as_slice()).map_err(engine_error)?;
        self.newest = Some(open_segment(self.transaction, revision)?);
        (self.state.segment, self.state.segment_sum, self.state.segment_bytes) = (revision, 0, 0);
        Ok(())
    }

    /// Returns the first revision of the segment that has a change; none for a change that is forgotten.
    fn segment_of(&self, packed: u64) -> Result<Option<u64>> {
        let revision = Position::from_packed(packed).revision();
        let segments = self.transaction.open_table(SEGMENTS).map_err(engine_error)?;
        let found = segments.range(..=revision).map_err(engine_error)?.next_back();
        Ok(found.transpose().map_err(engine_error)?.map(|(first, _)| first.value()))
    }

    /// Runs a function on the table of a segment.
    fn with_segment<T>(
        &self,
        first: u64,
        run: impl FnOnce(&Table<'t, u64, &'static [u8]>) -> Result<T>,
    ) -> Result<T> {
        match &self.newest {
            Some(newest) if first == self.state.segment => run(newest),
            _ => run(&open_segment(self.transaction, first)?),
        }
    }

    /// Replaces the value of a live version, also in history.
    fn rewrite(&mut self, key: &str, value: &[u8], replaced: &Replaced) -> Result<()> {
        let packed = replaced.before.packed();
        let body = layout::encode_value(packed, value);
        self.put_row(key, PUT, packed, &body, replaced.sum)?;
        let Some(first) = self.segment_of(packed)? else { return Ok(()) };
        let mut other = None;
        let table = match &mut self.newest {
            Some(newest) if first == self.state.segment => newest,
            _ => other.insert(open_segment(self.transaction, first)?),
        };
        let old = table.get(packed).map_err(engine_error)?.map(|bytes| bytes.value().to_vec());
        let old = old.unwrap_or_default();
        let record =
            layout::decode_record(packed, &old).map_err(|reason| corrupt_key(key, reason))?;
        let before = record.replaced.map(Body::bytes);
        let (record, _) = layout::encode_record(packed, record.head, before, &body);
        table.insert(packed, record.as_slice()).map(drop).map_err(engine_error)
    }

    /// Does one step of a compaction: forgets the keys that it says were deleted, unless they were set
    /// since, and drops the segments that have nothing else. Returns the compacted revision.
    fn forget(&mut self, step: &Forgetting) -> Result<u64> {
        if self.state.compacted != step.from {
            return Ok(self.state.compacted);
        }
        for (key, packed) in &step.deleted {
            let found = self.live.get(key.as_bytes()).map_err(engine_error)?;
            let row = found.as_ref().map(|bytes| layout::decode_row(key.as_bytes(), bytes.value()));
            let tombstone = row.and_then(std::result::Result::ok);
            let sum = tombstone.filter(|row| row.packed == *packed).map(|row| row.sum);
            drop(found);
            if let Some(sum) = sum {
                self.live.remove(key.as_bytes()).map_err(engine_error)?;
                self.state.live = self.state.live.wrapping_sub(sum);
            }
        }
        self.state.compacted = step.to;
        self.drop_segments()?;
        let bytes = notes::encode_last_changes(&step.noted);
        let mut table = self.notes()?;
        table.insert(layout::NOTES_LAST_CHANGES, bytes.as_slice()).map_err(engine_error)?;
        Ok(step.to)
    }

    /// Drops the segments of which all is compacted.
    fn drop_segments(&mut self) -> Result<()> {
        let compacted = self.state.compacted;
        let mut segments = self.transaction.open_table(SEGMENTS).map_err(engine_error)?;
        let mut firsts = Vec::new();
        for item in segments.range(..=compacted).map_err(engine_error)? {
            firsts.push(item.map_err(engine_error)?.0.value());
        }
        // The last of them goes only if the next one begins right after what is compacted.
        let next = segments.range(compacted + 1..).map_err(engine_error)?.next();
        let next = next.transpose().map_err(engine_error)?.map(|(first, _)| first.value());
        if next.unwrap_or(self.state.revision + 1) != compacted + 1 {
            firsts.pop();
        }
        for first in firsts {
            segments.remove(first).map_err(engine_error)?;
            if first == self.state.segment {
                self.newest = None;
                self.state.segment = 0;
            }
            let name = layout::segment_name(first);
            self.transaction.delete_table(layout::segment_table(&name)).map_err(engine_error)?;
        }
        Ok(())
    }

    fn notes(&self) -> Result<Table<'t, &'static str, &'static [u8]>> {
        self.transaction.open_table(NOTES).map_err(engine_error)
    }

    /// Notes the time: see [`crate::Store::age_history`]. Returns the revision, and whether anything
    /// has to be stored.
    fn age(&self, now: Duration, keep: Duration) -> Result<(u64, bool)> {
        let mut table = self.notes()?;
        let stored = table.get(layout::NOTES_AGES).map_err(engine_error)?;
        let noted = stored.and_then(|bytes| notes::decode_ages(bytes.value()));
        let mut ages = noted.unwrap_or_default();
        let outcome = ages.note(now, keep, self.state.revision);
        if outcome.changed {
            let bytes = notes::encode_ages(&ages);
            table.insert(layout::NOTES_AGES, bytes.as_slice()).map_err(engine_error)?;
        }
        Ok((outcome.revision, outcome.changed))
    }
}

fn open_segment(
    transaction: &WriteTransaction,
    first: u64,
) -> Result<Table<'_, u64, &'static [u8]>> {
    let name = layout::segment_name(first);
    transaction.open_table(layout::segment_table(&name)).map_err(engine_error)
}

/// Returns the event of a change. It has no previous value when that is corrupt: the change itself
/// is how a corrupt key is repaired, and watches must get it.
fn event(change: &Change, position: Position, replaced: &Replaced) -> Event {
    let key = change.key();
    let value = match change {
        Change::Put { value, .. } => Some(value.clone()),
        Change::Delete { .. } | Change::Rewrite { .. } => None,
    };
    let mut previous = None;
    if let Before::Value(packed) = replaced.before {
        match Body::new(packed, &replaced.body).check() {
            Ok(value) => {
                let value = replaced.body.slice_ref(value);
                let position = Position::from_packed(packed);
                previous = Some(Entry { key: Arc::clone(key), value, position });
            }
            Err(reason) => {
                tracing::warn!(%key, reason, "a replaced value is corrupt; its event is without it");
            }
        }
    }
    Event { key: Arc::clone(key), position, value, previous }
}

fn conflict(key: &Arc<str>, found: Option<u64>) -> Error {
    Error::Conflict { key: Arc::clone(key), found: found.map(Position::from_packed) }
}
