//! Low-priority threads for owners above their share: their requests have waited for a slot. Their requests run
//! here, so that the requests of others do not wait for a thread behind them. While it lasts, their connections
//! are served here as well: reading and authenticating a request costs about as much as answering it.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, Either, poll_fn};
use pin_project_lite::pin_project;
use postern_meta::status::ApiError;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

use super::priority::lower_thread_priority;

/// The nice value of the threads: they get a third of the processor time when others need it (`nice(2)`). With much
/// less, a thread that is stopped while it holds a lock would make others wait.
const NICE: i32 = 5;

/// How long a low-priority thread runs until it yields. A low priority gives it less time in total, and does not end
/// its current time slice: other threads that woke up in it waited for milliseconds.
const TURN: Duration = Duration::from_micros(250);

thread_local! {
    /// When the turn of this thread began, if it is a low-priority thread.
    static TURN_BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
}

fn is_queued() -> bool {
    TURN_BEGAN.get().is_some()
}

/// Yields to other threads if the turn of this thread is over.
fn end_turn() {
    let began = TURN_BEGAN.get();
    if began.is_some_and(|began| began.elapsed() >= TURN) {
        std::thread::yield_now();
        TURN_BEGAN.set(Some(Instant::now()));
    }
}

/// The low-priority threads. They end when it is dropped.
pub(super) struct QueuedThreads {
    runtime: Option<Runtime>,
    /// The runtime that all owners share.
    shared: Handle,
}

/// A task that is aborted when the future that waits for it is dropped.
struct Task<T>(JoinHandle<T>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pin_project! {
    /// Work that runs on the low-priority threads, inside the runtime that all owners share. All sockets, timers
    /// and tasks that it creates belong to the shared runtime.
    struct Lent<F> {
        #[pin]
        work: F,
        shared: Handle,
    }
}

impl<F: Future> Future for Lent<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _entered = this.shared.enter();
        let polled = this.work.poll(cx);
        end_turn();
        polled
    }
}

/// Runs work until it is done, or until `waits` differs from `here`. In the second case, it returns the work.
async fn while_waits<T>(
    mut work: BoxFuture<'static, T>,
    waits: &impl Fn() -> bool,
    here: bool,
) -> Either<T, BoxFuture<'static, T>> {
    let done = poll_fn(|cx| {
        if waits() != here {
            return Poll::Ready(None);
        }
        work.as_mut().poll(cx).map(Some)
    });
    match done.await {
        Some(done) => Either::Left(done),
        None => Either::Right(work),
    }
}

impl QueuedThreads {
    /// Starts one thread for each processor. Call it in the runtime that all owners share.
    pub(super) fn start() -> Self {
        let threads = available_parallelism().map_or(1, Into::into);
        let mut builder = Builder::new_multi_thread();
        let begin = || {
            lower_thread_priority(NICE);
            TURN_BEGAN.set(Some(Instant::now()));
        };
        let runtime = builder.worker_threads(threads).thread_name("queued").on_thread_start(begin);
        let runtime = runtime.build().inspect_err(|error| {
            tracing::error!("cannot start the threads for queued requests: {error}");
        });
        Self { runtime: runtime.ok(), shared: Handle::current() }
    }

    fn lend<F: Future>(&self, work: F) -> Lent<F> {
        Lent { work, shared: self.shared.clone() }
    }

    /// Runs work on the low-priority threads.
    ///
    /// # Errors
    /// 500 when it panics.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, ApiError> {
        let Some(runtime) = self.runtime.as_ref().filter(|_| !is_queued()) else {
            return Ok(work.await);
        };
        let mut task = Task(runtime.spawn(self.lend(work)));
        (&mut task.0)
            .await
            .map_err(|error| ApiError::internal("the request was not completed", error))
    }

    /// Serves a connection: on the low-priority threads while its owner waits, and otherwise on the caller's.
    ///
    /// # Errors
    /// 500 when it panics there.
    pub(super) async fn serve<T: Send + 'static>(
        &self,
        waits: impl Fn() -> bool + Clone + Send + Sync + 'static,
        mut connection: BoxFuture<'static, T>,
    ) -> Result<T, ApiError> {
        loop {
            connection = match while_waits(connection, &waits, false).await {
                Either::Left(ended) => return Ok(ended),
                Either::Right(left) => left,
            };
            let waits = waits.clone();
            let there = async move { while_waits(connection, &waits, true).await };
            connection = match self.run(there).await? {
                Either::Left(ended) => return Ok(ended),
                Either::Right(left) => left,
            };
        }
    }

    /// Starts a stream of a connection: on the low-priority threads while its owner waits, and otherwise on the
    /// shared ones.
    pub(super) fn begin(
        &self,
        waits: impl Fn() -> bool + Send + Sync + 'static,
        stream: impl Future<Output = ()> + Send + 'static,
    ) {
        let Some(runtime) = self.runtime.as_ref().filter(|_| waits()) else {
            self.shared.spawn(stream);
            return;
        };
        let (stream, shared) = (Box::pin(stream), self.shared.clone());
        runtime.spawn(self.lend(async move {
            if let Either::Right(left) = while_waits(stream, &waits, true).await {
                shared.spawn(left);
            }
        }));
    }
}

impl Drop for QueuedThreads {
    fn drop(&mut self) {
        // Waiting for the threads to end could block a thread that serves requests.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn work_runs_elsewhere_and_ends_with_its_caller() {
        let threads = QueuedThreads::start();
        let here = std::thread::current().id();
        assert_ne!(threads.run(async { std::thread::current().id() }).await.unwrap(), here);
        let failed: Result<(), _> = threads.run(async { panic!("a test") }).await;
        assert_eq!(failed.unwrap_err().code(), 500);
        let (sender, ended) = tokio::sync::oneshot::channel::<()>();
        let endless = threads.run(async move {
            let _kept = sender;
            std::future::pending::<()>().await;
        });
        assert!(tokio::time::timeout(Duration::from_millis(1), endless).await.is_err());
        assert!(ended.await.is_err(), "the work was dropped");
    }

    #[tokio::test]
    async fn work_started_there_belongs_to_the_shared_runtime() {
        let threads = QueuedThreads::start();
        let here = Handle::current().id();
        let sleep = async { tokio::time::sleep(Duration::from_millis(1)).await };
        let there = async move {
            sleep.await;
            (Handle::current().id(), is_queued())
        };
        assert_eq!(threads.run(there).await.unwrap(), (here, true));
    }

    /// Sends on which threads it is polled, after each step, until it is told to end.
    async fn observe(mut steps: mpsc::Receiver<bool>, seen: mpsc::Sender<bool>) -> &'static str {
        while steps.recv().await == Some(true) {
            // It is polled again after the step.
            tokio::task::yield_now().await;
            seen.send(is_queued()).await.unwrap();
        }
        "ended"
    }

    #[tokio::test]
    async fn a_connection_is_served_there_as_long_as_its_owner_waits() {
        let (threads, waits) = (QueuedThreads::start(), Arc::new(AtomicBool::new(false)));
        let ((step, steps), (seen, mut places)) = (mpsc::channel(1), mpsc::channel(1));
        let asked = waits.clone();
        let waiting = move || asked.load(Ordering::SeqCst);
        let serving = threads.serve(waiting, Box::pin(observe(steps, seen)));
        let client = async move {
            for queued in [false, true, true, false, true] {
                waits.store(queued, Ordering::SeqCst);
                step.send(true).await.unwrap();
                assert_eq!(places.recv().await, Some(queued));
            }
            step.send(false).await.unwrap();
        };
        let (ended, ()) = tokio::join!(serving, client);
        assert_eq!(ended.unwrap(), "ended");
    }

    #[tokio::test]
    async fn a_stream_is_begun_there_only_if_its_owner_waits_and_comes_back() {
        let threads = QueuedThreads::start();
        for at_first in [false, true] {
            let waits = Arc::new(AtomicBool::new(at_first));
            let ((step, steps), (seen, mut places)) = (mpsc::channel(1), mpsc::channel(1));
            let asked = waits.clone();
            threads.begin(move || asked.load(Ordering::SeqCst), async {
                assert_eq!(observe(steps, seen).await, "ended");
            });
            for queued in [at_first, false] {
                waits.store(queued, Ordering::SeqCst);
                step.send(true).await.unwrap();
                assert_eq!(places.recv().await, Some(queued));
            }
            drop(step);
            assert_eq!(places.recv().await, None, "the stream has ended");
        }
    }
}
