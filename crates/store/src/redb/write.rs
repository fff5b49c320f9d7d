//! What is written to the database: one group of transactions in one durable commit. No threads
//! here, and nobody is told anything: the committer does that once the commit has returned.

use std::sync::Arc;

use ::redb::{Database, Durability, ReadableTable, Table, WriteTransaction};

use super::layout::{self, CHANGES, FORMAT, Head, INDEX, META, PUT, TOMBSTONE};
use super::read::{damaged, fault, live, number, previous};
use super::tail::Recorded;
use crate::{Change, Condition, Error, Event, Position, Result, Txn};

/// Changes that one compaction step looks at, before writers get their turn.
const COMPACTION_CHANGES: usize = 512;

/// What the committer is asked for.
#[derive(Debug)]
pub(super) enum Task {
    /// A transaction. Answers its revision.
    Commit(Txn),
    /// One step towards a compaction. Answers how far everything is compacted now.
    Compact(u64),
    /// A look at whether the database works. If it is known not to, and `now` is set, an attempt
    /// to open it again without waiting for the next that is due. Answers the newest revision.
    Recover {
        /// Whether to try at once.
        now: bool,
    },
}

/// What a group came to, all of it durable.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// For each task, in order, what to tell its caller.
    pub(super) answers: Vec<Result<u64>>,
    /// The new revisions, in order.
    pub(super) recorded: Vec<Recorded>,
}

/// A group that did not come to a good end.
#[derive(Debug)]
pub(super) struct Failure {
    /// Why.
    pub(super) error: Error,
    /// Whether the commit had begun, so that the group may have happened after all.
    pub(super) attempted: bool,
}

/// Makes an empty database ready for use, and refuses one of another layout.
pub(super) fn prepare(database: &Database) -> Result<()> {
    let transaction = begin(database)?;
    let is_new = transaction.list_tables().map_err(fault)?.next().is_none();
    {
        let mut tables = Tables::open(&transaction)?;
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
    if is_new { transaction.commit().map_err(fault) } else { transaction.abort().map_err(fault) }
}

/// Whether the engine would take a write.
pub(super) fn probe(database: &Database) -> Result<()> {
    begin(database)?.abort().map_err(fault)
}

/// Performs tasks in order, and commits what they did in one go.
pub(super) fn group<'a>(
    database: &Database,
    tasks: impl Iterator<Item = &'a Task>,
) -> std::result::Result<Written, Failure> {
    let not_attempted = |error| Failure { error, attempted: false };
    let transaction = begin(database).map_err(not_attempted)?;
    let (written, changed) = perform(&transaction, tasks).map_err(not_attempted)?;
    if changed {
        let attempted = |error| Failure { error: fault(error), attempted: true };
        transaction.commit().map_err(attempted)?;
    } else {
        transaction.abort().map_err(|error| not_attempted(fault(error)))?;
    }
    Ok(written)
}

fn begin(database: &Database) -> Result<WriteTransaction> {
    let mut transaction = database.begin_write().map_err(fault)?;
    transaction.set_durability(Durability::Immediate).map_err(fault)?;
    transaction.set_two_phase_commit(true);
    transaction.set_quick_repair(true);
    Ok(transaction)
}

fn perform<'a>(
    transaction: &WriteTransaction,
    tasks: impl Iterator<Item = &'a Task>,
) -> Result<(Written, bool)> {
    let mut tables = Tables::open(transaction)?;
    let mut written = Written::default();
    let before = tables.revision()?;
    let (mut revision, mut compacted) = (before, false);
    for task in tasks {
        let answer = match task {
            Task::Commit(txn) => match tables.commit(txn, revision)? {
                Ok(recorded) => {
                    if let Some(recorded) = recorded {
                        revision = recorded.revision;
                        written.recorded.push(recorded);
                    }
                    Ok(revision)
                }
                Err(refusal) => Err(refusal),
            },
            Task::Compact(target) if *target > revision => Err(Error::Future { current: revision }),
            Task::Compact(target) => {
                let (reached, moved) = tables.compact(*target)?;
                compacted |= moved;
                Ok(reached)
            }
            Task::Recover { .. } => Ok(revision),
        };
        written.answers.push(answer);
    }
    if revision != before {
        tables.set(layout::META_REVISION, revision)?;
    }
    Ok((written, revision != before || compacted))
}

/// The tables, open for writing.
struct Tables<'t> {
    changes: Table<'t, u64, &'static [u8]>,
    index: Table<'t, (&'static [u8], u64), u8>,
    meta: Table<'t, &'static str, u64>,
}

/// What a change finds before it happens.
struct Found {
    /// The packed position of the key's live version; 0 for none.
    live: u64,
    /// For a rewrite: the live version's own previous version.
    before_live: u64,
}

impl<'t> Tables<'t> {
    fn open(transaction: &'t WriteTransaction) -> Result<Self> {
        Ok(Self {
            changes: transaction.open_table(CHANGES).map_err(fault)?,
            index: transaction.open_table(INDEX).map_err(fault)?,
            meta: transaction.open_table(META).map_err(fault)?,
        })
    }

    fn revision(&self) -> Result<u64> {
        number(&self.meta, layout::META_REVISION)
    }

    fn set(&mut self, name: &str, number: u64) -> Result<()> {
        self.meta.insert(name, number).map(drop).map_err(fault)
    }

    /// One transaction on top of a revision. The inner result is its own; `None` for one that
    /// changes nothing.
    fn commit(&mut self, txn: &Txn, newest: u64) -> Result<Result<Option<Recorded>>> {
        let found = match self.judge(txn) {
            Ok(Ok(found)) => found,
            // Damage of one key is that transaction's trouble, not its neighbours'.
            Ok(Err(refusal)) | Err(refusal @ Error::Corrupt { key: Some(_), .. }) => {
                return Ok(Err(refusal));
            }
            Err(fault) => return Err(fault),
        };
        if txn.changes.is_empty() {
            return Ok(Ok(None));
        }
        let revision = newest + 1;
        let mut recorded = Recorded { revision, events: Vec::new(), whole: true };
        for ((index, change), found) in (0_u8..).zip(&txn.changes).zip(found) {
            let position = Position::new(revision, index);
            match change {
                Change::Rewrite { key, value } => {
                    self.rewrite(key, value, &found)?;
                    recorded.whole = false;
                }
                Change::Put { .. } | Change::Delete { .. } => {
                    match self.event(change, position, found.live)? {
                        Some(event) => recorded.events.push(event),
                        None => recorded.whole = false,
                    }
                    self.apply(change, position.packed(), found.live)?;
                }
            }
        }
        Ok(Ok(Some(recorded)))
    }

    /// Whether a transaction may happen. Nothing has been written when it may not.
    fn judge(&self, txn: &Txn) -> Result<Result<Vec<Found>>> {
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
            let live = found.unwrap_or(0);
            let before_live = match change {
                Change::Rewrite { .. } => match self.previous_of(key, live)? {
                    Ok(previous) => previous,
                    Err(refusal) => return Ok(Err(refusal)),
                },
                Change::Put { .. } | Change::Delete { .. } => 0,
            };
            all.push(Found { live, before_live });
        }
        Ok(Ok(all))
    }

    /// What a live version replaced, from its record.
    fn previous_of(&self, key: &str, packed: u64) -> Result<Result<u64>> {
        let Some(record) = self.changes.get(packed).map_err(fault)? else {
            return Ok(Err(damaged(key, "the index names a record that is not there")));
        };
        Ok(layout::decode_head(packed, record.value())
            .map(|(head, _)| head.previous)
            .map_err(|reason| damaged(key, reason)))
    }

    /// `None` when the previous value is damaged: the change may go on, since it is how damage
    /// gets repaired, but its event cannot be told from memory.
    fn event(&self, change: &Change, position: Position, live: u64) -> Result<Option<Event>> {
        let key = change.key();
        let value = match change {
            Change::Put { value, .. } => Some(value.clone()),
            Change::Delete { .. } | Change::Rewrite { .. } => None,
        };
        let previous = previous(&self.changes, key, live)?.ok();
        Ok(previous.map(|previous| Event { key: Arc::clone(key), position, value, previous }))
    }

    fn apply(&mut self, change: &Change, packed: u64, previous: u64) -> Result<()> {
        let (mark, value) = match change {
            Change::Put { value, .. } => (PUT, value.as_ref()),
            Change::Delete { .. } | Change::Rewrite { .. } => (TOMBSTONE, [].as_slice()),
        };
        let key = change.key();
        let record = layout::encode(packed, Head { mark, previous, key }, value);
        self.changes.insert(packed, record.as_slice()).map_err(fault)?;
        self.index.insert((key.as_bytes(), packed), mark).map(drop).map_err(fault)
    }

    fn rewrite(&mut self, key: &str, value: &[u8], found: &Found) -> Result<()> {
        let head = Head { mark: PUT, previous: found.before_live, key };
        let record = layout::encode(found.live, head, value);
        self.changes.insert(found.live, record.as_slice()).map(drop).map_err(fault)
    }

    /// One step of a compaction: forgets what the changes of the next few revisions superseded,
    /// and their tombstones. A change keeps its previous version until it is itself compacted.
    /// Answers how far everything is compacted, and whether that moved.
    fn compact(&mut self, target: u64) -> Result<(u64, bool)> {
        let old = number(&self.meta, layout::META_COMPACTED)?;
        if target <= old {
            return Ok((old, false));
        }
        let (doomed, reached) = self.superseded(old, target)?;
        for (key, packed) in doomed {
            self.changes.remove(packed).map_err(fault)?;
            self.index.remove((key.as_bytes(), packed)).map_err(fault)?;
        }
        self.set(layout::META_COMPACTED, reached)?;
        Ok((reached, true))
    }

    fn superseded(&self, old: u64, target: u64) -> Result<(Vec<(String, u64)>, u64)> {
        let first = Position::end_of(old).packed() + 1;
        let last = Position::end_of(target).packed();
        let (mut doomed, mut current) = (Vec::new(), old);
        for (scanned, item) in self.changes.range(first..=last).map_err(fault)?.enumerate() {
            let (packed, record) = item.map_err(fault)?;
            let packed = packed.value();
            let revision = Position::from_packed(packed).revision();
            if revision != current && scanned >= COMPACTION_CHANGES {
                return Ok((doomed, current));
            }
            current = revision;
            match layout::decode_head(packed, record.value()) {
                Ok((head, _)) => {
                    if head.previous != 0 {
                        doomed.push((head.key.to_owned(), head.previous));
                    }
                    if head.mark == TOMBSTONE {
                        doomed.push((head.key.to_owned(), packed));
                    }
                }
                // What it superseded stays, and takes room; nothing else comes of it.
                Err(reason) => tracing::warn!(packed, reason, "compaction passed by damage"),
            }
        }
        Ok((doomed, target))
    }
}

fn conflict(key: &Arc<str>, found: Option<u64>) -> Error {
    Error::Conflict { key: Arc::clone(key), found: found.map(Position::from_packed) }
}
