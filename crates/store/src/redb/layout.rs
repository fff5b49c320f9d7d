//! The layout of the database file: its tables, and the bytes of their contents. No transactions
//! here.
//!
//! `live` has each key with its newest version. History is in segments: separate tables, each with
//! the changes of some consecutive revisions, so that forgetting is dropping a table. A change has
//! its value. It also has the value that it replaced, if that value's change is in an earlier
//! segment. So a segment never needs an older one.
//!
//! Everything carries its own checksums. redb has checksums too, but verifies them only when it
//! repairs a file, while the contract demands that corruption is reported on every read. Heads and
//! values have one each, so that a watch can skip a corrupt value that its prefix does not cover.
//! The sum of the heads' checksums of a table is recorded. So the start notices if a table lacks
//! anything, or if any of its contents are too old.

use ::redb::TableDefinition;
use twox_hash::xxhash3_64::Hasher;

/// All existing keys, and the deleted keys that are still in history: key to row.
pub(super) const LIVE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("live");
/// The segments of history: first revision to the sum of its records' heads, see [`encode_sum`]. That of
/// the newest segment is in [`State`].
pub(super) const SEGMENTS: TableDefinition<u64, &[u8]> = TableDefinition::new("segments");
/// The bytes of [`State`], under [`STATE_NOW`].
pub(super) const STATE: TableDefinition<&str, &[u8]> = TableDefinition::new("state");
/// The number that is named below.
pub(super) const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

/// The facts about history other than its changes, in the bytes of `notes`: under [`NOTES_AGES`],
/// [`NOTES_EPOCH`] and [`NOTES_LAST_CHANGES`].
pub(super) const NOTES: TableDefinition<&str, &[u8]> = TableDefinition::new("notes");

/// In [`NOTES`]: which revision was the newest one at which time.
pub(super) const NOTES_AGES: &str = "ages";
/// In [`NOTES`], if the database was restored: its epoch.
pub(super) const NOTES_EPOCH: &str = "epoch";
/// In [`NOTES`]: the last change under each of some prefixes.
pub(super) const NOTES_LAST_CHANGES: &str = "last-changes";
/// In [`STATE`]: the only record.
pub(super) const STATE_NOW: &str = "now";

/// In [`META`]: the version of this layout.
pub(super) const META_FORMAT: &str = "format";
/// The version of the layout that this code writes.
pub(super) const FORMAT: u64 = 1;

/// The mark of a change that set a value. The two marks differ in every bit, so that no flipped bit
/// turns one into the other.
pub(super) const PUT: u8 = 0xA5;
/// The mark of a change that removed the key.
pub(super) const TOMBSTONE: u8 = 0x5A;

/// The length of a checksum.
pub(super) const CHECK_BYTES: usize = 8;
/// In place of a position in the checksum of data without a position. Revisions start at 1.
const NO_POSITION: u64 = 0;
/// The length of a row's head: mark, position, checksum.
const ROW_HEAD_BYTES: usize = 1 + 8 + CHECK_BYTES;
/// The length of a record's head without its key and its checksum: mark, previous position, length of the
/// key, length of the replaced value.
const RECORD_HEAD_BYTES: usize = 1 + 8 + 2 + 4;
/// In place of the length of the replaced value: it is not in the record.
const NOT_HERE: u32 = u32::MAX;

/// The reason why bytes are corrupt.
pub(super) type Corruption = &'static str;

const SHORT: Corruption = "the record is too short";
/// Both heads of a row are the same, and not those of its key: it is the key that is corrupt.
pub(super) const OTHER_KEY: Corruption = "the row is that of another key";

/// The start of the names of the segments' tables.
pub(super) const SEGMENT_PREFIX: &str = "history/";

/// The name of the table of a segment.
pub(super) fn segment_name(first: u64) -> String {
    format!("{SEGMENT_PREFIX}{first:016x}")
}

/// The definition of the table of a segment: packed position to record.
pub(super) fn segment_table(name: &str) -> TableDefinition<'_, u64, &'static [u8]> {
    TableDefinition::new(name)
}

/// The state of the database as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// The newest revision.
    pub(super) revision: u64,
    /// Every revision up to this one is compacted.
    pub(super) compacted: u64,
    /// The sum of the heads of all rows of [`LIVE`].
    pub(super) live: u64,
    /// The first revision of the newest segment; 0 when there is none.
    pub(super) segment: u64,
    /// The sum of the heads of its records.
    pub(super) segment_sum: u64,
    /// The bytes of its records.
    pub(super) segment_bytes: u64,
    /// Rows with an unknown share of the sum of `live` that were replaced. Unless this is 0, the
    /// next start computes the sum again.
    pub(super) unsummed: u64,
    /// The log that goes with the database.
    pub(super) log: LogState,
}

/// The database's state of its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogState {
    /// Which log it is; 0 for none yet.
    pub(super) id: u128,
    /// Where the groups begin that the database does not have.
    pub(super) mark: Mark,
    /// Whether the database has all that was acknowledged: it was closed, and needs no log.
    pub(super) is_closed: bool,
}

impl Default for LogState {
    fn default() -> Self {
        Self { id: 0, mark: Mark::START, is_closed: true }
    }
}

impl LogState {
    const NUMBERS: usize = 6;
    /// In place of a number: it was closed. Differs from 0 in every bit.
    const CLOSED: u64 = u64::MAX;

    fn encode(self) -> [u64; Self::NUMBERS] {
        let [low, high] = split_id(self.id);
        let Mark { group, offset, before } = self.mark;
        [low, high, group, offset, before, if self.is_closed { Self::CLOSED } else { 0 }]
    }

    fn decode([low, high, group, offset, before, closed]: [u64; Self::NUMBERS]) -> Self {
        let id = u128::from(low) | u128::from(high) << 64;
        let mark = Mark { group, offset, before };
        Self { id, mark, is_closed: closed == Self::CLOSED }
    }
}

fn split_id(id: u128) -> [u64; 2] {
    let low = u64::try_from(id & u128::from(u64::MAX)).unwrap_or(0);
    [low, u64::try_from(id >> 64).unwrap_or(0)]
}

/// A place in the log: where the next group begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The number of the next group; the first one has 1.
    pub(super) group: u64,
    /// Where it begins, unless there is no room for it before the end; it then begins at the start.
    pub(super) offset: u64,
    /// Where the group before it begins; 0 for none.
    pub(super) before: u64,
}

impl Mark {
    /// The start of an empty log.
    pub(super) const START: Self = Self { group: 1, offset: 4096, before: 0 };
}

impl State {
    /// The bytes of the state.
    pub(super) fn encode(&self) -> Vec<u8> {
        let all = [
            self.revision,
            self.compacted,
            self.live,
            self.segment,
            self.segment_sum,
            self.segment_bytes,
            self.unsummed,
        ];
        let all = all.into_iter().chain(self.log.encode());
        with_checksum(all.flat_map(u64::to_le_bytes).collect())
    }

    /// The state; `None` if the bytes are corrupt.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = without_checksum(bytes)?;
        let (numbers, []) = bytes.as_chunks::<8>() else { return None };
        let &[
            revision,
            compacted,
            live,
            segment,
            segment_sum,
            segment_bytes,
            unsummed,
            ref log @ ..,
        ] = numbers
        else {
            return None;
        };
        let log = log.first_chunk::<{ LogState::NUMBERS }>()?;
        Some(Self {
            revision: u64::from_le_bytes(revision),
            compacted: u64::from_le_bytes(compacted),
            live: u64::from_le_bytes(live),
            segment: u64::from_le_bytes(segment),
            segment_sum: u64::from_le_bytes(segment_sum),
            segment_bytes: u64::from_le_bytes(segment_bytes),
            unsummed: u64::from_le_bytes(unsummed),
            log: LogState::decode(log.map(u64::from_le_bytes)),
        })
    }
}

/// The head of a row of [`LIVE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row<'a> {
    /// [`PUT`] or [`TOMBSTONE`].
    pub(super) mark: u8,
    /// The packed position of the key's newest version.
    pub(super) packed: u64,
    /// The row's part of the sum of its table.
    pub(super) sum: u64,
    /// The value, which is not checked yet.
    pub(super) body: Body<'a>,
}

/// The bytes of a row, and its share of the sum of its table. The head is there twice, so that a
/// key can be replaced and deleted when one of the two is corrupt.
pub(super) fn encode_row(key: &str, mark: u8, packed: u64, body: &[u8]) -> (Vec<u8>, u64) {
    let (head, sum) = row_head(key.as_bytes(), mark, packed);
    let mut out = Vec::with_capacity(body.len() + 2 * ROW_HEAD_BYTES);
    out.extend_from_slice(&head);
    out.extend_from_slice(body);
    out.extend_from_slice(&head);
    (out, sum)
}

fn row_head(key: &[u8], mark: u8, packed: u64) -> ([u8; ROW_HEAD_BYTES], u64) {
    // The key is not in the row. Its hash is the seed, and covers the position.
    let check = checksum(Hasher::oneshot_with_seed(packed, key), &[mark]);
    let mut head = [mark; ROW_HEAD_BYTES];
    let rest = packed.to_le_bytes().into_iter().chain(check);
    for (to, from) in head.iter_mut().skip(1).zip(rest) {
        *to = from;
    }
    (head, u64::from_le_bytes(check))
}

/// The row of a key.
pub(super) fn decode_row<'a>(key: &[u8], bytes: &'a [u8]) -> Result<Row<'a>, Corruption> {
    let (first, rest) = bytes.split_first_chunk::<ROW_HEAD_BYTES>().ok_or(SHORT)?;
    let (body, last) = rest.split_last_chunk::<ROW_HEAD_BYTES>().ok_or(SHORT)?;
    for head in [first, last] {
        let [mark, packed @ .., _, _, _, _, _, _, _, _] = *head;
        let packed = u64::from_le_bytes(packed);
        let (expected, sum) = row_head(key, mark, packed);
        if expected == *head && (mark == PUT || mark == TOMBSTONE) {
            return Ok(Row { mark, packed, sum, body: Body { packed, bytes: body } });
        }
    }
    Err(if first == last { OTHER_KEY } else { "the row's checksum does not match" })
}

/// The head of a record of history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head<'a> {
    /// [`PUT`] or [`TOMBSTONE`].
    pub(super) mark: u8,
    /// The version that this one came after.
    pub(super) before: PreviousVersion,
    /// The key.
    pub(super) key: &'a str,
}

/// The version of a key before a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PreviousVersion {
    /// Nothing that is known.
    #[default]
    Nothing,
    /// A value, set at this packed position.
    Value(u64),
    /// It was removed, at this packed position.
    Tombstone(u64),
    /// Its row was corrupt: it is not known what there was.
    Corrupt,
}

impl PreviousVersion {
    /// The bit that says that the position is a tombstone's. Packed positions do not have it.
    const TOMBSTONE: u64 = 1 << 63;
    /// In place of a position: the row was corrupt. No position packs to it, for revisions start at 1.
    const CORRUPT: u64 = 1;

    /// The packed position; 0 for none, and for one that is not known.
    pub(super) fn packed(self) -> u64 {
        match self {
            Self::Nothing | Self::Corrupt => 0,
            Self::Value(packed) | Self::Tombstone(packed) => packed,
        }
    }

    fn encode(self) -> u64 {
        match self {
            Self::Nothing | Self::Value(_) => self.packed(),
            Self::Tombstone(packed) => packed | Self::TOMBSTONE,
            Self::Corrupt => Self::CORRUPT,
        }
    }

    fn decode(number: u64) -> Self {
        match number {
            0 => Self::Nothing,
            Self::CORRUPT => Self::Corrupt,
            _ if number & Self::TOMBSTONE != 0 => Self::Tombstone(number & !Self::TOMBSTONE),
            _ => Self::Value(number),
        }
    }
}

/// A record of history.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    /// Its head.
    pub(super) head: Head<'a>,
    /// The record's part of the sum of its segment.
    pub(super) sum: u64,
    /// The value that it replaced, if the change that set it is in an earlier segment.
    pub(super) replaced: Option<Body<'a>>,
    /// Its value. Not checked yet, and empty for [`TOMBSTONE`].
    pub(super) body: Body<'a>,
}

/// The bytes of a record, and its share of the sum of its segment. `replaced` and `body` are values
/// with their checksums.
pub(super) fn encode_record(
    packed: u64,
    head: Head<'_>,
    replaced: Option<&[u8]>,
    body: &[u8],
) -> (Vec<u8>, u64) {
    let key = head.key.as_bytes();
    // The contract's limits keep both far below; a longer one would fail its checksum.
    let key_length = u16::try_from(key.len()).unwrap_or(u16::MAX);
    let here = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(NOT_HERE);
    let replaced_length = replaced.map_or(NOT_HERE, here);
    let length = RECORD_HEAD_BYTES + key.len() + CHECK_BYTES + body.len();
    let mut out = Vec::with_capacity(length + replaced.map_or(0, <[u8]>::len));
    out.push(head.mark);
    out.extend_from_slice(&head.before.encode().to_le_bytes());
    out.extend_from_slice(&key_length.to_le_bytes());
    out.extend_from_slice(&replaced_length.to_le_bytes());
    out.extend_from_slice(key);
    let check = checksum(packed, &out);
    out.extend_from_slice(&check);
    out.extend_from_slice(replaced.unwrap_or_default());
    out.extend_from_slice(body);
    (out, u64::from_le_bytes(check))
}

/// A record of history.
pub(super) fn decode_record(packed: u64, bytes: &[u8]) -> Result<Record<'_>, Corruption> {
    let (fixed, rest) = bytes.split_first_chunk::<RECORD_HEAD_BYTES>().ok_or(SHORT)?;
    let [mark, previous @ .., k0, k1, r0, r1, r2, r3] = *fixed;
    let before = PreviousVersion::decode(u64::from_le_bytes(previous));
    let key_length = usize::from(u16::from_le_bytes([k0, k1]));
    let replaced_length = u32::from_le_bytes([r0, r1, r2, r3]);
    let (key, rest) = rest.split_at_checked(key_length).ok_or(SHORT)?;
    let (check, rest) = rest.split_first_chunk::<CHECK_BYTES>().ok_or(SHORT)?;
    if checksum(packed, &bytes[..RECORD_HEAD_BYTES + key_length]) != *check {
        return Err("the record's checksum does not match");
    }
    let key = std::str::from_utf8(key).map_err(|_| "the key is not UTF-8")?;
    if mark != PUT && mark != TOMBSTONE {
        return Err("the record is of no known kind");
    }
    let (replaced, body) = if replaced_length == NOT_HERE {
        (None, rest)
    } else {
        let length = usize::try_from(replaced_length).map_err(|_| SHORT)?;
        let (replaced, body) = rest.split_at_checked(length).ok_or(SHORT)?;
        (Some(Body { packed: before.packed(), bytes: replaced }), body)
    };
    Ok(Record {
        head: Head { mark, before, key },
        sum: u64::from_le_bytes(*check),
        replaced,
        body: Body { packed, bytes: body },
    })
}

/// Encodes a value with its checksum, as it is in rows and records.
pub(super) fn encode_value(packed: u64, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + CHECK_BYTES);
    out.extend_from_slice(value);
    out.extend_from_slice(&checksum(packed, value));
    out
}

/// A value with its checksum, which has not been checked yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Body<'a> {
    packed: u64,
    bytes: &'a [u8],
}

impl<'a> Body<'a> {
    /// A value with its checksum that was set at a position.
    pub(super) fn new(packed: u64, bytes: &'a [u8]) -> Self {
        Self { packed, bytes }
    }

    /// The value and its checksum as they are.
    pub(super) fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Verifies the checksum and returns the value.
    pub(super) fn check(self) -> Result<&'a [u8], Corruption> {
        let (value, check) = self.bytes.split_last_chunk::<CHECK_BYTES>().ok_or(SHORT)?;
        if checksum(self.packed, value) != *check {
            return Err("the value's checksum does not match");
        }
        Ok(value)
    }
}

/// The bytes of the sum of a segment.
pub(super) fn encode_sum(first: u64, sum: u64) -> Vec<u8> {
    encode_value(first, &sum.to_le_bytes())
}

/// The sum of a segment; `None` if the bytes are corrupt.
pub(super) fn decode_sum(first: u64, bytes: &[u8]) -> Option<u64> {
    let sum = Body::new(first, bytes).check().ok()?;
    sum.try_into().ok().map(u64::from_le_bytes)
}

/// Appends a checksum to bytes.
pub(super) fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let check = checksum(NO_POSITION, &bytes);
    bytes.extend_from_slice(&check);
    bytes
}

/// The bytes before the checksum at their end; none when it does not match.
pub(super) fn without_checksum(bytes: &[u8]) -> Option<&[u8]> {
    let (bytes, check) = bytes.split_last_chunk::<CHECK_BYTES>()?;
    (checksum(NO_POSITION, bytes) == *check).then_some(bytes)
}

/// The checksum of bytes that are stored at a position. It covers the position, so that a record
/// stored under another position is detected. Values are authenticated by encryption at rest, so the hash need not
/// be cryptographic (`docs/adr/0046-checksums-are-not-cryptographic.md`).
pub(super) fn checksum(packed: u64, bytes: &[u8]) -> [u8; CHECK_BYTES] {
    Hasher::oneshot_with_seed(packed, bytes).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Head<'static> =
        Head { mark: PUT, before: PreviousVersion::Value(258), key: "/a/b" };

    fn record(replaced: Option<&[u8]>) -> Vec<u8> {
        let replaced = replaced.map(|value| encode_value(258, value));
        encode_record(515, HEAD, replaced.as_deref(), &encode_value(515, b"value")).0
    }

    /// All that a record has, with all of it checked.
    fn read(packed: u64, bytes: &[u8]) -> Result<(Option<&[u8]>, &[u8]), Corruption> {
        let record = decode_record(packed, bytes)?;
        assert_eq!(record.head, HEAD);
        Ok((record.replaced.map(Body::check).transpose()?, record.body.check()?))
    }

    #[test]
    fn what_is_written_is_read() {
        for replaced in [None, Some(b"before".as_slice())] {
            assert_eq!(read(515, &record(replaced)), Ok((replaced, b"value".as_slice())));
        }
        let all = [
            PreviousVersion::Nothing,
            PreviousVersion::Value(258),
            PreviousVersion::Tombstone(258),
            PreviousVersion::Corrupt,
        ];
        for before in all {
            let bytes = encode_record(515, Head { before, ..HEAD }, None, b"").0;
            assert_eq!(decode_record(515, &bytes).unwrap().head.before, before);
        }
        let (bytes, sum) = encode_row("/a", TOMBSTONE, 515, &encode_value(515, b""));
        let row = decode_row(b"/a", &bytes).unwrap();
        assert_eq!((row.mark, row.packed, row.sum), (TOMBSTONE, 515, sum));
        assert_eq!(row.body.check(), Ok(b"".as_slice()));
        let state = State { revision: 7, live: u64::MAX, ..State::default() };
        assert_eq!(State::decode(&state.encode()), Some(state));
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        for intact in [record(None), record(Some(b"before"))] {
            for bit in 0..intact.len() * 8 {
                let mut bytes = intact.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(read(515, &bytes).is_err(), "bit {bit}");
            }
        }
        let intact = State { revision: 7, ..State::default() }.encode();
        for bit in 0..intact.len() * 8 {
            let mut bytes = intact.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(State::decode(&bytes), None, "bit {bit}");
        }
    }

    #[test]
    fn a_row_has_its_position_whatever_bit_is_flipped_and_its_value_or_none() {
        let (intact, sum) = encode_row("/a", PUT, 515, &encode_value(515, b"value"));
        let mut corrupt = 0;
        for bit in 0..intact.len() * 8 {
            let mut bytes = intact.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let row = decode_row(b"/a", &bytes).unwrap();
            assert_eq!((row.mark, row.packed, row.sum), (PUT, 515, sum));
            match row.body.check() {
                Ok(value) => assert_eq!(value, b"value"),
                Err(_) => corrupt += 1,
            }
        }
        assert_eq!(corrupt, (5 + CHECK_BYTES) * 8);
        assert!(decode_row(b"/b", &intact).is_err(), "it is another key's");
    }

    #[test]
    fn a_record_at_anothers_position_and_a_short_one_are_detected() {
        let bytes = record(Some(b"before"));
        assert!(decode_record(516, &bytes).is_err());
        for length in 0..bytes.len() {
            assert!(read(515, &bytes[..length]).is_err(), "{length} bytes");
        }
    }
}
