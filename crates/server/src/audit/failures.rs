//! How many failed authentications are recorded one by one.
//!
//! Anybody can fail as often as he likes. Were each of them recorded, he could push every older
//! record out of the files that are kept. So a burst is recorded one by one, then one now and then,
//! which says how many were left out before it. At some 1.5 KB for each, that is 13 MB a day.

use parking_lot::Mutex;

/// Failures that are recorded one by one.
const BURST: u64 = 1000;

/// After them, one in so many seconds.
const SECONDS_FOR_ONE: u64 = 10;

/// What has been recorded lately.
pub(super) struct Failures {
    state: Mutex<State>,
}

struct State {
    left: u64,
    /// When `left` was added to last, in seconds since 1970.
    counted_at: i64,
    left_out: u64,
}

impl Failures {
    /// With a whole burst ahead.
    pub(super) fn new(now_unix_seconds: i64) -> Self {
        let state = State { left: BURST, counted_at: now_unix_seconds, left_out: 0 };
        Self { state: Mutex::new(state) }
    }

    /// Takes in one more, which can be recorded if there is `room` in the log. Returns how many were
    /// left out before it, if it is to be recorded.
    pub(super) fn note(&self, now_unix_seconds: i64, room: bool) -> Option<u64> {
        let mut state = self.state.lock();
        let passed = u64::try_from(now_unix_seconds.saturating_sub(state.counted_at)).unwrap_or(0);
        let more = passed / SECONDS_FOR_ONE;
        if more > 0 {
            state.left = state.left.saturating_add(more).min(BURST);
            state.counted_at = now_unix_seconds;
        }
        if state.left == 0 || !room {
            state.left_out += 1;
            return None;
        }
        state.left -= 1;
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_leaves_room() {
        let failures = Failures::new(100);
        for _ in 0..BURST {
            assert_eq!(failures.note(100, true), Some(0));
        }
        for _ in 0..500 {
            assert_eq!(failures.note(100, true), None);
        }
        assert_eq!(failures.note(109, true), None);
        assert_eq!(failures.note(110, true), Some(501));
        assert_eq!(failures.note(110, true), None);
        // A clock that goes back gives nothing; a day later all is as in the beginning.
        assert_eq!(failures.note(5, true), None);
        // What there is no room for is left out, too.
        assert_eq!(failures.note(120, false), None);
        assert_eq!(failures.note(86_400, true), Some(3));
        assert_eq!((1..BURST).filter(|_| failures.note(86_400, true).is_some()).count(), 999);
        assert_eq!(failures.note(86_400, true), None);
    }
}
