//! The objects that could not be processed: the time of the next attempt, and of the next log message, for each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// The time until the second attempt. It doubles with each attempt, up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_secs(2);

/// The longest time between two attempts.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// The shortest time between two log messages for one object.
const WARNING_INTERVAL: Duration = Duration::from_mins(1);

/// Objects that could not be processed, by their storage keys.
#[derive(Default)]
pub(super) struct Failures(BTreeMap<Arc<str>, Failure>);

struct Failure {
    wait: Duration,
    next_try: Instant,
    warned: Instant,
}

impl Failures {
    /// Notes that an object could not be processed. Returns whether a log message is due.
    pub(super) fn note(&mut self, key: Arc<str>, now: Instant) -> bool {
        let Some(known) = self.0.get_mut(&key) else {
            let (wait, next_try) = (FIRST_WAIT, now + FIRST_WAIT);
            self.0.insert(key, Failure { wait, next_try, warned: now });
            return true;
        };
        known.wait = (known.wait * 2).min(LONGEST_WAIT);
        known.next_try = now + known.wait;
        let is_due = now.duration_since(known.warned) >= WARNING_INTERVAL;
        if is_due {
            known.warned = now;
        }
        is_due
    }

    /// Forgets an object that was processed or does not exist.
    pub(super) fn forget(&mut self, key: &str) {
        self.0.remove(key);
    }

    /// The objects that are due for another attempt.
    pub(super) fn due(&self, now: Instant) -> Vec<Arc<str>> {
        let due = self.0.iter().filter(|(_, failure)| failure.next_try <= now);
        due.map(|(key, _)| key.clone()).collect()
    }

    /// The time of the next attempt, if there is one.
    pub(super) fn next_try(&self) -> Option<Instant> {
        self.0.values().map(|failure| failure.next_try).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_become_rare_and_warnings_are_one_a_minute() {
        let (mut failures, begun) = (Failures::default(), Instant::now());
        let after = |seconds| begun + Duration::from_secs(seconds);
        let key: Arc<str> = "/a".into();
        assert!(failures.note(key.clone(), begun));
        let mut tries = Vec::new();
        let mut warnings = Vec::new();
        for second in 1..300 {
            assert!(failures.next_try().is_some());
            if failures.due(after(second)).is_empty() {
                continue;
            }
            tries.push(second);
            if failures.note(key.clone(), after(second)) {
                warnings.push(second);
            }
        }
        assert_eq!(tries, [2, 6, 14, 30, 62, 122, 182, 242]);
        assert_eq!(warnings, [62, 122, 182, 242]);
        // An event can cause an attempt at any time. The log does not report each of them.
        assert!(!failures.note(key, after(243)));
        failures.forget("/a");
        assert_eq!(failures.next_try(), None);
    }
}
