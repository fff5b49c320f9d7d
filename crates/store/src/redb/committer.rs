//! The one thread that writes: takes whatever waits, commits it in one go, tells the callers.
//! Also the one that closes the database after a fault and opens it again.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use ::redb::Database;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::file::Opener;
use super::shared::{Shared, catch, closed};
use super::verify::verify;
use super::write::{self, Failure, Task, Written};
use crate::check::value_bytes;
use crate::{Error, Result};

/// Tasks that may wait for the committer; more callers wait for room.
const QUEUE_TASKS: usize = 1024;
/// KiB of values that may wait for the committer. Four of the greatest transactions.
const QUEUE_KIB: usize = 64 * 1024;
/// Tasks in one group.
const GROUP_TASKS: usize = 256;
/// Bytes of values in one group, which may end with one transaction above it.
const GROUP_BYTES: usize = 16 * 1024 * 1024;
/// A group of so many, and its callers are likely to be back soon: worth waiting for.
const MANY_TASKS: usize = 8;
/// The wait for them; as long as there are more each time, it goes on.
const QUIET: Duration = Duration::from_micros(50);
/// The longest wait for them.
const QUIET_MAX: Duration = Duration::from_micros(300);
/// The wait before the database is opened again, when that has failed once; doubles each time.
const REOPEN_WAIT_MIN: Duration = Duration::from_millis(100);
/// The longest such wait.
const REOPEN_WAIT_MAX: Duration = Duration::from_secs(5);

/// A task with its way back.
pub(super) struct Job {
    task: Task,
    reply: oneshot::Sender<Result<u64>>,
    /// The room it takes in the queue, given back when it is done.
    _room: (OwnedSemaphorePermit, OwnedSemaphorePermit),
}

/// The callers' end of the committer.
pub(super) struct Queue {
    sender: Mutex<Option<SyncSender<Job>>>,
    slots: Arc<Semaphore>,
    kib: Arc<Semaphore>,
}

impl Queue {
    /// Both ends of an empty queue.
    pub(super) fn new() -> (Self, Receiver<Job>) {
        let (sender, receiver) = sync_channel(QUEUE_TASKS);
        let slots = Arc::new(Semaphore::new(QUEUE_TASKS));
        let kib = Arc::new(Semaphore::new(QUEUE_KIB));
        (Self { sender: Mutex::new(Some(sender)), slots, kib }, receiver)
    }

    /// Hands a task over and waits for its answer.
    pub(super) async fn run(&self, task: Task) -> Result<u64> {
        let kib = u32::try_from(task_bytes(&task) / 1024).unwrap_or(u32::MAX);
        let slot = Arc::clone(&self.slots).acquire_owned().await.map_err(|_| closed())?;
        let kib = Arc::clone(&self.kib).acquire_many_owned(kib).await.map_err(|_| closed())?;
        let (reply, answer) = oneshot::channel();
        self.send(Job { task, reply, _room: (slot, kib) })?;
        answer.await.unwrap_or_else(|_| {
            Err(Error::Unknown("the committer ended before it answered".to_owned()))
        })
    }

    /// Has the committer look whether the database still works, and waits for nothing. When the
    /// queue is full, the committer is about to find out anyway.
    pub(super) fn nudge(&self) {
        let slot = Arc::clone(&self.slots).try_acquire_owned();
        let kib = Arc::clone(&self.kib).try_acquire_many_owned(0);
        if let (Ok(slot), Ok(kib)) = (slot, kib) {
            let (reply, _) = oneshot::channel();
            drop(self.send(Job { task: Task::Recover { now: false }, reply, _room: (slot, kib) }));
        }
    }

    fn send(&self, job: Job) -> Result<()> {
        match self.sender.lock().as_ref() {
            None => Err(closed()),
            // There is a slot for each place in the channel, so it is never full.
            Some(sender) => sender.try_send(job).map_err(|error| match error {
                TrySendError::Full(_) => {
                    Error::Unavailable("too many transactions are waiting".to_owned())
                }
                TrySendError::Disconnected(_) => closed(),
            }),
        }
    }

    /// Takes no more tasks. The committer ends after those that it has.
    pub(super) fn close(&self) {
        self.sender.lock().take();
        self.slots.close();
        self.kib.close();
    }
}

fn task_bytes(task: &Task) -> usize {
    match task {
        Task::Commit(txn) => txn.changes.iter().map(value_bytes).sum(),
        Task::Compact(_) | Task::Recover { .. } => 0,
    }
}

/// Opens the database, looks it over, and answers it with its newest revision.
pub(super) fn open(opener: &Opener) -> Result<(Database, u64)> {
    catch(|| {
        let database = opener()?;
        write::prepare(&database)?;
        let view = super::read::View::open(&database)?;
        verify(&view)?;
        let revision = view.revision;
        drop(view);
        Ok((database, revision))
    })
}

/// What is committed in one go.
struct Group {
    jobs: Vec<Job>,
    /// Bytes of their values.
    bytes: usize,
}

/// When to try to open the database again.
struct Retry {
    at: Instant,
    wait: Duration,
}

/// The thread's own things.
pub(super) struct Committer {
    shared: Arc<Shared>,
    jobs: Receiver<Job>,
    opener: Opener,
    retry: Option<Retry>,
    /// Tasks in the group before.
    last_group: usize,
}

impl Committer {
    /// A committer for an open database.
    pub(super) fn new(shared: Arc<Shared>, jobs: Receiver<Job>, opener: Opener) -> Self {
        Self { shared, jobs, opener, retry: None, last_group: 0 }
    }

    /// Works until the queue is closed and empty, then closes the database.
    pub(super) fn run(mut self) {
        while let Some(first) = self.next_job() {
            let group = self.gather(first);
            self.process(group);
        }
        self.shared.close();
    }

    fn next_job(&mut self) -> Option<Job> {
        loop {
            let Some(retry) = &self.retry else { return self.jobs.recv().ok() };
            let wait = retry.at.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                self.reopen();
                continue;
            }
            match self.jobs.recv_timeout(wait) {
                Ok(job) => return Some(job),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Whatever waits, up to the group's limits. A commit costs the same for one and for many, so
    /// when there were many a moment ago, those who are about to come back are waited for;
    /// somebody who writes alone never waits.
    fn gather(&mut self, first: Job) -> Vec<Job> {
        let mut group = Group { bytes: task_bytes(&first.task), jobs: vec![first] };
        self.take_waiting(&mut group);
        if self.last_group >= MANY_TASKS {
            let begin = Instant::now();
            while group.jobs.len() < self.last_group && begin.elapsed() < QUIET_MAX {
                std::thread::sleep(QUIET);
                if self.take_waiting(&mut group) == 0 {
                    break;
                }
            }
        }
        self.last_group = group.jobs.len();
        group.jobs
    }

    /// Anything but a transaction ends a group, so that no commit carries two compaction steps.
    fn take_waiting(&self, group: &mut Group) -> usize {
        let before = group.jobs.len();
        while group.jobs.len() < GROUP_TASKS
            && group.bytes < GROUP_BYTES
            && group.jobs.last().is_some_and(|job| matches!(job.task, Task::Commit(_)))
        {
            let Ok(job) = self.jobs.try_recv() else { break };
            group.bytes += task_bytes(&job.task);
            group.jobs.push(job);
        }
        group.jobs.len() - before
    }

    fn process(&mut self, group: Vec<Job>) {
        if let Some(Job { task: Task::Recover { now }, .. }) = group.last() {
            self.recover(*now);
        }
        match self.write(&group) {
            Ok(written) => {
                // Callers hear of it after the watches, and both only now that it is durable.
                self.shared.publish(written.recorded);
                for (job, answer) in group.into_iter().zip(written.answers) {
                    answer_to(job, answer);
                }
            }
            Err(failure) => {
                let error = spoken(&failure);
                if failure.attempted || self.is_broken() {
                    self.fail(&failure.error);
                }
                for job in group {
                    answer_to(job, Err(error.clone()));
                }
            }
        }
    }

    fn write(&self, group: &[Job]) -> std::result::Result<Written, Failure> {
        let commits = group.iter().any(|job| matches!(job.task, Task::Commit(_)));
        if let Some(gate) = self.shared.gate.get().filter(|_| commits) {
            gate().map_err(|why| Failure { error: Error::Gated(why), attempted: false })?;
        }
        let mut outcome = None;
        let ran = self.shared.with(|database| {
            outcome = Some(write::group(database, group.iter().map(|job| &job.task)));
            Ok(())
        });
        match (ran, outcome) {
            (_, Some(outcome)) => outcome,
            // A panic leaves no trace of how far it came; a database that is closed, came nowhere.
            (Err(error @ Error::Corrupt { .. }), None) => Err(Failure { error, attempted: true }),
            (Err(error), None) => Err(Failure { error, attempted: false }),
            (Ok(()), None) => Err(Failure { error: closed(), attempted: false }),
        }
    }

    /// Whether the database is open and yet takes no writes.
    fn is_broken(&self) -> bool {
        self.retry.is_none() && self.shared.with(write::probe).is_err()
    }

    fn recover(&mut self, now: bool) {
        if self.retry.is_some() {
            if now {
                self.reopen();
            }
        } else if let Err(error) = self.shared.with(write::probe) {
            self.fail(&error);
        }
    }

    fn fail(&mut self, error: &Error) {
        tracing::error!(%error, "the database failed; it is closed and opened again");
        self.shared.fail(format!("the database failed, and is being opened again: {error}"));
        self.retry = Some(Retry { at: Instant::now(), wait: REOPEN_WAIT_MIN });
        self.reopen();
    }

    fn reopen(&mut self) {
        let Some(retry) = &mut self.retry else { return };
        let published = self.shared.published();
        let error = match open(&self.opener) {
            Ok((database, revision)) if revision >= published => {
                self.shared.replace(database, revision);
                self.retry = None;
                tracing::info!(revision, "the database is open again");
                return;
            }
            Ok((_, revision)) => Error::Unavailable(format!(
                "the disk lost what it had acknowledged: revision {published} was durable, and \
                 the newest one found is {revision}"
            )),
            Err(error) => error,
        };
        tracing::error!(%error, "the database cannot be opened again yet");
        self.shared.fail(format!("the database failed and cannot be opened again yet: {error}"));
        retry.at = Instant::now() + retry.wait;
        retry.wait = (retry.wait * 2).min(REOPEN_WAIT_MAX);
    }
}

/// What to tell the callers of a group that failed.
fn spoken(failure: &Failure) -> Error {
    match (&failure.error, failure.attempted) {
        (error, true) => Error::Unknown(error.to_string()),
        (error @ (Error::Unavailable(_) | Error::Gated(_) | Error::Corrupt { .. }), false) => {
            error.clone()
        }
        (error, false) => Error::Unavailable(error.to_string()),
    }
}

fn answer_to(job: Job, answer: Result<u64>) {
    // A caller that no longer waits does not want to know.
    drop(job.reply.send(answer));
}
