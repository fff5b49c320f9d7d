//! The making of a database from entries. Where the entries come from, and which revision the database
//! begins at, is up to the caller.

use std::path::Path;

use super::file::{self, NewFile};
use super::shared::catch_panic;
use super::{start, write};
use crate::check;
use crate::{Entry, Options, RestoreTarget, Result};

/// Entries that are written in one transaction.
const TXN_ENTRIES: usize = 4096;
/// Bytes of values that are written in one transaction. The last value may exceed them.
const TXN_BYTES: usize = 4 * 1024 * 1024;

/// A database file that is being made from entries. Nothing has the name of the database before it is
/// finished.
pub struct RedbRestore {
    file: NewFile,
    revision: u64,
    /// Added, and not yet written.
    pending: Vec<Entry>,
    pending_bytes: usize,
    /// The packed positions of all entries.
    positions: Vec<u64>,
}

impl RedbRestore {
    /// Begins a database at a path, readable for its owner only. The given revision becomes its
    /// newest one.
    ///
    /// # Errors
    /// [`Error::Unavailable`](crate::Error::Unavailable) when there is a file already, or it cannot be
    /// created; [`Error::Invalid`](crate::Error::Invalid) for a revision that no store can have.
    pub fn begin(path: impl AsRef<Path>, revision: u64) -> Result<Self> {
        check::restored_revision(revision)?;
        let file = NewFile::begin(path.as_ref())?;
        Ok(Self { file, revision, pending: Vec::new(), pending_bytes: 0, positions: Vec::new() })
    }

    fn flush(&mut self) -> Result<()> {
        self.pending_bytes = 0;
        let entries = std::mem::take(&mut self.pending);
        self.file.with(|database| catch_panic(|| write::restore(database, &entries)))
    }

    /// Opens the file and verifies it, as at each start.
    fn verify(&self) -> Result<()> {
        let opener = file::opener_of(self.file.temporary(), Options::default());
        catch_panic(|| start::database(&opener).map(drop))
    }
}

impl RestoreTarget for RedbRestore {
    type Output = ();

    fn add(&mut self, entry: Entry) -> Result<()> {
        check::restored_entry(self.revision, &entry)?;
        self.pending_bytes += entry.value.len();
        self.positions.push(entry.position.packed());
        self.pending.push(entry);
        if self.pending.len() >= TXN_ENTRIES || self.pending_bytes >= TXN_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        self.flush()?;
        self.positions.sort_unstable();
        check::restored_positions(&self.positions)?;
        let revision = self.revision;
        self.file.with(|database| catch_panic(|| write::finish_restore(database, revision)))?;
        self.file.close();
        self.verify()?;
        self.file.finish()
    }
}

impl std::fmt::Debug for RedbRestore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedbRestore").field("revision", &self.revision).finish_non_exhaustive()
    }
}
