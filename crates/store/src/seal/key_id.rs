//! The id of an at-rest key, and the errors of keyrings.

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{self};
use std::fmt;

/// The length of a key that HKDF derives, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct HkdfLength(pub(super) usize);

impl hkdf::KeyType for HkdfLength {
    fn len(&self) -> usize {
        self.0
    }
}

/// The id of an at-rest key. It is derived from the key's seed, so that an id can never mean
/// another key. Not secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId([u8; KEY_ID_BYTES]);

impl KeyId {
    /// The id that has these bytes.
    pub(crate) fn new(bytes: [u8; KEY_ID_BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes of the id.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for KeyId {
    type Err = KeyringError;

    /// Parses sixteen hexadecimal digits.
    fn from_str(text: &str) -> Result<Self, KeyringError> {
        let mut bytes = [0; KEY_ID_BYTES];
        hex::decode_to_slice(text, &mut bytes)
            .map_err(|_| KeyringError::Malformed("a key id is 16 hexadecimal digits".to_owned()))?;
        Ok(Self(bytes))
    }
}

/// Bytes in a key's id.
pub(crate) const KEY_ID_BYTES: usize = 8;

/// Why a keyring cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    /// The file could not be read or written.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// The operation that failed.
        action: &'static str,
        /// The file or directory.
        path: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// There is a keyring already, and it will not be overwritten.
    #[error("{0} exists already")]
    Exists(String),
    /// Others than the owner have access to the file or its directory.
    #[error("{path} has mode {mode:04o}; it holds keys, and must have mode {wanted:04o}")]
    Exposed {
        /// The file or directory.
        path: String,
        /// Its permission bits.
        mode: u32,
        /// The permission bits that it must have.
        wanted: u32,
    },
    /// Another process is changing the keyring at the moment.
    #[error("another process is changing {0}")]
    Busy(String),
    /// The text is not a keyring. The message never contains any of the text.
    #[error("the keyring is malformed: {0}")]
    Malformed(String),
    /// The keyring does not hold the key.
    #[error("the keyring does not have key {0}")]
    NoSuchKey(KeyId),
    /// The current key cannot be dropped.
    #[error("key {0} is the current one; rotate first")]
    Current(KeyId),
    /// The keyring is full.
    #[error("the keyring already has {KEYS} keys; drop old ones first")]
    Full,
    /// The system returned no random bytes, or the cryptographic library failed.
    #[error("the cryptographic library failed")]
    Crypto,
}

impl From<Unspecified> for KeyringError {
    fn from(Unspecified: Unspecified) -> Self {
        Self::Crypto
    }
}

/// Keys in one keyring.
pub(super) const KEYS: usize = 256;
