//! Where things are in etcd, and the bytes of a value. No calls here.
//!
//! ```text
//! PREFIX/d/STORAGE-KEY   header, value          watched
//! PREFIX/d/~head         the last transaction   its revision is the newest one
//! PREFIX/e/format        the format of all this
//! PREFIX/e/epochs, PREFIX/e/compacted, PREFIX/e/age
//! PREFIX/e/migration     why there is no format: the data was moved, or is being moved here
//! PREFIX/f/MEMBER/N      fence N of a member    the id of the last transaction that was sent through it
//! PREFIX/m/MEMBER        a member that lives
//! PREFIX/l/NAME          a lease that is held
//! ```
//!
//! A storage key begins with a slash, so `~head` is none. A value begins with a header:
//!
//! ```text
//! format 1 (1) │ index (1) │ flags (1) │ [position (8)] │ value
//! ```
//!
//! The index is that of the change in its transaction. A value that was rewritten or restored has the flag
//! [`PLACED`], and the position of the change that it belongs to. The position of any other value is the revision at
//! which etcd changed the key, and the index.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use postern_store::{Epoch, Error, Limits, Position, Result, limits};

use crate::proto::KeyValue;

/// What etcd accepts by default is 1.5 MiB for a request, with keys, headers and what encryption adds.
pub(crate) const LIMITS: Limits = Limits { value_bytes: 1_300_000, txn_bytes: 1_400_000 };

/// The format of keys and values.
pub(crate) const FORMAT: &[u8] = b"postern 1";

/// The version of a value's header.
const HEADER: u8 = 1;

/// The flag of a value that has its position in its header.
const PLACED: u8 = 1;

/// The bytes that a header adds to a value, at most.
pub(crate) const HEADER_BYTES: usize = 11;

/// The name of the head, below `d/`.
const HEAD: &str = "~head";

/// The names of all keys.
#[derive(Debug)]
pub(crate) struct Keys {
    prefix: String,
    data: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), data: format!("{prefix}/d/") }
    }

    /// The range of all keys.
    pub(crate) fn everything(&self) -> (Bytes, Bytes) {
        (format!("{}/", self.prefix).into(), format!("{}0", self.prefix).into())
    }

    /// The key of a stored value.
    pub(crate) fn data(&self, storage_key: &str) -> Bytes {
        let mut key = BytesMut::with_capacity(self.data.len() + storage_key.len());
        key.put_slice(self.data.as_bytes());
        key.put_slice(storage_key.as_bytes());
        key.freeze()
    }

    /// The storage key of a stored value; `None` for the head.
    pub(crate) fn storage_key(&self, key: &[u8]) -> Option<Arc<str>> {
        let name = std::str::from_utf8(key).ok()?.strip_prefix(self.data.as_str())?;
        name.starts_with('/').then(|| Arc::from(name))
    }

    /// The range of the values under a prefix of storage keys, after a storage key.
    pub(crate) fn range(&self, prefix: &str, after: Option<&str>) -> (Bytes, Bytes) {
        let prefix = if prefix.is_empty() { "/" } else { prefix };
        let first = match after {
            Some(after) if after >= prefix => {
                let mut next = BytesMut::from(&*self.data(after));
                next.put_u8(0);
                next.freeze()
            }
            _ => self.data(prefix),
        };
        (first, end_of_prefix(&self.data(prefix)))
    }

    /// The range of all values and the head.
    pub(crate) fn watched(&self) -> (Bytes, Bytes) {
        (Bytes::from(self.data.clone()), end_of_prefix(self.data.as_bytes()))
    }

    pub(crate) fn head(&self) -> Bytes {
        self.data(HEAD)
    }

    /// A key of the engine itself.
    pub(crate) fn own(&self, name: &str) -> Bytes {
        format!("{}/e/{name}", self.prefix).into()
    }

    pub(crate) fn fence(&self, member: &str, number: usize) -> Bytes {
        format!("{}/f/{member}/{number}", self.prefix).into()
    }

    /// The range of the fences of all members.
    pub(crate) fn fences(&self) -> (Bytes, Bytes) {
        self.under("f")
    }

    pub(crate) fn member(&self, id: &str) -> Bytes {
        format!("{}/m/{id}", self.prefix).into()
    }

    /// The range of all members.
    pub(crate) fn members(&self) -> (Bytes, Bytes) {
        self.under("m")
    }

    /// The range of all keys under a directory.
    fn under(&self, directory: &str) -> (Bytes, Bytes) {
        let prefix = format!("{}/{directory}/", self.prefix);
        let end = end_of_prefix(prefix.as_bytes());
        (prefix.into(), end)
    }

    pub(crate) fn lease(&self, name: &str) -> Bytes {
        format!("{}/l/{name}", self.prefix).into()
    }
}

/// The first key after all that begin with a prefix, which no byte of 255 ends.
fn end_of_prefix(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end.into()
}

/// A value with its header.
pub(crate) fn encode(index: u8, placed: Option<Position>, value: &[u8]) -> Bytes {
    let mut stored = BytesMut::with_capacity(HEADER_BYTES + value.len());
    stored.put_slice(&[HEADER, index, if placed.is_some() { PLACED } else { 0 }]);
    if let Some(position) = placed {
        stored.put_u64(position.packed());
    }
    stored.put_slice(value);
    stored.freeze()
}

/// A value as it was stored.
#[derive(Debug)]
pub(crate) struct Stored {
    /// The position in the header, if the value has one.
    pub(crate) placed: Option<Position>,
    index: u8,
    pub(crate) value: Bytes,
}

impl Stored {
    /// The parts of a stored value; `None` if it has no header.
    pub(crate) fn decode(stored: &Bytes) -> Option<Self> {
        let [HEADER, index, flags, rest @ ..] = &**stored else { return None };
        let (placed, length) = match *flags {
            0 => (None, 3),
            PLACED => {
                let packed = u64::from_be_bytes(*rest.first_chunk()?);
                (Some(Position::from_packed(packed)), HEADER_BYTES)
            }
            _ => return None,
        };
        Some(Self { placed, index: *index, value: stored.slice(length..) })
    }

    /// The position of the change that set the value, which etcd stored at a revision.
    pub(crate) fn position(&self, timeline: &Timeline, at: i64) -> Position {
        self.placed.unwrap_or_else(|| Position::new(timeline.logical(at), self.index))
    }
}

/// The position and the value of a key.
pub(crate) fn decode(
    key: &Arc<str>,
    kv: &KeyValue,
    timeline: &Timeline,
) -> Result<(Position, Bytes)> {
    let stored = Stored::decode(&kv.value).ok_or_else(|| no_header(key))?;
    Ok((stored.position(timeline, kv.mod_revision), stored.value))
}

/// The error for a value that this engine has not written.
pub(crate) fn no_header(key: &Arc<str>) -> Error {
    Error::Corrupt { key: Some(Arc::clone(key)), reason: "it has no header".to_owned() }
}

/// The epochs of the store, and the revisions of etcd at which they begin. A restore of etcd takes its revisions back;
/// the revisions of the store go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Timeline {
    /// Rising; the first one is that of the empty store.
    epochs: Vec<(Epoch, i64)>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { epochs: vec![(Epoch::default(), 0)] }
    }
}

impl Timeline {
    /// The present epoch.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epochs.last().map_or_else(Epoch::default, |(epoch, _)| *epoch)
    }

    /// The timeline with one more epoch, which begins at a revision of the store that is a revision of etcd.
    pub(crate) fn with(&self, begins: u64, at: i64) -> Self {
        let number = self.epoch().number + 1;
        let mut epochs = self.epochs.clone();
        epochs.push((Epoch { number, begins }, at));
        Self { epochs }
    }

    /// The revision of the store for a revision of etcd.
    pub(crate) fn logical(&self, physical: i64) -> u64 {
        let of = self.epochs.iter().rev().find(|(_, at)| *at <= physical);
        let (begins, at) = of.map_or((0, 0), |(epoch, at)| (epoch.begins, *at));
        begins + u64::try_from(physical - at).unwrap_or(0)
    }

    /// The revision of etcd for a revision of the store. For one that a restore has taken back, it is the last one
    /// before the restore.
    pub(crate) fn physical(&self, logical: u64) -> i64 {
        let mut end = i64::MAX;
        for (epoch, at) in self.epochs.iter().rev() {
            if epoch.begins <= logical {
                let after = i64::try_from(logical - epoch.begins).unwrap_or(i64::MAX);
                return at.saturating_add(after).min(end);
            }
            end = at - 1;
        }
        end
    }

    /// The revision of etcd with the first state of a store with a format that was created at
    /// `created`. The epoch of a store that was filled begins just before its format.
    pub(crate) fn begin_of(&self, created: i64) -> i64 {
        let begins = self.epochs.iter().rev().map(|(_, at)| *at);
        begins.into_iter().find(|at| (1..=created).contains(at)).unwrap_or(created)
    }

    /// The bytes of the epochs after the first one.
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        for (epoch, at) in self.epochs.iter().skip(1) {
            bytes.put_u32(epoch.number);
            bytes.put_u64(epoch.begins);
            bytes.put_i64(*at);
        }
        bytes.freeze()
    }

    /// The timeline in these bytes; `None` if the bytes are corrupt.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut timeline = Self::default();
        let (chunks, rest) = bytes.as_chunks::<20>();
        for chunk in chunks {
            let number = u32::from_be_bytes(*chunk.first_chunk()?);
            let begins = u64::from_be_bytes(*chunk.get(4..)?.first_chunk()?);
            let at = i64::from_be_bytes(*chunk.last_chunk()?);
            timeline.epochs.push((Epoch { number, begins }, at));
        }
        rest.is_empty().then_some(timeline)
    }
}

const _: () = assert!(
    LIMITS.txn_bytes + limits::CHANGES_PER_TXN * (HEADER_BYTES + limits::ENVELOPE_BYTES)
        < 1_572_864,
    "etcd must take a transaction of the greatest size"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_the_storage_keys_under_a_prefix_and_not_the_head() {
        let keys = Keys::new("/p");
        let is_in = |(first, end): (Bytes, Bytes), key: Bytes| first <= key && key < end;
        for (prefix, after, key, inside) in [
            ("", None, "/a", true),
            ("", None, "/\u{10ffff}", true),
            ("/a", None, "/a", true),
            ("/a", None, "/a/b", true),
            ("/a", None, "/b", false),
            ("/a", Some("/a"), "/a", false),
            ("/a", Some("/a"), "/a\u{0}", true),
            ("/a", Some("/"), "/a", true),
            ("/a", Some("/b"), "/a", false),
            ("", Some("/a"), "/b", true),
        ] {
            let range = keys.range(prefix, after);
            assert_eq!(is_in(range, keys.data(key)), inside, "{prefix} {after:?} {key}");
            assert_eq!(keys.storage_key(&keys.data(key)).as_deref(), Some(key));
        }
        assert!(!is_in(keys.range("", None), keys.head()));
        assert!(is_in(keys.watched(), keys.head()));
        assert!(is_in(keys.everything(), keys.head()) && is_in(keys.everything(), keys.own("x")));
        assert!(!is_in(keys.everything(), Keys::new("/pp").head()));
        assert_eq!(keys.storage_key(&keys.head()), None);
    }

    #[test]
    fn a_value_has_its_position() {
        let timeline = Timeline::default();
        let plain = Stored::decode(&encode(3, None, b"v")).unwrap();
        assert_eq!((plain.position(&timeline, 7), &*plain.value), (Position::new(7, 3), &b"v"[..]));
        let placed = Stored::decode(&encode(3, Some(Position::new(4, 1)), b"")).unwrap();
        assert_eq!(
            (placed.position(&timeline, 7), &*placed.value),
            (Position::new(4, 1), &b""[..])
        );
        for wrong in [&b""[..], b"\x01", b"\x02\x00\x00v", b"\x01\x00\x02v", b"\x01\x00\x01v"] {
            assert!(Stored::decode(&Bytes::copy_from_slice(wrong)).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn revisions_rise_over_a_restore() {
        let first = Timeline::default();
        assert_eq!((first.logical(0), first.logical(9), first.physical(9)), (0, 9, 9));
        // etcd was at 900, and is restored to 500.
        let second = first.with(2000, 501);
        for (physical, logical) in [(500, 500), (501, 2000), (600, 2099)] {
            assert_eq!(second.logical(physical), logical);
            assert_eq!(second.physical(logical), physical);
        }
        // These were taken back.
        assert_eq!((second.physical(501), second.physical(1999)), (500, 500));
        let third = second.with(9000, 550);
        assert_eq!((third.logical(549), third.logical(550)), (2048, 9000));
        assert_eq!(third.epoch(), Epoch { number: 2, begins: 9000 });
        assert_eq!((first.begin_of(0), first.begin_of(7)), (0, 7));
        assert_eq!((second.begin_of(502), second.begin_of(300)), (501, 300));
        for timeline in [first, second, third] {
            assert_eq!(Timeline::decode(&timeline.encode()), Some(timeline));
        }
        assert_eq!(Timeline::decode(&[0; 19]), None);
    }
}
