//! A rate limit on the records of failed authentications.
//!
//! Any client can fail any number of times. If each failure were recorded, one client could push
//! every older record out of the files that are kept. So a burst is recorded one by one; after
//! that, one failure in ten seconds is recorded, and says how many were left out before it. At most
//! 1 KiB for each, that is 9 MB a day.

use parking_lot::Mutex;

/// Failures that are recorded one by one.
const BURST: u64 = 1000;

/// After that, one failure in this many seconds is recorded.
const SECONDS_FOR_ONE: u64 = 10;

/// A token bucket for the records of failed authentications.
pub(super) struct AuthenticationFailures {
    state: Mutex<State>,
}

struct State {
    tokens: u64,
    /// When tokens were added last, in seconds since 1970.
    refilled_at: i64,
    left_out: u64,
}

impl AuthenticationFailures {
    /// A full bucket.
    pub(super) fn new(now_unix_seconds: i64) -> Self {
        let state = State { tokens: BURST, refilled_at: now_unix_seconds, left_out: 0 };
        Self { state: Mutex::new(state) }
    }

    /// Counts one more failure, which can be recorded if there is `room` in the log. Returns how
    /// many were left out before it, if it is to be recorded.
    pub(super) fn note(&self, now_unix_seconds: i64, room: bool) -> Option<u64> {
        let mut state = self.state.lock();
        let passed = u64::try_from(now_unix_seconds.saturating_sub(state.refilled_at)).unwrap_or(0);
        let more = passed / SECONDS_FOR_ONE;
        if more > 0 {
            state.tokens = state.tokens.saturating_add(more).min(BURST);
            state.refilled_at = now_unix_seconds;
        }
        if state.tokens == 0 || !room {
            state.left_out += 1;
            return None;
        }
        state.tokens -= 1;
        Some(std::mem::take(&mut state.left_out))
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
        // A clock that goes back adds no tokens; a day later the bucket is full again.
        assert_eq!(failures.note(5, true), None);
        // A failure for which there is no room is left out, too.
        assert_eq!(failures.note(120, false), None);
        assert_eq!(failures.note(86_400, true), Some(3));
        assert_eq!((1..BURST).filter(|_| failures.note(86_400, true).is_some()).count(), 999);
        assert_eq!(failures.note(86_400, true), None);
    }
}
