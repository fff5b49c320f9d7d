//! A subject that seals the stores of another one.

use std::sync::Arc;

use postern_store::conformance::Subject;
use postern_store::memory::Memory;
use postern_store::seal::{Keyring, Sealed};
use postern_store::{Change, Entry, ListRequest, Position, Store, Txn};

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
