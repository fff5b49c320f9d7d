//! The layout of the database file: its tables, and the bytes of a record. No transactions here.
//!
//! Every record carries two checksums of its own. redb has checksums too, but verifies them only when
//! it repairs a file, while the contract demands that corruption is reported on every read. The first
//! covers what history needs (key, kind, previous version), the second the value, so that a watch can
//! skip a corrupt value that its prefix does not cover.

use ::redb::TableDefinition;
use aws_lc_rs::digest;

/// All changes that are kept: packed position to record.
pub(super) const CHANGES: TableDefinition<u64, &[u8]> = TableDefinition::new("changes");
/// The positions of each key: (key, packed position) to [`PUT`] or [`TOMBSTONE`].
pub(super) const INDEX: TableDefinition<(&[u8], u64), u8> = TableDefinition::new("index");
/// The numbers that are named below.
pub(super) const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

/// What is known of history other than its changes, in the bytes of `notes`: under [`NOTES_AGES`] and
/// [`NOTES_LAST_CHANGES`]. Not in files that were written before there was this table.
pub(super) const NOTES: TableDefinition<&str, &[u8]> = TableDefinition::new("notes");

/// In [`NOTES`]: which revision was the newest one at which time.
pub(super) const NOTES_AGES: &str = "ages";
/// In [`NOTES`]: the last change under each of some prefixes.
pub(super) const NOTES_LAST_CHANGES: &str = "last-changes";

/// In [`META`]: the version of this layout.
pub(super) const META_FORMAT: &str = "format";
/// In [`META`]: the newest revision.
pub(super) const META_REVISION: &str = "revision";
/// In [`META`]: every revision up to this one is compacted.
pub(super) const META_COMPACTED: &str = "compacted";
/// The version of the layout that this code writes and reads.
pub(super) const FORMAT: u64 = 1;

/// The mark of a change that set a value. The two marks differ in every bit, so that no flipped bit
/// turns one into the other.
pub(super) const PUT: u8 = 0xA5;
/// The mark of a change that removed the key.
pub(super) const TOMBSTONE: u8 = 0x5A;

/// The length of a checksum.
pub(super) const CHECK_BYTES: usize = 8;
const FIXED_BYTES: usize = 1 + 8 + 2;

/// The fields of a record before its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head<'a> {
    /// [`PUT`] or [`TOMBSTONE`].
    pub(super) mark: u8,
    /// The packed position of the live version that this one replaced; 0 for none.
    pub(super) previous: u64,
    /// The key.
    pub(super) key: &'a str,
}

/// What is wrong with a corrupt record.
pub(super) type Corruption = &'static str;

/// Returns the bytes of a record.
pub(super) fn encode(packed: u64, head: Head<'_>, value: &[u8]) -> Vec<u8> {
    let key = head.key.as_bytes();
    // The contract's limit keeps keys far below 64 KiB; a longer one would fail its checksum.
    let key_length = u16::try_from(key.len()).unwrap_or(u16::MAX);
    let mut out = Vec::with_capacity(FIXED_BYTES + key.len() + value.len() + 2 * CHECK_BYTES);
    out.push(head.mark);
    out.extend_from_slice(&head.previous.to_le_bytes());
    out.extend_from_slice(&key_length.to_le_bytes());
    out.extend_from_slice(key);
    let check = checksum(packed, &out);
    out.extend_from_slice(&check);
    out.extend_from_slice(value);
    out.extend_from_slice(&checksum(packed, value));
    out
}

/// Returns the head of a record, and the bytes of its value, which are not checked yet.
pub(super) fn decode_head(packed: u64, record: &[u8]) -> Result<(Head<'_>, Body<'_>), Corruption> {
    const SHORT: Corruption = "the record is too short";
    let (fixed, rest) = record.split_first_chunk::<FIXED_BYTES>().ok_or(SHORT)?;
    let [mark, previous @ .., low, high] = *fixed;
    let key_length = usize::from(u16::from_le_bytes([low, high]));
    let (key, rest) = rest.split_at_checked(key_length).ok_or(SHORT)?;
    let (check, body) = rest.split_first_chunk::<CHECK_BYTES>().ok_or(SHORT)?;
    let covered = record.get(..FIXED_BYTES + key_length).ok_or(SHORT)?;
    if checksum(packed, covered) != *check {
        return Err("the record's checksum does not match");
    }
    let key = std::str::from_utf8(key).map_err(|_| "the key is not UTF-8")?;
    if mark != PUT && mark != TOMBSTONE {
        return Err("the record is of no known kind");
    }
    Ok((Head { mark, previous: u64::from_le_bytes(previous), key }, Body { packed, bytes: body }))
}

/// Returns the value of a live version. The key is the one that the index has for it.
pub(super) fn value_of<'a>(
    packed: u64,
    record: &'a [u8],
    key: &str,
) -> Result<&'a [u8], Corruption> {
    let (head, body) = decode_head(packed, record)?;
    if head.key != key || head.mark != PUT {
        return Err("the index and the record do not match");
    }
    body.check()
}

/// A value that has not been checked yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Body<'a> {
    packed: u64,
    bytes: &'a [u8],
}

impl<'a> Body<'a> {
    /// Verifies the checksum and returns the value.
    pub(super) fn check(self) -> Result<&'a [u8], Corruption> {
        let (value, check) =
            self.bytes.split_last_chunk::<CHECK_BYTES>().ok_or("the record is too short")?;
        if checksum(self.packed, value) != *check {
            return Err("the value's checksum does not match");
        }
        Ok(value)
    }
}

/// Returns the checksum of bytes that are stored at a position. It covers the position, so that a record stored under another position is detected.
pub(super) fn checksum(packed: u64, bytes: &[u8]) -> [u8; CHECK_BYTES] {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(&packed.to_le_bytes());
    context.update(bytes);
    let digest = context.finish();
    let mut out = [0; CHECK_BYTES];
    for (to, from) in out.iter_mut().zip(digest.as_ref()) {
        *to = *from;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Head<'static> = Head { mark: PUT, previous: 258, key: "/a/b" };

    #[test]
    fn what_is_written_is_read() {
        let bytes = encode(515, HEAD, b"value");
        let (head, body) = decode_head(515, &bytes).unwrap();
        assert_eq!(head, HEAD);
        assert_eq!(body.check().unwrap(), b"value");
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let intact = encode(515, HEAD, b"value");
        for bit in 0..intact.len() * 8 {
            let mut bytes = intact.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let read = decode_head(515, &bytes).and_then(|(_, body)| body.check());
            assert!(read.is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_record_at_anothers_position_and_a_short_one_are_detected() {
        let bytes = encode(515, HEAD, b"value");
        assert!(decode_head(516, &bytes).is_err());
        for length in 0..bytes.len() {
            let read = decode_head(515, &bytes[..length]).and_then(|(_, body)| body.check());
            assert!(read.is_err(), "{length} bytes");
        }
    }
}
