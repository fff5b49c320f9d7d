//! A subject that encrypts the stores of another subject.

use std::sync::Arc;

use super::Subject;
use crate::memory::Memory;
use crate::seal::{Keyring, Sealed};
use crate::{Change, Entry, ListRequest, Position, Store, Txn};

/// An encrypted store over the store of another subject.
#[derive(Debug)]
pub struct Encrypted<T> {
    inner: T,
    keyring: Keyring,
}

impl<T> Encrypted<T> {
    /// Encrypts with a new keyring.
    pub fn new(inner: T) -> Self {
        Self { inner, keyring: Keyring::generate().unwrap() }
    }

    async fn encrypt(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(Sealed::open(store, self.keyring.clone()).await.unwrap())
    }
}

impl<T: Subject> Subject for Encrypted<T> {
    async fn create(&self) -> Arc<dyn Store> {
        self.encrypt(self.inner.create().await).await
    }

    /// Encrypts the values in a store that is used for nothing else, and restores them with the
    /// marker.
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
        self.encrypt(self.inner.restore(revision, raw).await).await
    }

    /// Closes the inner store through the encrypted one.
    async fn reopen(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        let inner = self.inner.reopen(store).await?;
        Some(self.encrypt(inner).await)
    }
}
