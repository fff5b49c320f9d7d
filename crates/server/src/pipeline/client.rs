//! The other end of a connection.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use postern_auth::identity::{Identity, MASTERS_GROUP};
use postern_flow::{Flow, Waits};
use postern_listen::Peer;
use tokio::sync::Semaphore;

use crate::audit::LastSender;
use crate::stages::authenticate::LastCredential;

/// Streams of a stranger that are served at once.
const MAX_STRANGER_STREAMS_SERVED: usize = 8;

/// The other end of a connection, as all its requests know it.
pub(crate) struct Client {
    /// The connection, as the table of connections has it.
    pub(crate) peer: Arc<Peer>,
    /// The sender of its last request, for the audit log.
    pub(crate) last_sender: LastSender,
    /// The credential of its last request.
    pub(crate) last_credential: LastCredential,
    /// Do requests of its owner wait for their seats? Set with the first valid key.
    waits: OnceLock<Arc<Waits>>,
    has_streams: AtomicBool,
    /// Streams that are served while no request has come with a valid key; others wait. It is closed
    /// when one has.
    pub(crate) served: Arc<Semaphore>,
}

impl Client {
    /// The client of a connection that has just been accepted: a stranger.
    pub(crate) fn new(address: IpAddr) -> Self {
        Self {
            peer: Arc::new(Peer::new(address)),
            last_sender: LastSender::default(),
            last_credential: LastCredential::default(),
            waits: OnceLock::new(),
            has_streams: AtomicBool::new(false),
            served: Arc::new(Semaphore::new(MAX_STRANGER_STREAMS_SERVED)),
        }
    }

    /// Notes that it can have many requests at once, as over HTTP/2.
    pub(crate) fn set_streams(&self) {
        self.has_streams.store(true, Ordering::Relaxed);
    }

    /// Whether it can have many requests at once.
    pub(crate) fn has_streams(&self) -> bool {
        self.has_streams.load(Ordering::Relaxed)
    }

    /// Notes that a request came with a key that works.
    pub(crate) fn set_authenticated(&self, flow: &Flow, owner: &Identity) {
        if !self.is_authenticated() {
            self.waits.get_or_init(|| flow.waits_of(&owner.name));
            self.peer.set_authenticated(&owner.name, owner.is_in(MASTERS_GROUP));
            self.served.close();
        }
    }

    /// Notes that a request had to wait for its seat, if it was one of the connection's owner.
    pub(crate) fn set_waits(&self, owner: &str) {
        if self.peer.owner().is_some_and(|(name, _)| name == owner)
            && let Some(waits) = self.waits.get()
        {
            waits.set();
        }
    }

    /// Whether requests of its owner wait for their seats, next to those of others.
    pub(crate) fn waits(&self, flow: &Flow) -> bool {
        self.waits.get().is_some_and(|waits| waits.get()) && flow.has_company()
    }

    /// Whether any request came with a key that works.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.peer.is_authenticated()
    }
}
