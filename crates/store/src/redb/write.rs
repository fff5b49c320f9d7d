//! Writes to the database: one group of transactions in one durable commit. No threads here, and no
//! replies to callers: the committer sends them when the commit has returned.

use std::sync::Arc;
use std::time::Duration;

use ::redb::{Database, Durability, ReadableTable, Table, WriteTransaction};

use super::layout::{self, CHANGES, FORMAT, Head, INDEX, META, NOTES, PUT, TOMBSTONE};
use super::notes;
use super::read::{corrupt_key, engine_error, last_version, live, noted, number, previous};
use super::tail::Recorded;
use crate::check;
use crate::last_change::Noting;
use crate::{Change, Condition, Entry, Error, Event, Position, Result, Txn};

/// Changes that one step of a compaction looks at. Between two steps, transactions are committed.
const COMPACTION_CHANGES: usize = 512;

/// The number of tables in a database.
const TABLES: usize = 4;

/// What callers ask of the committer.
#[derive(Debug)]
pub(super) enum Task {
    /// Commits a transaction. Returns its revision.
    Commit(Txn),
    /// Does one step of a compaction. Returns the compacted revision.
    Compact {
        /// The revision up to which all steps together compact.
        revision: u64,
        /// The prefixes whose last changes are noted.
        prefixes: Arc<[String]>,
    },
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

/// Creates the tables in an empty database, and those that an older one lacks; refuses a database of
/// another layout.
pub(super) fn prepare(database: &Database) -> Result<()> {
    let transaction = begin(database)?;
    let tables = transaction.list_tables().map_err(engine_error)?.count();
    let is_new = tables == 0;
    {
        let mut tables = Tables::open(&transaction)?;
        drop(tables.notes()?);
        if is_new {
            tables.set(layout::META_FORMAT, FORMAT)?;
            tables.set(layout::META_REVISION, 0)?;
            tables.set(layout::META_COMPACTED, 0)?;
        }
        let format = number(&tables.meta, layout::META_FORMAT)?;
        if format != FORMAT {
            return Err(Error::Unavailable(format!(
                "the database has layout {format}, and this program knows layout {FORMAT}"
            )));
        }
    }
    if tables < TABLES {
        transaction.commit().map_err(engine_error)
    } else {
        transaction.abort().map_err(engine_error)
    }
}

/// Returns an error when the database does not take writes.
pub(super) fn probe(database: &Database) -> Result<()> {
    begin(database)?.abort().map_err(engine_error)
}

/// Adds entries to a database that is being restored.
pub(super) fn restore(database: &Database, entries: &[Entry]) -> Result<()> {
    let transaction = begin(database)?;
    let mut tables = Tables::open(&transaction)?;
    for entry in entries {
        let packed = entry.position.packed();
        let head = Head { mark: PUT, previous: 0, key: &entry.key };
        let record = layout::encode(packed, head, &entry.value);
        let is_taken = last_version(&tables.index, &entry.key)?.is_some()
            || tables.changes.insert(packed, record.as_slice()).map_err(engine_error)?.is_some();
        if is_taken {
            return Err(check::restored_twice(entry));
        }
        let version = (entry.key.as_bytes(), packed);
        tables.index.insert(version, PUT).map_err(engine_error)?;
    }
    drop(tables);
    transaction.commit().map_err(engine_error)
}

/// Sets the newest revision of a database that was restored. Everything before it is compacted.
pub(super) fn finish_restore(database: &Database, revision: u64) -> Result<()> {
    let transaction = begin(database)?;
    let mut tables = Tables::open(&transaction)?;
    tables.set(layout::META_REVISION, revision)?;
    tables.set(layout::META_COMPACTED, revision.saturating_sub(1))?;
    drop(tables);
    transaction.commit().map_err(engine_error)
}

/// Performs tasks in order, and commits their changes in one transaction of the database.
pub(super) fn group<'a>(
    database: &Database,
    tasks: impl Iterator<Item = &'a Task>,
) -> std::result::Result<GroupOutcome, GroupError> {
    let not_attempted = |error| GroupError { error, commit_attempted: false };
    let transaction = begin(database).map_err(not_attempted)?;
    let (outcome, changed) = perform(&transaction, tasks).map_err(not_attempted)?;
    if changed {
        let attempted = |error| GroupError { error: engine_error(error), commit_attempted: true };
        transaction.commit().map_err(attempted)?;
    } else {
        transaction.abort().map_err(|error| not_attempted(engine_error(error)))?;
    }
    Ok(outcome)
}

/// Begins a transaction that is durable when its commit returns. It commits in two phases, so that
/// nothing is trusted that was half written. It does not save which pages are free: that would cost each
/// commit more the larger the file is. Closing saves them, and a start after a crash searches for them.
fn begin(database: &Database) -> Result<WriteTransaction> {
    let mut transaction = database.begin_write().map_err(engine_error)?;
    transaction.set_durability(Durability::Immediate).map_err(engine_error)?;
    transaction.set_two_phase_commit(true);
    Ok(transaction)
}

fn perform<'a>(
    transaction: &WriteTransaction,
    tasks: impl Iterator<Item = &'a Task>,
) -> Result<(GroupOutcome, bool)> {
    let mut tables = Tables::open(transaction)?;
    let mut outcome = GroupOutcome::default();
    let before = tables.revision()?;
    let (mut revision, mut noted) = (before, false);
    for task in tasks {
        let result = match task {
            Task::Commit(txn) => match tables.commit(txn, revision)? {
                Ok(recorded) => {
                    if let Some(recorded) = recorded {
                        revision = recorded.revision;
                        outcome.recorded.push(recorded);
                    }
                    Ok(revision)
                }
                Err(refusal) => Err(refusal),
            },
            Task::Compact { revision: target, .. } if *target > revision => {
                Err(Error::Future { current: revision })
            }
            Task::Compact { revision: target, prefixes } => {
                let (compacted, moved) = tables.compact(*target, prefixes)?;
                noted |= moved;
                Ok(compacted)
            }
            Task::Age { now, keep } => {
                let (old, changed) = tables.age(*now, *keep, revision)?;
                noted |= changed;
                Ok(old)
            }
            Task::Recover { .. } => Ok(revision),
        };
        outcome.results.push(result);
    }
    if revision != before {
        tables.set(layout::META_REVISION, revision)?;
    }
    Ok((outcome, revision != before || noted))
}

/// The tables, open for writing.
struct Tables<'t> {
    changes: Table<'t, u64, &'static [u8]>,
    index: Table<'t, (&'static [u8], u64), u8>,
    meta: Table<'t, &'static str, u64>,
    /// Opens the table of notes where it is needed, which most transactions do not.
    transaction: &'t WriteTransaction,
}

/// The version of a key that a change replaces.
struct ReplacedVersion {
    /// The packed position of the key's live version; 0 for none.
    packed: u64,
    /// For a rewrite: the live version's own previous version.
    previous: u64,
}

impl<'t> Tables<'t> {
    fn open(transaction: &'t WriteTransaction) -> Result<Self> {
        Ok(Self {
            changes: transaction.open_table(CHANGES).map_err(engine_error)?,
            index: transaction.open_table(INDEX).map_err(engine_error)?,
            meta: transaction.open_table(META).map_err(engine_error)?,
            transaction,
        })
    }

    fn notes(&self) -> Result<Table<'t, &'static str, &'static [u8]>> {
        self.transaction.open_table(NOTES).map_err(engine_error)
    }

    fn revision(&self) -> Result<u64> {
        number(&self.meta, layout::META_REVISION)
    }

    fn set(&mut self, name: &str, number: u64) -> Result<()> {
        self.meta.insert(name, number).map(drop).map_err(engine_error)
    }

    /// Performs one transaction on top of a revision. The inner error concerns this transaction
    /// only. `None` is returned for a transaction without changes.
    fn commit(&mut self, txn: &Txn, newest: u64) -> Result<Result<Option<Recorded>>> {
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
        let revision = newest + 1;
        let mut recorded = Recorded { revision, events: Vec::new(), complete: true };
        for ((index, change), replaced) in (0_u8..).zip(&txn.changes).zip(replaced) {
            let position = Position::new(revision, index);
            match change {
                Change::Rewrite { key, value } => {
                    self.rewrite(key, value, &replaced)?;
                    recorded.complete = false;
                }
                Change::Put { .. } | Change::Delete { .. } => {
                    recorded.events.push(self.event(change, position, replaced.packed)?);
                    self.apply(change, position.packed(), replaced.packed)?;
                }
            }
        }
        Ok(Ok(Some(recorded)))
    }

    /// Checks the conditions of a transaction, and returns the version that each change replaces.
    /// Writes nothing.
    fn check_conditions(&self, txn: &Txn) -> Result<Result<Vec<ReplacedVersion>>> {
        for condition in &txn.conditions {
            let (key, wanted) = match condition {
                Condition::Absent(key) => (key, None),
                Condition::At(key, position) => (key, Some(position.packed())),
            };
            let found = live(&self.index, key)?;
            if found != wanted {
                return Ok(Err(conflict(key, found)));
            }
        }
        let mut all = Vec::with_capacity(txn.changes.len());
        for change in &txn.changes {
            let key = change.key();
            let found = live(&self.index, key)?;
            if found.is_none() && !matches!(change, Change::Put { .. }) {
                return Ok(Err(conflict(key, None)));
            }
            let packed = found.unwrap_or(0);
            let previous = match change {
                Change::Rewrite { .. } => match self.previous_of(key, packed)? {
                    Ok(previous) => previous,
                    Err(refusal) => return Ok(Err(refusal)),
                },
                Change::Put { .. } | Change::Delete { .. } => 0,
            };
            all.push(ReplacedVersion { packed, previous });
        }
        Ok(Ok(all))
    }

    /// Returns the packed position of the version that a live version replaced, from its record.
    fn previous_of(&self, key: &str, packed: u64) -> Result<Result<u64>> {
        let Some(record) = self.changes.get(packed).map_err(engine_error)? else {
            return Ok(Err(corrupt_key(key, "a record of the index does not exist")));
        };
        Ok(layout::decode_head(packed, record.value())
            .map(|(head, _)| head.previous)
            .map_err(|reason| corrupt_key(key, reason)))
    }

    /// Returns the event of a change. It has no previous value when that is corrupt: the change itself
    /// is how a corrupt key is repaired, and watches must get it.
    fn event(&self, change: &Change, position: Position, live: u64) -> Result<Event> {
        let key = change.key();
        let value = match change {
            Change::Put { value, .. } => Some(value.clone()),
            Change::Delete { .. } | Change::Rewrite { .. } => None,
        };
        let previous = previous(&self.changes, key, live)?;
        Ok(Event { key: Arc::clone(key), position, value, previous })
    }

    fn apply(&mut self, change: &Change, packed: u64, previous: u64) -> Result<()> {
        let (mark, value) = match change {
            Change::Put { value, .. } => (PUT, value.as_ref()),
            Change::Delete { .. } | Change::Rewrite { .. } => (TOMBSTONE, [].as_slice()),
        };
        let key = change.key();
        let record = layout::encode(packed, Head { mark, previous, key }, value);
        self.changes.insert(packed, record.as_slice()).map_err(engine_error)?;
        self.index.insert((key.as_bytes(), packed), mark).map(drop).map_err(engine_error)
    }

    fn rewrite(&mut self, key: &str, value: &[u8], replaced: &ReplacedVersion) -> Result<()> {
        let head = Head { mark: PUT, previous: replaced.previous, key };
        let record = layout::encode(replaced.packed, head, value);
        self.changes.insert(replaced.packed, record.as_slice()).map(drop).map_err(engine_error)
    }

    /// Does one step of a compaction: removes the versions that the changes of the next few revisions
    /// superseded, and their tombstones. The previous version of a change is kept until the change
    /// itself is compacted. Returns the compacted revision, and whether it moved.
    fn compact(&mut self, target: u64, prefixes: &[String]) -> Result<(u64, bool)> {
        let old = number(&self.meta, layout::META_COMPACTED)?;
        if target <= old {
            return Ok((old, false));
        }
        let mut table = self.notes()?;
        let mut noting = Noting::new(prefixes, &noted(&table)?, old);
        let (removed, compacted) = self.superseded(old, target, &mut noting)?;
        for (key, packed) in removed {
            self.changes.remove(packed).map_err(engine_error)?;
            self.index.remove((key.as_bytes(), packed)).map_err(engine_error)?;
        }
        self.set(layout::META_COMPACTED, compacted)?;
        let noted = notes::encode_last_changes(&noting.finish(compacted));
        table.insert(layout::NOTES_LAST_CHANGES, noted.as_slice()).map_err(engine_error)?;
        Ok((compacted, true))
    }

    /// Notes the time: see [`crate::Store::age_history`]. Returns the revision, and whether anything
    /// has to be stored.
    fn age(&self, now: Duration, keep: Duration, newest: u64) -> Result<(u64, bool)> {
        let mut table = self.notes()?;
        let stored = table.get(layout::NOTES_AGES).map_err(engine_error)?;
        let noted = stored.and_then(|bytes| notes::decode_ages(bytes.value()));
        let mut ages = noted.unwrap_or_default();
        let outcome = ages.note(now, keep, newest);
        if outcome.changed {
            let bytes = notes::encode_ages(&ages);
            table.insert(layout::NOTES_AGES, bytes.as_slice()).map_err(engine_error)?;
        }
        Ok((outcome.revision, outcome.changed))
    }

    fn superseded(
        &self,
        old: u64,
        target: u64,
        noting: &mut Noting<'_>,
    ) -> Result<(Vec<(String, u64)>, u64)> {
        let first = Position::end_of(old).packed() + 1;
        let last = Position::end_of(target).packed();
        let (mut superseded, mut current) = (Vec::new(), old);
        for (scanned, item) in self.changes.range(first..=last).map_err(engine_error)?.enumerate() {
            let (packed, record) = item.map_err(engine_error)?;
            let packed = packed.value();
            let revision = Position::from_packed(packed).revision();
            if revision != current && scanned >= COMPACTION_CHANGES {
                return Ok((superseded, current));
            }
            current = revision;
            match layout::decode_head(packed, record.value()) {
                Ok((head, _)) => {
                    noting.see(Some(head.key), packed);
                    if head.previous != 0 {
                        superseded.push((head.key.to_owned(), head.previous));
                    }
                    if head.mark == TOMBSTONE {
                        superseded.push((head.key.to_owned(), packed));
                    }
                }
                // The version that it superseded stays, and takes room. It has no other effect.
                Err(reason) => {
                    noting.see(None, packed);
                    tracing::warn!(packed, reason, "compaction skipped a corrupt record");
                }
            }
        }
        Ok((superseded, target))
    }
}

fn conflict(key: &Arc<str>, found: Option<u64>) -> Error {
    Error::Conflict { key: Arc::clone(key), found: found.map(Position::from_packed) }
}
