//! The bytes of a sealed value: sealing and opening. Which key to use is up to the keyring, where the
//! bytes are stored up to the store.
//!
//! A sealed value is
//!
//! ```text
//! version (1) │ key id (8) │ salt (32) │ ciphertext │ tag (16)
//! ```
//!
//! The salt is random and new for each write. Together with the seed it gives a key that is used for
//! this one value: HKDF-SHA256(seed, salt, purpose and key id). That is why the nonce of AES-256-GCM
//! can be zero. The cipher demands that no nonce is used twice *with one key*; here no key is used
//! twice, and with 256 random bits for each write no number of writes makes a repetition likely. A
//! random 96-bit nonce with the seed itself as the key would allow only about 2³² writes.
//!
//! Authenticated with the value, but not stored again: version, key id, and the storage key. So a
//! sealed value that is moved to another storage key does not open there.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{self, HKDF_SHA256};
use aws_lc_rs::rand;
use bytes::{Buf, Bytes, BytesMut};
use zeroize::Zeroizing;

use super::keyring::{HkdfLength, KEY_ID_BYTES, Key, KeyId};
use crate::limits;

/// The version of the format. There is only one.
const VERSION: u8 = 1;
const SALT_BYTES: usize = 32;
const TAG_BYTES: usize = 16;
const HEADER_BYTES: usize = 1 + KEY_ID_BYTES + SALT_BYTES;
/// The bytes that sealing adds to a value.
const OVERHEAD_BYTES: usize = HEADER_BYTES + TAG_BYTES;
const _: () = assert!(OVERHEAD_BYTES <= limits::ENVELOPE_BYTES, "engines must take sealed values");
/// Separates the keys that are derived for values from keys for any other purpose.
const PURPOSE: &[u8] = b"postern/seal/value/v1";

/// Why a sealed value does not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OpenError {
    /// It does not have the format of a sealed value.
    NotSealed,
    /// The keyring does not hold its key.
    UnknownKey(KeyId),
    /// Authentication failed: it was changed, or sealed for another storage key or with another seed.
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

/// Seals a value for a storage key.
pub(super) fn seal(key: &Key, storage_key: &str, value: &[u8]) -> Result<Bytes, Unspecified> {
    let mut salt = [0; SALT_BYTES];
    rand::fill(&mut salt)?;
    let mut sealed = Vec::with_capacity(value.len() + OVERHEAD_BYTES);
    sealed.push(VERSION);
    sealed.extend_from_slice(key.id().as_bytes());
    sealed.extend_from_slice(&salt);
    sealed.extend_from_slice(value);
    let aad = Aad::from(associated(key.id(), storage_key));
    let (_, body) = sealed.split_at_mut(HEADER_BYTES);
    let tag = cipher(key, &salt)?.seal_in_place_separate_tag(zero_nonce(), aad, body)?;
    sealed.extend_from_slice(tag.as_ref());
    Ok(Bytes::from(sealed))
}

/// Opens a sealed value. `find` returns the key of an id. The value is decrypted in place when nothing
/// else refers to the sealed bytes.
pub(super) fn open<'k>(
    find: impl FnOnce(KeyId) -> Option<&'k Key>,
    storage_key: &str,
    sealed: Bytes,
) -> Result<Bytes, OpenError> {
    let (id, salt, _) = parse(&sealed).ok_or(OpenError::NotSealed)?;
    let key = find(id).ok_or(OpenError::UnknownKey(id))?;
    let cipher = cipher(key, salt).map_err(|Unspecified| OpenError::Forged(id))?;
    let aad = Aad::from(associated(id, storage_key));
    let mut value = sealed.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&*shared));
    value.advance(HEADER_BYTES);
    let length = cipher
        .open_in_place(zero_nonce(), aad, &mut value)
        .map_err(|Unspecified| OpenError::Forged(id))?
        .len();
    value.truncate(length);
    Ok(value.freeze())
}

/// The id of the key with which a value is sealed. Checks only the format.
pub(super) fn key_id(sealed: &[u8]) -> Option<KeyId> {
    parse(sealed).map(|(id, ..)| id)
}

fn parse(sealed: &[u8]) -> Option<(KeyId, &[u8], &[u8])> {
    let (version, rest) = sealed.split_first()?;
    let (id, rest) = rest.split_first_chunk::<KEY_ID_BYTES>()?;
    let (salt, body) = rest.split_at_checked(SALT_BYTES)?;
    (*version == VERSION && body.len() >= TAG_BYTES).then_some((KeyId::new(*id), salt, body))
}

fn cipher(key: &Key, salt: &[u8]) -> Result<LessSafeKey, Unspecified> {
    let mut bytes = Zeroizing::new([0; 32]);
    hkdf::Salt::new(HKDF_SHA256, salt)
        .extract(key.seed())
        .expand(&[PURPOSE, key.id().as_bytes()], HkdfLength(bytes.len()))?
        .fill(bytes.as_mut_slice())?;
    UnboundKey::new(&AES_256_GCM, bytes.as_slice()).map(LessSafeKey::new)
}

fn associated(id: KeyId, storage_key: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + KEY_ID_BYTES + storage_key.len());
    out.push(VERSION);
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(storage_key.as_bytes());
    out
}

/// See the top of this file for why it may be zero.
fn zero_nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
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
}
