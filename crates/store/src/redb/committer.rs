//! The committer: the only thread that writes. It takes the tasks that are waiting, commits them as
//! one group, and replies to the callers. It also closes the database after a fault and opens it
//! again. What a group writes is decided in `write`.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use ::redb::Database;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::file::Opener;
use super::shared::{Shared, catch};
use super::verify::verify;
use super::write::{self, GroupError, GroupOutcome, Task};
use crate::check::value_bytes;
use crate::published::closed;
use crate::{Error, Result};

/// Tasks that may wait for the committer; more callers wait for room.
const QUEUE_TASKS: usize = 1024;
/// KiB of values that may wait for the committer: room for four transactions of the maximum size.
const QUEUE_KIB: usize = 64 * 1024;
/// Tasks in one group.
const GROUP_TASKS: usize = 256;
/// Bytes of values in one group. The last transaction of the group may exceed it.
const GROUP_BYTES: usize = 16 * 1024 * 1024;
/// After a group of this many tasks, the committer waits for more: its callers are likely to send
/// the next ones soon.
const MANY_TASKS: usize = 8;
/// One wait for more tasks. The committer waits again as long as each wait brings more.
const QUIET: Duration = Duration::from_micros(50);
/// The limit of all those waits together.
const QUIET_MAX: Duration = Duration::from_micros(300);
/// The wait before the second attempt to open the database again; doubles each time.
const REOPEN_WAIT_MIN: Duration = Duration::from_millis(100);
/// The longest wait between two attempts to open the database again.
const REOPEN_WAIT_MAX: Duration = Duration::from_secs(5);

/// A task, and where its result goes.
pub(super) struct Job {
    task: Task,
    reply: oneshot::Sender<Result<u64>>,
    /// Its permits in the queue: one task, and its KiB. Released when the job is dropped.
    _permits: (OwnedSemaphorePermit, OwnedSemaphorePermit),
}

/// The callers' side of the committer's queue.
pub(super) struct Queue {
    sender: Mutex<Option<SyncSender<Job>>>,
    tasks: Arc<Semaphore>,
    kib: Arc<Semaphore>,
}

impl Queue {
    /// Returns both ends of an empty queue.
    pub(super) fn new() -> (Self, Receiver<Job>) {
        let (sender, receiver) = sync_channel(QUEUE_TASKS);
        let tasks = Arc::new(Semaphore::new(QUEUE_TASKS));
        let kib = Arc::new(Semaphore::new(QUEUE_KIB));
        (Self { sender: Mutex::new(Some(sender)), tasks, kib }, receiver)
    }

    /// Sends a task to the committer and waits for its result.
    pub(super) async fn run(&self, task: Task) -> Result<u64> {
        let kib = u32::try_from(task_bytes(&task) / 1024).unwrap_or(u32::MAX);
        let task_permit = Arc::clone(&self.tasks).acquire_owned().await.map_err(|_| closed())?;
        let kib = Arc::clone(&self.kib).acquire_many_owned(kib).await.map_err(|_| closed())?;
        let (reply, result) = oneshot::channel();
        self.send(Job { task, reply, _permits: (task_permit, kib) })?;
        result.await.unwrap_or_else(|_| {
            Err(Error::Unknown("the committer ended before it replied".to_owned()))
        })
    }

    /// Asks the committer to check whether the database still works, and does not wait. When the
    /// queue is full, the committer is going to find out anyway.
    pub(super) fn request_probe(&self) {
        let task_permit = Arc::clone(&self.tasks).try_acquire_owned();
        let kib = Arc::clone(&self.kib).try_acquire_many_owned(0);
        if let (Ok(task_permit), Ok(kib)) = (task_permit, kib) {
            let (reply, _) = oneshot::channel();
            drop(self.send(Job {
                task: Task::Recover { now: false },
                reply,
                _permits: (task_permit, kib),
            }));
        }
    }

    fn send(&self, job: Job) -> Result<()> {
        match self.sender.lock().as_ref() {
            None => Err(closed()),
            // There are as many permits as the channel has room for, so it is never full.
            Some(sender) => sender.try_send(job).map_err(|error| match error {
                TrySendError::Full(_) => {
                    Error::Unavailable("too many transactions are waiting".to_owned())
                }
                TrySendError::Disconnected(_) => closed(),
            }),
        }
    }

    /// Closes the queue to new tasks. The committer ends after the tasks that are waiting.
    pub(super) fn close(&self) {
        self.sender.lock().take();
        self.tasks.close();
        self.kib.close();
    }
}

fn task_bytes(task: &Task) -> usize {
    match task {
        Task::Commit(txn) => txn.changes.iter().map(value_bytes).sum(),
        Task::Forget(_) | Task::Age { .. } | Task::Recover { .. } => 0,
    }
}

/// Opens the database, verifies it, and returns it with its newest revision.
pub(super) fn open(opener: &Opener, segment_revisions: u64) -> Result<(Database, u64)> {
    catch(|| {
        let database = opener()?;
        write::prepare(&database, segment_revisions)?;
        let view = super::read::View::open(&database)?;
        let sum = verify(&view)?;
        let revision = view.state.revision;
        drop(view);
        if let Some(sum) = sum {
            write::record_sum(&database, sum)?;
        }
        Ok((database, revision))
    })
}

/// Jobs that are committed together.
struct Group {
    jobs: Vec<Job>,
    /// The bytes of their values.
    bytes: usize,
}

/// The next attempt to open the database again.
struct Retry {
    at: Instant,
    wait: Duration,
}

/// The state of the committer's thread.
pub(super) struct Committer {
    shared: Arc<Shared>,
    jobs: Receiver<Job>,
    opener: Opener,
    /// Revisions in one segment of history.
    segment_revisions: u64,
    retry: Option<Retry>,
    /// A job that was taken from the queue, and begins the next group.
    held: Option<Job>,
    /// The number of tasks in the previous group.
    last_group: usize,
}

impl Committer {
    /// Returns a committer for an open database.
    pub(super) fn new(
        shared: Arc<Shared>,
        jobs: Receiver<Job>,
        opener: Opener,
        segment_revisions: u64,
    ) -> Self {
        Self { shared, jobs, opener, segment_revisions, retry: None, held: None, last_group: 0 }
    }

    /// Runs until the queue is closed and empty, then closes the database.
    pub(super) fn run(mut self) {
        while let Some(first) = self.next_job() {
            let group = self.gather(first);
            self.process(group);
        }
        self.shared.close();
    }

    fn next_job(&mut self) -> Option<Job> {
        if let Some(job) = self.held.take() {
            return Some(job);
        }
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

    /// Returns the jobs that are waiting, up to the limits of a group. A commit costs the same for
    /// one transaction and for many. So after a large group, the next jobs of the same callers are
    /// waited for. A single writer never waits.
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

    /// Moves waiting jobs into the group, and returns how many. Any task that is not a transaction
    /// ends a group. A step of a compaction also begins one: it fails when the history that it drops is
    /// damaged, and must fail nobody else.
    fn take_waiting(&mut self, group: &mut Group) -> usize {
        let before = group.jobs.len();
        while self.held.is_none()
            && group.jobs.len() < GROUP_TASKS
            && group.bytes < GROUP_BYTES
            && group.jobs.last().is_some_and(|job| matches!(job.task, Task::Commit(_)))
        {
            let Ok(job) = self.jobs.try_recv() else { break };
            if matches!(job.task, Task::Forget(_)) {
                self.held = Some(job);
                break;
            }
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
            Ok(outcome) => {
                // It is durable now. Watches get it before the callers get their revisions.
                self.shared.publish(outcome.recorded);
                for (job, result) in group.into_iter().zip(outcome.results) {
                    reply(job, result);
                }
            }
            Err(failure) => {
                let error = error_for_callers(&failure);
                if failure.commit_attempted || self.is_broken() {
                    self.fail(&failure.error);
                }
                for job in group {
                    reply(job, Err(error.clone()));
                }
            }
        }
    }

    fn write(&self, group: &[Job]) -> std::result::Result<GroupOutcome, GroupError> {
        let commits = group.iter().any(|job| matches!(job.task, Task::Commit(_)));
        if let Some(gate) = self.shared.gate.get().filter(|_| commits) {
            gate()
                .map_err(|why| GroupError { error: Error::Gated(why), commit_attempted: false })?;
        }
        let mut outcome = None;
        let ran = self.shared.with(|database| {
            let tasks = group.iter().map(|job| &job.task);
            outcome = Some(write::group(database, self.segment_revisions, tasks));
            Ok(())
        });
        match (ran, outcome) {
            (_, Some(outcome)) => outcome,
            // After a panic it is not known whether the commit had started. When the database is
            // closed, it had not.
            (Err(error @ Error::Corrupt { .. }), None) => {
                Err(GroupError { error, commit_attempted: true })
            }
            (Err(error), None) => Err(GroupError { error, commit_attempted: false }),
            (Ok(()), None) => Err(GroupError { error: closed(), commit_attempted: false }),
        }
    }

    /// Returns whether the database is open but does not take writes.
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
        let published = self.shared.published_revision();
        let error = match open(&self.opener, self.segment_revisions) {
            Ok((database, revision)) if revision >= published => {
                self.shared.replace(database, revision);
                self.retry = None;
                tracing::info!(revision, "the database is open again");
                return;
            }
            Ok((_, revision)) => Error::Unavailable(format!(
                "the disk lost acknowledged writes: revision {published} was durable, and \
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

/// Returns the error for the callers of a group that failed.
fn error_for_callers(failure: &GroupError) -> Error {
    match (&failure.error, failure.commit_attempted) {
        (error, true) => Error::Unknown(error.to_string()),
        (error @ (Error::Unavailable(_) | Error::Gated(_) | Error::Corrupt { .. }), false) => {
            error.clone()
        }
        (error, false) => Error::Unavailable(error.to_string()),
    }
}

fn reply(job: Job, result: Result<u64>) {
    // Sending fails when the caller no longer waits.
    drop(job.reply.send(result));
}

#[cfg(test)]
mod tests {
    use ::redb::Builder;
    use ::redb::backends::InMemoryBackend;

    use super::*;
    use crate::Txn;
    use crate::last_change::NotedChanges;
    use crate::redb::history::Forgetting;

    fn send(queue: &Queue, task: Task) {
        let permits = (
            Arc::clone(&queue.tasks).try_acquire_owned().unwrap(),
            Arc::clone(&queue.kib).try_acquire_many_owned(0).unwrap(),
        );
        let (reply, _) = oneshot::channel();
        queue.send(Job { task, reply, _permits: permits }).unwrap();
    }

    #[test]
    fn a_step_of_a_compaction_is_a_group_of_its_own() {
        let (queue, jobs) = Queue::new();
        let database = Builder::new().create_with_backend(InMemoryBackend::new()).unwrap();
        let shared = Arc::new(Shared::new(database, 0));
        let mut committer = Committer::new(shared, jobs, Box::new(|| Err(closed())), 3);
        let forget = || {
            let noted = NotedChanges::default();
            Task::Forget(Forgetting { from: 0, to: 1, deleted: Vec::new(), noted })
        };
        let commit = || Task::Commit(Txn::default());
        for task in [commit(), commit(), forget(), commit(), forget(), forget(), commit()] {
            send(&queue, task);
        }
        queue.close();
        let mut groups = Vec::new();
        while let Some(first) = committer.next_job() {
            groups.push(committer.gather(first).len());
        }
        assert_eq!(groups, [2, 1, 1, 1, 1, 1]);
    }
}
