//! The other end of a connection.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::audit::LastSender;

/// The other end of a connection, as all its requests know it.
pub(crate) struct Client {
    /// Its address.
    pub(crate) address: IpAddr,
    /// The sender of its last request, for the audit log.
    pub(crate) last_sender: LastSender,
    authenticated: AtomicBool,
    has_streams: AtomicBool,
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
    pub(crate) fn set_authenticated(&self) {
        if !self.is_authenticated() {
            self.authenticated.store(true, Ordering::Release);
        }
    }

    /// Returns whether any request came with a key that works.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.authenticated.load(Ordering::Acquire)
    }
}
