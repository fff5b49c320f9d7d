//! Reads from the database: one key, a list, a range of history. Everything here works on the tables
//! of one transaction, read or write. No threads and no callers here.

use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;

use ::redb::{Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable};
use bytes::Bytes;

use super::layout::{self, CHANGES, Corruption, INDEX, META, NOTES, PUT, TOMBSTONE};
use super::notes;
use crate::cursor::Cursor;
use crate::last_change::{NotedChanges, Search};
use crate::{
    Batch, CorruptEntry, Entry, Error, Event, ListRequest, Page, Position, Result, Snapshot,
};

/// Changes that one read of history looks at before it returns what it has.
const HISTORY_CHANGES: usize = 4096;
/// Bytes of values that one read of history collects before it stops at the next revision.
const HISTORY_BYTES: usize = 8 * 1024 * 1024;
/// Keys on a page of [`crate::Store::next_page`].
const PAGE_KEYS: usize = 256;
/// Bytes of values on such a page. The last value may exceed them.
const PAGE_BYTES: usize = 1024 * 1024;

/// The message when another process has the database open.
const IN_USE: &str = "another process has the database open; only one may at a time";

/// A table of changes, of a read or a write transaction.
pub(super) trait Changes: ReadableTable<u64, &'static [u8]> {}
impl<T: ReadableTable<u64, &'static [u8]>> Changes for T {}

/// A table of positions, of a read or a write transaction.
pub(super) trait Index: ReadableTable<(&'static [u8], u64), u8> {}
impl<T: ReadableTable<(&'static [u8], u64), u8>> Index for T {}

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

/// Returns whether an error says that another process has the database open.
pub(crate) fn is_in_use(error: &Error) -> bool {
    matches!(error, Error::Unavailable(reason) if reason == IN_USE)
}

/// Returns the error for corruption that cannot be attributed to one key.
pub(super) fn corrupt_database(reason: impl Into<String>) -> Error {
    Error::Corrupt { key: None, reason: reason.into() }
}

/// Returns the error for corruption of one key.
pub(super) fn corrupt_key(key: &str, reason: impl Into<String>) -> Error {
    Error::Corrupt { key: Some(key.into()), reason: reason.into() }
}

/// A snapshot of the database: its state when this was opened.
pub(super) struct View {
    changes: ReadOnlyTable<u64, &'static [u8]>,
    index: ReadOnlyTable<(&'static [u8], u64), u8>,
    /// The newest revision.
    pub(super) revision: u64,
    /// Every revision up to and including this one is compacted.
    pub(super) compacted: u64,
    /// Keeps the pages of the snapshot from being reused.
    transaction: ReadTransaction,
}

impl View {
    /// Opens a snapshot of the newest committed state.
    pub(super) fn open(database: &Database) -> Result<Self> {
        let transaction = database.begin_read().map_err(engine_error)?;
        let meta = transaction.open_table(META).map_err(engine_error)?;
        Ok(Self {
            changes: transaction.open_table(CHANGES).map_err(engine_error)?,
            index: transaction.open_table(INDEX).map_err(engine_error)?,
            revision: number(&meta, layout::META_REVISION)?,
            compacted: number(&meta, layout::META_COMPACTED)?,
            transaction,
        })
    }

    /// Returns the table of changes.
    pub(super) fn changes(&self) -> &impl Changes {
        &self.changes
    }

    /// Returns records in order of position.
    pub(super) fn records(
        &self,
        packed: RangeInclusive<u64>,
    ) -> Result<::redb::Range<'static, u64, &'static [u8]>> {
        self.changes.range(packed).map_err(engine_error)
    }

    /// Returns the table of positions.
    pub(super) fn index(&self) -> &impl Index {
        &self.index
    }

    /// Returns the current entry of a key.
    pub(super) fn get(&self, key: &str) -> Result<Snapshot<Option<Entry>>> {
        let value = match live(&self.index, key)? {
            None => None,
            Some(packed) => {
                Some(load(&self.changes, key, packed)?.map_err(|reason| corrupt_key(key, reason))?)
            }
        };
        Ok(Snapshot { value, revision: self.revision })
    }

    /// Returns a page of keys, in key order: see [`crate::Store::list`].
    pub(super) fn list(&self, request: &ListRequest) -> Result<Page> {
        let revision = self.listed_revision(request.at)?;
        let mut page = Page { revision, ..Page::default() };
        let newest = Position::end_of(revision).packed();
        let limit = if request.limit == 0 { usize::MAX } else { request.limit };
        let mut room = limit;
        self.visit_live(request, newest, |key, packed| {
            if room == 0 {
                page.remaining += 1;
            } else {
                room -= 1;
                self.load_into(&mut page, key, packed)?;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(page)
    }

    /// Returns a page of keys, in key order: see [`crate::Store::next_page`].
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
        self.visit_live(&request, Position::end_of(at).packed(), |key, packed| {
            bytes += self.load_into(&mut page, key, packed)?;
            keys += 1;
            let is_full = keys >= PAGE_KEYS || bytes >= PAGE_BYTES;
            Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(page)
    }

    /// Returns an error for a revision after which the state is not known, or not yet.
    fn check_kept(&self, at: u64) -> Result<()> {
        if at > self.revision {
            return Err(Error::Future { current: self.revision });
        }
        if at < self.compacted {
            return Err(Error::Compacted { compacted: self.compacted });
        }
        Ok(())
    }

    /// Returns the last change under each prefix: see [`crate::Store::last_changes`].
    pub(super) fn last_changes(&self, prefixes: &[String], at: u64) -> Result<Vec<Position>> {
        self.check_kept(at)?;
        let mut search = Search::new(prefixes);
        let first = Position::end_of(self.compacted).packed() + 1;
        let last = Position::end_of(at).packed();
        for item in self.changes.range(first..=last).map_err(engine_error)?.rev() {
            let (packed, record) = item.map_err(engine_error)?;
            let packed = packed.value();
            let head = layout::decode_head(packed, record.value());
            if search.see(head.ok().map(|(head, _)| head.key), packed).is_break() {
                break;
            }
        }
        let notes = self.transaction.open_table(NOTES).map_err(engine_error)?;
        Ok(search.finish(&noted(&notes)?, self.compacted))
    }

    /// Adds a live key to a page, and returns the length of its value; 0 for a corrupt one.
    fn load_into(&self, page: &mut Page, key: &str, packed: u64) -> Result<usize> {
        match load(&self.changes, key, packed)? {
            Ok(entry) => {
                let bytes = entry.value.len();
                page.entries.push(entry);
                Ok(bytes)
            }
            Err(reason) => {
                let position = Position::from_packed(packed);
                let reason = reason.to_owned();
                page.corrupt.push(CorruptEntry { key: key.into(), position, reason });
                Ok(0)
            }
        }
    }

    /// Returns the revision to list: the given one if it is neither compacted nor in the future, and
    /// the newest for `None`.
    pub(super) fn listed_revision(&self, at: Option<u64>) -> Result<u64> {
        let Some(at) = at else { return Ok(self.revision) };
        if at > self.revision {
            return Err(Error::Future { current: self.revision });
        }
        if self.compacted > 0 && at <= self.compacted {
            return Err(Error::Compacted { compacted: self.compacted });
        }
        Ok(at)
    }

    /// Calls `visit` with each key of a request and the position of its last version up to `newest`,
    /// unless that version is a tombstone, until `visit` breaks.
    pub(super) fn visit_live(
        &self,
        request: &ListRequest,
        newest: u64,
        mut visit: impl FnMut(&str, u64) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let prefix = request.prefix.as_bytes();
        // Just past the last version of the key with which the page before ended.
        let from = match request.after.as_deref() {
            Some(after) if after.as_bytes() >= prefix => (after.as_bytes(), u64::MAX),
            _ => (prefix, 0),
        };
        let mut best: Option<(Vec<u8>, u64, u8)> = None;
        for item in self.index.range(from..).map_err(engine_error)? {
            let (version, mark) = item.map_err(engine_error)?;
            let (key, packed) = version.value();
            if !key.starts_with(prefix) {
                break;
            }
            if packed > newest {
                continue;
            }
            match &mut best {
                Some((name, version, its_mark)) if name.as_slice() == key => {
                    (*version, *its_mark) = (packed, mark.value());
                }
                Some(done) => {
                    if visit_if_live(done, &mut visit)?.is_break() {
                        return Ok(());
                    }
                    done.0.clear();
                    done.0.extend_from_slice(key);
                    (done.1, done.2) = (packed, mark.value());
                }
                None => best = Some((key.to_vec(), packed, mark.value())),
            }
        }
        best.map_or(Ok(()), |last| visit_if_live(&last, &mut visit).map(drop))
    }

    /// Returns the next batches for a cursor, as many as one read may return. The last batch may
    /// have no events: it then reports up to where the history was read.
    pub(super) fn history(&self, cursor: &Cursor) -> Result<Vec<Batch>> {
        cursor.check_not_compacted(self.compacted)?;
        let mut batches: Vec<Batch> = Vec::new();
        let (mut scanned, mut bytes, mut through) = (0, 0, self.revision);
        let Some(first) = cursor.first_packed() else { return Ok(batches) };
        let mut current = 0;
        for item in self.changes.range(first..).map_err(engine_error)? {
            let (packed, record) = item.map_err(engine_error)?;
            let packed = packed.value();
            let revision = Position::from_packed(packed).revision();
            if revision != current && (scanned >= HISTORY_CHANGES || bytes >= HISTORY_BYTES) {
                through = current;
                break;
            }
            current = revision;
            scanned += 1;
            let Some(event) = self.event(cursor, packed, record.value())? else { continue };
            bytes += event_bytes(&event);
            match batches.last_mut() {
                Some(batch) if batch.revision == revision => batch.events.push(event),
                _ => batches.push(Batch { events: vec![event], revision }),
            }
        }
        if batches.last().is_none_or(|batch| batch.revision < through) {
            batches.push(Batch { events: Vec::new(), revision: through });
        }
        Ok(batches)
    }

    fn event(&self, cursor: &Cursor, packed: u64, record: &[u8]) -> Result<Option<Event>> {
        let position = Position::from_packed(packed);
        let (head, body) = layout::decode_head(packed, record)
            .map_err(|reason| corrupt_database(format!("change {position}: {reason}")))?;
        if !cursor.covers(head.key) {
            return Ok(None);
        }
        let value = body.check().map_err(|reason| corrupt_key(head.key, reason))?;
        let value = (head.mark == PUT).then(|| Bytes::copy_from_slice(value));
        let previous = previous(&self.changes, head.key, head.previous)?;
        Ok(Some(Event { key: head.key.into(), position, value, previous }))
    }
}

fn visit_if_live(
    (key, packed, mark): &(Vec<u8>, u64, u8),
    visit: &mut impl FnMut(&str, u64) -> Result<ControlFlow<()>>,
) -> Result<ControlFlow<()>> {
    let name = std::str::from_utf8(key)
        .map_err(|_| corrupt_database("a key in the index is not UTF-8"))?;
    match *mark {
        PUT => visit(name, *packed),
        TOMBSTONE => Ok(ControlFlow::Continue(())),
        _ => Err(corrupt_key(name, "its mark in the index is unknown")),
    }
}

/// Returns the bytes that the values of an event take in memory.
pub(super) fn event_bytes(event: &Event) -> usize {
    let value = event.value.as_ref().map_or(0, Bytes::len);
    value + event.previous.as_ref().map_or(0, |entry| entry.value.len())
}

/// Returns a number from the table of numbers.
pub(super) fn number(meta: &impl ReadableTable<&'static str, u64>, name: &str) -> Result<u64> {
    let found = meta.get(name).map_err(engine_error)?.map(|number| number.value());
    found.ok_or_else(|| corrupt_database(format!("database file: the number {name:?} is missing")))
}

/// Returns what was noted of the last changes.
pub(super) fn noted(
    notes: &impl ReadableTable<&'static str, &'static [u8]>,
) -> Result<NotedChanges> {
    let found = notes.get(layout::NOTES_LAST_CHANGES).map_err(engine_error)?;
    Ok(found.and_then(|bytes| notes::decode_last_changes(bytes.value())).unwrap_or_default())
}

/// Returns the packed position of a key's last version, and its mark.
pub(super) fn last_version(index: &impl Index, key: &str) -> Result<Option<(u64, u8)>> {
    let name = key.as_bytes();
    let mut versions = index.range((name, 0)..=(name, u64::MAX)).map_err(engine_error)?;
    let Some(last) = versions.next_back() else { return Ok(None) };
    let (version, mark) = last.map_err(engine_error)?;
    Ok(Some((version.value().1, mark.value())))
}

/// Returns the packed position of a key's live version.
pub(super) fn live(index: &impl Index, key: &str) -> Result<Option<u64>> {
    let Some((packed, mark)) = last_version(index, key)? else { return Ok(None) };
    match mark {
        PUT => Ok(Some(packed)),
        TOMBSTONE => Ok(None),
        _ => Err(corrupt_key(key, "its mark in the index is unknown")),
    }
}

/// Returns the entry of a version. The inner error is corruption of the record, the outer one of
/// the database.
pub(super) fn load(
    changes: &impl Changes,
    key: &str,
    packed: u64,
) -> Result<std::result::Result<Entry, Corruption>> {
    let Some(record) = changes.get(packed).map_err(engine_error)? else {
        return Ok(Err("a record of the index does not exist"));
    };
    Ok(layout::value_of(packed, record.value(), key).map(|value| Entry {
        key: Arc::from(key),
        value: Bytes::copy_from_slice(value),
        position: Position::from_packed(packed),
    }))
}

/// Returns the entry that a change replaced; `None` when there was none, which packed position 0
/// means, or when it is corrupt. Corruption does not keep the event from being delivered.
pub(super) fn previous(changes: &impl Changes, key: &str, packed: u64) -> Result<Option<Entry>> {
    if packed == 0 {
        return Ok(None);
    }
    let loaded = load(changes, key, packed)?;
    if let Err(reason) = &loaded {
        tracing::warn!(%key, reason, "a replaced value is corrupt; its event is without it");
    }
    Ok(loaded.ok())
}
