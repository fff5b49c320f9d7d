//! The committer: the thread that decides. It takes the waiting transactions and accepts or rejects each. It makes
//! the accepted ones durable in the write-ahead log as one group, and replies to the callers. It also closes the
//! database after a fault and opens it again. `accept` decides about each transaction; the database gets them from
//! `applier`.

use crate::redb::queue::task_bytes;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::accept::Acceptance;
use super::applier;
use super::applier_handle::{Handle, Running, Work};
use super::file::Opener;
use super::pending::Rows;
use super::queue::{Job, Queue, reply};
use super::read::View;
use super::shared::Shared;
use super::start::{self, Begin, Start};
use super::tail::Recorded;
use super::wal::Wal;
use super::wal_group::{self, AcceptedTxn};
use super::write::{self, Task, WriteError};
use crate::{Error, Result};

/// Tasks in one group.
const GROUP_TASKS: usize = 256;
/// Bytes of values in one group, so that the log has room for a few of them. The last transaction of the group may
/// exceed it.
const GROUP_BYTES: usize = 1024 * 1024;
/// Bytes of the disk that are left free. Transactions in the log are acknowledged, and the database must have room
/// for them: each change takes a few pages.
pub(super) const RESERVE_BYTES: u64 = 64 * 1024 * 1024;
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

/// The committer's state while the database is open.
struct Open {
    wal: Wal,
    applier: Running,
}

/// A group that was accepted.
struct Outcome {
    /// The result of each transaction.
    results: Vec<Result<u64>>,
    /// The newest revision afterwards.
    revision: u64,
    rows: Rows,
    txns: Vec<AcceptedTxn>,
    recorded: Vec<Recorded>,
}

/// The state of the committer's thread.
pub(super) struct Committer {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    jobs: Receiver<Job>,
    opener: Opener,
    open: Option<Open>,
    retry: Option<Retry>,
    /// The wait before the database is opened again after the next fault. Grows as long as nothing can be made
    /// durable in between.
    fault_wait: Duration,
    /// The number of tasks in the previous group.
    last_group: usize,
}

impl Committer {
    /// A committer for a database that was just opened.
    pub(super) fn new(
        shared: Arc<Shared>,
        queue: Arc<Queue>,
        jobs: Receiver<Job>,
        opener: Opener,
        wal: Wal,
        begin: &Begin,
    ) -> Result<Self> {
        let mut committer = Self {
            shared,
            queue,
            jobs,
            opener,
            open: None,
            retry: None,
            fault_wait: Duration::ZERO,
            last_group: 0,
        };
        committer.begin(wal, begin)?;
        Ok(committer)
    }

    /// Starts what writes to the database.
    fn begin(&mut self, wal: Wal, begin: &Begin) -> Result<()> {
        let (shared, queue) = (Arc::clone(&self.shared), Arc::clone(&self.queue));
        let applier = applier::spawn(shared, queue, begin)?;
        self.shared.set_applier(Some(applier.handle.clone()));
        self.open = Some(Open { wal, applier });
        Ok(())
    }

    /// Runs until the queue is closed and empty, then closes the database.
    pub(super) fn run(mut self) {
        while let Some(first) = self.next_job() {
            let group = self.gather(first);
            self.process(group);
        }
        if let Some(Open { applier, .. }) = self.open.take()
            && applier.finish().is_err()
        {
            self.opener.fault.set();
        }
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

    /// The jobs that are waiting, up to the limits of a group. A commit costs the same for
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
    /// ends a group.
    fn take_waiting(&mut self, group: &mut Group) -> usize {
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

    fn process(&mut self, mut group: Vec<Job>) {
        self.notice_failure();
        let is_task = |job: &mut Job| !matches!(job.task, Task::Commit(_));
        let task = group.pop_if(is_task);
        if !group.is_empty() {
            self.commit(group);
        }
        let Some(task) = task else { return };
        if let Task::Recover { now } = task.task {
            self.recover(now);
        }
        self.forward_to_applier(task);
    }

    /// Commits a group of transactions, and replies to their callers.
    fn commit(&mut self, group: Vec<Job>) {
        let begin = Instant::now();
        match self.accept(&group).and_then(|accepted| self.make_durable(accepted)) {
            Ok(results) => {
                self.shared.commits.count(begin.elapsed());
                for (job, result) in group.into_iter().zip(results) {
                    reply(job, result);
                }
            }
            Err(failure) => {
                self.shared.commits.count_failed();
                let error = failure.for_callers();
                if failure.commit_attempted || self.is_broken() {
                    self.fail(&failure.error);
                }
                for job in group {
                    reply(job, Err(error.clone()));
                }
            }
        }
    }

    /// Runs the gate, and accepts or refuses each transaction of a group. Nothing is durable yet.
    fn accept(&self, group: &[Job]) -> std::result::Result<Outcome, WriteError> {
        let not_attempted = |error| WriteError { error, commit_attempted: false };
        self.check_room().map_err(not_attempted)?;
        if let Some(gate) = self.shared.gate.get() {
            gate().map_err(Error::Gated).map_err(not_attempted)?;
        }
        if let Some(Open { applier, .. }) = &self.open {
            // Before the snapshot is opened: the snapshot then has all forgotten transactions.
            let applied = applier.handle.applied();
            self.shared.pending.lock().forget(applied);
        }
        let accepted = self.shared.with(|database| {
            let view = View::open(database)?;
            let mut acceptance = Acceptance::new(&self.shared.pending, &view);
            let mut results = Vec::with_capacity(group.len());
            for job in group {
                if let Task::Commit(txn) = &job.task {
                    results.push(acceptance.add(txn)?);
                }
            }
            let revision = acceptance.revision();
            let Acceptance { rows, txns, recorded, .. } = acceptance;
            Ok(Outcome { results, revision, rows, txns, recorded })
        });
        accepted.map_err(not_attempted)
    }

    /// Rejects a group if the database may have no room for it later, after it is acknowledged.
    fn check_room(&self) -> Result<()> {
        match (self.opener.space.free)() {
            Some(free) if free < RESERVE_BYTES => Err(Error::Unavailable(format!(
                "the disk of the database is full: {} MiB are free, and the last {} MiB are for what was \
                 acknowledged before",
                free >> 20,
                RESERVE_BYTES >> 20
            ))),
            _ => Ok(()),
        }
    }

    /// Makes a group durable, and shows it to readers and watches. Returns the results for its callers.
    fn make_durable(
        &mut self,
        accepted: Outcome,
    ) -> std::result::Result<Vec<Result<u64>>, WriteError> {
        let Outcome { results, revision, rows, txns, recorded } = accepted;
        if txns.is_empty() {
            return Ok(results);
        }
        let not_attempted = |error| WriteError { error, commit_attempted: false };
        let Open { wal, applier } =
            self.open.as_mut().ok_or_else(Error::closed).map_err(not_attempted)?;
        if append(wal, &applier.handle, &wal_group::encode(&txns))? {
            self.shared.pending.lock().extend(revision, rows);
            applier.handle.send(Work::Apply { txns, mark: wal.next() });
        } else {
            let attempted = |error| WriteError { error, commit_attempted: true };
            let not_attempted = |error| WriteError { error, commit_attempted: false };
            applier.handle.check().map_err(not_attempted)?;
            applier.handle.apply_durably(txns).map_err(attempted)?;
            // The database has these, and all that was pending before them.
            let mut pending = self.shared.pending.lock();
            pending.forget(revision);
            pending.extend(revision, Rows::new());
        }
        // Watches get it before the callers get their revisions.
        self.shared.publish(recorded);
        Ok(results)
    }

    /// Hands a task to the applier, which replies to its caller.
    fn forward_to_applier(&self, job: Job) {
        if let Some(Open { applier, .. }) = &self.open {
            applier.handle.send(Work::Perform(job));
        } else {
            let error = self.shared.with(|_| Ok(())).err().unwrap_or_else(Error::closed);
            reply(job, Err(error));
        }
    }

    /// Whether the database is open but does not take writes.
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

    /// Closes the database, and opens it again, when the applier could not write to it.
    fn notice_failure(&mut self) {
        let failure = self.open.as_ref().and_then(|open| open.applier.handle.failure());
        if let Some(error) = failure {
            self.fail(&error);
        }
    }

    fn fail(&mut self, error: &Error) {
        tracing::error!(%error, "the database failed; it is closed and opened again");
        self.close_with(format!("the database failed, and is being opened again: {error}"));
        let at = Instant::now() + self.fault_wait;
        self.retry = Some(Retry { at, wait: REOPEN_WAIT_MIN });
        if self.fault_wait.is_zero() {
            self.reopen();
        }
        self.fault_wait = (self.fault_wait * 2).clamp(REOPEN_WAIT_MIN, REOPEN_WAIT_MAX);
    }

    /// Closes the database for a reason. The log has everything that the database lacks.
    fn close_with(&mut self, reason: String) {
        self.opener.fault.set();
        if let Some(Open { applier, .. }) = self.open.take() {
            if applier.handle.is_working() {
                self.fault_wait = Duration::ZERO;
            }
            applier.abandon();
        }
        self.shared.fail(reason);
        // Not before: a reader must learn from the applier that the database may not have
        // everything.
        self.shared.set_applier(None);
    }

    fn reopen(&mut self) {
        let published = self.shared.published_revision();
        let error = match start::open(&self.opener) {
            Ok(Start { begin, .. }) if begin.revision < published => Error::Unavailable(format!(
                "the disk lost acknowledged writes: revision {published} was durable, and \
                 the newest one found is {}",
                begin.revision
            )),
            Ok(Start { database, wal, begin, .. }) => {
                self.shared.replace(database, begin.revision);
                match self.begin(wal, &begin) {
                    Ok(()) => {
                        self.opener.fault.clear();
                        self.retry = None;
                        let revision = begin.revision;
                        tracing::info!(revision, "the database is open again");
                        return;
                    }
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        let Some(retry) = &mut self.retry else { return };
        tracing::error!(%error, "the database cannot be opened again yet");
        self.shared.fail(format!("the database failed and cannot be opened again yet: {error}"));
        retry.at = Instant::now() + retry.wait;
        retry.wait = (retry.wait * 2).min(REOPEN_WAIT_MAX);
    }
}

impl Drop for Committer {
    /// Closes the database. The log has the transactions that are not in the database yet.
    fn drop(&mut self) {
        if let Some(Open { applier, .. }) = self.open.take() {
            applier.abandon();
        }
        self.shared.close();
        // Not before: a reader must learn from the applier that the database may not have
        // everything.
        self.shared.set_applier(None);
    }
}

/// Adds a group to the log. Returns false when there is no room for it.
fn append(wal: &mut Wal, applier: &Handle, bytes: &[u8]) -> std::result::Result<bool, WriteError> {
    let not_attempted = |error| WriteError { error, commit_attempted: false };
    let attempted = |error| WriteError { error, commit_attempted: true };
    if bytes.len() > wal.group_bytes() {
        return Ok(false);
    }
    if let Some(mark) = applier.take_released() {
        wal.release(mark);
    }
    if wal.append(bytes).map_err(attempted)? {
        return Ok(true);
    }
    wal.release(applier.wait_for_room().map_err(not_attempted)?);
    wal.append(bytes).map_err(attempted)
}
