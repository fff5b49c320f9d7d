//! The state that the threads and the callers share: the open database, the changes that it lacks,
//! the tail of history, and the newest revision. Only the applier writes to the database.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use ::redb::Database;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use super::applier_handle::Handle;
use super::pending::Pending;
use super::read::{View, corrupt_database};
use super::tail::{Recorded, Tail};
use crate::contract::Gate;
use crate::figures::CommitCounters;
use crate::published::Published;
use crate::types::{Error, Result};

/// The state of the database.
pub(super) enum DatabaseState {
    /// Open and in use.
    Open(Database),
    /// Closed after a fault; with a description of it.
    Failed(String),
    /// Closed, and not to be opened again.
    Closed,
}

/// The state that all parts of one store share.
pub(super) struct Shared {
    /// Locked for reading as long as a transaction lives, so that closing waits for it.
    database: RwLock<DatabaseState>,
    /// Keys in order that split it into ranges, as they were when it was opened first.
    pub(super) splits: Vec<Bytes>,
    /// The acknowledged changes that are not in the database.
    pub(super) pending: Mutex<Pending>,
    /// The thread that writes to the database, while that is open.
    applier: RwLock<Option<Handle>>,
    tail: Mutex<Tail>,
    published: watch::Sender<Published>,
    /// The gate before each commit, once it is set.
    pub(super) gate: OnceLock<Gate>,
    /// The counts of commits.
    pub(super) commits: CommitCounters,
}

impl Shared {
    /// The state for a database that has just been opened, with its newest revision and the keys that split
    /// it into ranges.
    pub(super) fn new(database: Database, revision: u64, splits: Vec<Bytes>) -> Self {
        Self {
            database: RwLock::new(DatabaseState::Open(database)),
            splits,
            pending: Mutex::new(Pending::new(revision)),
            applier: RwLock::new(None),
            tail: Mutex::new(Tail::new(revision)),
            published: watch::Sender::new(Published { revision, closed: false }),
            gate: OnceLock::new(),
            commits: CommitCounters::default(),
        }
    }

    /// Runs a function on the open database.
    pub(super) fn with<T>(&self, run: impl FnOnce(&Database) -> Result<T>) -> Result<T> {
        match &*self.database.read() {
            DatabaseState::Open(database) => catch_panic(|| run(database)),
            DatabaseState::Failed(reason) => Err(Error::Unavailable(reason.clone())),
            DatabaseState::Closed => Err(Error::closed()),
        }
    }

    /// Sets the thread that writes to the database.
    pub(super) fn set_applier(&self, applier: Option<Handle>) {
        *self.applier.write() = applier;
    }

    /// The newest revision that the database has; `None` while that is closed.
    pub(super) fn applied_revision(&self) -> Option<u64> {
        self.applier.read().as_ref().map(Handle::applied)
    }

    /// Waits until snapshots have all acknowledged changes.
    ///
    /// # Errors
    /// As for [`Handle::wait_until_applied`].
    pub(super) async fn catch_up(&self) -> Result<()> {
        let revision = self.published_revision();
        let applier = self.applier.read().clone();
        match applier {
            Some(applier) => applier.wait_until_applied(revision).await,
            // Then there are no snapshots either.
            None => self.with(|_| Ok(())),
        }
    }

    /// Runs a function on a snapshot, which may lack the last acknowledged changes: see
    /// [`Shared::catch_up`].
    pub(super) fn read<T>(&self, run: impl FnOnce(&View) -> Result<T>) -> Result<T> {
        self.with(|database| run(&View::open(database)?))
    }

    /// The newest revision that is published to the watches.
    pub(super) fn published_revision(&self) -> u64 {
        self.published.borrow().revision
    }

    /// Waits until a revision is published. A read may see a commit shortly before it is published;
    /// after this wait, no later call returns an older revision than that read.
    pub(super) async fn wait_until_published(&self, revision: u64) {
        if self.published_revision() < revision {
            // The sender lives as long as this, so the wait ends with a revision or a close.
            let mut published = self.published.subscribe();
            let is_there = |newest: &Published| newest.closed || newest.revision >= revision;
            let _ = published.wait_for(is_there).await;
        }
    }

    /// The changes in the tail after a revision; `None` when it does not go back that far.
    pub(super) fn tail_after(&self, revision: u64) -> Option<Vec<Arc<Recorded>>> {
        self.tail.lock().after(revision)
    }

    /// A receiver for the published revisions.
    pub(super) fn subscribe(&self) -> watch::Receiver<Published> {
        self.published.subscribe()
    }

    /// Publishes revisions that are durable to the watches.
    pub(super) fn publish(&self, recorded: Vec<Recorded>) {
        let Some(revision) = recorded.last().map(|last| last.revision) else { return };
        let mut tail = self.tail.lock();
        for recorded in recorded {
            tail.push(recorded);
        }
        drop(tail);
        self.published.send_modify(|published| published.revision = revision);
    }

    /// Uses a database that was opened again, with its newest revision. The watches read from it the
    /// changes that they may have missed.
    pub(super) fn replace(&self, database: Database, revision: u64) {
        *self.database.write() = DatabaseState::Open(database);
        *self.pending.lock() = Pending::new(revision);
        *self.tail.lock() = Tail::new(revision);
        self.published.send_modify(|published| published.revision = revision);
    }

    /// Closes the database after a fault.
    pub(super) fn fail(&self, reason: String) {
        self.close_with(DatabaseState::Failed(reason));
    }

    /// Closes the database, not to be opened again.
    pub(super) fn close(&self) {
        self.close_with(DatabaseState::Closed);
        self.published.send_modify(|published| published.closed = true);
    }

    fn close_with(&self, state: DatabaseState) {
        let before = std::mem::replace(&mut *self.database.write(), state);
        let dropped = catch_panic(|| {
            drop(before);
            Ok(())
        });
        if let Err(error) = dropped {
            tracing::error!(%error, "the database did not close cleanly");
        }
    }
}

/// Runs a function in which redb may panic, and turns a panic into an error.
///
/// redb trusts the structure of its pages, and some kinds of corruption make it panic where it
/// could have returned an error. There is no way to detect them beforehand. The panic leaves none
/// of our state half changed: shared state changes only after redb has returned. (A program that is
/// built to abort on panics ends. That is safe as well: acknowledged changes are on the disk.)
pub(super) fn catch_panic<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        Err(corrupt_database("the database file is corrupt: its engine failed a check of its own"))
    })
}
