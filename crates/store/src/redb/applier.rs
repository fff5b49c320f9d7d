//! The applier: the thread that writes accepted transactions to the database, and maintains the database.
//! Transactions are durable in the write-ahead log before they come here. So many of them are written
//! together, and no caller waits for it. `write` has the writes themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

use super::applier_handle::{Handle, Outcome, Running, Work};
use super::layout::LogState;
use super::queue::{Job, Queue, reply};
use super::shared::Shared;
use super::start::Begin;
use super::wal_group::AcceptedTxn;
use super::write::{self, Durable, WriteError};
use crate::{Error, Result};

/// Transactions that are written together, at least, unless a reader or the committer waits.
const TXNS: usize = 1024;
/// The longest time for which transactions wait for others.
const WAIT: Duration = Duration::from_secs(1);

/// Starts the applier of an open database.
///
/// # Errors
/// [`Error::Unavailable`] if no thread can be created.
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
    /// When the undurable data in the database must be made durable.
    due: Option<Instant>,
    /// Whether the database has undurable data in it.
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
                // Before the write: a caller that asks from now on may want newer transactions.
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
            (Ok(()), None) => Err(panicked(Error::closed())),
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
                // First, so that the caller's next call finds a database that is being opened
                // again.
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
