//! Ways to make stores of every kind, for all the tests of this directory.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicU64, Ordering};

use postern_store::conformance::Subject;
use postern_store::memory::Memory;
use postern_store::redb::{Options, Redb};
use postern_store::seal::{Keyring, Sealed};
use tempfile::TempDir;

/// The engine in memory.
pub(crate) struct InMemory;

impl Subject for InMemory {
    type Store = Memory;

    async fn create(&self) -> Memory {
        Memory::new()
    }

    async fn reopen(&self, _: Memory) -> Option<Memory> {
        None
    }
}

/// The engine on a file. The directory goes when the subject does.
pub(crate) struct OnFile {
    directory: TempDir,
    made: AtomicU64,
}

impl OnFile {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), made: AtomicU64::new(0) }
    }

    fn open(&self, number: u64) -> Redb {
        Redb::open(self.directory.path().join(number.to_string()), Options::default()).unwrap()
    }
}

impl Subject for OnFile {
    type Store = Redb;

    async fn create(&self) -> Redb {
        self.open(self.made.fetch_add(1, Ordering::Relaxed) + 1)
    }

    async fn reopen(&self, store: Redb) -> Option<Redb> {
        store.close().await;
        Some(self.open(self.made.load(Ordering::Relaxed)))
    }
}

/// A seal around another subject's store.
pub(crate) struct Seal<T> {
    below: T,
    keyring: Keyring,
}

impl<T> Seal<T> {
    pub(crate) fn new(below: T) -> Self {
        Self { below, keyring: Keyring::generate().unwrap() }
    }
}

impl<T: Subject> Subject for Seal<T> {
    type Store = Sealed<T::Store>;

    async fn create(&self) -> Self::Store {
        Sealed::open(self.below.create().await, self.keyring.clone()).await.unwrap()
    }

    async fn reopen(&self, store: Self::Store) -> Option<Self::Store> {
        let below = self.below.reopen(store.into_inner()).await?;
        Some(Sealed::open(below, self.keyring.clone()).await.unwrap())
    }
}
