//! Whether a database fits together: every version in the index has its record, every record
//! its version, and both are found where a look-up would search for them. Values are not read:
//! their damage shows when they are wanted, and concerns one key each.

use ::redb::{ReadableTable, ReadableTableMetadata};

use super::layout;
use super::read::{View, corrupt, fault, live};
use crate::{Position, Result};

/// Refuses a database in which a look-up could miss what is there.
///
/// Costs a walk over all versions. It is done at each start, because a damaged page of the
/// index would otherwise make a key silently absent, which no later check could tell from a
/// key that was never there.
pub(super) fn verify(view: &View) -> Result<()> {
    if view.compacted > view.revision {
        return Err(disagree("it is compacted beyond its newest revision"));
    }
    let mut versions = 0_u64;
    let mut before: Option<(Vec<u8>, u64)> = None;
    for item in view.index().iter().map_err(fault)? {
        let (place, mark) = item.map_err(fault)?;
        let (key, packed) = place.value();
        if let Some((name, version)) = &before {
            if (name.as_slice(), *version) >= (key, packed) {
                return Err(disagree("the index is out of order"));
            }
            if name != key {
                check_reachable(view, name, *version)?;
            }
        }
        check_record(view, key, packed, mark.value())?;
        before = Some((key.to_vec(), packed));
        versions += 1;
    }
    if let Some((name, version)) = before {
        check_reachable(view, &name, version)?;
    }
    check_count(view, versions)
}

/// Each version has a record of its own, so that equal numbers of both leave none over.
fn check_count(view: &View, versions: u64) -> Result<()> {
    let (mut records, mut newest) = (0_u64, 0);
    for item in view.changes().iter().map_err(fault)? {
        let (packed, _) = item.map_err(fault)?;
        if records > 0 && packed.value() <= newest {
            return Err(disagree("the changes are out of order"));
        }
        newest = packed.value();
        records += 1;
    }
    if records != versions || Position::from_packed(newest).revision() > view.revision {
        return Err(disagree("there are records that the index does not know"));
    }
    let lengths = [view.changes().len().map_err(fault)?, view.index().len().map_err(fault)?];
    if lengths != [records, versions] {
        return Err(disagree("the tables are not as long as they say"));
    }
    Ok(())
}

fn check_record(view: &View, key: &[u8], packed: u64, mark: u8) -> Result<()> {
    let Some(record) = view.changes().get(packed).map_err(fault)? else {
        return Err(disagree("the index names a record that is not there"));
    };
    match layout::decode_head(packed, record.value()) {
        Ok((head, _)) if head.key.as_bytes() != key || head.mark != mark => {
            Err(disagree("the index and a record disagree"))
        }
        Ok(_) => Ok(()),
        // The index still says which key it was; reading that key reports the damage.
        Err(reason) => {
            warn_of_damage(key, reason);
            Ok(())
        }
    }
}

fn warn_of_damage(key: &[u8], reason: &str) {
    let key = String::from_utf8_lossy(key);
    tracing::warn!(%key, reason, "a stored value is damaged");
}

fn check_reachable(view: &View, key: &[u8], version: u64) -> Result<()> {
    let name = std::str::from_utf8(key).map_err(|_| disagree("a key is not UTF-8"))?;
    let mark = view.index().get((key, version)).map_err(fault)?.map(|mark| mark.value());
    let expected = (mark == Some(layout::PUT)).then_some(version);
    if mark.is_none() || live(view.index(), name)? != expected {
        return Err(disagree("a key is not found where it should be"));
    }
    Ok(())
}

fn disagree(how: &str) -> crate::Error {
    corrupt(format!("the database file is damaged: {how}; restore it from a copy"))
}
