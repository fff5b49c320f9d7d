//! Log lines that a caller can cause repeatedly: one of each kind in an interval, with the number
//! of omitted lines. The audit log and the counts have each request.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The time between two lines of one kind.
const INTERVAL: Duration = Duration::from_secs(10);

/// Lines of some kinds.
#[derive(Debug)]
pub(crate) struct RareLines(Mutex<BTreeMap<&'static str, Written>>);

#[derive(Debug)]
struct Written {
    last: Instant,
    left_out: u64,
}

impl RareLines {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Writes the line with the number of lines of its kind that were left out before, unless the last one is not
    /// [`INTERVAL`] old. There are as many kinds as the code names.
    pub(crate) fn write(&self, kind: &'static str, line: impl FnOnce(u64)) {
        let now = Instant::now();
        let mut kinds = self.0.lock();
        let left_out = match kinds.get_mut(kind) {
            Some(written) if now - written.last < INTERVAL => {
                written.left_out += 1;
                return;
            }
            written => written.map_or(0, |written| written.left_out),
        };
        kinds.insert(kind, Written { last: now, left_out: 0 });
        drop(kinds);
        line(left_out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_line_of_a_kind_is_written_once_in_an_interval_with_the_number_of_others() {
        let lines = RareLines::new();
        let mut written = Vec::new();
        for _ in 0..1_000 {
            lines.write("a", |left_out| written.push(("a", left_out)));
        }
        lines.write("b", |left_out| written.push(("b", left_out)));
        tokio::time::advance(INTERVAL).await;
        lines.write("a", |left_out| written.push(("a", left_out)));
        lines.write("a", |left_out| written.push(("a", left_out)));
        assert_eq!(written, [("a", 0), ("b", 0), ("a", 999)]);
    }
}
