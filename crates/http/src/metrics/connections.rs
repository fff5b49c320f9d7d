//! The counts of connections.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Why the server closed a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closed {
    /// It sent no request with a valid key in time.
    Unauthenticated,
    /// The limit of connections was reached, and it was the oldest unauthenticated one.
    Evicted,
    /// The limit of connections was reached, and no other one could be closed for it.
    Refused,
    /// Its client did not read the responses.
    Stalled,
}

impl Closed {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Unauthenticated, "unauthenticated"),
        (Self::Evicted, "evicted"),
        (Self::Refused, "refused"),
        (Self::Stalled, "stalled"),
    ];
}

/// The counters of connections.
#[derive(Default)]
pub struct Connections {
    /// Open connections.
    pub open: AtomicUsize,
    /// The most connections that may be open.
    pub limit: AtomicUsize,
    closed: [AtomicU64; Closed::ALL.len()],
    reset_responses: AtomicU64,
}

/// A snapshot of the counters.
#[derive(Default)]
pub struct ConnectionCounts {
    /// The open connections.
    pub open: usize,
    /// The maximum number of open connections.
    pub limit: usize,
    /// The connections that the server closed, by reason.
    pub closed: [(&'static str, u64); Closed::ALL.len()],
    /// The responses of HTTP/2 that clients reset.
    pub reset_responses: u64,
}

impl Connections {
    /// Counts a connection that the server closed.
    pub fn count_closed(&self, reason: Closed) {
        self.closed[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a response that was aborted.
    pub fn count_reset(&self) {
        self.reset_responses.fetch_add(1, Ordering::Relaxed);
    }

    /// A snapshot of the counters.
    pub fn counts(&self) -> ConnectionCounts {
        ConnectionCounts {
            open: self.open.load(Ordering::Relaxed),
            limit: self.limit.load(Ordering::Relaxed),
            closed: Closed::ALL
                .map(|(reason, name)| (name, self.closed[reason as usize].load(Ordering::Relaxed))),
            reset_responses: self.reset_responses.load(Ordering::Relaxed),
        }
    }
}
