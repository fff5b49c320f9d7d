//! The applier: the thread that writes accepted transactions to the database, and maintains the database.
//! Transactions are durable in the write-ahead log before they come here. So many of them are written
//! together, and no caller waits for it. `write` has the writes themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

use super::committer::{Job, Queue, reply};
use super::layout::{LogState, Mark};
use super::shared::Shared;
use super::wal_group::AcceptedTxn;
use super::write::{self, Durable, WriteError};
use crate::published::closed;
use crate::{Error, Result};

/// Transactions that are written together, at least, unless a reader or the committer waits.
const TXNS: usize = 1024;
/// The longest time for which transactions wait for others.
const WAIT: Duration = Duration::from_secs(1);

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
    /// Writes what is there, so that readers see it.
    Show,
    /// Writes what is there, so that the log has room again.
    Release,
    /// Performs a task after what is there, and replies to its caller.
    Perform(Job),
    /// Writes what is there, and ends.
    End,
}

/// The applier, as the committer and readers see it.
#[derive(Clone)]
pub(super) struct Handle {
    work: Sender<Work>,
    /// The newest revision that readers of the database see.
    applied: watch::Receiver<u64>,
    outcome: Arc<(Mutex<Outcome>, Condvar)>,
    /// Whether a reader has asked for the waiting transactions to be shown, and waits for that.
    is_asked: Arc<AtomicBool>,
    is_abandoned: Arc<AtomicBool>,
}

/// The outcome that the committer has to know.
#[derive(Debug, Default)]
struct Outcome {
    /// The log is done with up to here.
    released: Option<Mark>,
    /// Why nothing more is done.
    failed: Option<Error>,
    /// Whether something was made durable.
    is_working: bool,
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
    thread: JoinHandle<()>,
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

    /// Ends without writing what was handed over: the log has it.
    pub(super) fn abandon(self) {
        self.handle.is_abandoned.store(true, Ordering::SeqCst);
        drop(self.finish());
    }
}

/// The state that the applier begins with.
pub(super) struct Begin {
    /// The newest revision of the database.
    pub(super) revision: u64,
    /// The log that goes with it, and where it goes on.
    pub(super) log: LogState,
    /// Whether the database has something that is not durable in it.
    pub(super) is_undurable: bool,
    /// Revisions in one segment of history.
    pub(super) segment_revisions: u64,
}

/// Starts the applier of an open database.
///
/// # Errors
/// [`Error::Unavailable`] when there can be no more threads.
pub(super) fn spawn(shared: Arc<Shared>, queue: Arc<Queue>, begin: &Begin) -> Result<Running> {
    let (sender, work) = channel();
    let (newest, applied) = watch::channel(begin.revision);
    let (outcome, is_asked, is_abandoned) = (Arc::default(), Arc::default(), Arc::default());
    let handle = Handle {
        work: sender,
        applied,
        outcome: Arc::clone(&outcome),
        is_asked: Arc::clone(&is_asked),
        is_abandoned: Arc::clone(&is_abandoned),
    };
    let state = Applier {
        shared,
        queue,
        work,
        newest,
        outcome,
        is_asked,
        is_abandoned,
        waiting: Vec::new(),
        log: begin.log,
        due: begin.is_undurable.then(|| Instant::now() + WAIT),
        is_undurable: begin.is_undurable,
        segment_revisions: begin.segment_revisions,
    };
    let thread = std::thread::Builder::new().name("store-apply".to_owned());
    let thread = thread
        .spawn(move || state.run())
        .map_err(|error| Error::Unavailable(format!("cannot start the applier: {error}")))?;
    Ok(Running { handle, thread })
}

/// The state of the applier's thread.
struct Applier {
    shared: Arc<Shared>,
    /// To tell the committer when this ends.
    queue: Arc<Queue>,
    work: Receiver<Work>,
    /// The newest revision that readers of the database see.
    newest: watch::Sender<u64>,
    outcome: Arc<(Mutex<Outcome>, Condvar)>,
    is_asked: Arc<AtomicBool>,
    is_abandoned: Arc<AtomicBool>,
    /// Handed over, and not written yet.
    waiting: Vec<AcceptedTxn>,
    /// The log; its mark is behind what waits.
    log: LogState,
    /// When what is not durable has to be.
    due: Option<Instant>,
    /// Whether the database has something that is not durable in it.
    is_undurable: bool,
    segment_revisions: u64,
}

impl Applier {
    fn run(mut self) {
        loop {
            let work = self.next();
            if self.is_abandoned.load(Ordering::SeqCst) {
                self.put_back(work);
                break;
            }
            let ends = matches!(work, Work::End);
            if let Err(error) = self.take(work) {
                self.fail(error);
                break;
            }
            if ends {
                break;
            }
        }
        // The log has what waits, and tasks are for the next one.
        while let Ok(work) = self.work.try_recv() {
            self.put_back(work);
        }
    }

    fn put_back(&self, work: Work) {
        if let Work::Perform(job) = work {
            self.queue.put_back(job);
        }
    }

    fn next(&self) -> Work {
        let received = match self.due {
            Some(due) => self.work.recv_timeout(due.saturating_duration_since(Instant::now())),
            None => self.work.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        received.unwrap_or_else(|error| match error {
            RecvTimeoutError::Timeout => Work::Release,
            RecvTimeoutError::Disconnected => Work::End,
        })
    }

    fn take(&mut self, work: Work) -> Result<()> {
        match work {
            Work::Apply { txns, mark } => {
                self.waiting.extend(txns);
                self.log.mark = mark;
                let due = *self.due.get_or_insert_with(|| Instant::now() + WAIT);
                let is_due = self.waiting.len() >= TXNS || Instant::now() >= due;
                if is_due { self.apply(Durable::Now) } else { Ok(()) }
            }
            Work::ApplyDurably { txns, done } => {
                self.waiting.extend(txns);
                let applied = self.apply(Durable::Now);
                drop(done.send(applied.clone()));
                applied
            }
            Work::Show => {
                // Before it is done: who asks from now on may want more.
                self.is_asked.store(false, Ordering::SeqCst);
                let is_due = self.due.is_some_and(|due| Instant::now() >= due);
                self.apply(if is_due { Durable::Now } else { Durable::Later })
            }
            Work::Release => self.apply(Durable::Now),
            Work::Perform(job) => match self.apply(Durable::Later) {
                Ok(()) => self.perform(job),
                Err(error) => {
                    self.queue.put_back(job);
                    Err(error)
                }
            },
            Work::End => self.apply(Durable::Now).and_then(|()| self.close()),
        }
    }

    /// Writes what waits.
    fn apply(&mut self, durable: Durable) -> Result<()> {
        let (segment_revisions, mark) = (self.segment_revisions, self.log.mark);
        let is_needed = durable == Durable::Now && self.is_undurable;
        if is_needed || !self.waiting.is_empty() {
            let txns = std::mem::take(&mut self.waiting);
            self.shared
                .with(|database| write::apply(database, segment_revisions, &txns, mark, durable))?;
            if let Some(last) = txns.last() {
                self.newest.send_replace(last.revision);
            }
            self.is_undurable = durable == Durable::Later;
        }
        if durable == Durable::Now {
            self.due = None;
            let (outcome, changed) = &*self.outcome;
            let mut outcome = outcome.lock();
            (outcome.released, outcome.is_working) = (Some(mark), true);
            changed.notify_all();
        }
        Ok(())
    }

    /// Notes that the database has everything, and needs no log.
    fn close(&self) -> Result<()> {
        let log = LogState { is_closed: true, ..self.log };
        self.shared.with(|database| write::note_log(database, log))
    }

    /// Performs a task. When that fails, finds out whether the database still works.
    fn perform(&self, job: Job) -> Result<()> {
        let mut performed = None;
        let ran = self.shared.with(|database| {
            performed = Some(write::perform(database, self.segment_revisions, &job.task));
            Ok(())
        });
        // After a panic it is not known whether the commit had started.
        let panicked = |error| WriteError { error, commit_attempted: true };
        let result = match (ran, performed) {
            (_, Some(performed)) => performed,
            (Err(error), None) => Err(panicked(error)),
            (Ok(()), None) => Err(panicked(closed())),
        };
        match result {
            Ok(result) => {
                reply(job, Ok(result));
                Ok(())
            }
            Err(failure) => {
                let works = if failure.commit_attempted {
                    Err(failure.error.clone())
                } else {
                    self.shared.with(write::probe)
                };
                // First, so that what the caller asks next finds a database that is being opened again.
                if let Err(error) = &works {
                    self.fail(error.clone());
                }
                reply(job, Err(failure.for_callers()));
                works
            }
        }
    }

    /// Says why nothing more is done.
    fn fail(&self, error: Error) {
        let (outcome, changed) = &*self.outcome;
        outcome.lock().failed = Some(error);
        changed.notify_all();
        self.queue.request_probe();
    }
}

impl Drop for Applier {
    /// Reports a panic to every waiting caller.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.fail(Error::Unavailable("the applier panicked".to_owned()));
        }
    }
}
