//! The counts of connections.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Why the server closed a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Closed {
    /// It brought no request with a valid key in time.
    Stranger,
    /// All connections were taken, and it was the oldest without a valid key.
    Evicted,
    /// All connections were taken, and none could be closed for it.
    Refused,
    /// Its client did not take what was sent.
    Stalled,
}

impl Closed {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Stranger, "unauthenticated"),
        (Self::Evicted, "evicted"),
        (Self::Refused, "refused"),
        (Self::Stalled, "stalled"),
    ];
}

/// The counts, as they go on.
#[derive(Default)]
pub(crate) struct Connections {
    /// Open connections.
    pub(crate) open: AtomicUsize,
    /// How many there may be.
    pub(crate) limit: AtomicUsize,
    closed: [AtomicU64; Closed::ALL.len()],
    reset_responses: AtomicU64,
}

/// The counts at one moment.
#[derive(Default)]
pub(crate) struct ConnectionCounts {
    pub(crate) open: usize,
    pub(crate) limit: usize,
    pub(crate) closed: [(&'static str, u64); Closed::ALL.len()],
    pub(crate) reset_responses: u64,
}

impl Connections {
    /// Counts a connection that the server closed.
    pub(crate) fn count_closed(&self, reason: Closed) {
        self.closed[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a response that was given up.
    pub(crate) fn count_reset(&self) {
        self.reset_responses.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts.
    pub(crate) fn counts(&self) -> ConnectionCounts {
        ConnectionCounts {
            open: self.open.load(Ordering::Relaxed),
            limit: self.limit.load(Ordering::Relaxed),
            closed: Closed::ALL
                .map(|(reason, name)| (name, self.closed[reason as usize].load(Ordering::Relaxed))),
            reset_responses: self.reset_responses.load(Ordering::Relaxed),
        }
    }
}
