//! The recent load of owners: whether something happened within the last second, and whether several owners send
//! requests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long an event counts as recent.
const STAY: Duration = Duration::from_secs(1);

/// Whether something has happened within the last second.
pub(crate) struct Recently {
    began: Instant,
    /// Milliseconds after `began` until which the event counts as recent; 0 before the first event.
    until: AtomicU64,
}

impl Default for Recently {
    fn default() -> Self {
        Self { began: Instant::now(), until: AtomicU64::new(0) }
    }
}

impl Recently {
    fn milliseconds(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Records that it happened now.
    pub(crate) fn set(&self) {
        let stay = u64::try_from(STAY.as_millis()).unwrap_or(u64::MAX);
        self.until.store(self.milliseconds().saturating_add(stay), Ordering::Relaxed);
    }

    /// Whether it has happened within the last second.
    pub(crate) fn get(&self) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        // The clock is not read if it has never happened.
        until > 0 && self.milliseconds() < until
    }
}

/// Whether several owners send requests. A single owner does not share the slots.
#[derive(Default)]
pub(super) struct Contention {
    /// The owner of the last request, as a number.
    last: AtomicU64,
    changed: Recently,
}

impl Contention {
    /// Records the owner of a request. `owner` is a number that is unique to the owner.
    pub(super) fn note(&self, owner: u64) {
        if self.last.load(Ordering::Relaxed) != owner {
            self.last.store(owner, Ordering::Relaxed);
            self.changed.set();
        }
    }

    /// Whether several owners sent requests within the last second.
    pub(super) fn get(&self) -> bool {
        self.changed.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Contention {
        /// Begins contention that lasts until it is ended here, or ends it.
        pub(in super::super) fn set(&self, others: bool) {
            self.changed.until.store(if others { u64::MAX } else { 0 }, Ordering::Relaxed);
        }
    }

    #[test]
    fn one_owner_is_no_contention() {
        let contention = Contention::default();
        let (a, b) = (1, 2);
        // The first owner follows no other.
        contention.note(a);
        contention.set(false);
        for (owner, others) in [(a, false), (a, false), (b, true), (b, true), (a, true)] {
            contention.note(owner);
            assert_eq!(contention.get(), others, "{owner}");
        }
        contention.changed.until.store(contention.changed.milliseconds(), Ordering::Relaxed);
        contention.note(a);
        assert!(!contention.get(), "the other owner's last request is long ago");
    }
}
