//! The parallel walk over all records, which verification and scans have in common.
//!
//! Records are in the order of their positions, the index in the order of keys. Looking up each key's
//! record would cost more than everything else. So the index is read first and sorted by position, and
//! then walked together with the records, in chunks that are shared among threads.

use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use super::layout::{self, PUT};
use super::read::{View, corrupt_database, engine_error};
use super::shared::catch;
use crate::{CorruptEntry, Entry, ListRequest, Page, Position, Result};

/// Versions in one chunk. Bounds what one thread holds in memory before it calls the visitor.
const CHUNK_VERSIONS: usize = 256;
/// The most threads that walk at the same time.
const THREADS: usize = 8;

/// The versions of all keys, from the index.
#[derive(Debug, Default)]
pub(super) struct Versions {
    /// The keys, one after the other.
    names: String,
    all: Vec<Version>,
}

/// One row of the index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    /// The packed position.
    pub(super) packed: u64,
    /// The mark of the change, according to the index.
    pub(super) mark: u8,
    start: usize,
    length: usize,
}

impl Versions {
    /// Returns an empty list with room for this many versions.
    pub(super) fn with_capacity(versions: usize) -> Self {
        Self { names: String::new(), all: Vec::with_capacity(versions) }
    }

    /// Adds a version. The versions of one key must be added one after the other.
    pub(super) fn push(&mut self, name: &str, packed: u64, mark: u8) {
        let length = name.len();
        let same_key = self.all.last().is_some_and(|last| self.name(last) == name);
        let start = match self.all.last() {
            Some(last) if same_key => last.start,
            _ => self.names.len(),
        };
        if !same_key {
            self.names.push_str(name);
        }
        self.all.push(Version { packed, mark, start, length });
    }

    /// Returns the number of versions.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the packed position of the newest version. They must be sorted.
    pub(super) fn newest(&self) -> Option<u64> {
        self.all.last().map(|version| version.packed)
    }

    /// Sorts the versions by position, which is the order of the records.
    pub(super) fn sort(&mut self) {
        self.all.sort_unstable_by_key(|version| version.packed);
    }

    /// Returns the key of a version.
    pub(super) fn name(&self, version: &Version) -> &str {
        self.names.get(version.start..version.start + version.length).unwrap_or_default()
    }

    /// Calls `work` for each chunk of the sorted versions, from several threads, with the first and the
    /// last packed position of the chunk's range. The ranges leave no gap: each ends right before the
    /// next chunk's first version, the first starts at 0, the last ends at the greatest number.
    pub(super) fn for_each_chunk(
        &self,
        work: impl Fn(&[Version], u64, u64) -> Result<()> + Sync,
    ) -> Result<()> {
        let chunks: Vec<&[Version]> = self.all.chunks(CHUNK_VERSIONS).collect();
        for_each_chunk(chunks.len().max(1), |number| {
            let first = |chunk: &&[Version]| chunk.first().map(|version| version.packed);
            let from =
                if number == 0 { 0 } else { chunks.get(number).and_then(first).unwrap_or(0) };
            let next = chunks.get(number + 1).and_then(first);
            let chunk = chunks.get(number).copied().unwrap_or_default();
            work(chunk, from, next.map_or(u64::MAX, |next| next.saturating_sub(1)))
        })
    }
}

/// Calls `work` with the number of each chunk, on several threads, one of them the current one. The
/// first error ends it; a panic of redb counts as an error.
fn for_each_chunk(chunks: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let done = catch(|| {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= chunks {
                    return Ok(());
                }
                work(number)?;
            }
        });
        if done.is_err() {
            next.store(chunks, Ordering::Relaxed);
        }
        done
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        let others: Vec<_> =
            (1..threads.min(THREADS).min(chunks)).map(|_| scope.spawn(worker)).collect();
        let own = worker();
        let joined = others.into_iter().map(|other| {
            other.join().unwrap_or_else(|_| Err(corrupt_database("a thread that read it panicked")))
        });
        joined.fold(own, Result::and)
    })
}

impl View {
    /// Visits the state after a revision: see [`crate::Store::scan`].
    pub(super) fn scan(&self, at: u64, visit: &(dyn Fn(Page) + Send + Sync)) -> Result<()> {
        let revision = self.listed_revision(Some(at))?;
        let mut live = Versions::default();
        let newest = Position::end_of(revision).packed();
        self.visit_live(&ListRequest::default(), newest, |name, packed| {
            live.push(name, packed, PUT);
            Ok(ControlFlow::Continue(()))
        })?;
        live.sort();
        live.for_each_chunk(|chunk, _, _| {
            visit(self.read_chunk(&live, chunk, revision)?);
            Ok(())
        })
    }

    fn read_chunk(&self, live: &Versions, chunk: &[Version], revision: u64) -> Result<Page> {
        let mut page = Page { revision, ..Page::default() };
        page.entries.reserve_exact(chunk.len());
        let (Some(first), Some(last)) = (chunk.first(), chunk.last()) else { return Ok(page) };
        let mut records = self.records(first.packed..=last.packed)?.peekable();
        for version in chunk {
            let key = live.name(version);
            let mut read = Err("a record of the index does not exist");
            // The records in between are superseded.
            while let Some(item) = records.next_if(|item| match item {
                Ok((packed, _)) => packed.value() <= version.packed,
                Err(_) => true,
            }) {
                let (packed, record) = item.map_err(engine_error)?;
                if packed.value() == version.packed {
                    read = layout::value_of(version.packed, record.value(), key)
                        .map(Bytes::copy_from_slice);
                }
            }
            let position = Position::from_packed(version.packed);
            match read {
                Ok(value) => page.entries.push(Entry { key: key.into(), value, position }),
                Err(reason) => page.corrupt.push(CorruptEntry {
                    key: key.into(),
                    position,
                    reason: reason.to_owned(),
                }),
            }
        }
        Ok(page)
    }
}
