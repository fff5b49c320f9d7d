//! Reads from the database: one key, and lists. Everything here works on the tables of one transaction.
//! Reads that need history are in `history`. No threads and no callers here.

use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, OnceLock};

use ::redb::{Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable};
use bytes::Bytes;

use super::layout::{self, Corruption, LIVE, NOTES, PUT, Row, STATE, State, TOMBSTONE};
use super::notes;
use crate::last_change::NotedChanges;
use crate::{CorruptEntry, Entry, Epoch, Error, ListRequest, Page, Position, Result, Snapshot};

/// Keys on a page of [`crate::Store::next_page`].
const PAGE_KEYS: usize = 256;
/// Bytes of values on such a page. The last value may exceed them.
const PAGE_BYTES: usize = 1024 * 1024;

/// The message when another process has the database open.
const IN_USE: &str = "another process has the database open; only one may at a time";

/// Converts an error of the `redb` crate.
pub(super) fn engine_error(error: impl Into<::redb::Error>) -> Error {
    use ::redb::Error as E;
    match error.into() {
        E::Io(error) => Error::Unavailable(format!("database file: {error}")),
        error @ (E::PreviousIo | E::DatabaseClosed | E::TransactionInProgress) => {
            Error::Unavailable(format!("database file: {error}"))
        }
        E::DatabaseAlreadyOpen => Error::Unavailable(IN_USE.to_owned()),
        error => corrupt_database(format!("database file: {error}")),
    }
}

/// Whether an error says that another process has the database open.
pub(crate) fn is_in_use(error: &Error) -> bool {
    matches!(error, Error::Unavailable(reason) if reason == IN_USE)
}

/// The error for corruption that cannot be attributed to one key.
pub(super) fn corrupt_database(reason: impl Into<String>) -> Error {
    Error::Corrupt { key: None, reason: reason.into() }
}

/// The error for corruption of one key.
pub(super) fn corrupt_key(key: &str, reason: impl Into<String>) -> Error {
    Error::Corrupt { key: Some(key.into()), reason: reason.into() }
}

/// A snapshot of the database: its state when this was opened.
pub(super) struct View {
    live: ReadOnlyTable<&'static [u8], &'static [u8]>,
    /// The state of the database as a whole.
    pub(super) state: State,
    /// The first revisions of the segments, once they are read.
    pub(super) segments: OnceLock<Vec<u64>>,
    /// Keeps the pages of the snapshot from being reused.
    pub(super) transaction: ReadTransaction,
}

/// The version of a key in some state: where its value is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Version<'a> {
    /// It is the newest one.
    Newest(Row<'a>),
    /// It was replaced.
    Replaced {
        /// Its packed position.
        packed: u64,
        /// The packed position of the change that replaced it.
        by: u64,
    },
    /// The history of the key is corrupt.
    Corrupt {
        /// A packed position of the key.
        packed: u64,
        /// The reason.
        reason: Corruption,
    },
}

impl Version<'_> {
    /// The packed position.
    pub(super) fn packed(&self) -> u64 {
        match self {
            Version::Newest(row) => row.packed,
            Version::Replaced { packed, .. } | Version::Corrupt { packed, .. } => *packed,
        }
    }
}

impl View {
    /// The epoch of the database.
    pub(super) fn epoch(&self) -> Result<Epoch> {
        let noted = self.transaction.open_table(NOTES).map_err(engine_error)?;
        let Some(bytes) = noted.get(layout::NOTES_EPOCH).map_err(engine_error)? else {
            return Ok(Epoch::default());
        };
        notes::decode_epoch(bytes.value())
            .ok_or_else(|| corrupt_database("the note of its restore is corrupt".to_owned()))
    }

    /// Opens a snapshot of the newest committed state.
    pub(super) fn open(database: &Database) -> Result<Self> {
        let transaction = database.begin_read().map_err(engine_error)?;
        let state = state(&transaction.open_table(STATE).map_err(engine_error)?)?;
        let live = transaction.open_table(LIVE).map_err(engine_error)?;
        Ok(Self { live, state, segments: OnceLock::new(), transaction })
    }

    /// The table of keys.
    pub(super) fn live(&self) -> &ReadOnlyTable<&'static [u8], &'static [u8]> {
        &self.live
    }

    /// The noted last changes.
    pub(super) fn noted(&self) -> Result<NotedChanges> {
        noted(&self.transaction.open_table(NOTES).map_err(engine_error)?)
    }

    /// The current entry of a key.
    pub(super) fn get(&self, key: &str) -> Result<Snapshot<Option<Entry>>> {
        let found = self.live.get(key.as_bytes()).map_err(engine_error)?;
        let value = match &found {
            None => None,
            Some(bytes) => entry(key, bytes.value()).map_err(|reason| corrupt_key(key, reason))?,
        };
        Ok(Snapshot { value, revision: self.state.revision })
    }

    /// A page of keys, in key order: see [`crate::Store::list`].
    pub(super) fn list(&self, request: &ListRequest) -> Result<Page> {
        let revision = self.listed_revision(request.at)?;
        let mut page = Page { revision, ..Page::default() };
        let newest = Position::end_of(revision).packed();
        let limit = if request.limit == 0 { usize::MAX } else { request.limit };
        let mut room = limit;
        self.visit(request, newest, |key, version| {
            if room == 0 {
                page.remaining += 1;
            } else {
                room -= 1;
                self.load_into(&mut page, key, version)?;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(page)
    }

    /// A page of keys, in key order: see [`crate::Store::next_page`].
    pub(super) fn next_page(
        &self,
        prefix: String,
        at: u64,
        after: Option<Arc<str>>,
    ) -> Result<Page> {
        self.check_kept(at)?;
        let mut page = Page { revision: at, ..Page::default() };
        let request = ListRequest { prefix, after, ..ListRequest::default() };
        let (mut keys, mut bytes) = (0, 0);
        self.visit(&request, Position::end_of(at).packed(), |key, version| {
            bytes += self.load_into(&mut page, key, version)?;
            keys += 1;
            let is_full = keys >= PAGE_KEYS || bytes >= PAGE_BYTES;
            Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(page)
    }

    /// An error for a revision after which the state is not known, or not yet.
    pub(super) fn check_kept(&self, at: u64) -> Result<()> {
        let State { revision, compacted, .. } = self.state;
        if at > revision {
            return Err(Error::Future { current: revision });
        }
        if at < compacted {
            return Err(Error::Compacted { compacted });
        }
        Ok(())
    }

    /// Adds a key to a page, and returns the length of its value; 0 for a corrupt one.
    pub(super) fn load_into(
        &self,
        page: &mut Page,
        key: &str,
        version: Version<'_>,
    ) -> Result<usize> {
        let position = Position::from_packed(version.packed());
        match self.value(key, version)? {
            Ok(value) => {
                let bytes = value.len();
                page.entries.push(Entry { key: key.into(), value, position });
                Ok(bytes)
            }
            Err(reason) => {
                let reason = reason.to_owned();
                page.corrupt.push(CorruptEntry { key: key.into(), position, reason });
                Ok(0)
            }
        }
    }

    /// The value of a version. The inner error is corruption of the value, the outer one of
    /// the database.
    pub(super) fn value(
        &self,
        key: &str,
        version: Version<'_>,
    ) -> Result<std::result::Result<Bytes, Corruption>> {
        match version {
            Version::Newest(row) => Ok(row.body.check().map(Bytes::copy_from_slice)),
            Version::Replaced { packed, by } => self.replaced_value(key, packed, by),
            Version::Corrupt { reason, .. } => Ok(Err(reason)),
        }
    }

    /// The revision to list: the given one if it is neither compacted nor in the future, and
    /// the newest for `None`.
    pub(super) fn listed_revision(&self, at: Option<u64>) -> Result<u64> {
        let State { revision, compacted, .. } = self.state;
        let Some(at) = at else { return Ok(revision) };
        if at > revision {
            return Err(Error::Future { current: revision });
        }
        if compacted > 0 && at <= compacted {
            return Err(Error::Compacted { compacted });
        }
        Ok(at)
    }

    /// Calls `visit` with each key of a request that existed at the packed position `newest`, and the
    /// version that it had then, until `visit` breaks.
    pub(super) fn visit(
        &self,
        request: &ListRequest,
        newest: u64,
        mut visit: impl FnMut(&str, Version<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let prefix = request.prefix.as_bytes();
        let from = match request.after.as_deref() {
            Some(after) if after.as_bytes() >= prefix => Bound::Excluded(after.as_bytes()),
            _ => Bound::Included(prefix),
        };
        let range = self.live.range::<&[u8]>((from, Bound::Unbounded)).map_err(engine_error)?;
        for item in range {
            let (key, row) = item.map_err(engine_error)?;
            let key = key.value();
            if !key.starts_with(prefix) {
                break;
            }
            let key = std::str::from_utf8(key)
                .map_err(|_| corrupt_database("a stored key is not UTF-8"))?;
            let Some(version) = self.version(key, row.value(), newest)? else { continue };
            if visit(key, version)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The version that a key with this row had at the packed position `newest`; `None` when it
    /// did not exist then.
    pub(super) fn version<'a>(
        &self,
        key: &str,
        row: &'a [u8],
        newest: u64,
    ) -> Result<Option<Version<'a>>> {
        match layout::decode_row(key.as_bytes(), row) {
            Ok(row) if row.packed > newest => self.replaced_version(key, row.packed, newest),
            Ok(row) if row.mark == TOMBSTONE => Ok(None),
            Ok(row) => Ok(Some(Version::Newest(row))),
            Err(reason) => Ok(Some(Version::Corrupt { packed: 0, reason })),
        }
    }
}

/// The state of the database as a whole.
pub(super) fn state(table: &impl ReadableTable<&'static str, &'static [u8]>) -> Result<State> {
    let found = table.get(layout::STATE_NOW).map_err(engine_error)?;
    let state = found.and_then(|bytes| State::decode(bytes.value()));
    state.ok_or_else(|| corrupt_database("database file: its state is missing or corrupt"))
}

/// The noted last changes.
pub(super) fn noted(
    notes: &impl ReadableTable<&'static str, &'static [u8]>,
) -> Result<NotedChanges> {
    let found = notes.get(layout::NOTES_LAST_CHANGES).map_err(engine_error)?;
    Ok(found.and_then(|bytes| notes::decode_last_changes(bytes.value())).unwrap_or_default())
}

/// The entry of a row; `None` for a key that was removed.
pub(super) fn entry(key: &str, row: &[u8]) -> std::result::Result<Option<Entry>, Corruption> {
    let row = layout::decode_row(key.as_bytes(), row)?;
    if row.mark != PUT {
        return Ok(None);
    }
    let value = Bytes::copy_from_slice(row.body.check()?);
    let position = Position::from_packed(row.packed);
    Ok(Some(Entry { key: key.into(), value, position }))
}
