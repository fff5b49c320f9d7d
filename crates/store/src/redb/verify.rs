//! Whether a database fits together: every version in the index has its record, every record
//! its version, and both are found where a look-up would search for them. Values are not read:
//! their damage shows when they are wanted, and concerns one key each.

use std::ops::RangeInclusive;

use ::redb::{AccessGuard, ReadableTable, ReadableTableMetadata};

use super::layout;
use super::read::{View, corrupt, fault, last_version};
use super::scan::{Version, Versions};
use crate::{Position, Result};

/// Bytes between two keys of a page of the index: the first one's position, and the length of
/// the second one's name. Headers of pages are longer.
const KEY_GAP: usize = 8 + 3;
/// Versions for which there is room at once, whatever the table says of its length.
const ROOM: usize = 1 << 20;

/// Refuses a database in which a look-up could miss what is there.
///
/// Costs a walk over all versions. It is done at each start, because a damaged page of the
/// index would otherwise make a key silently absent, which no later check could tell from a
/// key that was never there.
///
/// Of each page it looks up only the first and the last key. What leads to a page is the same
/// for both of them, and so for all between: each step there compares with one key, and two
/// keys that fall on different sides of one never meet again.
pub(super) fn verify(view: &View) -> Result<()> {
    if view.compacted > view.revision {
        return Err(disagree("it is compacted beyond its newest revision"));
    }
    let mut versions = index(view)?;
    versions.sort();
    versions.share_out(|piece, from, to| check_piece(view, &versions, piece, from..=to))?;
    let lengths = [view.changes().len().map_err(fault)?, view.index().len().map_err(fault)?];
    if lengths != [versions.len() as u64; 2] {
        return Err(disagree("the tables are not as long as they say"));
    }
    let newest = versions.newest().map_or(0, |packed| Position::from_packed(packed).revision());
    if newest > view.revision {
        return Err(disagree("there are records that the index does not know"));
    }
    Ok(())
}

/// The whole index, after a look at its order, and at whether look-ups find what is in it.
fn index(view: &View) -> Result<Versions> {
    let length = view.index().len().map_err(fault)?;
    let mut versions = Versions::with_capacity(usize::try_from(length).unwrap_or(0).min(ROOM));
    let mut before = None;
    for item in view.index().iter().map_err(fault)? {
        let (place, mark) = item.map_err(fault)?;
        let (key, packed) = place.value();
        let name = std::str::from_utf8(key).map_err(|_| disagree("a key is not UTF-8"))?;
        let apart = match before.as_ref().map(AccessGuard::value) {
            Some(last) if last >= (key, packed) => {
                return Err(disagree("the index is out of order"));
            }
            Some((last, version)) if !adjoin(last, key, KEY_GAP) => {
                check_found(view, last, version)?;
                true
            }
            Some(_) => false,
            None => true,
        };
        if apart {
            check_found(view, key, packed)?;
        }
        versions.push(name, packed, mark.value());
        before = Some(place);
    }
    if let Some((last, version)) = before.as_ref().map(AccessGuard::value) {
        check_found(view, last, version)?;
    }
    Ok(versions)
}

/// Whether the second of two slices begins so soon behind the first one that both must be of one
/// page. Both pages have to be in memory still, for then two pages are apart by more, since each
/// begins with a header.
fn adjoin(first: &[u8], second: &[u8], gap_bytes: usize) -> bool {
    let end = first.as_ptr_range().end.addr();
    second.as_ptr().addr().checked_sub(end).is_some_and(|gap| gap <= gap_bytes)
}

/// Whether a look-up finds a version of the index, and no later one of its key than there is.
fn check_found(view: &View, key: &[u8], version: u64) -> Result<()> {
    let exact = view.index().get((key, version)).map_err(fault)?;
    let exact = exact.ok_or_else(|| disagree("a key is not found where it should be"))?;
    let name = std::str::from_utf8(key).map_err(|_| disagree("a key is not UTF-8"))?;
    let (last, mark) = last_version(view.index(), name)?
        .ok_or_else(|| disagree("a key is not found where it should be"))?;
    if last < version || (last == version && mark != exact.value()) {
        return Err(disagree("a key is not found where it should be"));
    }
    Ok(())
}

/// Walks over the records of a piece of the versions, which have to be each other's.
fn check_piece(
    view: &View,
    versions: &Versions,
    piece: &[Version],
    range: RangeInclusive<u64>,
) -> Result<()> {
    let mut expected = piece.iter();
    let mut before: Option<(u64, AccessGuard<'_, &'static [u8]>)> = None;
    for item in view.records(range)? {
        let (packed, record) = item.map_err(fault)?;
        let packed = packed.value();
        let version = expected.next().filter(|version| version.packed == packed);
        let version = version.ok_or_else(|| disagree("the index and the changes do not match"))?;
        check_record(versions.name(version), version, record.value())?;
        let apart = match &before {
            Some((_, last)) => !adjoin(last.value(), record.value(), 0),
            None => true,
        };
        if apart {
            before.as_ref().map_or(Ok(()), |(last, _)| check_kept(view, *last))?;
            check_kept(view, packed)?;
        }
        before = Some((packed, record));
    }
    before.as_ref().map_or(Ok(()), |(last, _)| check_kept(view, *last))?;
    match expected.next() {
        Some(_) => Err(disagree("the index names a record that is not there")),
        None => Ok(()),
    }
}

/// Whether a look-up finds a record.
fn check_kept(view: &View, packed: u64) -> Result<()> {
    match view.changes().get(packed).map_err(fault)? {
        Some(_) => Ok(()),
        None => Err(disagree("a record is not found where it should be")),
    }
}

fn check_record(key: &str, version: &Version, record: &[u8]) -> Result<()> {
    match layout::decode_head(version.packed, record) {
        Ok((head, _)) if head.key != key || head.mark != version.mark => {
            Err(disagree("the index and a record disagree"))
        }
        Ok(_) => Ok(()),
        // The index still says which key it was; reading that key reports the damage.
        Err(reason) => {
            tracing::warn!(%key, reason, "a stored value is damaged");
            Ok(())
        }
    }
}

fn disagree(how: &str) -> crate::Error {
    corrupt(format!("the database file is damaged: {how}; restore it from a copy"))
}
