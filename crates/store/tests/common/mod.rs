//! Subjects for all engines, plain and sealed, for all the tests of this directory.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use postern_store::conformance::Subject;
use postern_store::memory::{Memory, MemoryRestore};
use postern_store::redb::RedbRestore;
use postern_store::seal::{Keyring, Sealed};
use postern_store::{Change, Entry, ListRequest, Options, Position, RestoreTarget, Store, Txn};
use tempfile::TempDir;

/// The engine in memory.
pub(crate) struct InMemory;

impl Subject for InMemory {
    async fn create(&self) -> Arc<dyn Store> {
        Arc::new(Memory::new())
    }

    async fn restore(&self, revision: u64, entries: Vec<Entry>) -> Arc<dyn Store> {
        let mut target = MemoryRestore::begin(revision).unwrap();
        for entry in entries {
            target.add(entry).unwrap();
        }
        Arc::new(target.finish().unwrap())
    }

    async fn reopen(&self, _: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        None
    }
}

/// The engine on a file. The directory is removed with the subject.
pub(crate) struct OnFile {
    directory: TempDir,
    created: AtomicU64,
    options: Options,
}

impl OnFile {
    pub(crate) fn new() -> Self {
        Self::with(Options::default())
    }

    /// Few revisions in a segment of history, so that a short test has many segments.
    pub(crate) fn with_short_segments() -> Self {
        Self::with(Options { segment_revisions: 3, ..Options::default() })
    }

    fn with(options: Options) -> Self {
        Self { directory: tempfile::tempdir().unwrap(), created: AtomicU64::new(0), options }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.path().join(number.to_string())
    }

    fn next_number(&self) -> u64 {
        self.created.fetch_add(1, Ordering::Relaxed) + 1
    }

    async fn open(&self, number: u64) -> Arc<dyn Store> {
        postern_store::open(self.path(number), self.options).await.unwrap()
    }
}

impl Subject for OnFile {
    async fn create(&self) -> Arc<dyn Store> {
        self.open(self.next_number()).await
    }

    async fn restore(&self, revision: u64, entries: Vec<Entry>) -> Arc<dyn Store> {
        let number = self.next_number();
        let mut target = RedbRestore::begin(self.path(number), revision).unwrap();
        for entry in entries {
            target.add(entry).unwrap();
        }
        target.finish().unwrap();
        self.open(number).await
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

    /// Seals the values in a store that is used for nothing else, and restores them with the marker.
    async fn restore(&self, revision: u64, entries: Vec<Entry>) -> Arc<dyn Store> {
        let sealed = Sealed::open(Arc::new(Memory::new()), self.keyring.clone()).await.unwrap();
        for Entry { key, value, .. } in &entries {
            let changes = vec![Change::Put { key: key.clone(), value: value.clone() }];
            sealed.commit(Txn { conditions: Vec::new(), changes }).await.unwrap();
        }
        let mut raw = sealed.inner().list(ListRequest::default()).await.unwrap().entries;
        for entry in &mut raw {
            let wanted = entries.iter().find(|wanted| wanted.key == entry.key);
            entry.position = wanted.map_or(Position::new(1, 0), |wanted| wanted.position);
        }
        self.seal(self.inner.restore(revision, raw).await).await
    }

    /// Closes the inner store through the sealed one.
    async fn reopen(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        let inner = self.inner.reopen(store).await?;
        Some(self.seal(inner).await)
    }
}
