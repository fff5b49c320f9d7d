//! The newest revision of the store. All requests that wait for it at one time share one query.

use std::sync::Arc;

use futures_util::FutureExt as _;
use postern_store::{Result, SharedCall, Store};

/// Queries the store for its newest revision.
///
/// The result must contain every change that was acknowledged before the call. So a caller never gets the result of a
/// query that started before it called.
pub(super) struct NewestRevision {
    store: Arc<dyn Store>,
    query: SharedCall<Result<u64>>,
}

impl NewestRevision {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        let remote = Arc::clone(&store);
        let query = SharedCall::new(move || {
            let store = Arc::clone(&remote);
            async move { store.revision().await }.boxed()
        });
        Self { store, query }
    }

    /// A revision that is at least the newest at the time of the call.
    ///
    /// # Errors
    /// The errors of the store.
    pub(super) async fn get(&self) -> Result<u64> {
        // An engine in this process answers at once.
        match self.store.revision_here() {
            Some(revision) => revision,
            None => self.query.get().await,
        }
    }
}
