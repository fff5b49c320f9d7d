//! Writes to the database: transactions that were accepted, and what keeps the database as it should be. No threads
//! here, and no replies to callers.

use std::time::Duration;

use ::redb::{Database, Durability, ReadableTable, Table, WriteTransaction};
use bytes::Bytes;

use super::history::Forgetting;
use super::layout::{
    self, Body, FORMAT, Head, LIVE, LogState, META, Mark, NOTES, PUT, PreviousVersion, SEGMENTS,
    STATE, State, TOMBSTONE,
};
use super::notes;
use super::read::{corrupt_database, engine_error, state};
use super::wal_group::{Accepted, AcceptedTxn, Kind};
use crate::check;
use crate::{Entry, Epoch, Error, Options, Position, Result, Txn};

/// Bytes of records in one segment. The last transaction may exceed them.
const SEGMENT_BYTES: u64 = 1024 * 1024;

/// A caller's request to the committer.
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

/// The error of a write of which nothing was acknowledged.
#[derive(Debug)]
pub(super) struct WriteError {
    /// The cause.
    pub(super) error: Error,
    /// Whether the commit had started, so that it may be durable after all.
    pub(super) commit_attempted: bool,
}

impl WriteError {
    /// The error for the callers.
    pub(super) fn for_callers(&self) -> Error {
        match (&self.error, self.commit_attempted) {
            (error, true) => Error::Unknown(error.to_string()),
            (error @ (Error::Unavailable(_) | Error::Gated(_) | Error::Corrupt { .. }), false) => {
                error.clone()
            }
            (error, false) => Error::Unavailable(error.to_string()),
        }
    }
}

/// Whether the written data is durable when its commit returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durable {
    /// It is.
    Now,
    /// Readers see it, and that is all: the log has it, and a later commit makes it durable.
    Later,
}

/// Creates the tables in an empty database, and refuses a database of another layout.
pub(super) fn prepare(database: &Database) -> Result<()> {
    let transaction = begin(database)?;
    if transaction.list_tables().map_err(engine_error)?.next().is_none() {
        create_tables(&transaction)?;
        return transaction.commit().map_err(engine_error);
    }
    let format = {
        let meta = transaction.open_table(META).map_err(engine_error)?;
        let format = meta.get(layout::META_FORMAT).map_err(engine_error)?;
        format.map(|format| format.value())
    };
    transaction.abort().map_err(engine_error)?;
    match format {
        Some(FORMAT) => Ok(()),
        Some(format) => Err(Error::Unavailable(format!(
            "the database has layout {format}, and this program reads layout {FORMAT}"
        ))),
        None => Err(corrupt_database("database file: the version of its layout is missing")),
    }
}

fn create_tables(transaction: &WriteTransaction) -> Result<()> {
    let mut meta = transaction.open_table(META).map_err(engine_error)?;
    meta.insert(layout::META_FORMAT, FORMAT).map_err(engine_error)?;
    transaction.open_table(NOTES).map(drop).map_err(engine_error)?;
    transaction.open_table(LIVE).map(drop).map_err(engine_error)?;
    transaction.open_table(SEGMENTS).map(drop).map_err(engine_error)?;
    let mut state = transaction.open_table(STATE).map_err(engine_error)?;
    let bytes = State::default().encode();
    state.insert(layout::STATE_NOW, bytes.as_slice()).map(drop).map_err(engine_error)
}

/// An error when the database does not take writes.
pub(super) fn probe(database: &Database) -> Result<()> {
    begin(database)?.abort().map_err(engine_error)
}

/// Writes with the tables, durably.
fn commit_durably(
    database: &Database,
    write: impl FnOnce(&mut Tables<'_>) -> Result<()>,
) -> Result<()> {
    let transaction = begin(database)?;
    let mut tables = Tables::open(&transaction, Options::DEFAULT_SEGMENT_REVISIONS)?;
    write(&mut tables)?;
    tables.finish()?;
    transaction.commit().map_err(engine_error)
}

/// Adds entries to a database that is being restored.
pub(super) fn restore(database: &Database, entries: &[Entry]) -> Result<()> {
    commit_durably(database, |tables| {
        for entry in entries {
            if tables.live.get(entry.key.as_bytes()).map_err(engine_error)?.is_some() {
                return Err(check::restored_twice(entry));
            }
            let packed = entry.position.packed();
            let body = layout::encode_value(packed, &entry.value);
            tables.put_row(&entry.key, PUT, packed, &body, 0)?;
        }
        Ok(())
    })
}

/// Sets the newest revision of a database that was restored. Everything before it is compacted.
pub(super) fn finish_restore(database: &Database, revision: u64) -> Result<()> {
    commit_durably(database, |tables| {
        tables.state.revision = revision;
        tables.state.compacted = revision.saturating_sub(1);
        let epoch = notes::encode_epoch(Epoch { number: 1, begins: revision });
        let mut noted = tables.notes()?;
        noted.insert(layout::NOTES_EPOCH, epoch.as_slice()).map_err(engine_error)?;
        drop(noted);
        // The restore itself, which has no changes, is a revision of history.
        tables.begin_segment(revision)
    })
}

/// Records the sum of the rows of all keys.
pub(super) fn record_sum(database: &Database, live: u64) -> Result<()> {
    commit_durably(database, |tables| {
        (tables.state.live, tables.state.unsummed) = (live, 0);
        Ok(())
    })
}

/// Writes transactions that were accepted, in order. The log is done with up to the mark when this is durable.
///
/// # Errors
/// Those of the database. Nothing is written then, or all of it.
pub(super) fn apply(
    database: &Database,
    segment_revisions: u64,
    txns: &[AcceptedTxn],
    mark: Mark,
    durable: Durable,
) -> Result<()> {
    let mut transaction = begin(database)?;
    if durable == Durable::Later {
        transaction.set_quick_repair(false);
        transaction.set_two_phase_commit(false);
        transaction.set_durability(Durability::None).map_err(engine_error)?;
    }
    let mut tables = Tables::open(&transaction, segment_revisions)?;
    for txn in txns {
        tables.apply(txn)?;
    }
    // Each commit records its mark, also one that is not durable: redb makes it durable when it is
    // closed.
    tables.state.log.mark = mark;
    tables.finish()?;
    transaction.commit().map_err(engine_error)
}

/// Notes which log goes with the database, durably.
pub(super) fn note_log(database: &Database, log: LogState) -> Result<()> {
    commit_durably(database, |tables| {
        tables.state.log = log;
        Ok(())
    })
}

/// Performs a task that changes no keys. Its changes are durable when this returns.
pub(super) fn perform(
    database: &Database,
    segment_revisions: u64,
    task: &Task,
) -> std::result::Result<u64, WriteError> {
    let not_attempted = |error| WriteError { error, commit_attempted: false };
    let transaction = begin(database).map_err(not_attempted)?;
    let (result, changed) =
        perform_in(&transaction, segment_revisions, task).map_err(not_attempted)?;
    if changed {
        let attempted = |error| WriteError { error: engine_error(error), commit_attempted: true };
        transaction.commit().map_err(attempted)?;
    } else {
        transaction.abort().map_err(|error| not_attempted(engine_error(error)))?;
    }
    Ok(result)
}

fn perform_in(
    transaction: &WriteTransaction,
    segment_revisions: u64,
    task: &Task,
) -> Result<(u64, bool)> {
    let mut tables = Tables::open(transaction, segment_revisions)?;
    let before = tables.state;
    match task {
        Task::Age { now, keep } => tables.age(*now, *keep),
        Task::Forget(step) => {
            let compacted = tables.forget(step)?;
            let changed = tables.state != before;
            tables.finish()?;
            Ok((compacted, changed))
        }
        Task::Commit(_) | Task::Recover { .. } => Ok((before.revision, false)),
    }
}

/// Begins a transaction that is durable when its commit returns. It commits in two phases, so that
/// nothing is trusted that was half written, and saves which pages are free (quick repair). Without
/// that, a start after a crash would read all pages to find out, and redb refuses a file in which one of them
/// is corrupt.
fn begin(database: &Database) -> Result<WriteTransaction> {
    let mut transaction = database.begin_write().map_err(engine_error)?;
    transaction.set_durability(Durability::Immediate).map_err(engine_error)?;
    transaction.set_two_phase_commit(true);
    transaction.set_quick_repair(true);
    Ok(transaction)
}

/// The tables, open for writing.
pub(super) struct Tables<'t> {
    live: Table<'t, &'static [u8], &'static [u8]>,
    /// The newest segment, once it is needed.
    newest: Option<Table<'t, u64, &'static [u8]>>,
    /// The state with all writes so far.
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
    before: PreviousVersion,
    /// Its value with its checksum, neither of them checked.
    body: Bytes,
    /// The part of the key's row in the sum of its table; 0 for none.
    sum: u64,
}

impl<'t> Tables<'t> {
    pub(super) fn open(transaction: &'t WriteTransaction, segment_revisions: u64) -> Result<Self> {
        let state = state(&transaction.open_table(STATE).map_err(engine_error)?)?;
        let live = transaction.open_table(LIVE).map_err(engine_error)?;
        Ok(Self { live, newest: None, state, segment_revisions, transaction })
    }

    /// Writes the state of the database as a whole.
    pub(super) fn finish(self) -> Result<()> {
        let mut table = self.transaction.open_table(STATE).map_err(engine_error)?;
        let bytes = self.state.encode();
        table.insert(layout::STATE_NOW, bytes.as_slice()).map(drop).map_err(engine_error)
    }

    /// Writes a transaction that was accepted.
    fn apply(&mut self, txn: &AcceptedTxn) -> Result<()> {
        let AcceptedTxn { revision, changes } = txn;
        if *revision != self.state.revision + 1 {
            return Err(corrupt_database("database file: a revision is missing or there twice"));
        }
        self.begin_segment(*revision)?;
        for (index, Accepted { kind, key, body }) in (0_u8..).zip(changes) {
            let replaced = self.replaced(key)?;
            let packed = Position::new(*revision, index).packed();
            match kind {
                Kind::Put => self.change(key, PUT, packed, body, &replaced)?,
                Kind::Delete => self.change(key, TOMBSTONE, packed, body, &replaced)?,
                Kind::Rewrite => self.rewrite(key, body, &replaced)?,
            }
        }
        self.state.revision = *revision;
        Ok(())
    }

    fn replaced(&self, key: &str) -> Result<Replaced> {
        let found = self.live.get(key.as_bytes()).map_err(engine_error)?;
        let Some(bytes) = found else { return Ok(Replaced::default()) };
        let Ok(row) = layout::decode_row(key.as_bytes(), bytes.value()) else {
            return Ok(Replaced { before: PreviousVersion::Corrupt, ..Replaced::default() });
        };
        Ok(if row.mark == PUT {
            let body = Bytes::copy_from_slice(row.body.bytes());
            Replaced { before: PreviousVersion::Value(row.packed), body, sum: row.sum }
        } else {
            let before = PreviousVersion::Tombstone(row.packed);
            Replaced { before, sum: row.sum, ..Replaced::default() }
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

    /// Writes the newest version of a key, and its record at the end of history.
    fn change(
        &mut self,
        key: &str,
        mark: u8,
        packed: u64,
        body: &[u8],
        replaced: &Replaced,
    ) -> Result<()> {
        self.put_row(key, mark, packed, body, replaced.sum)?;
        self.state.unsummed += u64::from(replaced.before == PreviousVersion::Corrupt);
        let head = Head { mark, before: replaced.before, key };
        let value = self.is_in_older_segment(replaced.before).then_some(&*replaced.body);
        self.put_record(packed, head, value, body)
    }

    /// Whether a value that a change replaces has to be in its record. One that was set in the
    /// newest segment is there already.
    pub(super) fn is_in_older_segment(&self, before: PreviousVersion) -> bool {
        let revision = Position::from_packed(before.packed()).revision();
        matches!(before, PreviousVersion::Value(_)) && revision < self.state.segment
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

    /// The first revision of the segment that has a change; none for a change that is forgotten.
    fn segment_of(&self, packed: u64) -> Result<Option<u64>> {
        let revision = Position::from_packed(packed).revision();
        let segments = self.transaction.open_table(SEGMENTS).map_err(engine_error)?;
        let found = segments.range(..=revision).map_err(engine_error)?.next_back();
        Ok(found.transpose().map_err(engine_error)?.map(|(first, _)| first.value()))
    }

    /// Replaces the value of a live version, also in history.
    fn rewrite(&mut self, key: &str, body: &[u8], replaced: &Replaced) -> Result<()> {
        let PreviousVersion::Value(packed) = replaced.before else {
            // It was intact when this was accepted. An acknowledged write must not fail for it.
            tracing::error!(%key, "the row of a rewritten value is corrupt, and stays so");
            return Ok(());
        };
        self.put_row(key, PUT, packed, body, replaced.sum)?;
        let Some(first) = self.segment_of(packed)? else { return Ok(()) };
        let mut other = None;
        let table = match &mut self.newest {
            Some(newest) if first == self.state.segment => newest,
            _ => other.insert(open_segment(self.transaction, first)?),
        };
        let old = table.get(packed).map_err(engine_error)?.map(|bytes| bytes.value().to_vec());
        let old = old.unwrap_or_default();
        let Ok(record) = layout::decode_record(packed, &old) else {
            // It was intact when this was accepted. An acknowledged write must not fail for it.
            tracing::error!(%key, "the change that set a rewritten value is corrupt, and stays so");
            return Ok(());
        };
        let before = record.replaced.map(Body::bytes);
        let (record, _) = layout::encode_record(packed, record.head, before, body);
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
        // The last of them is removed only if the next one begins right after the compacted
        // revision.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_of_another_layout_is_refused_and_left_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::create(directory.path().join("db")).unwrap();
        prepare(&database).unwrap();
        prepare(&database).unwrap();
        let transaction = begin(&database).unwrap();
        transaction.open_table(META).unwrap().insert(layout::META_FORMAT, FORMAT + 1).unwrap();
        transaction.commit().unwrap();
        for _ in 0..2 {
            let error = prepare(&database).unwrap_err().to_string();
            assert!(error.contains("layout 2, and this program reads layout 1"), "{error}");
        }
        let transaction = begin(&database).unwrap();
        transaction.open_table(META).unwrap().remove(layout::META_FORMAT).unwrap();
        transaction.commit().unwrap();
        assert!(matches!(prepare(&database), Err(Error::Corrupt { .. })));
    }
}
