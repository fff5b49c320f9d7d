//! The queue of the committer: tasks with the callers that wait for them. Its tasks and bytes are bounded.

use super::write::Task;
use crate::check::value_bytes;
use crate::{Error, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Tasks that may wait for the committer; more callers wait for room.
const QUEUE_TASKS: usize = 1024;

/// KiB of values that may wait for the committer: room for four transactions of the maximum size.
const QUEUE_KIB: usize = 64 * 1024;

/// A task, and where its result goes.
pub(super) struct Job {
    pub(super) task: Task,
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
    /// Both ends of an empty queue.
    pub(super) fn new() -> (Self, Receiver<Job>) {
        let (sender, receiver) = sync_channel(QUEUE_TASKS);
        let tasks = Arc::new(Semaphore::new(QUEUE_TASKS));
        let kib = Arc::new(Semaphore::new(QUEUE_KIB));
        (Self { sender: Mutex::new(Some(sender)), tasks, kib }, receiver)
    }

    /// Sends a task to the committer and waits for its result.
    pub(super) async fn run(&self, task: Task) -> Result<u64> {
        let kib = u32::try_from(task_bytes(&task) / 1024).unwrap_or(u32::MAX);
        let task_permit =
            Arc::clone(&self.tasks).acquire_owned().await.map_err(|_| Error::closed())?;
        let kib =
            Arc::clone(&self.kib).acquire_many_owned(kib).await.map_err(|_| Error::closed())?;
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

    /// Sends a task anew that the database failed before. Its caller is told when that is no longer possible.
    pub(super) fn put_back(&self, job: Job) {
        let sender = self.sender.lock();
        let unsent = match sender.as_ref() {
            Some(sender) => sender.try_send(job).err().map(|error| match error {
                TrySendError::Full(job) | TrySendError::Disconnected(job) => job,
            }),
            None => Some(job),
        };
        if let Some(job) = unsent {
            reply(job, Err(Error::closed()));
        }
    }

    fn send(&self, job: Job) -> Result<()> {
        match self.sender.lock().as_ref() {
            None => Err(Error::closed()),
            // There are as many permits as the channel has room for, so it is never full.
            Some(sender) => sender.try_send(job).map_err(|error| match error {
                TrySendError::Full(_) => {
                    Error::Unavailable("too many transactions are waiting".to_owned())
                }
                TrySendError::Disconnected(_) => Error::closed(),
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

pub(super) fn task_bytes(task: &Task) -> usize {
    match task {
        Task::Commit(txn) => txn.changes.iter().map(value_bytes).sum(),
        Task::Forget(_) | Task::Age { .. } | Task::Recover { .. } => 0,
    }
}

/// Sends the result of a job to its caller.
pub(super) fn reply(job: Job, result: Result<u64>) {
    // Sending fails when the caller no longer waits.
    drop(job.reply.send(result));
}
