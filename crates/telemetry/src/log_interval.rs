//! `LogInterval`: few lines of a kind in a minute, for lines that requests of clients cause.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time in which a line is written once.
const INTERVAL: Duration = Duration::from_mins(1);

/// The most lines of one kind in this time, about different subjects.
const MAX_LINES: usize = 16;

/// Limits the lines of one kind. Without it, a client that repeats a request fills the log.
#[derive(Debug, Default)]
pub struct LogInterval(Mutex<Option<Window>>);

#[derive(Debug)]
struct Window {
    began: Instant,
    /// The hashes of the subjects of lines.
    subjects: HashSet<u64>,
    left_out: u64,
}

impl LogInterval {
    /// A limit that lets the first line pass.
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Whether a line about a subject may be written now: then the number of lines that were left out since the last
    /// one.
    pub fn admit(&self, subject: impl Hash) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        subject.hash(&mut hasher);
        let subject = hasher.finish();
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left_out = window.as_ref().map_or(0, |window| window.left_out);
        let window = match window.take_if(|window| window.began.elapsed() >= INTERVAL) {
            None if window.is_some() => window.as_mut()?,
            _ => {
                window.insert(Window { began: Instant::now(), subjects: HashSet::new(), left_out })
            }
        };
        if window.subjects.len() >= MAX_LINES || !window.subjects.insert(subject) {
            window.left_out += 1;
            return None;
        }
        Some(std::mem::take(&mut window.left_out))
    }
}

/// Writes a line at a level (`info`, `warn` or `error`), at most once in a minute for each place in the code. With `for`,
/// it is once for each subject, and 16 times for all of them. The field `left_out` counts the lines in between. Every line
/// that a request of a client can cause is written by it.
/// For example, `log_limited!(warn, for cluster, cluster, "cannot reach a target: {reason}")`.
#[macro_export]
macro_rules! log_limited {
    ($level:ident, for $subject:expr, $($line:tt)+) => {{
        static LINES: $crate::LogInterval = $crate::LogInterval::new();
        if let Some(left_out) = LINES.admit($subject) {
            $crate::tracing::$level!(left_out, $($line)+);
        }
    }};
    ($level:ident, $($line:tt)+) => {
        $crate::log_limited!($level, for (), $($line)+)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_takes_a_subject_fields_and_text() {
        let (cluster, reason) = ("east", "connection refused");
        log_limited!(warn, for cluster, cluster, "cannot reach a target: {reason}");
        log_limited!(error, "cannot write: {reason}");
    }

    #[test]
    fn one_line_in_a_minute_passes_and_the_others_are_counted() {
        let lines = LogInterval::new();
        assert_eq!(lines.admit("a"), Some(0));
        assert!((0..1000).all(|_| lines.admit("a").is_none()));
        assert_eq!(lines.admit("b"), Some(1000), "another subject");
        let written = (0..1000).filter(|number| lines.admit(number).is_some()).count();
        assert_eq!(written, MAX_LINES - 2, "a client that names many subjects");
        let a_minute_ago = Instant::now().checked_sub(INTERVAL).unwrap();
        lines.0.lock().unwrap().as_mut().unwrap().began = a_minute_ago;
        assert_eq!(lines.admit("a"), Some(1000 - MAX_LINES as u64 + 2));
        assert_eq!(lines.admit("a"), None);
    }
}
