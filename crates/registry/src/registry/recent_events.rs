//! The recent events of the server itself. A repeated event is counted and not written, as in upstream's recorder. So
//! one object cannot fill the store with its events.

use std::collections::HashMap;

use parking_lot::Mutex;

/// The shortest time between two writes of an event.
const INTERVAL_SECONDS: i64 = 60;

/// The number of remembered events, as upstream.
const MAX_EVENTS: usize = 4096;

/// The recent events, by name.
#[derive(Default)]
pub(crate) struct RecentEvents(Mutex<HashMap<String, Recent>>);

#[derive(Clone, Copy)]
struct Recent {
    written_unix_seconds: i64,
    /// The occurrences since the last write.
    uncounted: i32,
}

impl RecentEvents {
    /// Notes an occurrence. Returns the number of occurrences since the event was last written, including this one.
    /// Returns `None` if that was less than a minute ago: the next write then counts this occurrence.
    pub(crate) fn note(&self, name: &str, now_unix_seconds: i64) -> Option<i32> {
        let mut events = self.0.lock();
        let is_recent = |recent: &Recent| {
            let age = now_unix_seconds.saturating_sub(recent.written_unix_seconds);
            (0..INTERVAL_SECONDS).contains(&age)
        };
        if let Some(recent) = events.get_mut(name).filter(|recent| is_recent(recent)) {
            recent.uncounted = recent.uncounted.saturating_add(1);
            return None;
        }
        let uncounted = events.remove(name).map_or(0, |recent| recent.uncounted);
        if events.len() >= MAX_EVENTS {
            events.retain(|_, recent| is_recent(recent));
        }
        if events.len() >= MAX_EVENTS {
            // A forgotten event is written once more, with a count that is too low.
            events.clear();
        }
        let written = Recent { written_unix_seconds: now_unix_seconds, uncounted: 0 };
        events.insert(name.to_owned(), written);
        Some(uncounted.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_again_at_once_is_counted_later() {
        let events = RecentEvents::default();
        assert_eq!(events.note("a", 100), Some(1));
        assert_eq!(events.note("a", 100), None);
        assert_eq!(events.note("a", 159), None);
        assert_eq!(events.note("b", 159), Some(1));
        assert_eq!(events.note("a", 160), Some(3));
        assert_eq!(events.note("a", 161), None);
        assert_eq!(events.note("a", 50), Some(2), "the clock was set back");
    }

    #[test]
    fn only_so_many_are_remembered() {
        let events = RecentEvents::default();
        for number in 0..3 * MAX_EVENTS {
            events.note(&number.to_string(), 100);
        }
        assert!(events.0.lock().len() <= MAX_EVENTS);
    }
}
