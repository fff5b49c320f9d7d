//! What the engine's threads and callers share: the open database, the tail of history, and the
//! newest revision. Who may write is decided elsewhere: only the committer does.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use ::redb::Database;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use super::read::{View, corrupt_database};
use super::tail::{Recorded, Tail};
use crate::{Error, Result};

/// Where the database is.
pub(super) enum DatabaseState {
    /// Open and in use.
    Open(Database),
    /// Closed after a fault, which is described.
    Failed(String),
    /// Closed for good.
    Closed,
}

/// How far history goes, for the watches to wait on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// The newest revision that is published.
    pub(super) revision: u64,
    /// The store is closed: nothing more will come.
    pub(super) closed: bool,
}

/// What all parts of one store hold in common.
pub(super) struct Shared {
    /// Held for reading as long as a transaction lives, so that closing waits for them.
    slot: RwLock<DatabaseState>,
    tail: Mutex<Tail>,
    mark: watch::Sender<Mark>,
    /// What is to be done before each commit, if anything is.
    pub(super) gate: OnceLock<Gate>,
}

/// Something that is done before a commit, or the reason why it could not be.
pub(super) type Gate = Box<dyn Fn() -> std::result::Result<(), &'static str> + Send + Sync>;

impl Shared {
    /// A database that has just been opened, with its newest revision.
    pub(super) fn new(database: Database, revision: u64) -> Self {
        Self {
            slot: RwLock::new(DatabaseState::Open(database)),
            tail: Mutex::new(Tail::new(revision)),
            mark: watch::Sender::new(Mark { revision, closed: false }),
            gate: OnceLock::new(),
        }
    }

    /// Runs something on the open database.
    pub(super) fn with<T>(&self, run: impl FnOnce(&Database) -> Result<T>) -> Result<T> {
        match &*self.slot.read() {
            DatabaseState::Open(database) => catch(|| run(database)),
            DatabaseState::Failed(reason) => Err(Error::Unavailable(reason.clone())),
            DatabaseState::Closed => Err(closed()),
        }
    }

    /// Runs something on the newest state.
    pub(super) fn read<T>(&self, run: impl FnOnce(&View) -> Result<T>) -> Result<T> {
        self.with(|database| run(&View::open(database)?))
    }

    /// The newest revision that watches were told of.
    pub(super) fn published(&self) -> u64 {
        self.mark.borrow().revision
    }

    /// Waits for the moment between a commit and its publication, so that whoever has seen a
    /// revision is never told afterwards that there is only an older one.
    pub(super) async fn published_up_to(&self, revision: u64) {
        if self.published() < revision {
            // The mark lives as long as this does, so the wait ends with a revision or a close.
            let mut mark = self.mark.subscribe();
            let _ = mark.wait_for(|mark| mark.closed || mark.revision >= revision).await;
        }
    }

    /// What the tail has behind a revision.
    pub(super) fn tail_after(&self, revision: u64) -> Option<Vec<std::sync::Arc<Recorded>>> {
        self.tail.lock().after(revision)
    }

    /// To wait on.
    pub(super) fn subscribe(&self) -> watch::Receiver<Mark> {
        self.mark.subscribe()
    }

    /// Tells the watches of revisions that are durable.
    pub(super) fn publish(&self, recorded: Vec<Recorded>) {
        let Some(revision) = recorded.last().map(|last| last.revision) else { return };
        let mut tail = self.tail.lock();
        for recorded in recorded {
            tail.push(recorded);
        }
        drop(tail);
        self.mark.send_modify(|mark| mark.revision = revision);
    }

    /// Takes a database that was opened again into use, with its newest revision. The watches
    /// read from it what they may have missed.
    pub(super) fn replace(&self, database: Database, revision: u64) {
        *self.slot.write() = DatabaseState::Open(database);
        *self.tail.lock() = Tail::new(revision);
        self.mark.send_modify(|mark| mark.revision = revision);
    }

    /// Closes the database after a fault.
    pub(super) fn fail(&self, reason: String) {
        self.close_with(DatabaseState::Failed(reason));
    }

    /// Closes the database for good.
    pub(super) fn close(&self) {
        self.close_with(DatabaseState::Closed);
        self.mark.send_modify(|mark| mark.closed = true);
    }

    fn close_with(&self, slot: DatabaseState) {
        let before = std::mem::replace(&mut *self.slot.write(), slot);
        let dropped = catch(|| {
            drop(before);
            Ok(())
        });
        if let Err(error) = dropped {
            tracing::error!(%error, "the database did not close in good order");
        }
    }
}

/// What a store that was closed answers.
pub(super) fn closed() -> Error {
    Error::Unavailable("the store was closed".to_owned())
}

/// Runs something that may panic in the engine below.
///
/// That engine trusts the structure of its pages, and some kinds of damage to them make it
/// panic where it could have returned an error. There is no way to rule this out beforehand, so
/// the panic is turned into the error here. Nothing of ours is left half done by it: what
/// is shared changes only after the engine returned. (A program built to abort on panics ends
/// instead. That is safe as well: what was acknowledged is on the disk.)
pub(super) fn catch<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        Err(corrupt_database("the database file is damaged: its engine failed a check of its own"))
    })
}
