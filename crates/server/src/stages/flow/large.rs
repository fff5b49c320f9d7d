//! Work that takes much processor time: a few at once, in a queue for each owner, and on threads
//! that answer nobody else.

use std::sync::Arc;

use postern_meta::status::ApiError;
use tokio::runtime::Handle;

use super::fair_queue::FairQueue;
use super::too_many_requests;

/// Bytes from which on work on them counts as large: a millisecond or two.
pub(crate) const LARGE_BYTES: usize = 64 * 1024;

/// Where an owner's large work is done.
#[derive(Clone)]
pub(crate) struct LargeWork {
    queue: Arc<FairQueue>,
    owner: Arc<str>,
}

impl LargeWork {
    pub(super) fn new(queue: Arc<FairQueue>, owner: &str) -> Self {
        Self { queue, owner: Arc::from(owner) }
    }

    /// Does work that waits for nothing.
    ///
    /// # Errors
    /// 429 when the owner's queue is full, or when the wait takes too long.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let seat = self.queue.acquire(&self.owner).await.ok_or_else(too_many_requests)?;
        let done = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(seat);
            done
        });
        done.await.map_err(|error| ApiError::internal("the work was not done", error))
    }

    /// Does work that may wait, for a commit say. It goes on when nobody waits for it any more.
    ///
    /// # Errors
    /// As [`LargeWork::run`].
    pub(crate) async fn run_async<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, ApiError> {
        let runtime = Handle::current();
        self.run(move || runtime.block_on(work)).await
    }
}
