//! The bytes of the notes on history other than its changes: its age, and the last changes. Notes
//! without their checksum count as missing: history is then kept longer, and an unknown last change
//! counts as a change.

use super::layout::{with_checksum, without_checksum};
use crate::Epoch;
use crate::age::Ages;
use crate::last_change::NotedChanges;

/// The bytes of the age of history.
pub(super) fn encode_ages(ages: &Ages) -> Vec<u8> {
    with_checksum(ages.encode())
}

/// The age of history; `None` if the bytes are corrupt.
pub(super) fn decode_ages(bytes: &[u8]) -> Option<Ages> {
    Ages::decode(without_checksum(bytes)?)
}

/// The bytes of the last changes.
pub(super) fn encode_last_changes(noted: &NotedChanges) -> Vec<u8> {
    let mut out = noted.compacted.to_le_bytes().to_vec();
    for (prefix, packed) in &noted.last {
        out.extend_from_slice(&packed.to_le_bytes());
        out.extend_from_slice(&(prefix.len() as u64).to_le_bytes());
        out.extend_from_slice(prefix.as_bytes());
    }
    with_checksum(out)
}

/// The last changes; `None` if the bytes are corrupt.
pub(super) fn decode_last_changes(bytes: &[u8]) -> Option<NotedChanges> {
    let mut rest = without_checksum(bytes)?;
    let mut noted = NotedChanges { compacted: number(&mut rest)?, last: Vec::new() };
    while !rest.is_empty() {
        let packed = number(&mut rest)?;
        let length = usize::try_from(number(&mut rest)?).ok()?;
        let (prefix, after) = rest.split_at_checked(length)?;
        noted.last.push((std::str::from_utf8(prefix).ok()?.to_owned(), packed));
        rest = after;
    }
    Some(noted)
}

/// The bytes of an epoch.
pub(super) fn encode_epoch(epoch: Epoch) -> Vec<u8> {
    let numbers = [u64::from(epoch.number), epoch.begins];
    with_checksum(numbers.into_iter().flat_map(u64::to_le_bytes).collect())
}

/// The epoch; `None` if the bytes are corrupt.
pub(super) fn decode_epoch(bytes: &[u8]) -> Option<Epoch> {
    let mut rest = without_checksum(bytes)?;
    let number = u32::try_from(number(&mut rest)?).ok()?;
    let epoch = Epoch { number, begins: self::number(&mut rest)? };
    rest.is_empty().then_some(epoch)
}

/// Takes a number from the start of some bytes.
fn number(rest: &mut &[u8]) -> Option<u64> {
    let (number, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u64::from_le_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::age::Mark;

    fn ages() -> Ages {
        let marks = [(3, 7), (9, 12)].map(|(at_ms, revision)| Mark { at_ms, revision });
        Ages { elapsed_ms: 10, clock_ms: 1 << 40, marks: marks.to_vec() }
    }

    fn noted() -> NotedChanges {
        let last = [("/a/", 700), ("", 1 << 50)].map(|(prefix, at)| (prefix.to_owned(), at));
        NotedChanges { compacted: 11, last: last.to_vec() }
    }

    #[test]
    fn what_is_written_is_read() {
        for ages in [ages(), Ages::default()] {
            assert_eq!(decode_ages(&encode_ages(&ages)), Some(ages));
        }
        for noted in [noted(), NotedChanges::default()] {
            assert_eq!(decode_last_changes(&encode_last_changes(&noted)), Some(noted));
        }
    }

    #[test]
    fn every_flipped_bit_and_every_missing_end_is_detected() {
        let (ages, noted) = (encode_ages(&ages()), encode_last_changes(&noted()));
        let epoch = encode_epoch(Epoch { number: 3, begins: 1 << 50 });
        assert_eq!(decode_epoch(&epoch), Some(Epoch { number: 3, begins: 1 << 50 }));
        for intact in [&ages, &noted, &epoch] {
            for bit in 0..intact.len() * 8 {
                let mut bytes = intact.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!((decode_ages(&bytes), decode_last_changes(&bytes)), (None, None));
                assert_eq!(decode_epoch(&bytes), None);
            }
            for length in 0..intact.len() {
                let short = &intact[..length];
                assert_eq!((decode_ages(short), decode_last_changes(short)), (None, None));
            }
        }
    }
}
