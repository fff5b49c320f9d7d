//! Planted values (canaries) that represent secrets, and a search for them in every encoding in which
//! they could leak.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use postern_tests::Random;

/// The length of the pieces that are searched for: short enough to find parts of a value, long enough
/// never to match by chance.
const PIECE_BYTES: usize = 14;

/// A random value of 48 letters.
pub(crate) fn value(random: &mut Random) -> String {
    (0..48).map(|_| char::from(b'a' + u8::try_from(random.below(26)).unwrap())).collect()
}

/// Finds values, whole or in half: as plain text, reversed, in hex and in base64.
pub(crate) struct Search {
    pieces: HashSet<Vec<u8>>,
    /// Whether a piece begins with two bytes, by their number: a quick check before the full comparison.
    prefixes: Vec<bool>,
}

impl Search {
    /// A search for values of at least 32 bytes.
    pub(crate) fn of<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let prefixes = vec![false; 1 << 16];
        let mut search = Self { pieces: HashSet::new(), prefixes };
        for value in values {
            search.add(value);
        }
        search
    }

    /// Adds a value.
    pub(crate) fn add(&mut self, value: &str) {
        assert!(value.len() >= 32, "a value that matches by chance proves nothing");
        for encoding in encodings(value) {
            for start in [0, encoding.len() / 2] {
                let piece = encoding[start..start + PIECE_BYTES].to_vec();
                self.prefixes[prefix(&piece)] = true;
                self.pieces.insert(piece);
            }
        }
    }

    /// The offset of one of the values.
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<usize> {
        // A plain loop: without optimization, iterators over megabytes of logs take minutes.
        let mut at = 0;
        while at + PIECE_BYTES <= bytes.len() {
            if self.prefixes[prefix(&bytes[at..])]
                && self.pieces.contains(&bytes[at..at + PIECE_BYTES])
            {
                return Some(at);
            }
            at += 1;
        }
        None
    }

    /// Panics if one of the values is there, and prints the bytes around it.
    pub(crate) fn assert_absent(&self, what: &str, bytes: &[u8]) {
        let Some(at) = self.find(bytes) else { return };
        let around = &bytes[at.saturating_sub(200)..bytes.len().min(at + 100)];
        panic!("{what} contains a secret: …{}…", String::from_utf8_lossy(around));
    }
}

/// The number of the first two bytes.
fn prefix(bytes: &[u8]) -> usize {
    usize::from(bytes[0]) << 8 | usize::from(bytes[1])
}

fn hex(value: &str, upper: bool) -> String {
    let digits = if upper { b"0123456789ABCDEF" } else { b"0123456789abcdef" };
    let digit = |digit: u8| char::from(digits[usize::from(digit)]);
    value.bytes().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn encodings(value: &str) -> Vec<Vec<u8>> {
    let mut encodings = vec![value.as_bytes().to_vec(), value.bytes().rev().collect()];
    encodings.extend([hex(value, false).into_bytes(), hex(value, true).into_bytes()]);
    // Base64 differs with each of the three offsets at which the value can start. The first and last
    // characters depend on the neighbours and are left out.
    for shift in 0..3 {
        let shifted = format!("{}{value}", "x".repeat(shift));
        for text in [STANDARD.encode(&shifted), URL_SAFE.encode(&shifted)] {
            encodings.push(text.as_bytes()[4..text.len() - 4].to_vec());
        }
    }
    encodings
}

#[test]
fn planted_values_are_found() {
    let value = value(&mut Random::new(1));
    let search = Search::of([value.as_str()]);
    for text in [
        format!("before {value} after"),
        format!("half of it: {}", &value[24..]),
        STANDARD.encode(format!("before {value}")),
        hex(&value, false),
    ] {
        assert!(search.find(text.as_bytes()).is_some(), "{text}");
    }
    assert!(search.find(&b"nothing of the kind, however long one looks".repeat(9)).is_none());
}
