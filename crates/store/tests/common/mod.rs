//! Subjects for all engines, plain and sealed, for all the tests of this directory.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use postern_store::conformance::Subject;
use postern_store::memory::Memory;
use postern_store::seal::{Keyring, Sealed};
use postern_store::{Options, Store};
use tempfile::TempDir;

/// The engine in memory.
pub(crate) struct InMemory;

impl Subject for InMemory {
    async fn create(&self) -> Arc<dyn Store> {
        Arc::new(Memory::new())
    }

    async fn reopen(&self, _: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        None
    }
}

/// The engine on a file. The directory is removed with the subject.
pub(crate) struct OnFile {
    directory: TempDir,
    created: AtomicU64,
}

impl OnFile {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), created: AtomicU64::new(0) }
    }

    async fn open(&self, number: u64) -> Arc<dyn Store> {
        let path = self.directory.path().join(number.to_string());
        postern_store::open(path, Options::default()).await.unwrap()
    }
}

impl Subject for OnFile {
    async fn create(&self) -> Arc<dyn Store> {
        self.open(self.created.fetch_add(1, Ordering::Relaxed) + 1).await
    }

    async fn reopen(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        store.close().await;
        Some(self.open(self.created.load(Ordering::Relaxed)).await)
    }
}

/// A sealed store over the store of another subject.
pub(crate) struct Seal<T> {
    inner: T,
    keyring: Keyring,
}

impl<T> Seal<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner, keyring: Keyring::generate().unwrap() }
    }

    async fn seal(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(Sealed::open(store, self.keyring.clone()).await.unwrap())
    }
}

impl<T: Subject> Subject for Seal<T> {
    async fn create(&self) -> Arc<dyn Store> {
        self.seal(self.inner.create().await).await
    }

    /// Closes the inner store through the sealed one.
    async fn reopen(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        let inner = self.inner.reopen(store).await?;
        Some(self.seal(inner).await)
    }
}
