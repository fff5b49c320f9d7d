//! The common parts of the operator's commands: their runtime, and the progress that they print.

use std::io::{self, IsTerminal as _, Write as _};
use std::pin::Pin;
use std::time::{Duration, Instant};

use postern_server::admin::Progress;

/// The interval at which progress is printed.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Runs the work of a command to its end. The work is in a box: the runtime has several loops, and each would be compiled
/// with a copy of it.
///
/// # Errors
/// If the machine gives no threads.
pub(crate) fn block_on<T>(work: Pin<Box<dyn Future<Output = T> + '_>>) -> io::Result<T> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work))
}

/// Runs work, and prints its progress.
pub(crate) fn with_progress<T>(work: impl FnOnce(&mut (dyn FnMut(Progress) + Send)) -> T) -> T {
    let mut line = ProgressLine::new();
    let done = work(&mut |now| line.update(now));
    line.finish();
    done
}

/// The progress line of a long command. It is overwritten, and printed only on a terminal.
struct ProgressLine {
    has_printed: bool,
    last: Instant,
    is_terminal: bool,
}

impl ProgressLine {
    fn new() -> Self {
        Self { has_printed: false, last: Instant::now(), is_terminal: io::stderr().is_terminal() }
    }

    fn update(&mut self, now: Progress) {
        if !self.is_terminal || self.last.elapsed() < PROGRESS_INTERVAL {
            return;
        }
        self.last = Instant::now();
        self.has_printed = true;
        let all = now.seen.saturating_add(now.remaining);
        let _ = write!(io::stderr(), "\r{} of {all} values", now.seen);
    }

    fn finish(&self) {
        if self.has_printed {
            let _ = writeln!(io::stderr());
        }
    }
}
