//! `Log`: requests append lines, which are written in batches.
//!
//! A dedicated thread writes the lines of a few milliseconds at a time, or at once if a request waits for a line
//! ([`Log::written`]). The store's committer writes the lines that must be in the file before a commit
//! ([`Log::flush`]), for all requests that wait for the commit. Both may block on a stalled disk or pipe. That is why
//! requests do not write.
//!
//! No line is dropped. Lines that cannot be written are kept and written again. Until that succeeds, requests that need
//! a record are rejected.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;
use tokio::time::Instant;

use super::file::LogFile;

/// The bytes of unwritten lines above which requests are rejected.
const MAX_WAITING_BYTES: usize = 16 * 1024 * 1024;

/// The bytes of unwritten lines above which reports of agents wait before they append more.
const FILLING_BYTES: usize = MAX_WAITING_BYTES / 4;

/// The duration of a write after which requests are rejected.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);

/// How long lines are collected while no request waits for one.
const BATCH_INTERVAL: Duration = Duration::from_millis(5);

/// The time between a failed write and the next attempt.
const RETRY: Duration = Duration::from_millis(250);

/// How long a shutdown waits for the last lines to be written.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The capacity that the buffer keeps after a batch, in bytes.
const BUFFER_BYTES: usize = 1024 * 1024;

/// The log cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unwritten;

/// The lines of the audit log, until they are written.
#[derive(Clone)]
pub(crate) struct Log {
    shared: Arc<Shared>,
}

struct Shared {
    /// The message that is logged once when the log cannot be written.
    warning: &'static str,
    state: Mutex<State>,
    work: Condvar,
    writer: Mutex<Writer>,
    /// The number of written lines. A failed write also notifies the receivers.
    written: watch::Sender<u64>,
    failing: AtomicBool,
    failures: AtomicU64,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    lines: u64,
    /// Whether a request waits for one of the lines.
    urgent: bool,
    /// When the write of the current batch began; `None` if none is being written.
    writing_since: Option<Instant>,
    closing: bool,
}

/// The file, and the batch that could not be written yet.
struct Writer {
    file: LogFile,
    batch: Vec<u8>,
}

impl Log {
    /// Starts the thread that writes. `warning` is logged once when a write fails.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub(super) fn start(file: LogFile, warning: &'static str) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            warning,
            state: Mutex::default(),
            work: Condvar::new(),
            writer: Mutex::new(Writer { file, batch: Vec::new() }),
            written: watch::Sender::new(0),
            failing: AtomicBool::new(false),
            failures: AtomicU64::new(0),
        });
        let writing = shared.clone();
        let thread = std::thread::Builder::new().name("audit".to_owned());
        thread.spawn(move || writing.run())?;
        Ok(Self { shared })
    }

    /// Whether both are the same log.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Appends a line, which ends in a newline. Returns its number.
    pub(super) fn append(&self, line: &[u8]) -> u64 {
        let mut state = self.shared.state.lock();
        let is_first = state.waiting.is_empty();
        state.waiting.extend_from_slice(line);
        state.lines += 1;
        let number = state.lines;
        drop(state);
        if is_first {
            self.shared.work.notify_one();
        }
        number
    }

    /// Waits until the line with this number is written. All requests that wait at the same time share one write.
    ///
    /// # Errors
    /// [`Unwritten`] when the write fails or takes too long. The line is kept.
    pub(super) async fn written(&self, number: u64) -> Result<(), Unwritten> {
        let mut written = self.shared.written.subscribe();
        if *written.borrow() >= number {
            return Ok(());
        }
        self.shared.state.lock().urgent = true;
        self.shared.work.notify_one();
        let failing = || self.shared.failing.load(Ordering::Relaxed);
        let waited = written.wait_for(|lines| *lines >= number || failing());
        match tokio::time::timeout(STALL_TIMEOUT, waited).await {
            Ok(Ok(lines)) if *lines >= number => Ok(()),
            _ => Err(Unwritten),
        }
    }

    /// Writes all appended lines. Blocks.
    ///
    /// # Errors
    /// [`Unwritten`] when the write fails. The lines are kept.
    pub(crate) fn flush(&self) -> Result<(), Unwritten> {
        self.shared.flush()
    }

    /// Whether the log accepts lines and can write them.
    pub(super) fn works(&self) -> bool {
        let state = self.shared.state.lock();
        let stalled = state.writing_since.is_some_and(|since| since.elapsed() > STALL_TIMEOUT);
        let full = state.waiting.len() > MAX_WAITING_BYTES;
        drop(state);
        !stalled && !full && !self.shared.failing.load(Ordering::Relaxed)
    }

    /// Whether a quarter of the bytes for unwritten lines is used.
    pub(super) fn is_filling(&self) -> bool {
        self.shared.state.lock().waiting.len() > FILLING_BYTES
    }

    /// The number of appended lines, and of failed writes.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.shared.state.lock().lines, self.shared.failures.load(Ordering::Relaxed))
    }

    /// Like [`Log::flush`], on a thread that may block.
    ///
    /// # Errors
    /// [`Unwritten`] when the write fails or takes too long.
    pub(super) async fn flushed(&self) -> Result<(), Unwritten> {
        let log = self.clone();
        let flush = tokio::task::spawn_blocking(move || log.flush());
        match tokio::time::timeout(CLOSE_TIMEOUT, flush).await {
            Ok(Ok(flushed)) => flushed,
            _ => Err(Unwritten),
        }
    }

    /// Writes all appended lines, with retries for a few seconds, and ends the thread.
    pub(super) async fn close(&self) {
        let flush = async {
            while self.flushed().await.is_err() {
                tokio::time::sleep(RETRY).await;
            }
        };
        if tokio::time::timeout(CLOSE_TIMEOUT, flush).await.is_err() {
            tracing::error!("cannot write the last lines of the audit log");
        }
        self.shared.state.lock().closing = true;
        self.shared.work.notify_one();
    }
}

impl Shared {
    fn run(&self) {
        while self.wait_for_lines() {
            if self.flush().is_err() && !self.pause(RETRY) {
                break;
            }
        }
        // Writes lines that were appended during the close. An error is logged already.
        let _ = self.flush();
    }

    /// Waits until there are lines, and then a few milliseconds for more. Returns false when the log is being closed.
    fn wait_for_lines(&self) -> bool {
        let mut state = self.state.lock();
        while state.waiting.is_empty() && !self.failing.load(Ordering::Relaxed) {
            if state.closing {
                return false;
            }
            self.work.wait(&mut state);
        }
        if !state.closing && !state.urgent {
            self.work.wait_for(&mut state, BATCH_INTERVAL);
        }
        !state.closing
    }

    /// Waits for a while. Returns false when the log is being closed.
    fn pause(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.closing {
            self.work.wait_for(&mut state, time);
        }
        !state.closing
    }

    fn flush(&self) -> Result<(), Unwritten> {
        let mut writer = self.writer.lock();
        let mut state = self.state.lock();
        if !state.waiting.is_empty() || !writer.batch.is_empty() {
            state.writing_since = Some(Instant::now());
            drop(state);
            let written = self.write(&mut writer);
            state = self.state.lock();
            state.writing_since = None;
            if written.is_err() {
                // Under the lock, and with a notification: the thread must retry, whichever caller
                // got the error.
                self.failing.store(true, Ordering::Relaxed);
                self.work.notify_one();
                self.written.send_modify(|_| {});
                return Err(Unwritten);
            }
        }
        if self.failing.swap(false, Ordering::Relaxed) {
            tracing::info!(
                "the log can be written again, and no record was lost; before: {}",
                self.warning
            );
        }
        Ok(())
    }

    /// Writes the rest of an earlier batch, and then the waiting lines.
    fn write(&self, writer: &mut Writer) -> Result<(), Unwritten> {
        let Writer { file, batch } = writer;
        let mut write = |batch: &mut Vec<u8>| {
            file.write(batch).map_err(|error| {
                self.note_failure(&error);
                Unwritten
            })
        };
        write(batch)?;
        let mut state = self.state.lock();
        std::mem::swap(batch, &mut state.waiting);
        state.urgent = false;
        let lines = state.lines;
        drop(state);
        write(batch)?;
        self.written.send_replace(lines);
        batch.shrink_to(BUFFER_BYTES);
        Ok(())
    }

    /// Counts a failed write. Only the first of consecutive failures is logged.
    fn note_failure(&self, error: &io::Error) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        if !self.failing.load(Ordering::Relaxed) {
            tracing::error!("{}: {error}", self.warning);
        }
    }
}

#[cfg(test)]
mod tests {
    use postern_registry::clock::System;
    use tempfile::TempDir;

    use super::*;
    use crate::settings::{AuditLog, AuditSettings};

    fn file_at(path: &std::path::Path) -> LogFile {
        let settings = AuditSettings {
            log: AuditLog::File(path.to_owned()),
            policy_file: None,
            max_file_bytes: u64::MAX,
            max_rotated_files: 1,
            before_answer: false,
            exec_commands: true,
        };
        LogFile::open(settings, Arc::new(System::default())).unwrap()
    }

    fn log_to(path: &std::path::Path) -> Log {
        Log::start(file_at(path), "the log cannot be written").unwrap()
    }

    fn read(path: &std::path::Path) -> String {
        #[expect(clippy::disallowed_methods, reason = "a test looks at its files")]
        std::fs::read_to_string(path).unwrap()
    }

    #[tokio::test]
    async fn flushed_lines_are_in_the_file() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("audit.log");
        let log = log_to(&path);
        log.append(b"1\n");
        log.append(b"2\n");
        log.flush().unwrap();
        assert_eq!(read(&path), "1\n2\n");
        log.append(b"3\n");
        log.close().await;
        assert_eq!(read(&path), "1\n2\n3\n");
        assert_eq!(log.counts(), (3, 0));
    }

    /// No flush is needed.
    #[test]
    fn appended_lines_are_written_soon() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("audit.log");
        let log = log_to(&path);
        log.append(b"1\n");
        while read(&path).is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(read(&path), "1\n");
    }

    /// Without another flush, and including the lines before it.
    #[tokio::test]
    async fn a_line_is_written_at_once_if_a_request_waits_for_it() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("audit.log");
        let log = log_to(&path);
        for round in 0..20 {
            log.append(b"1\n");
            let second = log.append(b"2\n");
            log.written(second).await.unwrap();
            assert_eq!(read(&path), "1\n2\n".repeat(round + 1));
            log.written(second).await.unwrap();
        }
    }

    #[test]
    fn a_log_recovers_when_it_can_be_written_again() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("audit.log");
        let mut file = file_at(&path);
        file.break_file();
        let log = Log::start(file, "the log cannot be written").unwrap();
        log.append(b"1\n");
        assert_eq!(log.flush(), Err(Unwritten));
        assert!(!log.works());
        std::fs::remove_file(&path).unwrap();
        while !log.works() {
            std::thread::yield_now();
        }
        assert_eq!(read(&path), "1\n");
    }

    /// Every write to `/dev/full` fails.
    #[tokio::test]
    async fn a_log_that_cannot_be_written_reports_it_and_does_not_work() {
        if !std::path::Path::new("/dev/full").exists() {
            return;
        }
        let log = log_to(std::path::Path::new("/dev/full"));
        assert!(log.works());
        log.append(b"1\n");
        assert_eq!(log.flush(), Err(Unwritten));
        assert_eq!(log.flushed().await, Err(Unwritten));
        let line = log.append(b"2\n");
        assert_eq!(log.written(line).await, Err(Unwritten));
        assert!(!log.works());
        assert!(log.counts().1 > 0);
    }
}
