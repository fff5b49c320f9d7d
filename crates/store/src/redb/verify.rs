//! Verification of a database when it is opened: every version in the index has its record, every
//! record has its version in the index, and lookups find both. Values are not read: corruption of a
//! value is detected when it is read, and concerns one key only.

use std::ops::RangeInclusive;

use ::redb::{AccessGuard, ReadableTable, ReadableTableMetadata};

use super::layout;
use super::read::{View, corrupt_database, engine_error, last_version};
use super::scan::{Version, Versions};
use crate::{Position, Result};

/// Bytes between two keys of a page of the index: the first one's position, and the length of
/// the second one's name. Headers of pages are longer.
const KEY_GAP: usize = 8 + 3;
/// The most versions for which room is made at the start, whatever length the table says.
const ROOM: usize = 1 << 20;

/// Refuses a database in which a lookup could miss a key that exists.
///
/// This walks over all versions. It is done at each start, because a corrupt page of the index would
/// otherwise hide keys, and no later check could tell a hidden key from one that never existed.
///
/// Only the first and the last key of each page are looked up. The path through the tree to both of
/// them is the same, and so is the path to all keys between them: each step compares with one key,
/// and two keys on different sides of it end on different pages.
pub(super) fn verify(view: &View) -> Result<()> {
    if view.compacted > view.revision {
        return Err(inconsistent("it is compacted beyond its newest revision"));
    }
    let mut versions = index(view)?;
    versions.sort();
    versions.for_each_chunk(|chunk, from, to| check_chunk(view, &versions, chunk, from..=to))?;
    let lengths =
        [view.changes().len().map_err(engine_error)?, view.index().len().map_err(engine_error)?];
    if lengths != [versions.len() as u64; 2] {
        return Err(inconsistent("the tables do not have the length that they say"));
    }
    let newest = versions.newest().map_or(0, |packed| Position::from_packed(packed).revision());
    if newest > view.revision {
        return Err(inconsistent("there are records that are not in the index"));
    }
    Ok(())
}

/// Reads the whole index, and checks its order and that lookups find its keys.
fn index(view: &View) -> Result<Versions> {
    let length = view.index().len().map_err(engine_error)?;
    let mut versions = Versions::with_capacity(usize::try_from(length).unwrap_or(0).min(ROOM));
    let mut before = None;
    for item in view.index().iter().map_err(engine_error)? {
        let (position, mark) = item.map_err(engine_error)?;
        let (key, packed) = position.value();
        let name = std::str::from_utf8(key).map_err(|_| inconsistent("a key is not UTF-8"))?;
        let is_new_page = match before.as_ref().map(AccessGuard::value) {
            Some(last) if last >= (key, packed) => {
                return Err(inconsistent("the index is out of order"));
            }
            Some((last, version)) if !adjoin(last, key, KEY_GAP) => {
                check_found(view, last, version)?;
                true
            }
            Some(_) => false,
            None => true,
        };
        if is_new_page {
            check_found(view, key, packed)?;
        }
        versions.push(name, packed, mark.value());
        before = Some(position);
    }
    if let Some((last, version)) = before.as_ref().map(AccessGuard::value) {
        check_found(view, last, version)?;
    }
    Ok(versions)
}

/// Returns whether the second of two slices begins so soon after the first one that both must be on
/// one page. Both must still be in memory: different pages are then further apart, because each
/// begins with a header.
fn adjoin(first: &[u8], second: &[u8], gap_bytes: usize) -> bool {
    let end = first.as_ptr_range().end.addr();
    second.as_ptr().addr().checked_sub(end).is_some_and(|gap| gap <= gap_bytes)
}

/// Checks that a lookup finds a version of the index, and that the last version of its key is not an
/// earlier one.
fn check_found(view: &View, key: &[u8], version: u64) -> Result<()> {
    let exact = view.index().get((key, version)).map_err(engine_error)?;
    let exact = exact.ok_or_else(|| inconsistent("a key is not found where it should be"))?;
    let name = std::str::from_utf8(key).map_err(|_| inconsistent("a key is not UTF-8"))?;
    let (last, mark) = last_version(view.index(), name)?
        .ok_or_else(|| inconsistent("a key is not found where it should be"))?;
    if last < version || (last == version && mark != exact.value()) {
        return Err(inconsistent("a key is not found where it should be"));
    }
    Ok(())
}

/// Walks over the records in the range of a chunk. They must be exactly those of its versions.
fn check_chunk(
    view: &View,
    versions: &Versions,
    chunk: &[Version],
    range: RangeInclusive<u64>,
) -> Result<()> {
    let mut expected = chunk.iter();
    let mut before: Option<(u64, AccessGuard<'_, &'static [u8]>)> = None;
    for item in view.records(range)? {
        let (packed, record) = item.map_err(engine_error)?;
        let packed = packed.value();
        let version = expected.next().filter(|version| version.packed == packed);
        let version =
            version.ok_or_else(|| inconsistent("the index and the changes do not match"))?;
        check_record(versions.name(version), version, record.value())?;
        let is_new_page = match &before {
            Some((_, last)) => !adjoin(last.value(), record.value(), 0),
            None => true,
        };
        if is_new_page {
            before.as_ref().map_or(Ok(()), |(last, _)| check_record_found(view, *last))?;
            check_record_found(view, packed)?;
        }
        before = Some((packed, record));
    }
    before.as_ref().map_or(Ok(()), |(last, _)| check_record_found(view, *last))?;
    match expected.next() {
        Some(_) => Err(inconsistent("a record of the index does not exist")),
        None => Ok(()),
    }
}

/// Checks that a lookup finds a record.
fn check_record_found(view: &View, packed: u64) -> Result<()> {
    match view.changes().get(packed).map_err(engine_error)? {
        Some(_) => Ok(()),
        None => Err(inconsistent("a record is not found where it should be")),
    }
}

fn check_record(key: &str, version: &Version, record: &[u8]) -> Result<()> {
    match layout::decode_head(version.packed, record) {
        Ok((head, _)) if head.key != key || head.mark != version.mark => {
            Err(inconsistent("the index and a record do not match"))
        }
        Ok(_) => Ok(()),
        // The index still has the key; reading that key reports the corruption.
        Err(reason) => {
            tracing::warn!(%key, reason, "a stored value is corrupt");
            Ok(())
        }
    }
}

fn inconsistent(how: &str) -> crate::Error {
    corrupt_database(format!("the database file is corrupt: {how}; restore it from a copy"))
}
