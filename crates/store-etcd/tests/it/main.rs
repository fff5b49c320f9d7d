//! The engine on etcd, against the contract and against what only it has, with a real etcd.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod faults;
mod identity;
mod members;
mod migrate;
mod presence;
mod rotation;
mod server;
mod stalled;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use postern_store::conformance::{Encrypted, Subject};
use postern_store::{Entry, Store, conformance};
use postern_store_etcd::{Etcd, EtcdAccess, EtcdUrl};

use crate::server::{EtcdServer, access};

/// Stores on one etcd, each under a separate prefix.
pub(crate) struct OnEtcd {
    server: EtcdServer,
    created: AtomicU64,
}

impl OnEtcd {
    fn new() -> Self {
        Self { server: EtcdServer::start(), created: AtomicU64::new(0) }
    }

    fn next_url(&self) -> EtcdUrl {
        self.created.fetch_add(1, Ordering::Relaxed);
        self.last_url()
    }

    fn last_url(&self) -> EtcdUrl {
        self.server.url(&format!("/test/{}", self.created.load(Ordering::Relaxed)))
    }
}

async fn open(url: &EtcdUrl) -> Arc<dyn Store> {
    open_with(url, &access()).await
}

async fn open_with(url: &EtcdUrl, access: &EtcdAccess) -> Arc<dyn Store> {
    Arc::new(Etcd::open_or_create(url, access).await.unwrap())
}

impl Subject for OnEtcd {
    async fn create(&self) -> Arc<dyn Store> {
        open(&self.next_url()).await
    }

    async fn restore(&self, revision: u64, entries: Vec<Entry>) -> Arc<dyn Store> {
        let url = self.next_url();
        Etcd::restore(&url, &access(), revision, &entries).await.unwrap();
        open(&url).await
    }

    async fn reopen(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        store.close().await;
        Some(open(&self.last_url()).await)
    }
}

mod plain {
    use super::*;
    conformance!(OnEtcd::new());
}

mod sealed {
    use super::*;
    conformance!(Encrypted::new(OnEtcd::new()));
}
