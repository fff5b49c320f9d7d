//! The records that wait for the central server, in files of the state directory.
//!
//! A separate thread appends them, so that a stalled disk delays only requests that wait for a
//! record. A file has as many records as are sent at once, and is removed when the central server
//! has them. So unacknowledged records are sent again. A line that a crash cut off at the end of a
//! file is left out.
//!
//! The records of changes may fill the whole queue, and the whole list that waits for the thread. All others may fill
//! three quarters of each: reads must not keep callers from writing. Records without room are counted.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use postern_kinds::audit_event_list::AuditEvent;
use postern_meta::decode::decode_typed;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;

use crate::state_dir::{create_anew, read_if_there};

/// Bytes and records after which a file is closed. The central server takes more at once.
const SEGMENT_BYTES: u64 = 256 * 1024;
const SEGMENT_RECORDS: usize = 500;

/// Bytes that are written at once, about.
const BATCH_BYTES: usize = 64 * 1024;

/// Records that are written at once, so that a file has never more than are sent at once.
const BATCH_RECORDS: usize = SEGMENT_RECORDS / 2;

/// Records that wait for the thread.
const WAITING_RECORDS: usize = 1024;

/// Those of them that are of what changes nothing.
const WAITING_READS: usize = WAITING_RECORDS / 4 * 3;

/// How long a change waits for its record.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// The suffixes of file names: for records, for records that the central server rejected, and for
/// rejected records while they are still being written.
const SEGMENT: &str = "jsonl";
const SET_ASIDE: &str = "refused";
const PARTIAL: &str = "partial";

/// The maximum size of all files that were set aside, in bytes. They do not count for the queue, so
/// records that the central server rejects block no change.
const MAX_ASIDE_BYTES: u64 = 4 * 1024 * 1024;

/// The maximum size of all files in bytes, unless a test sets another one.
pub(crate) const MAX_BYTES: u64 = 256 * 1024 * 1024;

/// The queue.
#[derive(Debug)]
pub(crate) struct Queue {
    commands: SyncSender<Command>,
    /// One permit for each further record of a request that changes nothing.
    reads: Arc<Semaphore>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    dir: PathBuf,
    max_bytes: u64,
    /// The bytes of all files, except those that were set aside.
    bytes: AtomicU64,
    /// The closed files with records, by number.
    closed: Mutex<VecDeque<Segment>>,
    /// The files that were set aside since the start, oldest first, and how many records they have.
    aside: Mutex<VecDeque<(Segment, usize)>>,
}

/// A closed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    number: u64,
    bytes: u64,
}

/// The number of missing records.
#[derive(Debug, Default)]
pub(crate) struct LossCounter {
    /// Since the start.
    all: AtomicU64,
    /// The missing records that no record reports yet.
    unreported: AtomicU64,
}

impl LossCounter {
    /// Counts records that are missing.
    pub(crate) fn note(&self, records: u64) {
        self.all.fetch_add(records, Ordering::Relaxed);
        self.unreported.fetch_add(records, Ordering::Relaxed);
    }

    /// The number of missing records since the start.
    pub(crate) fn total(&self) -> u64 {
        self.all.load(Ordering::Relaxed)
    }

    /// Takes the number of missing records that the next record reports.
    pub(crate) fn take(&self) -> u64 {
        self.unreported.swap(0, Ordering::Relaxed)
    }

    /// Adds back the number of missing records from a record that was not written.
    fn give_back(&self, tells: u64) {
        self.unreported.fetch_add(tells, Ordering::Relaxed);
    }
}

/// A record as its line.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) text: Vec<u8>,
    /// The number of missing records that it reports.
    pub(crate) tells: u64,
}

/// The record is not in the queue: the queue is full, or the disk does not accept the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unrecorded;

#[derive(Debug)]
enum Command {
    Append(Waiting),
    /// Close the file, if it has records.
    Close(oneshot::Sender<()>),
}

/// A record that waits to be written.
#[derive(Debug)]
struct Waiting {
    line: Line,
    /// The request that waits for it: it is the record of a change.
    written: Option<oneshot::Sender<()>>,
    /// Its permit among the records of requests that change nothing.
    _read: Option<OwnedSemaphorePermit>,
    lost: Arc<LossCounter>,
}

impl Waiting {
    /// Notes that the record is not written. The drop notifies the waiting request, which then
    /// makes no change. So the record is not missing.
    fn drop_unwritten(self) {
        self.lost.give_back(self.line.tells);
        self.lost.note(u64::from(self.written.is_none()));
    }
}

impl Queue {
    /// Opens the queue in a directory, and starts its thread.
    ///
    /// # Errors
    /// When the directory cannot be used.
    pub(crate) fn open(dir: &Path, max_bytes: u64) -> anyhow::Result<Self> {
        let unusable = || format!("cannot use the directory {}", dir.display());
        DirBuilder::new().recursive(true).mode(0o700).create(dir).with_context(unusable)?;
        let closed = segments(dir).with_context(unusable)?;
        let bytes = closed.iter().map(|segment| segment.bytes).sum();
        let next = closed.back().map_or(1, |last| last.number + 1);
        let shared = Arc::new(Shared {
            dir: dir.to_owned(),
            max_bytes,
            bytes: AtomicU64::new(bytes),
            closed: Mutex::new(closed),
            aside: Mutex::default(),
        });
        let (commands, received) = sync_channel(WAITING_RECORDS);
        let writer = Writer { shared: shared.clone(), next, current: None, is_failing: false };
        let thread = std::thread::Builder::new().name("audit".to_owned());
        thread.spawn(move || writer.run(&received)).with_context(unusable)?;
        Ok(Self { commands, reads: Arc::new(Semaphore::new(WAITING_READS)), shared })
    }

    /// Appends the record of what changes nothing. When there is no room, it is counted in `lost`.
    pub(crate) fn append(&self, line: Line, lost: &Arc<LossCounter>) {
        let room = self.shared.max_bytes / 4 * 3;
        let read = self.reads.clone().try_acquire_owned().ok();
        let has_place = read.is_some();
        let waiting = Waiting { line, written: None, _read: read, lost: lost.clone() };
        if !has_place || self.bytes() + waiting.line.text.len() as u64 > room {
            return waiting.drop_unwritten();
        }
        let _ = self.send(waiting);
    }

    /// Appends the record of a change, and returns when it is in its file.
    ///
    /// # Errors
    /// [`Unrecorded`]: then nothing may be changed.
    pub(crate) async fn append_first(
        &self,
        line: Line,
        lost: &Arc<LossCounter>,
    ) -> Result<(), Unrecorded> {
        let (written, is_written) = oneshot::channel();
        self.send(Waiting { line, written: Some(written), _read: None, lost: lost.clone() })?;
        match timeout(WRITE_TIMEOUT, is_written).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Unrecorded),
        }
    }

    /// Hands a record to the thread.
    fn send(&self, waiting: Waiting) -> Result<(), Unrecorded> {
        let sent = self.commands.try_send(Command::Append(waiting));
        sent.map_err(|(TrySendError::Full(command) | TrySendError::Disconnected(command))| {
            if let Command::Append(waiting) = command {
                waiting.drop_unwritten();
            }
            Unrecorded
        })
    }

    /// The bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// The oldest file; `None` when there is no record.
    pub(crate) async fn oldest(&self) -> Option<Segment> {
        if self.shared.closed.lock().is_empty() {
            self.written().await;
        }
        self.shared.closed.lock().front().copied()
    }

    /// Waits until everything is in a closed file, or the disk has stalled for too long.
    pub(crate) async fn written(&self) {
        let (close, is_closed) = oneshot::channel();
        if self.commands.try_send(Command::Close(close)).is_ok() {
            let _ = timeout(WRITE_TIMEOUT, is_closed).await;
        }
    }

    /// The records of a file, and how many lines are none.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) async fn read(&self, segment: Segment) -> anyhow::Result<(Vec<AuditEvent>, usize)> {
        let path = self.shared.path(segment.number, SEGMENT);
        tokio::task::spawn_blocking(move || {
            let text = read_if_there(&path)?.unwrap_or_default();
            // A last line without an end was cut off.
            let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            let mut corrupt = usize::from(end < text.len());
            let lines = text[..end].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            let events = lines.filter_map(|line| {
                let event = decode_typed::<AuditEvent>(line);
                corrupt += usize::from(event.is_err());
                event.ok()
            });
            let events = events.collect();
            Ok((events, corrupt))
        })
        .await?
    }

    /// Removes a file after the central server has its records.
    pub(crate) async fn remove(&self, segment: Segment) {
        let path = self.shared.path(segment.number, SEGMENT);
        self.finish(segment, move || fs::remove_file(path)).await;
        self.shared.bytes.fetch_sub(segment.bytes, Ordering::Relaxed);
    }

    /// Removes a file of which the central server has all records but these. They are set aside, and sent again
    /// after a restart. Returns how many records there is no room for: the oldest that were set aside go first.
    pub(crate) async fn set_aside(&self, segment: Segment, refused: &[AuditEvent]) -> u64 {
        let path = |end: &str| self.shared.path(segment.number, end);
        let (from, partial, to) = (path(SEGMENT), path(PARTIAL), path(SET_ASIDE));
        let text: Vec<u8> = refused.iter().flat_map(line_of).collect();
        let bytes = text.len() as u64;
        self.finish(segment, move || {
            create_anew(&partial)?.write_all(&text)?;
            // After a crash right here, the file that was set aside replaces the original.
            fs::rename(partial, to)?;
            fs::remove_file(from)
        })
        .await;
        self.shared.bytes.fetch_sub(segment.bytes, Ordering::Relaxed);
        let aside = Segment { number: segment.number, bytes };
        self.shared.aside.lock().push_back((aside, refused.len()));
        self.forget_oldest().await
    }

    /// Removes the oldest files that were set aside, until the others have room. Returns how many records they
    /// had.
    async fn forget_oldest(&self) -> u64 {
        let mut forgotten = 0;
        while let Some((oldest, records)) = self.shared.too_much_aside() {
            let path = self.shared.path(oldest.number, SET_ASIDE);
            self.finish(oldest, move || fs::remove_file(path)).await;
            forgotten += records as u64;
        }
        forgotten
    }

    async fn finish(
        &self,
        segment: Segment,
        change: impl FnOnce() -> std::io::Result<()> + Send + 'static,
    ) {
        if let Ok(Err(error)) = tokio::task::spawn_blocking(change).await {
            tracing::error!("a file of the audit queue could not be removed: {error}");
        }
        self.shared.closed.lock().retain(|one| *one != segment);
    }
}

impl Shared {
    /// Takes the oldest file that was set aside, when there are too many bytes of them.
    fn too_much_aside(&self) -> Option<(Segment, usize)> {
        let mut aside = self.aside.lock();
        let bytes: u64 = aside.iter().map(|(segment, _)| segment.bytes).sum();
        if bytes > MAX_ASIDE_BYTES { aside.pop_front() } else { None }
    }

    fn path(&self, number: u64, end: &str) -> PathBuf {
        self.dir.join(format!("{number:020}.{end}"))
    }
}

/// The line of a record.
pub(crate) fn line_of(event: &AuditEvent) -> Vec<u8> {
    let mut line = serde_json::to_vec(event).unwrap_or_default();
    line.push(b'\n');
    line
}

/// The files of an earlier run, oldest first. Those that were set aside are tried again.
fn segments(dir: &Path) -> anyhow::Result<VecDeque<Segment>> {
    let mut lengths = BTreeMap::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
        let number = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
        let Some(number) = number.filter(|_| [SEGMENT, SET_ASIDE].contains(&end)) else { continue };
        let kept = path.with_extension(SEGMENT);
        if end == SET_ASIDE {
            fs::rename(&path, &kept)?;
        }
        lengths.insert(number, fs::metadata(&kept)?.len());
    }
    Ok(lengths.into_iter().map(|(number, bytes)| Segment { number, bytes }).collect())
}

/// The thread's part.
struct Writer {
    shared: Arc<Shared>,
    /// The number of the next file.
    next: u64,
    current: Option<Current>,
    is_failing: bool,
}

/// The file that is being written.
struct Current {
    number: u64,
    file: File,
    bytes: u64,
    records: usize,
}

/// Records that are written at once.
#[derive(Default)]
struct Batch {
    text: Vec<u8>,
    records: Vec<Waiting>,
}

impl Writer {
    fn run(mut self, received: &Receiver<Command>) {
        while let Ok(first) = received.recv() {
            let (mut batch, mut closes) = (Batch::default(), Vec::new());
            let mut next = Some(first);
            while let Some(command) = next.take() {
                match command {
                    Command::Close(done) => closes.push(done),
                    Command::Append(waiting) => self.take(&mut batch, waiting),
                }
                if batch.text.len() < BATCH_BYTES && batch.records.len() < BATCH_RECORDS {
                    next = received.try_recv().ok();
                }
            }
            self.write(batch);
            if !closes.is_empty() {
                self.close();
            }
            for done in closes {
                let _ = done.send(());
            }
        }
    }

    /// Takes a record into a batch, if there is room.
    fn take(&self, batch: &mut Batch, mut waiting: Waiting) {
        let bytes = self.shared.bytes.load(Ordering::Relaxed) + batch.text.len() as u64;
        if bytes + waiting.line.text.len() as u64 > self.shared.max_bytes {
            return waiting.drop_unwritten();
        }
        batch.text.append(&mut waiting.line.text);
        batch.records.push(waiting);
    }

    fn write(&mut self, batch: Batch) {
        if batch.records.is_empty() {
            return;
        }
        match self.append(&batch.text, batch.records.len()) {
            Ok(()) => {
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("the audit queue can be written again");
                }
                for waiting in batch.records {
                    waiting.written.map(|written| written.send(()));
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::error!("the audit queue cannot be written: {error:#}");
                }
                batch.records.into_iter().for_each(Waiting::drop_unwritten);
            }
        }
        let is_full = |current: &Current| {
            current.bytes >= SEGMENT_BYTES || current.records >= SEGMENT_RECORDS
        };
        if self.current.as_ref().is_some_and(is_full) {
            self.close();
        }
    }

    fn append(&mut self, text: &[u8], records: usize) -> anyhow::Result<()> {
        let current = match &mut self.current {
            Some(current) => current,
            none => {
                let path = self.shared.path(self.next, SEGMENT);
                let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path);
                // Also after an error: the name may be taken.
                let number = self.next;
                self.next += 1;
                none.insert(Current { number, file: file?, bytes: 0, records: 0 })
            }
        };
        if let Err(error) = current.file.write_all(text) {
            // Half a record must not be in front of others.
            if current.file.set_len(current.bytes).is_err() {
                self.close();
            }
            return Err(error.into());
        }
        current.bytes += text.len() as u64;
        current.records += records;
        self.shared.bytes.fetch_add(text.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn close(&mut self) {
        if let Some(Current { number, bytes, .. }) = self.current.take() {
            self.shared.closed.lock().push_back(Segment { number, bytes });
        }
    }
}

#[cfg(test)]
mod tests;
