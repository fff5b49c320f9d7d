//! The counters of a proxy. A metrics endpoint reads [`Counts`].

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::error::Failure;

/// The counters of a proxy since it was made, and its current numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Requests that were asked to be sent on.
    pub requests: u64,
    /// Failures of requests, of bodies of answers and of sessions, in the order of [`Failure::ALL`].
    pub failures: [u64; Failure::ALL.len()],
    /// Requests that were sent again, because a reused connection was dead.
    pub retries: u64,
    /// Connections that were opened to upstreams.
    pub connections_opened: u64,
    /// Connections to upstreams that are open.
    pub connections: usize,
    /// How many of these are idle.
    pub idle_connections: usize,
    /// Upgraded connections that were begun.
    pub sessions_begun: u64,
    /// Upgraded connections that are open.
    pub sessions: usize,
}

impl Counts {
    /// How many failures of a class there were.
    pub fn failures_of(&self, failure: Failure) -> u64 {
        self.failures[failure as usize]
    }
}

#[derive(Default)]
pub(crate) struct Counters {
    requests: AtomicU64,
    failures: [AtomicU64; Failure::ALL.len()],
    retries: AtomicU64,
    connections_opened: AtomicU64,
    pub(crate) connections: AtomicUsize,
    pub(crate) idle: AtomicUsize,
    sessions_begun: AtomicU64,
    pub(crate) sessions: AtomicUsize,
}

impl Counters {
    pub(crate) fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_failure(&self, failure: Failure) {
        self.failures[failure as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_opened(&self) {
        self.connections_opened.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_session(&self) {
        self.sessions_begun.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Counts {
        Counts {
            requests: self.requests.load(Ordering::Relaxed),
            failures: std::array::from_fn(|index| self.failures[index].load(Ordering::Relaxed)),
            retries: self.retries.load(Ordering::Relaxed),
            connections_opened: self.connections_opened.load(Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed),
            idle_connections: self.idle.load(Ordering::Relaxed),
            sessions_begun: self.sessions_begun.load(Ordering::Relaxed),
            sessions: self.sessions.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_its_own_counter_and_name() {
        let counters = Counters::default();
        for (index, failure) in Failure::ALL.into_iter().enumerate() {
            for _ in 0..=index {
                counters.count_failure(failure);
            }
        }
        let counts = counters.read();
        for (index, failure) in Failure::ALL.into_iter().enumerate() {
            assert_eq!(counts.failures_of(failure), index as u64 + 1, "{}", failure.name());
        }
        let names: std::collections::BTreeSet<_> = Failure::ALL.map(Failure::name).into();
        assert_eq!(names.len(), Failure::ALL.len());
    }
}
