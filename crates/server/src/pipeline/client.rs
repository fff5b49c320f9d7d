//! `Client`: the state of a connection that its requests share.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use postern_auth::identity::{Identity, MASTERS_GROUP};
use postern_flow::{Flow, Requester};
use postern_listen::Peer;
use tokio::sync::Semaphore;

use postern_audit::LastSender;
use postern_http::stages::authenticate::LastCredential;

/// The most streams of an unauthenticated client that are served at once.
const MAX_UNAUTHENTICATED_STREAMS: usize = 8;

/// The state of a connection that its requests share.
pub(crate) struct Client {
    /// The connection's entry in the table of connections.
    pub(crate) peer: Arc<Peer>,
    /// The sender of the last request, for the audit log.
    pub(crate) last_sender: LastSender,
    /// The credential of the last request.
    pub(crate) last_credential: LastCredential,
    /// The owner of the first valid key.
    requester: OnceLock<Requester>,
    pub(super) flow: Arc<Flow>,
    has_streams: AtomicBool,
    /// Limits the streams that are served while the client is unauthenticated. Others wait. It is closed at the first
    /// request with a valid key.
    pub(crate) served: Arc<Semaphore>,
}

impl Client {
    /// The unauthenticated client of a connection that has just been accepted.
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

    /// Records that the connection can have many requests at once, as over HTTP/2.
    pub(crate) fn set_streams(&self) {
        self.has_streams.store(true, Ordering::Relaxed);
    }

    /// Whether the connection can have many requests at once.
    pub(crate) fn has_streams(&self) -> bool {
        self.has_streams.load(Ordering::Relaxed)
    }

    /// Records that a request has a valid key. Returns its sender, for flow control.
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

    /// The owner of the first valid key, for flow control.
    pub(super) fn requester(&self) -> Option<&Requester> {
        self.requester.get()
    }

    /// Records that a request waited for its slot, if the request's owner is the connection's owner.
    pub(super) fn set_waits(&self, requester: &Requester) {
        if self.requester().is_some_and(|own| Arc::ptr_eq(&own.account, &requester.account)) {
            requester.account.set_waits();
        }
    }

    /// Whether requests of the owner wait for slots while other owners send requests.
    pub(crate) fn waits(&self) -> bool {
        self.requester().is_some_and(|own| own.account.waits()) && self.flow.has_contention()
    }

    /// Whether a request with a valid key has arrived.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.peer.is_authenticated()
    }
}
