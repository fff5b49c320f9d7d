//! Everything at once, by all processors: the walk over all records that looking a database over
//! and reading all of it have in common.
//!
//! Records lie in the order of their positions, the index in that of keys. To look up one in the
//! other, key by key, costs more than everything else; so the index is read first, sorted by
//! position, and then walked side by side with the records, in pieces that are shared out.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use super::layout::{self, PUT};
use super::read::{View, corrupt, fault};
use super::shared::catch;
use crate::{Damaged, Entry, ListRequest, Page, Position, Result};

/// Versions that one thread takes at a time. Bounds what is in memory between reading and
/// handing over.
const PIECE_VERSIONS: usize = 256;
/// Threads that walk at once.
const THREADS: usize = 8;

/// Which keys have which versions: what the index says, in order of position.
#[derive(Debug, Default)]
pub(super) struct Versions {
    /// The keys, one behind the other.
    names: String,
    all: Vec<Version>,
}

/// A line of the index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    /// The packed position.
    pub(super) packed: u64,
    /// What the index says that the change was.
    pub(super) mark: u8,
    start: usize,
    length: usize,
}

impl Versions {
    /// Room for so many.
    pub(super) fn with_capacity(versions: usize) -> Self {
        Self { names: String::new(), all: Vec::with_capacity(versions) }
    }

    /// Takes in a version. Those of one key have to come one after the other.
    pub(super) fn push(&mut self, name: &str, packed: u64, mark: u8) {
        let length = name.len();
        let again = self.all.last().is_some_and(|last| self.name(last) == name);
        let start = match self.all.last() {
            Some(last) if again => last.start,
            _ => self.names.len(),
        };
        if !again {
            self.names.push_str(name);
        }
        self.all.push(Version { packed, mark, start, length });
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The packed position of the newest, once they are sorted.
    pub(super) fn newest(&self) -> Option<u64> {
        self.all.last().map(|version| version.packed)
    }

    /// Puts them in the order in which records lie.
    pub(super) fn sort(&mut self) {
        self.all.sort_unstable_by_key(|version| version.packed);
    }

    /// A version's key.
    pub(super) fn name(&self, version: &Version) -> &str {
        self.names.get(version.start..version.start + version.length).unwrap_or_default()
    }

    /// Calls for each piece of the sorted versions, from several threads, with the first packed
    /// position behind the piece before and the last before the next.
    pub(super) fn share_out(
        &self,
        work: impl Fn(&[Version], u64, u64) -> Result<()> + Sync,
    ) -> Result<()> {
        let pieces: Vec<&[Version]> = self.all.chunks(PIECE_VERSIONS).collect();
        share_out(pieces.len().max(1), |number| {
            let first = |piece: &&[Version]| piece.first().map(|version| version.packed);
            let from =
                if number == 0 { 0 } else { pieces.get(number).and_then(first).unwrap_or(0) };
            let next = pieces.get(number + 1).and_then(first);
            let piece = pieces.get(number).copied().unwrap_or_default();
            work(piece, from, next.map_or(u64::MAX, |next| next.saturating_sub(1)))
        })
    }
}

/// Does numbered pieces of work on several threads, this one among them. The first failure ends
/// it; what the engine below panics with, is a failure too.
fn share_out(pieces: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    let next = AtomicUsize::new(0);
    let take_part = || {
        let done = catch(|| {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= pieces {
                    return Ok(());
                }
                work(number)?;
            }
        });
        if done.is_err() {
            next.store(pieces, Ordering::Relaxed);
        }
        done
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        let others: Vec<_> =
            (1..threads.min(THREADS).min(pieces)).map(|_| scope.spawn(take_part)).collect();
        let mine = take_part();
        let joined = others.into_iter().map(|other| {
            other.join().unwrap_or_else(|_| Err(corrupt("a thread that read it panicked")))
        });
        joined.fold(mine, Result::and)
    })
}

impl View {
    /// Everything as it was after a revision: see [`crate::Store::scan`].
    pub(super) fn scan(&self, at: u64, visit: &(dyn Fn(Page) + Send + Sync)) -> Result<()> {
        let revision = self.listed_revision(Some(at))?;
        let mut live = Versions::default();
        let newest = Position::end_of(revision).packed();
        self.visit_live(&ListRequest::default(), newest, |name, packed| {
            live.push(name, packed, PUT);
            Ok(())
        })?;
        live.sort();
        live.share_out(|piece, _, _| {
            visit(self.read_piece(&live, piece, revision)?);
            Ok(())
        })
    }

    fn read_piece(&self, live: &Versions, piece: &[Version], revision: u64) -> Result<Page> {
        let mut page = Page { revision, ..Page::default() };
        page.entries.reserve_exact(piece.len());
        let (Some(first), Some(last)) = (piece.first(), piece.last()) else { return Ok(page) };
        let mut records = self.records(first.packed..=last.packed)?.peekable();
        for version in piece {
            let key = live.name(version);
            let mut read = Err("the index names a record that is not there");
            // What was superseded lies in between.
            while let Some(item) = records.next_if(|item| match item {
                Ok((packed, _)) => packed.value() <= version.packed,
                Err(_) => true,
            }) {
                let (packed, record) = item.map_err(fault)?;
                if packed.value() == version.packed {
                    read = layout::value_of(version.packed, record.value(), key)
                        .map(Bytes::copy_from_slice);
                }
            }
            let position = Position::from_packed(version.packed);
            match read {
                Ok(value) => page.entries.push(Entry { key: key.into(), value, position }),
                Err(reason) => page.damaged.push(Damaged {
                    key: key.into(),
                    position,
                    reason: reason.to_owned(),
                }),
            }
        }
        Ok(page)
    }
}
