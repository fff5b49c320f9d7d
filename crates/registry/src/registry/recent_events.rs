//! Which events of the server's own were recorded lately, so that what happens again at once is counted and
//! not written: as upstream's recorder has it, one object cannot fill the store with its events.

use std::collections::HashMap;

use parking_lot::Mutex;

/// An event is written at most this often.
const INTERVAL_SECONDS: i64 = 60;

/// Events that are remembered; upstream remembers as many.
const MAX_EVENTS: usize = 4096;

/// The events that were recorded lately, by name.
#[derive(Default)]
pub(crate) struct RecentEvents(Mutex<HashMap<String, Recent>>);

#[derive(Clone, Copy)]
struct Recent {
    written_unix_seconds: i64,
    /// How often it has happened since then.
    uncounted: i32,
}

impl RecentEvents {
    /// Notes that something has happened. Returns how often it has since it was written last, this time
    /// included; `None` when that was less than a minute ago, so that it is to be counted the next time.
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
            // A forgotten event is written once more, and its count is too low.
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
