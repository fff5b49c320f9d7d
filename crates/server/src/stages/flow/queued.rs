//! Threads for those who have waited for a seat: owners who send more than is their share. Their requests are
//! carried out here, so that the requests of others queue for a thread behind none of them.

use std::thread::available_parallelism;

use postern_meta::status::ApiError;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use super::give_way;

/// How much less processor time they get when others need it (`nice(2)`): a third. With much less, a thread that
/// has to wait while it holds a lock would keep others waiting.
const NICE: i32 = 5;

/// The threads. They end with it.
pub(super) struct QueuedThreads(Option<Runtime>);

/// A task that ends with whoever waits for it.
struct Task<T>(JoinHandle<T>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl QueuedThreads {
    /// Starts as many as there are processors.
    pub(super) fn start() -> Self {
        let threads = available_parallelism().map_or(1, Into::into);
        let mut builder = Builder::new_multi_thread();
        let builder = builder.worker_threads(threads).thread_name("queued").enable_time();
        let runtime = builder.on_thread_start(|| give_way(NICE)).build();
        let runtime = runtime.inspect_err(|error| {
            tracing::error!("threads for queued requests could not be started: {error}");
        });
        Self(runtime.ok())
    }

    /// Does work there.
    ///
    /// # Errors
    /// 500 when it panics.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, ApiError> {
        let Some(runtime) = &self.0 else { return Ok(work.await) };
        let mut task = Task(runtime.spawn(work));
        (&mut task.0).await.map_err(|error| ApiError::internal("the work was not done", error))
    }
}

impl Drop for QueuedThreads {
    fn drop(&mut self) {
        // To wait for them could block a thread that answers.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
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
        assert!(tokio::time::timeout(std::time::Duration::from_millis(1), endless).await.is_err());
        assert!(ended.await.is_err(), "it was dropped");
    }
}
