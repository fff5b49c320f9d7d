//! The recent load of owners: whether a request of an owner has waited for its seat, and whether other owners
//! send requests, too.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long that is.
const STAY: Duration = Duration::from_secs(1);

/// Whether something has happened lately.
struct Lately {
    began: Instant,
    /// Milliseconds from then on until it is long ago; 0 before it happened.
    until: AtomicU64,
}

impl Default for Lately {
    fn default() -> Self {
        Self { began: Instant::now(), until: AtomicU64::new(0) }
    }
}

impl Lately {
    fn milliseconds(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Notes that it has just happened.
    fn set(&self) {
        let stay = u64::try_from(STAY.as_millis()).unwrap_or(u64::MAX);
        self.until.store(self.milliseconds().saturating_add(stay), Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        // If it has never happened, the clock is not read.
        until > 0 && self.milliseconds() < until
    }
}

/// Does an owner send more than is their share? All their connections know it: those that happen to find a seat at once
/// would otherwise have them all.
#[derive(Default)]
pub struct Waits(Lately);

impl Waits {
    /// Notes that a request had to wait for its seat.
    pub fn set(&self) {
        self.0.set();
    }

    /// Whether a request had to wait lately.
    pub fn get(&self) -> bool {
        self.0.get()
    }
}

/// Whether several owners send requests. A single owner need not give way.
#[derive(Default)]
pub(super) struct Company {
    /// The owner of the last request, as a hash.
    last: AtomicU64,
    changed: Lately,
    hasher: RandomState,
}

impl Company {
    /// Notes who sends a request.
    pub(super) fn note(&self, owner: &str) {
        let owner = self.hasher.hash_one(owner);
        if self.last.load(Ordering::Relaxed) != owner {
            self.last.store(owner, Ordering::Relaxed);
            self.changed.set();
        }
    }

    /// Whether there was more than one lately.
    pub(super) fn get(&self) -> bool {
        self.changed.get()
    }
}

/// The waits of all owners who have connections.
#[derive(Default)]
pub(super) struct AllWaits {
    by_owner: HashMap<String, Weak<Waits>>,
    /// Entries at which those of owners without connections are removed.
    sweep_at: usize,
}

impl AllWaits {
    /// The waits of one owner.
    pub(super) fn of(&mut self, owner: &str) -> Arc<Waits> {
        if let Some(known) = self.by_owner.get(owner).and_then(Weak::upgrade) {
            return known;
        }
        if self.by_owner.len() >= self.sweep_at {
            self.by_owner.retain(|_, waits| waits.strong_count() > 0);
            self.sweep_at = 2 * self.by_owner.len() + 16;
        }
        let waits = Arc::new(Waits::default());
        self.by_owner.insert(owner.to_owned(), Arc::downgrade(&waits));
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Company {
        /// Begins it, for good, or ends it.
        pub(in super::super) fn set(&self, others: bool) {
            self.changed.until.store(if others { u64::MAX } else { 0 }, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_has_waited_lately_is_known_to_all_connections_of_an_owner() {
        let mut all = AllWaits::default();
        let (one, same, other) = (all.of("a"), all.of("a"), all.of("b"));
        assert!(!one.get());
        one.set();
        assert!(same.get() && !other.get());
        one.0.until.store(one.0.milliseconds(), Ordering::Relaxed);
        assert!(!same.get(), "it is over");
        for number in 0..1000 {
            all.of(&number.to_string());
        }
        assert!(all.by_owner.len() < 100, "owners without connections are forgotten");
        assert!(Arc::ptr_eq(&all.of("a"), &one));
    }

    #[test]
    fn who_is_alone_has_no_company() {
        let company = Company::default();
        // No owner was there before the first.
        company.note("a");
        company.set(false);
        for (owner, others) in [("a", false), ("a", false), ("b", true), ("b", true), ("a", true)] {
            company.note(owner);
            assert_eq!(company.get(), others, "{owner}");
        }
        company.changed.until.store(company.changed.milliseconds(), Ordering::Relaxed);
        company.note("a");
        assert!(!company.get(), "the other owner was there long ago");
    }
}
