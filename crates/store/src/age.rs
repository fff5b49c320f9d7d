//! How old history is: which revision was the newest one at which time. Arithmetic on marks, common to
//! all engines; each engine keeps the marks where its data is. No clock here: the time is passed in.

use std::time::Duration;

/// The number of steps in which history is forgotten. [`crate::Store::age_history`] is called this
/// often while history grows as old as it may become.
pub const HISTORY_STEPS: u32 = 5;

/// The most marks that are kept. Calls with different times to keep could otherwise pile them up.
const MARKS_MAX: usize = 64;

/// The revision that was the newest one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The time, as [`Ages::elapsed_ms`] counts it.
    pub(crate) at_ms: u64,
    /// The revision.
    pub(crate) revision: u64,
}

/// The marks of a store, and the time that its history has seen pass.
///
/// The time between two calls is computed from the clocks of the callers. It is never less than
/// zero, and never more than one step. So a clock that is set back by months makes history stay for
/// one step longer, not for months. A clock that is set forward makes history one step older, not
/// months.
/// Two callers with different clocks have the same effect as one: one of them adds at most one step
/// each time, and the other adds nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ages {
    /// The time that has passed over all calls, in milliseconds.
    pub(crate) elapsed_ms: u64,
    /// The clock of the last caller, in milliseconds since 1970.
    pub(crate) clock_ms: u64,
    /// Rising in both fields.
    pub(crate) marks: Vec<Mark>,
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgedHistory {
    /// The revision up to which history is old enough; 0 when none is.
    pub revision: u64,
    /// Whether the marks or the time must be stored. When nothing grows older, there is no need to.
    pub changed: bool,
}

impl Ages {
    /// Notes that it is `now` (since 1970), and which revision is the newest one. Returns the revision
    /// up to which history is at least as old as `keep`.
    pub fn note(&mut self, now: Duration, keep: Duration, newest: u64) -> AgedHistory {
        let before = self.clone();
        let (clock_ms, keep_ms) = (milliseconds(now), milliseconds(keep));
        let step_ms = keep_ms / u64::from(HISTORY_STEPS);
        let passed_ms = clock_ms.saturating_sub(self.clock_ms).min(step_ms);
        self.elapsed_ms = self.elapsed_ms.saturating_add(passed_ms);
        self.clock_ms = clock_ms;
        self.mark(newest, step_ms / 2);
        let old = |mark: &Mark| mark.at_ms.saturating_add(keep_ms) <= self.elapsed_ms;
        let old = self.marks.partition_point(old);
        // The last mark that is old enough stays. So the next caller gets the same result, also
        // when this caller ends before it has compacted anything.
        self.marks.drain(..old.saturating_sub(1));
        self.thin_out();
        let revision = if old == 0 { 0 } else { self.marks.first().map_or(0, |m| m.revision) };
        let grows_older = self.marks.len() > usize::from(old > 0);
        let changed = before.marks != self.marks || (grows_older && before != *self);
        AgedHistory { revision: revision.min(newest), changed }
    }

    /// The bytes of all fields.
    pub fn encode(&self) -> Vec<u8> {
        let marks = self.marks.iter().flat_map(|mark| [mark.at_ms, mark.revision]);
        let numbers = [self.elapsed_ms, self.clock_ms].into_iter().chain(marks);
        numbers.flat_map(u64::to_le_bytes).collect()
    }

    /// The marks in these bytes; `None` if the bytes are corrupt.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (numbers, rest) = bytes.as_chunks::<8>();
        let numbers: Vec<u64> = numbers.iter().copied().map(u64::from_le_bytes).collect();
        let [elapsed_ms, clock_ms, marks @ ..] = numbers.as_slice() else { return None };
        let (marks, odd) = marks.as_chunks::<2>();
        let marks =
            marks.iter().map(|[at_ms, revision]| Mark { at_ms: *at_ms, revision: *revision });
        let ages = Self { elapsed_ms: *elapsed_ms, clock_ms: *clock_ms, marks: marks.collect() };
        (rest.is_empty() && odd.is_empty()).then_some(ages)
    }

    /// Adds a mark for a revision, unless there is one, or one that is nearly as new.
    fn mark(&mut self, newest: u64, apart_ms: u64) {
        let mark = Mark { at_ms: self.elapsed_ms, revision: newest };
        let is_needed = self.marks.last().is_none_or(|last| {
            last.revision < newest && mark.at_ms.saturating_sub(last.at_ms) >= apart_ms
        });
        if is_needed {
            self.marks.push(mark);
        }
    }

    /// Removes every other mark when there are too many. The history of a removed mark is then as
    /// old as the next mark, and so kept longer.
    fn thin_out(&mut self) {
        if self.marks.len() > MARKS_MAX {
            let mut index = 0;
            self.marks.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600;
    const KEEP: Duration = Duration::from_secs(100);

    fn note(ages: &mut Ages, seconds: u64, newest: u64) -> u64 {
        ages.note(Duration::from_secs(seconds), KEEP, newest).revision
    }

    #[test]
    fn a_revision_is_old_when_it_was_there_that_long_ago() {
        let mut ages = Ages::default();
        let due: Vec<_> = (0..8).map(|call| note(&mut ages, 20 * call, 10 + call)).collect();
        assert_eq!(due, [0, 0, 0, 0, 0, 10, 11, 12]);
    }

    #[test]
    fn a_clock_that_is_set_back_makes_history_stay_a_step_longer() {
        let mut ages = Ages::default();
        for call in 0..4 {
            assert_eq!(note(&mut ages, 200 * DAY + 20 * call, 10 + call), 0);
        }
        let due: Vec<_> =
            (4..8).map(|call| note(&mut ages, 84 * DAY + 20 * call, 10 + call)).collect();
        assert_eq!(due, [0, 0, 10, 11]);
    }

    #[test]
    fn a_clock_that_is_set_forward_makes_history_a_step_older() {
        let mut ages = Ages::default();
        assert_eq!(note(&mut ages, 0, 10), 0);
        assert_eq!(note(&mut ages, 1, 11), 0);
        let due: Vec<_> =
            (0..6).map(|call| note(&mut ages, 116 * DAY + 20 * call, 12 + call)).collect();
        assert_eq!(due, [0, 0, 0, 0, 10, 12]);
    }

    /// One call a second from a process that starts anew each time.
    #[test]
    fn calls_that_are_close_together_make_few_marks_and_still_age() {
        let mut ages = Ages::default();
        for second in 0..1000 {
            let due = note(&mut ages, second, 1 + second);
            assert!(due <= (1 + second).saturating_sub(100), "at {second}: {due}");
            assert!(due + 130 >= second, "at {second}: {due}");
            assert!(ages.marks.len() <= 12, "{} marks", ages.marks.len());
        }
    }

    /// Two servers, one of them with a clock that is months ahead.
    #[test]
    fn clocks_that_differ_age_history_no_faster() {
        for ahead in [1, 7, 20, 116 * DAY] {
            let mut ages = Ages::default();
            for call in 0..50 {
                let seconds = 20 * call;
                for skew in [0, ahead] {
                    let due = note(&mut ages, 1000 + seconds + skew, 1 + seconds);
                    assert!(due <= (1 + seconds).saturating_sub(80), "{ahead}, {seconds}: {due}");
                    assert!(due + 200 >= seconds, "{ahead}, {seconds}: {due}");
                }
            }
        }
    }

    #[test]
    fn marks_are_bounded_however_the_time_to_keep_changes() {
        let mut ages = Ages::default();
        for call in 0..10_000_u64 {
            let keep = if call % 2 == 0 { 3600 } else { 1 };
            let keep = Duration::from_secs(keep).saturating_mul(1 + u32::from(call % 3 == 0));
            let due = ages.note(Duration::from_secs(call), keep, 1 + call).revision;
            assert!(due <= 1 + call);
            assert!(ages.marks.len() <= MARKS_MAX);
        }
    }

    #[test]
    fn nothing_is_stored_when_nothing_grows_older() {
        let mut ages = Ages::default();
        let mut changed = |seconds| ages.note(Duration::from_secs(seconds), KEEP, 7).changed;
        assert!((0..5).all(|call| changed(20 * call)));
        assert!(!changed(100));
        assert!(!changed(120));
    }

    #[test]
    fn the_same_question_has_the_same_answer() {
        let mut ages = Ages::default();
        for call in 0..6 {
            note(&mut ages, 20 * call, 10 + call);
        }
        let mut again = ages.clone();
        assert_eq!(note(&mut again, 100, 15), 10);
        assert_eq!(note(&mut again, 100, 99), 10);
    }
}
