//! Supervision of background tasks that must not end. A task that panics is logged, counted and restarted, after a
//! growing pause. Tasks work from stored data, so a restart loses nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The pause before the first restart.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause. After a run longer than this, the next pause is the shortest again.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The number of restarts of each task, from its start on: a counter that begins above 0 hides its first increase from
/// Prometheus.
#[derive(Debug, Default)]
pub(crate) struct Restarts(Mutex<BTreeMap<&'static str, u64>>);

impl Restarts {
    fn register(&self, task: &'static str) {
        self.0.lock().entry(task).or_default();
    }

    fn count(&self, task: &'static str) {
        *self.0.lock().entry(task).or_default() += 1;
    }

    /// The supervised tasks, with the number of restarts.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        self.0.lock().iter().map(|(task, count)| (*task, *count)).collect()
    }
}

/// Keeps a task running: `start` creates it, and creates it again after it ends.
pub(crate) async fn supervise<F>(
    task: &'static str,
    restarts: Arc<Restarts>,
    start: impl Fn() -> F + Send,
) where
    F: Future<Output = ()> + Send + 'static,
{
    restarts.register(task);
    let mut pause = SHORTEST_PAUSE;
    loop {
        let began = Instant::now();
        // The set has one task, and aborts it when this future is dropped.
        let mut running = JoinSet::new();
        running.spawn(start());
        if let Some(Err(_)) = running.join_next().await {
            // Without the message of the panic, which may contain stored values.
            tracing::error!(task, "a background task panicked");
        } else {
            tracing::error!(task, "a background task has ended unexpectedly");
        }
        restarts.count(task);
        if began.elapsed() > LONGEST_PAUSE {
            pause = SHORTEST_PAUSE;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        tracing::info!(task, "restarting the background task");
    }
}

/// Runs a task that never ends on a dedicated thread, until this future is dropped.
pub(crate) async fn on_own_thread(
    name: &'static str,
    task: impl Future<Output = ()> + Send + 'static,
) {
    let (stop, mut stopped) = oneshot::channel::<()>();
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        match runtime {
            Ok(runtime) => runtime.block_on(async {
                tokio::select! {
                    () = task => {}
                    _ = &mut stopped => {}
                }
            }),
            Err(error) => tracing::error!(name, "cannot create the runtime of a thread: {error}"),
        }
    };
    if let Err(error) = std::thread::Builder::new().name(name.to_owned()).spawn(run) {
        tracing::error!(name, "cannot start a thread: {error}");
        return;
    }
    std::future::pending::<()>().await;
    drop(stop);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_is_started_again_and_counted() {
        let (restarts, runs) = (Arc::new(Restarts::default()), Arc::new(AtomicU64::new(0)));
        let begun = runs.clone();
        let start = move || {
            let run = begun.fetch_add(1, Ordering::Relaxed);
            async move {
                assert!(run >= 3, "the first runs fail");
                std::future::pending::<()>().await;
            }
        };
        let supervised = supervise("test", restarts.clone(), start);
        let waited = tokio::time::timeout(Duration::from_mins(1), supervised).await;
        assert!(waited.is_err(), "the supervisor never ends");
        assert_eq!(runs.load(Ordering::Relaxed), 4);
        assert_eq!(restarts.counts(), [("test", 3)]);
    }

    #[tokio::test]
    async fn a_dedicated_thread_ends_when_its_future_is_dropped() {
        let (held, ended) = oneshot::channel::<()>();
        let (begun, running) = oneshot::channel();
        let task = async move {
            let _held = held;
            let _ = begun.send(());
            std::future::pending::<()>().await;
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(on_own_thread("test", task));
        running.await.unwrap();
        tasks.shutdown().await;
        assert!(ended.await.is_err(), "the task is dropped");
    }
}
