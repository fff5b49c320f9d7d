//! A rate limit on the records of failed authentications.
//!
//! Any client can fail any number of times. If each failure were recorded, one client could rotate away all older
//! records. So the first 1000 failures are recorded one by one. After that, one failure in ten seconds is recorded,
//! with the number of omitted ones. With at most 1 KiB each, this is 9 MB a day.

use parking_lot::Mutex;

/// The number of failures that are recorded one by one.
const BURST: u64 = 1000;

/// The seconds between two recorded failures after the burst.
const SECONDS_FOR_ONE: u64 = 10;

/// The annotation of a record with the number of failures that were omitted before it.
pub(super) const FAILURES_LEFT_OUT: &str = "platform.sh/failures-left-out";

/// A token bucket for the records of failed authentications.
pub(super) struct AuthenticationFailures {
    state: Mutex<State>,
}

struct State {
    tokens: u64,
    /// When tokens were added last, in seconds since 1970.
    refilled_at: i64,
    omitted: u64,
}

impl AuthenticationFailures {
    /// A full bucket.
    pub(super) fn new(now_unix_seconds: i64) -> Self {
        let state = State { tokens: BURST, refilled_at: now_unix_seconds, omitted: 0 };
        Self { state: Mutex::new(state) }
    }

    /// Counts one more failure. If it must be recorded, returns the number of failures that were omitted before it.
    /// `has_room` is whether the log has room for a record.
    pub(super) fn note(&self, now_unix_seconds: i64, has_room: bool) -> Option<u64> {
        let mut state = self.state.lock();
        let passed = u64::try_from(now_unix_seconds.saturating_sub(state.refilled_at)).unwrap_or(0);
        let more = passed / SECONDS_FOR_ONE;
        if more > 0 {
            state.tokens = state.tokens.saturating_add(more).min(BURST);
            state.refilled_at = now_unix_seconds;
        }
        if state.tokens == 0 || !has_room {
            state.omitted += 1;
            return None;
        }
        state.tokens -= 1;
        Some(std::mem::take(&mut state.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_leaves_room() {
        let failures = AuthenticationFailures::new(100);
        for _ in 0..BURST {
            assert_eq!(failures.note(100, true), Some(0));
        }
        for _ in 0..500 {
            assert_eq!(failures.note(100, true), None);
        }
        assert_eq!(failures.note(109, true), None);
        assert_eq!(failures.note(110, true), Some(501));
        assert_eq!(failures.note(110, true), None);
        // A clock that moves back adds no tokens. A day later, the bucket is full again.
        assert_eq!(failures.note(5, true), None);
        // A failure without room in the log is also omitted.
        assert_eq!(failures.note(120, false), None);
        assert_eq!(failures.note(86_400, true), Some(3));
        assert_eq!((1..BURST).filter(|_| failures.note(86_400, true).is_some()).count(), 999);
        assert_eq!(failures.note(86_400, true), None);
    }
}
