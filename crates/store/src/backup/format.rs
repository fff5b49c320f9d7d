//! The bytes of a backup: how each entry is written, and the reader that checks them. No stores and
//! no encryption here: a value is bytes.
//!
//! Numbers are little-endian. A backup is
//!
//! ```text
//! "postern backup\r\n" │ format (4) │ revision (8) │ created, milliseconds since 1970 (8)
//! for each key, in byte order:
//!   'E' │ position, packed (8) │ length of the key (2) │ length of the value (4) │ key │ value
//! 'T' │ keys (8) │ keys left out (8) │ count of at-rest keys (2) │ their ids (8 each)
//! SHA-256 of everything before (32)
//! ```
//!
//! The checksum detects accidents. It does not detect a forged file: it needs no key. A forged file
//! cannot contain values that the keyring cannot decrypt, but older ones, or fewer.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read};

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;

use super::{BackupError, Summary, from_millis, io_error};
use crate::seal::{KEY_ID_BYTES, KeyId, WrappedKeys};
use crate::{Entry, Position, limits};

/// The format that this code writes and reads.
pub(super) const VERSION: u32 = 1;
/// A line break that is changed on the way, as by a transfer of text, changes this too.
const MAGIC: [u8; 16] = *b"postern backup\r\n";
const ENTRY: u8 = b'E';
const TRAILER: u8 = b'T';
const CHECKSUM_BYTES: usize = 32;
/// The most at-rest keys in a backup: those of a full keyring.
const KEY_IDS: u16 = 256;

/// The state of a backup that is being written: it turns entries into bytes.
pub(super) struct Encoder {
    digest: Context,
    summary: Summary,
}

impl Encoder {
    /// The encoder of a new backup, and the bytes that it begins with.
    pub(super) fn new(revision: u64, created_millis: u64) -> (Self, Vec<u8>) {
        let summary = Summary {
            revision,
            created: from_millis(created_millis),
            entries: 0,
            omitted: 0,
            key_ids: BTreeSet::new(),
            wrapped_ids: BTreeSet::new(),
            bytes: 0,
            checksum: [0; CHECKSUM_BYTES],
        };
        let mut encoder = Self { digest: Context::new(&SHA256), summary };
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&revision.to_le_bytes());
        out.extend_from_slice(&created_millis.to_le_bytes());
        encoder.count(&out);
        (encoder, out)
    }

    /// The bytes of entries. They must be in key order, and after all earlier ones.
    pub(super) fn entries(&mut self, entries: &[Entry], ids: &[KeyId]) -> Vec<u8> {
        let mut out = Vec::new();
        self.summary.wrapped_ids.extend(entries.iter().filter_map(wrapped_id));
        for Entry { key, value, position } in entries {
            // The limits of the contract keep both lengths far below these maxima.
            let key_length = u16::try_from(key.len()).unwrap_or(u16::MAX);
            let value_length = u32::try_from(value.len()).unwrap_or(u32::MAX);
            out.push(ENTRY);
            out.extend_from_slice(&position.packed().to_le_bytes());
            out.extend_from_slice(&key_length.to_le_bytes());
            out.extend_from_slice(&value_length.to_le_bytes());
            out.extend_from_slice(key.as_bytes());
            out.extend_from_slice(value);
        }
        self.summary.key_ids.extend(ids);
        self.summary.entries += entries.len() as u64;
        self.count(&out);
        out
    }

    /// Notes that keys were left out.
    pub(super) fn omit(&mut self, keys: u64) {
        self.summary.omitted += keys;
    }

    /// The bytes at the end of the backup, and the summary of its contents.
    pub(super) fn finish(mut self) -> (Summary, Vec<u8>) {
        let mut out = vec![TRAILER];
        out.extend_from_slice(&self.summary.entries.to_le_bytes());
        out.extend_from_slice(&self.summary.omitted.to_le_bytes());
        let ids = u16::try_from(self.summary.key_ids.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&ids.to_le_bytes());
        for id in &self.summary.key_ids {
            out.extend_from_slice(id.as_bytes());
        }
        self.count(&out);
        self.summary.checksum = checksum(self.digest);
        self.summary.bytes += CHECKSUM_BYTES as u64;
        out.extend_from_slice(&self.summary.checksum);
        (self.summary, out)
    }

    fn count(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
        self.summary.bytes += bytes.len() as u64;
    }
}

/// The state of a backup that is being read.
pub(super) struct Decoder<R> {
    input: R,
    digest: Context,
    bytes: u64,
    revision: u64,
    created_millis: u64,
    entries: u64,
    last_key: String,
    wrapped_ids: BTreeSet<KeyId>,
}

/// One part of a backup.
pub(super) enum Part {
    /// An entry. Its value is encrypted.
    Entry(Entry),
    /// The end. Everything before it is intact.
    End(Summary),
}

impl<R: Read> Decoder<R> {
    /// Reads the beginning of a backup.
    pub(super) fn new(input: R) -> Result<Self, BackupError> {
        let mut decoder = Self {
            input,
            digest: Context::new(&SHA256),
            bytes: 0,
            revision: 0,
            created_millis: 0,
            entries: 0,
            last_key: String::new(),
            wrapped_ids: BTreeSet::new(),
        };
        match decoder.array() {
            Ok(MAGIC) => {}
            Ok(_) | Err(BackupError::CorruptBackup(_)) => return Err(BackupError::NotABackup),
            Err(error) => return Err(error),
        }
        let version = u32::from_le_bytes(decoder.array()?);
        if version != VERSION {
            return Err(BackupError::UnknownFormat(version));
        }
        decoder.revision = decoder.number()?;
        decoder.created_millis = decoder.number()?;
        Ok(decoder)
    }

    /// Reads the next part. Nothing follows the end.
    pub(super) fn next(&mut self) -> Result<Part, BackupError> {
        match self.array()? {
            [ENTRY] => self.entry().map(Part::Entry),
            [TRAILER] => self.trailer().map(Part::End),
            _ => Err(corrupt("a part of it is of no known type")),
        }
    }

    fn entry(&mut self) -> Result<Entry, BackupError> {
        let position = Position::from_packed(self.number()?);
        let key_length = usize::from(u16::from_le_bytes(self.array()?));
        let value_length = usize::try_from(u32::from_le_bytes(self.array()?)).unwrap_or(usize::MAX);
        if key_length > limits::KEY_BYTES
            || value_length > limits::VALUE_BYTES + limits::ENVELOPE_BYTES
        {
            return Err(corrupt("a key or a value is longer than any can be"));
        }
        let key =
            String::from_utf8(self.vec(key_length)?).map_err(|_| corrupt("a key is not UTF-8"))?;
        if key <= self.last_key {
            return Err(corrupt("the keys are out of order"));
        }
        if position.revision() > self.revision {
            return Err(corrupt("a key has a later revision than the backup"));
        }
        let value = Bytes::from(self.vec(value_length)?);
        self.entries += 1;
        self.last_key.clone_from(&key);
        let entry = Entry { key: key.into(), value, position };
        self.wrapped_ids.extend(wrapped_id(&entry));
        Ok(entry)
    }

    fn trailer(&mut self) -> Result<Summary, BackupError> {
        let (entries, omitted) = (self.number()?, self.number()?);
        let count = u16::from_le_bytes(self.array()?);
        if count > KEY_IDS {
            return Err(corrupt("it names more at-rest keys than a keyring has"));
        }
        let mut key_ids = BTreeSet::new();
        for _ in 0..count {
            key_ids.insert(KeyId::new(self.array::<KEY_ID_BYTES>()?));
        }
        let expected = checksum(self.digest.clone());
        let found: [u8; CHECKSUM_BYTES] = self.array()?;
        if found != expected {
            return Err(corrupt("its checksum does not match"));
        }
        if entries != self.entries {
            return Err(corrupt("it does not have the keys that it counts"));
        }
        if self.input.read(&mut [0]).map_err(io_error("read"))? != 0 {
            return Err(corrupt("something follows its end"));
        }
        Ok(Summary {
            revision: self.revision,
            created: from_millis(self.created_millis),
            entries,
            omitted,
            key_ids,
            wrapped_ids: std::mem::take(&mut self.wrapped_ids),
            bytes: self.bytes,
            checksum: found,
        })
    }

    fn number(&mut self) -> Result<u64, BackupError> {
        self.array().map(u64::from_le_bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BackupError> {
        let mut out = [0; N];
        self.fill(&mut out)?;
        Ok(out)
    }

    fn vec(&mut self, length: usize) -> Result<Vec<u8>, BackupError> {
        let mut out = vec![0; length];
        self.fill(&mut out)?;
        Ok(out)
    }

    fn fill(&mut self, out: &mut [u8]) -> Result<(), BackupError> {
        self.input.read_exact(out).map_err(|source| match source.kind() {
            ErrorKind::UnexpectedEof => corrupt("it ends too early"),
            _ => BackupError::Io { action: "read", source },
        })?;
        self.digest.update(out);
        self.bytes += out.len() as u64;
        Ok(())
    }
}

/// The id of the at-rest key that an entry is, if it is a wrapped key.
fn wrapped_id(entry: &Entry) -> Option<KeyId> {
    WrappedKeys::id_of(entry)
}

fn checksum(digest: Context) -> [u8; CHECKSUM_BYTES] {
    let mut out = [0; CHECKSUM_BYTES];
    out.copy_from_slice(digest.finish().as_ref());
    out
}

fn corrupt(how: &str) -> BackupError {
    BackupError::CorruptBackup(how.to_owned())
}
