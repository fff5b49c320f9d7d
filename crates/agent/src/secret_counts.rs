//! The counts of the secret sync into the cluster. `scrape` serves them.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a Secret could not be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SyncFailure {
    /// The API server did not respond, or with an error of its own.
    Unreachable,
    /// The agent does not have the permission.
    Forbidden,
    /// Others change the Secret again and again.
    Conflict,
    /// The API server does not accept the data.
    Rejected,
    /// The audit record could not be written.
    Unrecorded,
}

impl SyncFailure {
    pub(crate) const ALL: [Self; 5] =
        [Self::Unreachable, Self::Forbidden, Self::Conflict, Self::Rejected, Self::Unrecorded];

    /// The label of the count.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Forbidden => "forbidden",
            Self::Conflict => "conflict",
            Self::Rejected => "rejected",
            Self::Unrecorded => "unrecorded",
        }
    }

    /// The message of the Event.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Unreachable => "the API server does not respond to the agent",
            Self::Forbidden => {
                "the agent may not read or write the Secret: bind its role for Secrets in this namespace"
            }
            Self::Conflict => "others change the Secret again and again",
            Self::Rejected => {
                "the API server rejects the data: it does not fit the type of the Secret, is too large, or is refused by \
                 a policy"
            }
            Self::Unrecorded => "the agent cannot record the write",
        }
    }
}

/// The counts.
#[derive(Debug, Default)]
pub(crate) struct SecretCounts {
    filled: AtomicU64,
    removed: AtomicU64,
    failures: [AtomicU64; SyncFailure::ALL.len()],
    events_left_out: AtomicU64,
    wishes: AtomicU64,
    failing: AtomicU64,
    bytes: AtomicU64,
    connected: AtomicU64,
}

/// Bytes of values that are in memory until this is dropped.
pub(crate) struct HeldBytes<'a> {
    counts: &'a SecretCounts,
    bytes: u64,
}

impl Drop for HeldBytes<'_> {
    fn drop(&mut self) {
        self.counts.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl SecretCounts {
    /// Writes of data.
    pub(crate) fn filled(&self) -> u64 {
        self.filled.load(Ordering::Relaxed)
    }

    /// Removals of data.
    pub(crate) fn removed(&self) -> u64 {
        self.removed.load(Ordering::Relaxed)
    }

    /// Failed writes, each with its labels.
    pub(crate) fn failures(&self) -> Vec<(String, u64)> {
        let of = SyncFailure::ALL.iter().zip(&self.failures);
        let labels = |failure: &SyncFailure| format!("{{reason=\"{}\"}}", failure.name());
        of.map(|(failure, count)| (labels(failure), count.load(Ordering::Relaxed))).collect()
    }

    /// Events that were not written, because there were too many.
    pub(crate) fn events_left_out(&self) -> u64 {
        self.events_left_out.load(Ordering::Relaxed)
    }

    /// Secrets that the agent asks data for.
    pub(crate) fn wishes(&self) -> u64 {
        self.wishes.load(Ordering::Relaxed)
    }

    /// Secrets whose last write failed.
    pub(crate) fn failing(&self) -> u64 {
        self.failing.load(Ordering::Relaxed)
    }

    /// Bytes of values in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// 1 while the agent receives data from the central server.
    pub(crate) fn connected(&self) -> u64 {
        self.connected.load(Ordering::Relaxed)
    }

    pub(crate) fn note_filled(&self) {
        self.filled.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_removed(&self) {
        self.removed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_failure(&self, failure: SyncFailure) {
        let of = SyncFailure::ALL.iter().zip(&self.failures).find(|(one, _)| **one == failure);
        if let Some((_, count)) = of {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn note_event_left_out(&self) {
        self.events_left_out.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn set_wishes(&self, wishes: usize) {
        self.wishes.store(wishes as u64, Ordering::Relaxed);
    }

    pub(crate) fn set_failing(&self, failing: usize) {
        self.failing.store(failing as u64, Ordering::Relaxed);
    }

    pub(crate) fn set_connected(&self, is_connected: bool) {
        self.connected.store(is_connected.into(), Ordering::Relaxed);
    }

    /// Counts bytes of values until the result is dropped.
    pub(crate) fn hold(&self, bytes: usize) -> HeldBytes<'_> {
        let bytes = bytes as u64;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        HeldBytes { counts: self, bytes }
    }
}
