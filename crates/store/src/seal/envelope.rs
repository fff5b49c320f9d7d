//! The bytes of an encrypted value: encryption and decryption. The keyring decides which key to
//! use, and the store where the bytes are stored.
//!
//! An encrypted value is
//!
//! ```text
//! version 2 (1) │ key id (8) │ salt (20) │ nonce (12) │ ciphertext │ tag (16)
//! version 1 (1) │ key id (8) │ salt (32)              │ ciphertext │ tag (16)
//! ```
//!
//! Values are encrypted in version 2, with AES-256-GCM under a derived key: HKDF-SHA256(seed, salt,
//! purpose and key id). The nonce is random. A derived key encrypts so few values that no two
//! nonces are equal (`derived`).
//!
//! Version 1 is only decrypted. There, the salt was new for each value, each derived key encrypted
//! one value, and the nonce was zero.
//!
//! Authenticated with the value, but not stored again: version, key id, and the storage key. So an
//! encrypted value that is moved to another storage key cannot be decrypted there.

use std::sync::Arc;

use aws_lc_rs::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand;
use bytes::{Buf, Bytes, BytesMut};

use super::derived::{SALT_BYTES, Salt};
use super::key_id::{KEY_ID_BYTES, KeyId};
use super::keyring::Key;
use crate::limits;

/// The version of the format in which values are encrypted.
const VERSION: u8 = 2;
/// The version with a separate derived key for each value.
const KEY_FOR_EACH_VALUE: u8 = 1;
const TAG_BYTES: usize = 16;
/// Salt and nonce. In version 1, all of it is the salt.
const DERIVATION_BYTES: usize = SALT_BYTES + NONCE_LEN;
const HEADER_BYTES: usize = 1 + KEY_ID_BYTES + DERIVATION_BYTES;
/// The bytes that encryption adds to a value.
const OVERHEAD_BYTES: usize = HEADER_BYTES + TAG_BYTES;
const _: () = assert!(OVERHEAD_BYTES <= limits::ENVELOPE_BYTES, "engines must take sealed values");
/// The purpose of the derived keys of version 1.
const PURPOSE_V1: &[u8] = b"postern/seal/value/v1";

/// Why an encrypted value cannot be decrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OpenError {
    /// It does not have the format of an encrypted value.
    NotSealed,
    /// The keyring does not hold its key.
    UnknownKey(KeyId),
    /// Authentication failed: it was changed, or encrypted for another storage key or with another
    /// seed.
    Forged(KeyId),
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotSealed => write!(f, "it is not a sealed value"),
            Self::UnknownKey(id) => {
                write!(f, "it is encrypted with key {id}, which the keyring does not have")
            }
            Self::Forged(id) => {
                write!(f, "it does not open with key {id}, with which it says it was sealed")
            }
        }
    }
}

/// Encrypts a value for a storage key.
pub(super) fn seal(key: &Key, storage_key: &str, value: &[u8]) -> Result<Bytes, Unspecified> {
    let (salt, cipher) = key.cipher_for_sealing()?;
    let mut nonce = [0; NONCE_LEN];
    rand::fill(&mut nonce)?;
    let mut sealed = Vec::with_capacity(value.len() + OVERHEAD_BYTES);
    sealed.push(VERSION);
    sealed.extend_from_slice(key.id().as_bytes());
    sealed.extend_from_slice(&salt);
    sealed.extend_from_slice(&nonce);
    sealed.extend_from_slice(value);
    let aad = Aad::from(associated(VERSION, key.id(), storage_key));
    let (_, body) = sealed.split_at_mut(HEADER_BYTES);
    let nonce = Nonce::assume_unique_for_key(nonce);
    let tag = cipher.seal_in_place_separate_tag(nonce, aad, body)?;
    sealed.extend_from_slice(tag.as_ref());
    Ok(Bytes::from(sealed))
}

/// Decrypts a value. `find` returns the key of an id. The value is decrypted in place when nothing
/// else refers to the encrypted bytes.
pub(super) fn open<'k>(
    find: impl FnOnce(KeyId) -> Option<&'k Key>,
    storage_key: &str,
    sealed: Bytes,
) -> Result<Bytes, OpenError> {
    let header = parse(&sealed).ok_or(OpenError::NotSealed)?;
    let id = header.id;
    let key = find(id).ok_or(OpenError::UnknownKey(id))?;
    let forged = |Unspecified| OpenError::Forged(id);
    let (cipher, nonce) = cipher(key, &header).map_err(forged)?;
    let aad = Aad::from(associated(header.version, id, storage_key));
    let mut value = sealed.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&*shared));
    value.advance(HEADER_BYTES);
    let length = cipher.open_in_place(nonce, aad, &mut value).map_err(forged)?.len();
    value.truncate(length);
    Ok(value.freeze())
}

/// The id of the key with which a value is encrypted. Checks only the format.
pub(super) fn key_id(sealed: &[u8]) -> Option<KeyId> {
    parse(sealed).map(|header| header.id)
}

/// The header of an encrypted value.
struct Header {
    version: u8,
    id: KeyId,
    salt: Salt,
    nonce: [u8; NONCE_LEN],
}

fn parse(sealed: &[u8]) -> Option<Header> {
    let (version, rest) = sealed.split_first()?;
    let (id, rest) = rest.split_first_chunk::<KEY_ID_BYTES>()?;
    let (salt, rest) = rest.split_first_chunk::<SALT_BYTES>()?;
    let (nonce, body) = rest.split_first_chunk::<NONCE_LEN>()?;
    let is_sealed = matches!(*version, VERSION | KEY_FOR_EACH_VALUE) && body.len() >= TAG_BYTES;
    let header = Header { version: *version, id: KeyId::new(*id), salt: *salt, nonce: *nonce };
    is_sealed.then_some(header)
}

/// The cipher and the nonce of a value.
fn cipher(key: &Key, header: &Header) -> Result<(Arc<LessSafeKey>, Nonce), Unspecified> {
    if header.version == KEY_FOR_EACH_VALUE {
        let mut salt = [0; DERIVATION_BYTES];
        let (first, last) = salt.split_at_mut(SALT_BYTES);
        first.copy_from_slice(&header.salt);
        last.copy_from_slice(&header.nonce);
        let cipher = Arc::new(key.derive(&salt, PURPOSE_V1)?);
        return Ok((cipher, Nonce::assume_unique_for_key([0; NONCE_LEN])));
    }
    let cipher = key.cipher_for_opening(&header.salt)?;
    Ok((cipher, Nonce::assume_unique_for_key(header.nonce)))
}

/// The data that is authenticated with a value.
fn associated(version: u8, id: KeyId, storage_key: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + KEY_ID_BYTES + storage_key.len());
    out.push(version);
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(storage_key.as_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(seed: u8) -> Key {
        Key::from_seed([seed; 32]).unwrap()
    }

    #[test]
    fn a_sealed_value_opens_only_for_its_storage_key() {
        let (key, other) = (key(1), key(2));
        let sealed = seal(&key, "/a", b"hello").unwrap();
        assert_eq!(sealed.len(), 5 + OVERHEAD_BYTES);
        assert_eq!(open(|_| Some(&key), "/a", sealed.clone()).unwrap(), "hello");
        assert_eq!(open(|_| Some(&key), "/b", sealed.clone()), Err(OpenError::Forged(key.id())));
        assert_eq!(open(|_| Some(&other), "/a", sealed.clone()), Err(OpenError::Forged(key.id())));
        assert_eq!(open(|_| None, "/a", sealed.clone()), Err(OpenError::UnknownKey(key.id())));
    }

    #[test]
    fn no_two_sealed_values_are_equal_and_none_contains_its_plaintext() {
        let key = key(1);
        let value = [7; 64];
        let (one, two) = (seal(&key, "/a", &value).unwrap(), seal(&key, "/a", &value).unwrap());
        assert_ne!(one, two);
        assert!(!one.windows(16).any(|window| window == &value[..16]));
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_detected() {
        let key = key(1);
        let sealed = seal(&key, "/a", b"hello").unwrap();
        for bit in 0..sealed.len() * 8 {
            let mut bytes = sealed.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let find = |id| (id == key.id()).then_some(&key);
            assert!(open(find, "/a", bytes.into()).is_err(), "bit {bit}");
        }
        for length in 0..sealed.len() {
            assert!(open(|_| Some(&key), "/a", sealed.slice(..length)).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn an_empty_value_is_a_value() {
        let key = key(1);
        let sealed = seal(&key, "/a", b"").unwrap();
        assert_eq!(open(|_| Some(&key), "/a", sealed.clone()).unwrap(), "");
        assert_eq!(key_id(&sealed), Some(key.id()));
    }

    /// A value of version 1, made by another implementation: "hello" for the storage key "/a".
    const VERSION_1: &str = "01359b3715d6d9671b000102030405060708090a0b0c0d0e0f10111213141516\
                             1718191a1b1c1d1e1fae8da3fded08c2d842328824f34b0d0d9f273bfb42";

    #[test]
    fn a_value_of_version_1_still_opens() {
        let key = key(1);
        let sealed = hex::decode(VERSION_1).unwrap();
        assert_eq!(open(|_| Some(&key), "/a", sealed.clone().into()).unwrap(), "hello");
        for bit in 0..sealed.len() * 8 {
            let mut bytes = sealed.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let find = |id| (id == key.id()).then_some(&key);
            assert!(open(find, "/a", bytes.into()).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn another_process_opens_what_was_sealed() {
        let (one, other) = (key(1), key(1));
        let sealed = seal(&one, "/a", b"hello").unwrap();
        assert_eq!(open(|_| Some(&other), "/a", sealed).unwrap(), "hello");
    }
}
