//! Large work: requests that need much processor time. A few run at once, on their own threads, with a queue for
//! each owner.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use postern_meta::status::ApiError;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::account::{OwnerAccount, Slot};
use super::fair_queue::FairQueue;
use super::priority::lower_thread_priority;
use super::requester::too_many_requests;

/// The number of bytes above which work counts as large. It takes a millisecond or two.
pub const LARGE_BYTES: usize = 64 * 1024;

/// The nice value of the threads: they get less processor time when others need it (`nice(2)`).
const NICE: i32 = 10;

type Job = Box<dyn FnOnce() + Send>;

/// The threads for large work, one for each slot. They end when it is dropped.
pub(super) struct LargeThreads {
    jobs: Sender<Job>,
    /// The tasks that drive asynchronous work.
    driving: Mutex<JoinSet<()>>,
}

impl LargeThreads {
    /// Starts the threads.
    pub(super) fn start(count: usize) -> Arc<Self> {
        let (jobs, received) = channel();
        let received = Arc::new(Mutex::new(received));
        for number in 0..count {
            let received = received.clone();
            let thread = std::thread::Builder::new().name(format!("large-{number}"));
            if let Err(error) = thread.spawn(move || run_jobs(&received)) {
                tracing::error!("cannot start a thread for large work: {error}");
            }
        }
        Arc::new(Self { jobs, driving: Mutex::default() })
    }

    fn spawn(&self, driver: impl Future<Output = ()> + Send + 'static) {
        let mut driving = self.driving.lock();
        while driving.try_join_next().is_some() {}
        driving.spawn(driver);
    }
}

/// The shortest time between two lines about panics.
const PANIC_LINE_INTERVAL: Duration = Duration::from_mins(1);

/// Logs a panic, at most once a minute: a client can repeat the request.
fn log_panic() {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let mut last = LAST.lock();
    if last.is_none_or(|last| last.elapsed() >= PANIC_LINE_INTERVAL) {
        *last = Some(Instant::now());
        tracing::error!("a request on the threads for large work has panicked");
    }
}

fn run_jobs(received: &Mutex<Receiver<Job>>) {
    lower_thread_priority(NICE);
    loop {
        let job = received.lock().recv();
        let Ok(job) = job else { return };
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            // The task that waits for the result finds its channel closed, and answers 500.
            log_panic();
        }
    }
}

/// Runs an owner's large work.
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

    /// Runs work that waits for nothing.
    ///
    /// # Errors
    /// 429 when the owner's queue is full, or when the wait takes too long.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let slot = self.queue.acquire(&self.account).await.ok_or_else(too_many_requests)?;
        self.on_thread(slot, work).await
    }

    /// Runs work that may wait, for a commit for example. While it waits, it has no thread and no slot. So a slow disk
    /// does not stop the large work of others. It continues when the task that requested it ends.
    ///
    /// # Errors
    /// As [`LargeWork::run`].
    pub async fn run_async<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, ApiError> {
        let slot = self.queue.acquire(&self.account).await.ok_or_else(too_many_requests)?;
        let (sender, done) = oneshot::channel();
        let large = self.clone();
        self.threads.spawn(async move {
            // The task that requested the work may have ended.
            let _ = sender.send(large.drive(slot, Box::pin(work)).await);
        });
        done.await.map_err(|_| not_done("the server is shutting down"))?
    }

    /// Polls the work on the threads for large work until it is done.
    async fn drive<T: Send + 'static>(
        &self,
        mut slot: Slot,
        mut work: Pin<Box<dyn Future<Output = T> + Send>>,
    ) -> Result<T, ApiError> {
        let woken = Arc::new(Woken(Notify::new()));
        loop {
            let (runtime, waker) = (Handle::current(), Waker::from(woken.clone()));
            let step = move || {
                let _inside = runtime.enter();
                let polled = work.as_mut().poll(&mut Context::from_waker(&waker));
                (work, polled)
            };
            let polled;
            (work, polled) = self.on_thread(slot, step).await?;
            if let Poll::Ready(done) = polled {
                return Ok(done);
            }
            woken.0.notified().await;
            // Part of the work is done, perhaps committed. So it is never rejected from here on.
            let again = self.queue.acquire_again(&self.account).await;
            slot = again.ok_or_else(|| not_done("its queue has ended"))?;
        }
    }

    /// Runs one step of the work on a thread for large work, and releases the slot.
    async fn on_thread<T: Send + 'static>(
        &self,
        slot: Slot,
        step: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let (sender, done) = oneshot::channel();
        let job = move || {
            let done = step();
            drop(slot);
            // The task that requested the work may have ended.
            let _ = sender.send(done);
        };
        self.threads
            .jobs
            .send(Box::new(job))
            .map_err(|_| not_done("no thread for large work is running"))?;
        done.await.map_err(|_| not_done("it panicked"))
    }
}

/// Wakes the task that drives large work.
struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

fn not_done(error: &str) -> ApiError {
    ApiError::internal("the request was not completed", error)
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;
    use crate::{Flow, Limits};

    #[tokio::test]
    async fn work_runs_elsewhere_and_a_panic_harms_no_other_work() {
        let work = {
            let flow = Flow::new(Limits::default());
            flow.large_work(flow.account("a"))
        };
        let here = std::thread::current().id();
        assert_ne!(work.run(|| std::thread::current().id()).await.unwrap(), here);
        let failed: Result<(), _> = work.run(|| panic!("a test")).await;
        assert_eq!(failed.unwrap_err().code(), 500);
        assert_eq!(work.run_async(async { 7 }).await.unwrap(), 7);
        let failed: Result<(), _> = work.run_async(async { panic!("a test") }).await;
        assert_eq!(failed.unwrap_err().code(), 500);
    }

    #[tokio::test]
    async fn work_that_waits_has_no_thread_and_no_slot_and_goes_on_without_its_client() {
        let flow = Flow::new(Limits::default());
        let [begun, disk, done] = [(); 3].map(|()| Arc::new(Semaphore::new(0)));
        let mut clients = JoinSet::new();
        for number in 0..20 {
            let work = flow.large_work(flow.account(&number.to_string()));
            let (begun, disk, done) = (begun.clone(), disk.clone(), done.clone());
            clients.spawn(async move {
                let commit = async move {
                    begun.add_permits(1);
                    disk.acquire().await.unwrap().forget();
                    done.add_permits(1);
                };
                work.run_async(commit).await
            });
        }
        // All have begun before the next one starts.
        begun.acquire_many(20).await.unwrap().forget();
        let table = flow.large_work(flow.account("table"));
        assert_eq!(table.run(|| 7).await.unwrap(), 7);
        clients.abort_all();
        while clients.join_next().await.is_some() {}
        disk.add_permits(20);
        done.acquire_many(20).await.unwrap().forget();
    }
}
