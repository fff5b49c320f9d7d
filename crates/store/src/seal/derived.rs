//! The ciphers of one at-rest key. Each is derived from the seed and a salt, and encrypts a limited
//! number of values.
//!
//! A derivation costs more than the encryption of a usual value. So a process encrypts many values
//! with one derived key, and keeps the derived keys with which it has decrypted values.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{self, HKDF_SHA256};
use aws_lc_rs::rand;
use parking_lot::{Mutex, RwLock};
use zeroize::Zeroizing;

use super::key_id::{HkdfLength, KeyId};

/// Bytes of the salt of a derived key. With 160 random bits, no number of processes makes a repetition likely.
pub(super) const SALT_BYTES: usize = 20;

/// The number of values that are encrypted with one derived key. Each has a random nonce of 96
/// bits, so two nonces of one key are equal with a probability of at most 2⁻⁶⁵.
const VALUES_PER_SALT: u32 = 1 << 16;

/// The derived keys that are kept for opening. All are dropped when there would be more.
const KEPT: usize = 1024;

/// Separates the keys that are derived for values from keys for any other purpose.
const PURPOSE: &[u8] = b"postern/seal/values/v2";

/// The salt of a derived key.
pub(super) type Salt = [u8; SALT_BYTES];

/// The derived keys of one at-rest key.
#[derive(Default)]
pub(super) struct DerivedKeys {
    sealing: Mutex<Option<Sealing>>,
    opening: RwLock<HashMap<Salt, Arc<LessSafeKey>>>,
}

/// The derived key that encrypts values at present.
struct Sealing {
    salt: Salt,
    cipher: Arc<LessSafeKey>,
    /// The number of values that it may still encrypt.
    values_left: u32,
}

impl fmt::Debug for DerivedKeys {
    /// Prints no key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DerivedKeys").finish_non_exhaustive()
    }
}

impl DerivedKeys {
    /// The derived key for one more value, and its salt.
    pub(super) fn for_sealing(
        &self,
        id: KeyId,
        seed: &[u8],
    ) -> Result<(Salt, Arc<LessSafeKey>), Unspecified> {
        let mut sealing = self.sealing.lock();
        if let Some(Sealing { salt, cipher, values_left }) = &mut *sealing
            && *values_left > 0
        {
            *values_left -= 1;
            return Ok((*salt, Arc::clone(cipher)));
        }
        let mut salt = [0; SALT_BYTES];
        rand::fill(&mut salt)?;
        let cipher = Arc::new(derive(id, seed, &salt, PURPOSE)?);
        self.keep(salt, &cipher);
        let values_left = VALUES_PER_SALT - 1;
        *sealing = Some(Sealing { salt, cipher: Arc::clone(&cipher), values_left });
        Ok((salt, cipher))
    }

    /// The derived key of a salt.
    pub(super) fn for_opening(
        &self,
        id: KeyId,
        seed: &[u8],
        salt: &Salt,
    ) -> Result<Arc<LessSafeKey>, Unspecified> {
        if let Some(cipher) = self.opening.read().get(salt) {
            return Ok(Arc::clone(cipher));
        }
        let cipher = Arc::new(derive(id, seed, salt, PURPOSE)?);
        self.keep(*salt, &cipher);
        Ok(cipher)
    }

    fn keep(&self, salt: Salt, cipher: &Arc<LessSafeKey>) {
        let mut opening = self.opening.write();
        if opening.len() >= KEPT {
            opening.clear();
        }
        opening.insert(salt, Arc::clone(cipher));
    }
}

/// The cipher for a salt and a purpose, from the seed of an at-rest key.
pub(super) fn derive(
    id: KeyId,
    seed: &[u8],
    salt: &[u8],
    purpose: &[u8],
) -> Result<LessSafeKey, Unspecified> {
    let mut bytes = Zeroizing::new([0; 32]);
    hkdf::Salt::new(HKDF_SHA256, salt)
        .extract(seed)
        .expand(&[purpose, id.as_bytes()], HkdfLength(bytes.len()))?
        .fill(bytes.as_mut_slice())?;
    UnboundKey::new(&AES_256_GCM, bytes.as_slice()).map(LessSafeKey::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: [u8; 32] = [1; 32];

    fn id() -> KeyId {
        KeyId::new([2; 8])
    }

    #[test]
    fn a_derived_key_seals_a_limited_number_of_values() {
        let derived = DerivedKeys::default();
        let salt = || derived.for_sealing(id(), &SEED).unwrap().0;
        let first = salt();
        for _ in 1..VALUES_PER_SALT {
            assert_eq!(salt(), first);
        }
        let second = salt();
        assert_ne!(second, first);
        assert_eq!(salt(), second);
    }

    #[test]
    fn a_new_process_has_another_salt() {
        let salt = || DerivedKeys::default().for_sealing(id(), &SEED).unwrap().0;
        assert_ne!(salt(), salt());
    }

    #[test]
    fn a_limited_number_of_keys_is_kept_for_opening() {
        let derived = DerivedKeys::default();
        for number in 0..=u32::try_from(2 * KEPT).unwrap() {
            let mut salt = [0; SALT_BYTES];
            salt[..4].copy_from_slice(&number.to_be_bytes());
            derived.for_opening(id(), &SEED, &salt).unwrap();
            assert!(derived.opening.read().len() <= KEPT);
        }
    }

    #[test]
    fn debug_prints_no_key() {
        let derived = DerivedKeys::default();
        derived.for_sealing(id(), &SEED).unwrap();
        assert_eq!(format!("{derived:?}"), "DerivedKeys { .. }");
    }
}
