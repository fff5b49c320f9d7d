//! Subjects for all engines, plain and encrypted, for all the tests of this directory.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use postern_store::conformance::Subject;
use postern_store::memory::{Memory, MemoryRestore};
use postern_store::redb::RedbRestore;
use postern_store::{Entry, Options, RestoreTarget, Store};
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
