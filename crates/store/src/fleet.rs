//! Servers that share one store: which of them live, and which one holds a lease.
//!
//! Leases only save work. A holder that does not notice in time that it has lost one may still act, so nothing may be
//! wrong if two servers act at once.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::Result;

/// A server that shares the store with others, as it announces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its id, which no other process has, now or later.
    pub id: Arc<str>,
    /// The address at which other members reach it, such as `10.0.0.1:8443`.
    pub address: String,
    /// The newest format of stored objects that it can write.
    pub format: u32,
    /// The ids of the at-rest keys that it holds.
    pub seal_keys: Vec<String>,
}

/// The servers that share a store.
#[async_trait]
pub trait Fleet: Send + Sync {
    /// Announces this server, or announces it anew with other facts. The engine keeps the announcement alive until the
    /// store is closed. A server that ends without a close is gone after a few seconds.
    async fn join(&self, me: Member) -> Result<()>;

    /// The servers that are announced, by their ids. They are those of a few seconds ago if the engine has lost its
    /// connection.
    fn members(&self) -> watch::Receiver<Arc<[Member]>>;

    /// Gets the reason when the store cannot be used any more: its data was moved to another store, or removed. A server
    /// must end then, because the others may go on with the other store.
    fn gone(&self) -> watch::Receiver<Option<Arc<str>>>;

    /// Waits until this server holds the lease of a name, which one server at a time holds.
    async fn lease(&self, name: &str) -> Result<Lease>;
}

/// A lease that is held until it is dropped or lost.
pub struct Lease {
    is_lost: watch::Receiver<bool>,
    /// What gives the lease back when it is dropped.
    _held: Box<dyn Any + Send + Sync>,
}

impl Lease {
    /// A lease that is lost when `is_lost` becomes true or its sender is dropped. `held` is dropped with the lease.
    pub fn new(is_lost: watch::Receiver<bool>, held: Box<dyn Any + Send + Sync>) -> Self {
        Self { is_lost, _held: held }
    }

    /// Waits until another server may hold the lease.
    pub async fn lost(&self) {
        // An error means that the engine is gone, and the lease with it.
        let _ = self.is_lost.clone().wait_for(|lost| *lost).await;
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("is_lost", &*self.is_lost.borrow()).finish_non_exhaustive()
    }
}
