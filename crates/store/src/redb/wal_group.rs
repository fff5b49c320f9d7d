//! The contents of the write-ahead log: transactions that are acknowledged, and that the database does not have on
//! its disk yet. Here are the bytes of a group of them. `wal` knows where groups are, and tells torn groups from
//! corrupt ones.
//!
//! A group has the changes of its transactions, after their conditions were checked. Its structure, with a checksum,
//! comes first, and then the values, each with its own. So a corrupt value is one corrupt key, as it is in the
//! database.

use std::sync::Arc;

use bytes::Bytes;

use super::layout::{CHECK_BYTES, PUT, TOMBSTONE, checksum};
use super::read::corrupt_database;
use crate::Result;

/// The mark of a change that replaces the bytes of a value in place.
const REWRITE: u8 = 0x3C;
/// The length of the structure, at its start.
const LENGTH: usize = 4;

/// The effect of a change on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Sets it.
    Put,
    /// Removes it.
    Delete,
    /// Replaces the bytes of its value, at its old position.
    Rewrite,
}

/// A change of a transaction that passed its conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Accepted {
    /// Its effect.
    pub(super) kind: Kind,
    /// The key.
    pub(super) key: Arc<str>,
    /// The value with its checksum, as it is in rows and records.
    pub(super) body: Bytes,
}

/// A transaction that passed its conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AcceptedTxn {
    /// Its revision.
    pub(super) revision: u64,
    /// Its changes, in order.
    pub(super) changes: Vec<Accepted>,
}

/// The bytes of a group of transactions with consecutive revisions.
pub(super) fn encode(txns: &[AcceptedTxn]) -> Vec<u8> {
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes();
    let mut structure = Vec::new();
    let mut values = 0;
    structure.extend_from_slice(&txns.first().map_or(0, |txn| txn.revision).to_le_bytes());
    for txn in txns {
        // The contract's limit is far below.
        structure.push(u8::try_from(txn.changes.len()).unwrap_or(u8::MAX));
        for Accepted { kind, key, body } in &txn.changes {
            structure.push(match kind {
                Kind::Put => PUT,
                Kind::Delete => TOMBSTONE,
                Kind::Rewrite => REWRITE,
            });
            structure.extend_from_slice(&length(key.len()));
            structure.extend_from_slice(&length(body.len()));
            structure.extend_from_slice(key.as_bytes());
            values += body.len();
        }
    }
    let mut out = Vec::with_capacity(LENGTH + structure.len() + CHECK_BYTES + values);
    out.extend_from_slice(&length(structure.len()));
    out.extend_from_slice(&structure);
    let check = checksum(0, &out);
    out.extend_from_slice(&check);
    for change in txns.iter().flat_map(|txn| &txn.changes) {
        out.extend_from_slice(&change.body);
    }
    out
}

/// The transactions of a group, the first of which must have a revision.
///
/// # Errors
/// [`crate::Error::Corrupt`] if its structure is corrupt, or if it is not the next group. Values
/// are not checked.
pub(super) fn decode(bytes: &[u8], next: u64) -> Result<Vec<AcceptedTxn>> {
    let corrupt = || {
        corrupt_database(
            "the write-ahead log is corrupt: the newest changes cannot be read; restore the \
             database from a backup",
        )
    };
    let (revision, txns) = read(bytes).ok_or_else(corrupt)?;
    if revision != next {
        return Err(corrupt_database(format!(
            "the write-ahead log does not belong to the database: it has revision {revision} where {next} \
             comes next; restore the file that belongs to the database, or restore both from a backup"
        )));
    }
    Ok(txns)
}

fn read(bytes: &[u8]) -> Option<(u64, Vec<AcceptedTxn>)> {
    let length = u32::from_le_bytes(*bytes.first_chunk::<LENGTH>()?);
    let (covered, rest) = bytes.split_at_checked(LENGTH + usize::try_from(length).ok()?)?;
    let (check, mut values) = rest.split_first_chunk::<CHECK_BYTES>()?;
    if checksum(0, covered) != *check {
        return None;
    }
    let (first, mut structure) = covered.get(LENGTH..)?.split_first_chunk::<8>()?;
    let first = u64::from_le_bytes(*first);
    let mut txns = Vec::new();
    for revision in first.. {
        let Some((changes, rest)) = structure.split_first() else { break };
        structure = rest;
        let changes = (0..*changes).map(|_| change(&mut structure, &mut values));
        txns.push(AcceptedTxn { revision, changes: changes.collect::<Option<_>>()? });
    }
    values.is_empty().then_some((first, txns))
}

/// Takes the next change from the structure, and its value.
fn change(structure: &mut &[u8], values: &mut &[u8]) -> Option<Accepted> {
    let kind = match take(structure, 1)? {
        [PUT] => Kind::Put,
        [TOMBSTONE] => Kind::Delete,
        [REWRITE] => Kind::Rewrite,
        _ => return None,
    };
    let [key, body] = [length(structure)?, length(structure)?];
    let key = std::str::from_utf8(take(structure, key)?).ok()?;
    let body = Bytes::copy_from_slice(take(values, body)?);
    Some(Accepted { kind, key: key.into(), body })
}

fn length(from: &mut &[u8]) -> Option<usize> {
    let bytes = take(from, LENGTH)?.first_chunk::<LENGTH>().copied()?;
    usize::try_from(u32::from_le_bytes(bytes)).ok()
}

fn take<'a>(from: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(bytes)?;
    *from = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    fn txns() -> Vec<AcceptedTxn> {
        let of = |kind, key: &str, body: &'static str| Accepted {
            kind,
            key: key.into(),
            body: Bytes::from_static(body.as_bytes()),
        };
        let two = vec![of(Kind::Put, "/a", "one"), of(Kind::Delete, "/b", "")];
        let one = vec![of(Kind::Rewrite, "/c", "three")];
        vec![AcceptedTxn { revision: 7, changes: two }, AcceptedTxn { revision: 8, changes: one }]
    }

    #[test]
    fn a_group_is_what_it_was_and_comes_after_the_one_before() {
        let bytes = encode(&txns());
        assert_eq!(decode(&bytes, 7).unwrap(), txns());
        assert!(matches!(decode(&bytes, 6), Err(Error::Corrupt { .. })));
    }

    #[test]
    fn damage_to_the_structure_is_reported_and_to_a_value_is_the_values() {
        let bytes = encode(&txns());
        let values = bytes.len() - "onethree".len();
        for at in 0..bytes.len() {
            let mut corrupt = bytes.clone();
            corrupt[at] ^= 1;
            let decoded = decode(&corrupt, 7);
            if at < values {
                assert!(matches!(decoded, Err(Error::Corrupt { .. })), "{at}");
            } else {
                assert_eq!(decoded.unwrap().len(), 2, "{at}");
            }
            assert!(decode(&bytes[..at], 7).is_err(), "{at}");
        }
    }
}
