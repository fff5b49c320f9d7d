//! The other end of a connection.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use postern_auth::identity::{Identity, MASTERS_GROUP};
use postern_flow::{Flow, Requester};
use postern_listen::Peer;
use tokio::sync::Semaphore;

use crate::audit::LastSender;
use crate::stages::authenticate::LastCredential;

/// Streams of an unauthenticated client that are served at once.
const MAX_UNAUTHENTICATED_STREAMS: usize = 8;

/// The other end of a connection, as all its requests know it.
pub(crate) struct Client {
    /// The connection, as the table of connections has it.
    pub(crate) peer: Arc<Peer>,
    /// The sender of its last request, for the audit log.
    pub(crate) last_sender: LastSender,
    /// The credential of its last request.
    pub(crate) last_credential: LastCredential,
    /// The owner of the first valid key.
    requester: OnceLock<Requester>,
    pub(super) flow: Arc<Flow>,
    has_streams: AtomicBool,
    /// Streams that are served while no request has come with a valid key; others wait. It is closed
    /// when one has.
    pub(crate) served: Arc<Semaphore>,
}

impl Client {
    /// The client of a connection that has just been accepted: an unauthenticated one.
    pub(crate) fn new(address: IpAddr, flow: Arc<Flow>) -> Self {
        Self {
            peer: Arc::new(Peer::new(address)),
            last_sender: LastSender::default(),
            last_credential: LastCredential::default(),
            requester: OnceLock::new(),
            flow,
            has_streams: AtomicBool::new(false),
            served: Arc::new(Semaphore::new(MAX_UNAUTHENTICATED_STREAMS)),
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

    /// Notes that a request came with a key that works. Returns its sender, as flow control knows them.
    pub(crate) fn set_authenticated(&self, owner: &Identity) -> Requester {
        let is_system = owner.is_in(MASTERS_GROUP);
        if let Some(known) =
            self.requester.get().filter(|known| **known.account.name() == *owner.name)
        {
            return Requester { account: known.account.clone(), is_system };
        }
        let requester = Requester { account: self.flow.account(&owner.name), is_system };
        if !self.is_authenticated() {
            self.requester.get_or_init(|| requester.clone());
            self.peer.set_authenticated(&owner.name, is_system);
            self.served.close();
        }
        requester
    }

    /// The owner of the first valid key, as flow control knows them.
    pub(super) fn requester(&self) -> Option<&Requester> {
        self.requester.get()
    }

    /// Notes that a request had to wait for its slot, if it was one of the connection's owner.
    pub(super) fn set_waits(&self, requester: &Requester) {
        if self.requester().is_some_and(|own| Arc::ptr_eq(&own.account, &requester.account)) {
            requester.account.set_waits();
        }
    }

    /// Whether requests of its owner wait for their slots, next to those of others.
    pub(crate) fn waits(&self) -> bool {
        self.requester().is_some_and(|own| own.account.waits()) && self.flow.has_contention()
    }

    /// Whether any request came with a key that works.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.peer.is_authenticated()
    }
}
