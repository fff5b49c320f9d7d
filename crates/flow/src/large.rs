//! Work that takes much processor time: a few at once, in a queue for each owner, and on threads that answer no
//! other requests.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use parking_lot::Mutex;
use postern_meta::status::ApiError;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::account::OwnerAccount;
use super::fair_queue::FairQueue;
use super::priority::lower_thread_priority;
use super::requester::too_many_requests;

/// Bytes from which on work on them counts as large: a millisecond or two.
pub const LARGE_BYTES: usize = 64 * 1024;

/// How much less processor time its threads get when others need it (`nice(2)`).
const NICE: i32 = 10;

type Job = Box<dyn FnOnce() + Send>;

/// The threads that do large work, one for each seat. They end with it.
pub(super) struct LargeThreads {
    jobs: Sender<Job>,
}

impl LargeThreads {
    /// Starts them.
    pub(super) fn start(count: usize) -> Arc<Self> {
        let (jobs, received) = channel();
        let received = Arc::new(Mutex::new(received));
        for number in 0..count {
            let received = received.clone();
            let thread = std::thread::Builder::new().name(format!("large-{number}"));
            if let Err(error) = thread.spawn(move || run_jobs(&received)) {
                tracing::error!("a thread for large work could not be started: {error}");
            }
        }
        Arc::new(Self { jobs })
    }
}

fn run_jobs(received: &Mutex<Receiver<Job>>) {
    lower_thread_priority(NICE);
    loop {
        let job = received.lock().recv();
        let Ok(job) = job else { return };
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            // The task that waits for it finds its result gone, and answers 500.
            tracing::error!("large work has panicked");
        }
    }
}

/// Where an owner's large work is done.
#[derive(Clone)]
pub struct LargeWork {
    threads: Arc<LargeThreads>,
    queue: Arc<FairQueue>,
    account: Arc<OwnerAccount>,
}

impl LargeWork {
    pub(super) fn new(
        threads: Arc<LargeThreads>,
        queue: Arc<FairQueue>,
        account: Arc<OwnerAccount>,
    ) -> Self {
        Self { threads, queue, account }
    }

    /// Does work that waits for nothing.
    ///
    /// # Errors
    /// 429 when the owner's queue is full, or when the wait takes too long.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let seat = self.queue.acquire(&self.account).await.ok_or_else(too_many_requests)?;
        let (sender, done) = oneshot::channel();
        let job = move || {
            let done = work();
            drop(seat);
            // It may be that no task waits for it any more.
            let _ = sender.send(done);
        };
        let not_done = |error: &str| ApiError::internal("the work was not done", error);
        self.threads.jobs.send(Box::new(job)).map_err(|_| not_done("no thread is left"))?;
        done.await.map_err(|_| not_done("it panicked"))
    }

    /// Does work that may wait, for a commit for example. It goes on when no task waits for it any more.
    ///
    /// # Errors
    /// As [`LargeWork::run`].
    pub async fn run_async<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, ApiError> {
        let runtime = Handle::current();
        self.run(move || runtime.block_on(work)).await
    }
}

#[cfg(test)]
mod tests {

    use crate::{Flow, Limits};

    #[tokio::test]
    async fn work_is_done_elsewhere_and_a_panic_harms_nobody() {
        let work = {
            let flow = Flow::new(Limits::default());
            flow.large_work(flow.account("a"))
        };
        let here = std::thread::current().id();
        assert_ne!(work.run(|| std::thread::current().id()).await.unwrap(), here);
        let failed: Result<(), _> = work.run(|| panic!("a test")).await;
        assert_eq!(failed.unwrap_err().code(), 500);
        assert_eq!(work.run_async(async { 7 }).await.unwrap(), 7);
    }
}
