//! The other end of a connection.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use postern_auth::identity::{Identity, MASTERS_GROUP};
use tokio::sync::{Notify, Semaphore};

use crate::audit::LastSender;

/// Streams of a stranger that are served at once.
const MAX_STRANGER_STREAMS_SERVED: usize = 8;

/// The other end of a connection, as all its requests know it.
pub(crate) struct Client {
    /// Its address.
    pub(crate) address: IpAddr,
    /// The sender of its last request, for the audit log.
    pub(crate) last_sender: LastSender,
    authenticated: AtomicBool,
    has_streams: AtomicBool,
    /// Streams that are served while no request has come with a valid key; others wait. It is closed
    /// when one has.
    pub(crate) served: Arc<Semaphore>,
    /// Whose key came first, and whether they are in `system:masters`.
    owner: OnceLock<(Arc<Identity>, bool)>,
    /// Wakes the connection, which then ends.
    pub(crate) closing: Notify,
}

impl Client {
    /// Returns the client of a connection that has just been accepted: a stranger.
    pub(crate) fn new(address: IpAddr) -> Self {
        Self {
            address,
            last_sender: LastSender::default(),
            authenticated: AtomicBool::new(false),
            has_streams: AtomicBool::new(false),
            served: Arc::new(Semaphore::new(MAX_STRANGER_STREAMS_SERVED)),
            owner: OnceLock::new(),
            closing: Notify::new(),
        }
    }

    /// Notes that it can have many requests at once, as over HTTP/2.
    pub(crate) fn set_streams(&self) {
        self.has_streams.store(true, Ordering::Relaxed);
    }

    /// Returns whether it can have many requests at once.
    pub(crate) fn has_streams(&self) -> bool {
        self.has_streams.load(Ordering::Relaxed)
    }

    /// Notes that a request came with a key that works.
    pub(crate) fn set_authenticated(&self, owner: &Arc<Identity>) {
        if !self.is_authenticated() {
            self.owner.get_or_init(|| (owner.clone(), owner.is_in(MASTERS_GROUP)));
            self.authenticated.store(true, Ordering::Release);
            self.served.close();
        }
    }

    /// Returns whose key came first over the connection, unless they are in `system:masters`.
    pub(crate) fn tenant(&self) -> Option<&str> {
        let (owner, is_system) = self.owner.get()?;
        (!is_system).then_some(&owner.name)
    }

    /// Returns whether any request came with a key that works.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.authenticated.load(Ordering::Acquire)
    }
}
