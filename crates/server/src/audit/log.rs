//! The log: lines come in from requests, and one thread writes them.
//!
//! A thread of its own, since a disk or a pipe can stall: those who must wait for it do so without
//! keeping a thread of the server's from everybody else. Nothing is dropped. What cannot be written
//! is kept and tried again, and until that has worked, nothing else is let in.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;
use tokio::time::Instant;

use super::file::LogFile;

/// Bytes of lines that wait to be written; with more, nothing else is let in.
const MAX_WAITING_BYTES: usize = 16 * 1024 * 1024;

/// A write that takes longer than this keeps others from being let in.
const STALL: Duration = Duration::from_secs(5);

/// What must be written first is waited for no longer than this.
const WAIT: Duration = Duration::from_secs(10);

/// After a failure the next try waits this long.
const RETRY: Duration = Duration::from_millis(250);

/// Bytes that a buffer keeps for the next lines.
const KEPT_BYTES: usize = 256 * 1024;

/// The log does not take anything at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unwritten;

/// Where a line stands among all that were ever handed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Line(u64);

/// The log.
pub(super) struct Log {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    progress: watch::Sender<Progress>,
    failures: AtomicU64,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    lines: u64,
    /// Since when a batch is being written.
    writing_since: Option<Instant>,
    closing: bool,
}

#[derive(Clone, Copy, Default)]
struct Progress {
    lines: u64,
    failing: bool,
}

impl Log {
    /// Begins to write.
    ///
    /// # Errors
    /// When there can be no further thread.
    pub(super) fn start(file: LogFile) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            work: Condvar::new(),
            progress: watch::Sender::default(),
            failures: AtomicU64::new(0),
        });
        let writer = shared.clone();
        let thread = std::thread::Builder::new().name("audit".to_owned());
        thread.spawn(move || writer.write_all(file))?;
        Ok(Self { shared })
    }

    /// Hands in a line, which ends in a newline.
    pub(super) fn append(&self, line: &[u8]) -> Line {
        let mut state = self.shared.state.lock();
        state.waiting.extend_from_slice(line);
        state.lines += 1;
        let place = Line(state.lines);
        // The writer looks by itself when it comes back from the file.
        let idle = state.writing_since.is_none();
        drop(state);
        if idle {
            self.shared.work.notify_one();
        }
        place
    }

    /// Waits until a line is in the file.
    ///
    /// # Errors
    /// [`Unwritten`], when it cannot be written. It is not forgotten.
    pub(super) async fn written(&self, line: Line) -> Result<(), Unwritten> {
        let mut progress = self.shared.progress.subscribe();
        let done = progress.wait_for(|now| now.lines >= line.0 || now.failing);
        match tokio::time::timeout(WAIT, done).await {
            Ok(Ok(now)) if now.lines >= line.0 => Ok(()),
            _ => Err(Unwritten),
        }
    }

    /// Does it take lines, and write them?
    pub(super) fn works(&self) -> bool {
        let state = self.shared.state.lock();
        let stalled = state.writing_since.is_some_and(|since| since.elapsed() > STALL);
        let full = state.waiting.len() > MAX_WAITING_BYTES;
        drop(state);
        !stalled && !full && !self.shared.progress.borrow().failing
    }

    /// Lines that were handed in, and writes that failed, so far.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.shared.state.lock().lines, self.shared.failures.load(Ordering::Relaxed))
    }

    /// Waits for what has been handed in, and ends the writing.
    pub(super) async fn close(&self) {
        let last = Line(self.shared.state.lock().lines);
        if self.written(last).await.is_err() {
            tracing::error!("the end of the audit log could not be written");
        }
        self.end();
    }

    fn end(&self) {
        self.shared.state.lock().closing = true;
        self.shared.work.notify_one();
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn write_all(&self, mut file: LogFile) {
        let mut batch = Vec::new();
        while let Some(lines) = self.take(&mut batch) {
            while let Err(error) = file.write(&mut batch) {
                self.note_failure(&error);
                if self.pause() {
                    return;
                }
            }
            batch.shrink_to(KEPT_BYTES);
            self.progress.send_replace(Progress { lines, failing: false });
        }
    }

    /// Waits for lines. Answers how many there were ever, with these; `None` at the end.
    fn take(&self, batch: &mut Vec<u8>) -> Option<u64> {
        let mut state = self.state.lock();
        state.writing_since = None;
        while state.waiting.is_empty() {
            if state.closing {
                return None;
            }
            self.work.wait(&mut state);
        }
        std::mem::swap(batch, &mut state.waiting);
        state.writing_since = Some(Instant::now());
        Some(state.lines)
    }

    /// Said once, not with every try.
    fn note_failure(&self, error: &io::Error) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.progress.send_if_modified(|progress| {
            let first = !std::mem::replace(&mut progress.failing, true);
            if first {
                tracing::error!("the audit log cannot be written, so nothing is served: {error}");
            }
            first
        });
    }

    /// Waits for the next try. Answers whether the server ends.
    fn pause(&self) -> bool {
        let mut state = self.state.lock();
        if !state.closing {
            self.work.wait_for(&mut state, RETRY);
        }
        state.closing
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::super::{AuditLog, AuditSettings};
    use super::*;
    use crate::clock::System;

    fn log_to(path: &std::path::Path) -> Log {
        let settings = AuditSettings {
            log: AuditLog::File(path.to_owned()),
            policy_file: None,
            max_file_bytes: u64::MAX,
            max_files_aside: 1,
        };
        Log::start(LogFile::open(settings, Arc::new(System::default())).unwrap()).unwrap()
    }

    fn read(path: &std::path::Path) -> String {
        #[expect(clippy::disallowed_methods, reason = "a test looks at its files")]
        std::fs::read_to_string(path).unwrap()
    }

    #[tokio::test]
    async fn what_is_waited_for_is_in_the_file() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("audit.log");
        let log = log_to(&path);
        log.append(b"1\n");
        let second = log.append(b"2\n");
        log.written(second).await.unwrap();
        assert_eq!(read(&path), "1\n2\n");
        log.append(b"3\n");
        log.close().await;
        assert_eq!(read(&path), "1\n2\n3\n");
        assert_eq!(log.counts(), (3, 0));
    }

    /// `/dev/full` takes nothing, for ever.
    #[tokio::test]
    async fn what_cannot_be_written_is_told_and_nothing_else_is_let_in() {
        if !std::path::Path::new("/dev/full").exists() {
            return;
        }
        let log = log_to(std::path::Path::new("/dev/full"));
        assert!(log.works());
        let line = log.append(b"1\n");
        assert_eq!(log.written(line).await, Err(Unwritten));
        assert!(!log.works());
        assert!(log.counts().1 > 0);
    }
}
