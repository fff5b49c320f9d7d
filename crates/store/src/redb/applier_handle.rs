//! The applier, as the committer and readers see it: requests to it, and its progress.

use super::layout::Mark;
use super::queue::Job;
use super::wal_group::AcceptedTxn;
use crate::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, SyncSender, sync_channel};
use std::thread::JoinHandle;
use tokio::sync::watch;

/// A request to the applier.
pub(super) enum Work {
    /// Writes transactions that are in the log, some time.
    Apply {
        /// The transactions.
        txns: Vec<AcceptedTxn>,
        /// Where the log goes on after them.
        mark: Mark,
    },
    /// Writes transactions for which the log has no room. They are durable when `done` says so.
    ApplyDurably {
        /// The transactions.
        txns: Vec<AcceptedTxn>,
        /// Whether they are durable.
        done: SyncSender<Result<()>>,
    },
    /// Writes the waiting transactions, so that readers see them.
    Show,
    /// Writes the waiting transactions, so that the log has room again.
    Release,
    /// Performs a task after the waiting transactions are written, and replies to its caller.
    Perform(Job),
    /// Writes the waiting transactions, and ends.
    End,
}

/// The applier, as the committer and readers see it.
#[derive(Clone)]
pub(super) struct Handle {
    pub(super) work: Sender<Work>,
    /// The newest revision that readers of the database see.
    pub(super) applied: watch::Receiver<u64>,
    pub(super) outcome: Arc<(Mutex<Outcome>, Condvar)>,
    /// Whether a reader has asked for the waiting transactions to be shown, and waits for that.
    pub(super) is_asked: Arc<AtomicBool>,
    pub(super) is_abandoned: Arc<AtomicBool>,
}

/// The outcome that the committer has to know.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The log is done with up to here.
    pub(super) released: Option<Mark>,
    /// Why nothing more is done.
    pub(super) failed: Option<Error>,
    /// Whether something was made durable.
    pub(super) is_working: bool,
}

impl Handle {
    /// Hands work over. It is lost when the applier has ended: the log has it, or its caller is told.
    pub(super) fn send(&self, work: Work) {
        drop(self.work.send(work));
    }

    /// The newest revision that readers of the database see.
    pub(super) fn applied(&self) -> u64 {
        *self.applied.borrow()
    }

    /// Waits until readers of the database see a revision.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when that will not be: the database failed, or was closed.
    pub(super) async fn wait_until_applied(&self, revision: u64) -> Result<()> {
        if self.applied() >= revision {
            return Ok(());
        }
        if !self.is_asked.swap(true, Ordering::SeqCst) {
            self.send(Work::Show);
        }
        let mut applied = self.applied.clone();
        let ended = |_| {
            let reason = self.failure().map_or_else(String::new, |error| format!(": {error}"));
            Error::Unavailable(format!("the database does not have what was written last{reason}"))
        };
        applied.wait_for(|applied| *applied >= revision).await.map(drop).map_err(ended)
    }

    /// Takes the mark up to which the log is no longer needed, if there is one.
    pub(super) fn take_released(&self) -> Option<Mark> {
        self.outcome.0.lock().released.take()
    }

    /// Waits until more of the log is done with.
    ///
    /// # Errors
    /// Why that will not be.
    pub(super) fn wait_for_room(&self) -> Result<Mark> {
        self.send(Work::Release);
        let (outcome, changed) = &*self.outcome;
        let mut outcome = outcome.lock();
        loop {
            if let Some(error) = &outcome.failed {
                return Err(error.clone());
            }
            if let Some(mark) = outcome.released.take() {
                return Ok(mark);
            }
            changed.wait(&mut outcome);
        }
    }

    /// Writes transactions that are not in the log, and waits until they are durable.
    pub(super) fn apply_durably(&self, txns: Vec<AcceptedTxn>) -> Result<()> {
        let (done, result) = sync_channel(1);
        self.send(Work::ApplyDurably { txns, done });
        let ended = |_| Err(Error::Unavailable("the applier ended before it replied".to_owned()));
        result.recv().unwrap_or_else(ended)
    }

    /// An error when nothing more is done.
    pub(super) fn check(&self) -> Result<()> {
        self.failure().map_or(Ok(()), Err)
    }

    /// Whether something was made durable since the database was opened.
    pub(super) fn is_working(&self) -> bool {
        self.outcome.0.lock().is_working
    }

    /// Why nothing more is done, if so.
    pub(super) fn failure(&self) -> Option<Error> {
        self.outcome.0.lock().failed.clone()
    }
}

/// A running applier.
pub(super) struct Running {
    pub(super) handle: Handle,
    pub(super) thread: JoinHandle<()>,
}

impl Running {
    /// Waits until all is written that was handed over. The database then needs no log.
    ///
    /// # Errors
    /// Why it still needs it.
    pub(super) fn finish(self) -> Result<()> {
        self.handle.send(Work::End);
        if self.thread.join().is_err() {
            tracing::error!("the applier panicked");
        }
        self.handle.check()
    }

    /// Ends without writing the transactions that were handed over: the log has them.
    pub(super) fn abandon(self) {
        self.handle.is_abandoned.store(true, Ordering::SeqCst);
        drop(self.finish());
    }
}
