//! Threads for owners who have waited for a seat: they send more than their share. Their requests are carried
//! out here, so that the requests of others do not queue for a thread behind them. Connections on which such
//! requests come are served here as well, for as long as they do. Reading and authenticating a request costs
//! about as much as answering it.

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

/// How much less processor time they get when others need it (`nice(2)`): a third. With much less, a thread that
/// has to wait while it holds a lock would keep others waiting.
const NICE: i32 = 5;

/// How long such a thread goes on until it lets others go first. A low priority gives it less time in all, and does not
/// end a turn that it has: threads that woke meanwhile waited for milliseconds.
const TURN: Duration = Duration::from_micros(250);

thread_local! {
    /// When the turn of this thread began, if it is one of those for who has waited.
    static TURN_BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
}

fn is_queued() -> bool {
    TURN_BEGAN.get().is_some()
}

/// Lets other threads go first when this one has had its turn.
fn end_turn() {
    let began = TURN_BEGAN.get();
    if began.is_some_and(|began| began.elapsed() >= TURN) {
        std::thread::yield_now();
        TURN_BEGAN.set(Some(Instant::now()));
    }
}

/// The threads. They end with it.
pub(super) struct QueuedThreads {
    runtime: Option<Runtime>,
    /// The threads that all owners share.
    everybody: Handle,
}

/// A task that ends with the caller that waits for it.
struct Task<T>(JoinHandle<T>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pin_project! {
    /// Work that is done here, and still belongs to the threads that all owners share: they own all that it
    /// opens, waits for and begins.
    struct Lent<F> {
        #[pin]
        work: F,
        everybody: Handle,
    }
}

impl<F: Future> Future for Lent<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _entered = this.everybody.enter();
        let polled = this.work.poll(cx);
        end_turn();
        polled
    }
}

/// Does work until it is done, or its owner waits otherwise than given. Returns the work then.
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
    /// Starts as many as there are processors, next to the threads that all owners share, from which it is
    /// called.
    pub(super) fn start() -> Self {
        let threads = available_parallelism().map_or(1, Into::into);
        let mut builder = Builder::new_multi_thread();
        let begin = || {
            lower_thread_priority(NICE);
            TURN_BEGAN.set(Some(Instant::now()));
        };
        let runtime = builder.worker_threads(threads).thread_name("queued").on_thread_start(begin);
        let runtime = runtime.build().inspect_err(|error| {
            tracing::error!("threads for queued requests could not be started: {error}");
        });
        Self { runtime: runtime.ok(), everybody: Handle::current() }
    }

    fn lend<F: Future>(&self, work: F) -> Lent<F> {
        Lent { work, everybody: self.everybody.clone() }
    }

    /// Does work there.
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
        (&mut task.0).await.map_err(|error| ApiError::internal("the work was not done", error))
    }

    /// Serves a connection there as long as its owner waits, and else here.
    ///
    /// # Errors
    /// 500 when it panics there.
    pub(super) async fn serve<T: Send + 'static>(
        &self,
        waits: impl Fn() -> bool + Clone + Send + Sync + 'static,
        connection: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, ApiError> {
        let mut connection: BoxFuture<'static, T> = Box::pin(connection);
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

    /// Begins a stream of a connection: there as long as its owner waits, and else on the threads that all
    /// owners share.
    pub(super) fn begin(
        &self,
        waits: impl Fn() -> bool + Send + Sync + 'static,
        stream: impl Future<Output = ()> + Send + 'static,
    ) {
        let Some(runtime) = self.runtime.as_ref().filter(|_| waits()) else {
            self.everybody.spawn(stream);
            return;
        };
        let (stream, everybody) = (Box::pin(stream), self.everybody.clone());
        runtime.spawn(self.lend(async move {
            if let Either::Right(left) = while_waits(stream, &waits, true).await {
                everybody.spawn(left);
            }
        }));
    }
}

impl Drop for QueuedThreads {
    fn drop(&mut self) {
        // To wait for them could block a thread that answers.
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
    async fn work_is_done_elsewhere_and_ends_with_whoever_waits() {
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
        assert!(ended.await.is_err(), "it was dropped");
    }

    #[tokio::test]
    async fn what_is_begun_there_is_everybodys() {
        let threads = QueuedThreads::start();
        let here = Handle::current().id();
        let sleep = async { tokio::time::sleep(Duration::from_millis(1)).await };
        let there = async move {
            sleep.await;
            (Handle::current().id(), is_queued())
        };
        assert_eq!(threads.run(there).await.unwrap(), (here, true));
    }

    /// Says on which threads it is polled, whenever it is woken, until it is told to end.
    async fn observe(mut steps: mpsc::Receiver<bool>, seen: mpsc::Sender<bool>) -> &'static str {
        while steps.recv().await == Some(true) {
            // So that it is polled anew after the step.
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
        let serving = threads.serve(waiting, observe(steps, seen));
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
            assert_eq!(places.recv().await, None, "it has ended");
        }
    }
}
