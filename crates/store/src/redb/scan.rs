//! The parallel walk over all keys, which verification and scans have in common: one thread reads the
//! rows, in key order, and others work on them.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

use ::redb::{AccessGuard, ReadableTable};
use bytes::Bytes;

use super::read::{View, corrupt_database, engine_error};
use super::shared::catch;
use crate::{Page, Position, Result};

/// Rows in one chunk.
const CHUNK_ROWS: usize = 256;
/// Bytes of rows in one chunk. The last row may exceed them.
const CHUNK_BYTES: usize = 1024 * 1024;
/// The most threads that work on chunks at the same time.
const THREADS: usize = 7;
/// Bytes between two keys of a page of the table: headers of pages are longer.
const KEY_GAP: usize = 3;

/// Some consecutive rows.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    /// Key and bytes of each row.
    pub(super) rows: Vec<(Bytes, Bytes)>,
    /// The first and the last key of each page: see [`super::verify`].
    pub(super) edges: Vec<Bytes>,
    bytes: usize,
}

impl Chunk {
    fn is_full(&self) -> bool {
        self.rows.len() >= CHUNK_ROWS || self.bytes >= CHUNK_BYTES
    }
}

/// Runs jobs, numbered from 0, on several threads, one of them the current one. The first error ends it; a
/// panic of redb counts as an error.
pub(super) fn for_each_job(jobs: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    let (sender, receiver) = sync_channel(jobs.max(1));
    for job in 0..jobs {
        // There is room for all of them.
        let _ = sender.try_send(job);
    }
    drop(sender);
    let queue = Queue { items: Mutex::new(receiver), has_failed: AtomicBool::new(false) };
    std::thread::scope(|scope| {
        let others: Vec<_> =
            (1..threads().min(jobs)).map(|_| scope.spawn(|| queue.work(&work))).collect();
        let own = queue.work(&work);
        others.into_iter().map(join).fold(own, Result::and)
    })
}

/// Items that are shared among threads.
struct Queue<T> {
    items: Mutex<Receiver<T>>,
    has_failed: AtomicBool,
}

impl<T> Queue<T> {
    /// Works until there are no more items. After a failure, of whichever thread, items are only taken.
    fn work(&self, work: &impl Fn(T) -> Result<()>) -> Result<()> {
        let mut outcome = Ok(());
        while let Some(item) = self.next() {
            if self.has_failed.load(Ordering::Relaxed) {
                continue;
            }
            let done = catch(|| work(item));
            if done.is_err() {
                self.has_failed.store(true, Ordering::Relaxed);
                outcome = done;
            }
        }
        outcome
    }

    fn next(&self) -> Option<T> {
        self.items.lock().ok()?.recv().ok()
    }
}

fn join(thread: std::thread::ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    thread.join().unwrap_or_else(|_| Err(corrupt_database("a thread that read it panicked")))
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get).min(THREADS)
}

impl View {
    /// Visits the state after a revision: see [`crate::Store::scan`].
    pub(super) fn scan(&self, at: u64, visit: &(dyn Fn(Page) + Send + Sync)) -> Result<()> {
        let revision = self.listed_revision(Some(at))?;
        let newest = Position::end_of(revision).packed();
        self.for_each_chunk(|chunk| {
            let mut page = Page { revision, ..Page::default() };
            page.entries.reserve_exact(chunk.rows.len());
            for (key, row) in &chunk.rows {
                let key = std::str::from_utf8(key)
                    .map_err(|_| corrupt_database("a stored key is not UTF-8"))?;
                if let Some(version) = self.version(key, row, newest)? {
                    self.load_into(&mut page, key, version)?;
                }
            }
            visit(page);
            Ok(())
        })
    }

    /// Calls `work` with all rows, in chunks, from several threads. The first error ends it; a panic of
    /// redb counts as an error.
    pub(super) fn for_each_chunk(&self, work: impl Fn(Chunk) -> Result<()> + Sync) -> Result<()> {
        // A thread for each processor: the one that reads waits for them most of the time.
        let workers = threads();
        let (sender, receiver) = sync_channel(2 * workers);
        let queue = Queue { items: Mutex::new(receiver), has_failed: AtomicBool::new(false) };
        std::thread::scope(|scope| {
            let others: Vec<_> = (0..workers).map(|_| scope.spawn(|| queue.work(&work))).collect();
            let read = catch(|| {
                self.read_chunks(|chunk| {
                    // Nobody is there to take it only when all threads have ended.
                    let is_sent = sender.send(chunk).is_ok();
                    is_sent && !queue.has_failed.load(Ordering::Relaxed)
                })
            });
            drop(sender);
            others.into_iter().map(join).fold(Ok(()), Result::and).and(read)
        })
    }

    /// Reads all rows, and calls `take` with each chunk until it returns false.
    fn read_chunks(&self, mut take: impl FnMut(Chunk) -> bool) -> Result<()> {
        let mut chunk = Chunk::default();
        let mut before: Option<AccessGuard<'_, &'static [u8]>> = None;
        for item in self.live().iter().map_err(engine_error)? {
            let (key, row) = item.map_err(engine_error)?;
            let name = Bytes::copy_from_slice(key.value());
            let last = before.as_ref().map(AccessGuard::value);
            if last.is_none_or(|last| !adjoin(last, key.value(), KEY_GAP)) {
                chunk.edges.extend(last.map(Bytes::copy_from_slice));
                chunk.edges.push(name.clone());
            }
            chunk.bytes += name.len() + row.value().len();
            chunk.rows.push((name, Bytes::copy_from_slice(row.value())));
            before = Some(key);
            if chunk.is_full() && !take(std::mem::take(&mut chunk)) {
                return Ok(());
            }
        }
        chunk.edges.extend(before.as_ref().map(|key| Bytes::copy_from_slice(key.value())));
        take(chunk);
        Ok(())
    }
}

/// Returns whether the second of two slices begins so soon after the first one that both must be on
/// one page. Both must still be in memory: different pages are then further apart, because each
/// begins with a header.
pub(super) fn adjoin(first: &[u8], second: &[u8], gap_bytes: usize) -> bool {
    let end = first.as_ptr_range().end.addr();
    second.as_ptr().addr().checked_sub(end).is_some_and(|gap| gap <= gap_bytes)
}
