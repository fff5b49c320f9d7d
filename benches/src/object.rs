//! The bodies that are sent, and the values that are searched for in responses.

use std::time::Duration;

use bytes::Bytes;
use memchr::memmem;

/// The text before the time of sending in our bodies, and in the events made of them.
const STAMP: &[u8] = b"\"bench-sent\":\"";

/// The text before an object's version.
const VERSION: &[u8] = b"\"resourceVersion\":\"";

/// Values are cut out of this many letters, each from another index.
const LETTERS: usize = 1 << 16;

/// Makes bodies of one size.
pub(crate) struct Maker {
    /// Letters that no server can make smaller, and that are valid base64.
    letters: Vec<u8>,
    body_bytes: usize,
}

impl Maker {
    /// A maker of bodies of about `body_bytes`, or more if the required fields need it.
    pub(crate) fn new(body_bytes: usize) -> Self {
        const ALPHABET: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut random = Random::new(7);
        let letter = |random: &mut Random| ALPHABET[random.below(64)];
        Self { letters: (0..LETTERS).map(|_| letter(&mut random)).collect(), body_bytes }
    }

    /// A `SharedSecret` that says when it was sent, counted from the start of the run.
    pub(crate) fn secret(&self, name: &str, version: Option<&str>, sent: Duration) -> Bytes {
        let version =
            version.map(|version| format!(r#","resourceVersion":"{version}""#)).unwrap_or_default();
        let head = format!(
            r#"{{"apiVersion":"management.platform.sh/v1","kind":"SharedSecret","metadata":{{"name":"{name}","annotations":{{"bench-sent":"{:020}"}}{version}}},"spec":{{"displayName":"{name}","data":{{"payload":""#,
            sent.as_nanos()
        );
        self.padded(head, name, r#""}}}"#)
    }

    /// A value for a key-value store, which takes any JSON object.
    pub(crate) fn value(&self, name: &str, sent: Duration) -> Bytes {
        let head = format!(r#"{{"bench-sent":"{:020}","payload":""#, sent.as_nanos());
        self.padded(head, name, r#""}"#)
    }

    /// A merge patch that changes nothing but an annotation, of an object of any kind.
    pub(crate) fn patch(sent: Duration) -> Bytes {
        let stamp = sent.as_nanos();
        Bytes::from(format!(r#"{{"metadata":{{"annotations":{{"bench-sent":"{stamp:020}"}}}}}}"#))
    }

    /// A configuration of nothing but a label of this name.
    pub(crate) fn label(object: &str, label: &str, sent: Duration) -> Bytes {
        let stamp = sent.as_nanos();
        Bytes::from(format!(
            r#"{{"apiVersion":"management.platform.sh/v1","kind":"SharedSecret","metadata":{{"name":"{object}","labels":{{"{label}":"{stamp}"}}}}}}"#
        ))
    }

    fn padded(&self, head: String, name: &str, tail: &str) -> Bytes {
        let mut body = head.into_bytes();
        let wanted = self.body_bytes.saturating_sub(body.len() + tail.len());
        // A multiple of four letters is base64 without padding.
        let mut missing = (wanted / 4 * 4).max(4);
        let mut start =
            name.bytes().fold(0, |sum: usize, byte| (sum * 31 + usize::from(byte)) % LETTERS);
        while missing > 0 {
            start %= LETTERS;
            let part = &self.letters[start..LETTERS.min(start + missing)];
            body.extend_from_slice(part);
            missing -= part.len();
            start += part.len();
        }
        body.extend_from_slice(tail.as_bytes());
        body.into()
    }
}

/// The name of an object.
pub(crate) fn name(prefix: &str, number: u64) -> String {
    format!("{prefix}-{number:08}")
}

/// The version in a response, without parsing all of it as JSON.
pub(crate) fn version(body: &[u8]) -> Option<String> {
    let text = text_after(body, VERSION)?;
    Some(String::from_utf8_lossy(text).into_owned())
}

/// The time of sending in an event, counted from the start of the run.
pub(crate) fn sent(event: &[u8]) -> Option<Duration> {
    let nanoseconds: u64 = std::str::from_utf8(text_after(event, STAMP)?).ok()?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

fn text_after<'a>(body: &'a [u8], marker: &[u8]) -> Option<&'a [u8]> {
    let start = memmem::find(body, marker)? + marker.len();
    let rest = body.get(start..)?;
    rest.get(..memchr::memchr(b'"', rest)?)
}

/// Numbers that look random and are the same in every run (xorshift).
pub(crate) struct Random(u64);

impl Random {
    /// A generator of numbers that depend on the seed alone.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `limit`, which is at least 1.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap_or(0) % limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_their_size_and_are_json() {
        for name in ["a-00000001", "load-99999999"] {
            let body = Maker::new(900).secret(name, Some("77"), Duration::from_nanos(42));
            assert!((897..=900).contains(&body.len()), "{}", body.len());
            let parsed: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(parsed["metadata"]["name"], name);
            assert_eq!(version(&body).as_deref(), Some("77"));
            assert_eq!(sent(&body), Some(Duration::from_nanos(42)));
        }
    }

    #[test]
    fn values_carry_their_time() {
        let body = Maker::new(1 << 18).value("n", Duration::from_secs(3));
        assert_eq!(sent(&body), Some(Duration::from_secs(3)));
        assert!(serde_json::from_slice::<serde_json::Value>(&body).is_ok());
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        assert_eq!(version(b"{}"), None);
        assert_eq!(sent(b"\"bench-sent\":\"12"), None);
    }
}
