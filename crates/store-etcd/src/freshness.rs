//! Until when the watches of an engine are known to have delivered everything. A watch can stand
//! still while calls are answered, because it has another connection. The data in the server's
//! memory is then old.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The watches that run.
pub(crate) struct Freshness {
    opened: Instant,
    /// By a number for each watch: the moment until which it has everything, in nanoseconds since `opened`.
    watches: Mutex<HashMap<u64, u64>>,
    next_number: AtomicU64,
    /// The oldest of these moments, or [`NONE`].
    oldest: AtomicU64,
    head: Mutex<Option<HeadLook>>,
}

/// A look at the head of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadLook {
    /// Its revision of etcd.
    pub(crate) newest: i64,
    /// When the look began.
    pub(crate) looked: Instant,
}

/// There is no watch.
const NONE: u64 = u64::MAX;

impl Default for Freshness {
    fn default() -> Self {
        Self {
            opened: Instant::now(),
            watches: Mutex::default(),
            next_number: AtomicU64::new(0),
            oldest: AtomicU64::new(NONE),
            head: Mutex::default(),
        }
    }
}

impl Freshness {
    /// Adds a watch that begins at this moment.
    pub(crate) fn begin(self: &Arc<Self>, now: Instant) -> WatchFreshness {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let watch = WatchFreshness { all: Arc::clone(self), number };
        watch.has_everything_until(now);
        watch
    }

    /// How long ago the watch that is most behind had everything; zero without a watch.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        match self.oldest.load(Ordering::Relaxed) {
            NONE => Duration::ZERO,
            oldest => now.saturating_duration_since(self.opened + Duration::from_nanos(oldest)),
        }
    }

    /// Notes a look at the head.
    pub(crate) fn note_head(&self, look: HeadLook) {
        *self.head.lock() = Some(look);
    }

    /// The last look at the head that was noted.
    pub(crate) fn head(&self) -> Option<HeadLook> {
        *self.head.lock()
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<u64, u64>)) {
        let mut watches = self.watches.lock();
        change(&mut watches);
        self.oldest.store(watches.values().copied().min().unwrap_or(NONE), Ordering::Relaxed);
    }
}

/// One watch, until it is dropped.
pub(crate) struct WatchFreshness {
    all: Arc<Freshness>,
    number: u64,
}

impl WatchFreshness {
    /// Notes that the watch has delivered everything that was committed before this moment.
    pub(crate) fn has_everything_until(&self, moment: Instant) {
        let nanoseconds = moment.saturating_duration_since(self.all.opened).as_nanos();
        let nanoseconds = u64::try_from(nanoseconds).unwrap_or(NONE - 1);
        self.all.change(|watches| {
            let known = watches.entry(self.number).or_default();
            *known = nanoseconds.max(*known);
        });
    }
}

impl Drop for WatchFreshness {
    fn drop(&mut self) {
        self.all.change(|watches| {
            watches.remove(&self.number);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watch_that_is_most_behind_counts() {
        let all = Arc::new(Freshness::default());
        let at = |seconds| all.opened + Duration::from_secs(seconds);
        let age = |seconds| all.age(at(seconds)).as_secs();
        assert_eq!(age(9), 0, "there is no watch");
        let one = all.begin(at(1));
        let two = all.begin(at(2));
        assert_eq!(age(3), 2);
        one.has_everything_until(at(3));
        assert_eq!(age(3), 1);
        // An earlier look that ends late takes nothing back.
        one.has_everything_until(at(2));
        drop(two);
        assert_eq!((age(3), age(4)), (0, 1));
        drop(one);
        assert_eq!(age(9), 0);
    }
}
