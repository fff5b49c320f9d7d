//! Walks over all keys with several threads. A start walks over all rows in key order, and other
//! threads look up the keys that it has found ([`super::verify`]). The start also finds keys that
//! split the rows into ranges. A scan works on these ranges at the same time.

use std::num::NonZero;
use std::ops::Bound;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

use bytes::Bytes;

use super::read::{View, corrupt_database, engine_error};
use super::shared::catch_panic;
use crate::{Page, Position, Result};

/// Rows of a range, and on one page of a scan.
const RANGE_ROWS: usize = 256;
/// Bytes of such rows. The last row may exceed them.
const RANGE_BYTES: usize = 1024 * 1024;
/// The most threads that work at the same time.
const THREADS: usize = 7;

/// How much there is of a range.
#[derive(Debug, Default)]
pub(super) struct Filled {
    rows: usize,
    bytes: usize,
}

impl Filled {
    /// Counts a row. Returns whether the range is full, and a new one begins after it.
    pub(super) fn add(&mut self, bytes: usize) -> bool {
        (self.rows, self.bytes) = (self.rows + 1, self.bytes + bytes);
        let is_full = self.rows >= RANGE_ROWS || self.bytes >= RANGE_BYTES;
        if is_full {
            *self = Self::default();
        }
        is_full
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
    /// Works until no items are left. After a failure in any thread, items are only taken.
    fn work(&self, work: &impl Fn(T) -> Result<()>) -> Result<()> {
        let mut outcome = Ok(());
        while let Some(item) = self.next() {
            if self.has_failed.load(Ordering::Relaxed) {
                continue;
            }
            let done = catch_panic(|| work(item));
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

/// The result of a thread that reads the database.
pub(super) fn join<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| Err(corrupt_database("a thread that read it panicked")))
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get).min(THREADS)
}

/// Calls `work` on other threads, one for each processor, with what `produce` passes to its argument, which returns
/// whether to go on. The first error ends it; a panic of redb counts as an error.
pub(super) fn with_workers<T: Send>(
    produce: impl FnOnce(&dyn Fn(T) -> bool) -> Result<()>,
    work: impl Fn(T) -> Result<()> + Sync,
) -> Result<()> {
    let workers = threads();
    let (sender, receiver) = sync_channel(2 * workers);
    let queue = Queue { items: Mutex::new(receiver), has_failed: AtomicBool::new(false) };
    std::thread::scope(|scope| {
        let others: Vec<_> = (0..workers).map(|_| scope.spawn(|| queue.work(&work))).collect();
        let produced = catch_panic(|| {
            produce(&|item| {
                // Sending fails only when all threads have ended.
                sender.send(item).is_ok() && !queue.has_failed.load(Ordering::Relaxed)
            })
        });
        drop(sender);
        others.into_iter().map(join).fold(Ok(()), Result::and).and(produced)
    })
}

impl View {
    /// Visits the state after a revision, from several threads: see [`crate::Store::scan`]. `splits` are keys in
    /// order, at which the ranges of the threads begin; any will do.
    pub(super) fn scan(
        &self,
        at: u64,
        splits: &[Bytes],
        visit: &(dyn Fn(Page) + Send + Sync),
    ) -> Result<()> {
        let revision = self.listed_revision(Some(at))?;
        for_each_job(splits.len() + 1, |number| {
            let bound = |split: Option<&Bytes>| split.map(|key| key.to_vec());
            let from = number.checked_sub(1).and_then(|before| bound(splits.get(before)));
            self.scan_range(revision, from.as_deref(), bound(splits.get(number)).as_deref(), visit)
        })
    }

    fn scan_range(
        &self,
        revision: u64,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
        visit: &(dyn Fn(Page) + Send + Sync),
    ) -> Result<()> {
        let newest = Position::end_of(revision).packed();
        let new_page = || Page { revision, ..Page::default() };
        let (mut page, mut filled) = (new_page(), Filled::default());
        let from = from.map_or(Bound::Unbounded, Bound::Included);
        let to = to.map_or(Bound::Unbounded, Bound::Excluded);
        for item in self.live().range::<&[u8]>((from, to)).map_err(engine_error)? {
            let (key, row) = item.map_err(engine_error)?;
            let (key, row) = (key.value(), row.value());
            let is_full = filled.add(key.len() + row.len());
            let key = std::str::from_utf8(key)
                .map_err(|_| corrupt_database("a stored key is not UTF-8"))?;
            if let Some(version) = self.version(key, row, newest)? {
                self.load_into(&mut page, key, version)?;
            }
            if is_full {
                visit(std::mem::replace(&mut page, new_page()));
            }
        }
        visit(page);
        Ok(())
    }
}

/// Whether the second of two slices begins so soon after the first one that both must be on
/// one page. Both must still be in memory: different pages are then further apart, because each
/// begins with a header.
pub(super) fn adjoin(first: &[u8], second: &[u8], gap_bytes: usize) -> bool {
    let end = first.as_ptr_range().end.addr();
    second.as_ptr().addr().checked_sub(end).is_some_and(|gap| gap <= gap_bytes)
}
