//! The at-rest keys, and the text format of a keyring. Reading and writing the
//! file is in `keyring_file`.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::aead::LessSafeKey;
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{self, HKDF_SHA256};
use aws_lc_rs::rand;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use zeroize::Zeroizing;

use super::derived::{self, DerivedKeys, Salt};
use super::key_id::{HkdfLength, KEY_ID_BYTES, KEYS, KeyId, KeyringError};

const SEED_BYTES: usize = 32;
/// Separates the derivation of ids from the derivation of keys.
const ID_PURPOSE: &[u8] = b"postern/seal/key-id/v1";

/// A seed with its id. The seed is zeroed when this is dropped.
#[derive(Clone)]
pub(super) struct Key {
    id: KeyId,
    seed: Zeroizing<[u8; SEED_BYTES]>,
    derived: Arc<DerivedKeys>,
}

impl Key {
    /// The key of a seed that is not secret.
    #[cfg(test)]
    pub(super) fn from_seed(seed: [u8; SEED_BYTES]) -> Result<Self, Unspecified> {
        Self::from_zeroizing(Zeroizing::new(seed))
    }

    fn from_zeroizing(seed: Zeroizing<[u8; SEED_BYTES]>) -> Result<Self, Unspecified> {
        let mut id = [0; KEY_ID_BYTES];
        hkdf::Salt::new(HKDF_SHA256, &[])
            .extract(seed.as_slice())
            .expand(&[ID_PURPOSE], HkdfLength(id.len()))?
            .fill(&mut id)?;
        Ok(Self { id: KeyId::new(id), seed, derived: Arc::default() })
    }

    /// The key of a seed that was stored with an id.
    ///
    /// # Errors
    /// The reason why the seed is invalid. The text has no part of the seed.
    pub(super) fn of_id(id: KeyId, bytes: &[u8]) -> Result<Self, &'static str> {
        if bytes.len() != SEED_BYTES {
            return Err("a seed of another length");
        }
        let mut seed = Zeroizing::new([0; SEED_BYTES]);
        seed.copy_from_slice(bytes);
        let key = Self::from_zeroizing(seed).map_err(|_| "a seed that cannot be used")?;
        if key.id == id { Ok(key) } else { Err("another seed") }
    }

    pub(super) fn generate() -> Result<Self, Unspecified> {
        let mut seed = Zeroizing::new([0; SEED_BYTES]);
        rand::fill(seed.as_mut_slice())?;
        Self::from_zeroizing(seed)
    }

    /// The id of the key.
    pub(super) fn id(&self) -> KeyId {
        self.id
    }

    /// The cipher for one more value, and its salt.
    pub(super) fn cipher_for_sealing(&self) -> Result<(Salt, Arc<LessSafeKey>), Unspecified> {
        self.derived.for_sealing(self.id, self.seed())
    }

    /// The cipher of the values with this salt.
    pub(super) fn cipher_for_opening(&self, salt: &Salt) -> Result<Arc<LessSafeKey>, Unspecified> {
        self.derived.for_opening(self.id, self.seed(), salt)
    }

    /// A cipher that is not kept, for a salt and a purpose.
    pub(super) fn derive(&self, salt: &[u8], purpose: &[u8]) -> Result<LessSafeKey, Unspecified> {
        derived::derive(self.id, self.seed(), salt, purpose)
    }

    /// The seed, which is secret.
    pub(super) fn seed(&self) -> &[u8] {
        self.seed.as_slice()
    }
}

/// The at-rest keys. New values are encrypted with the current one; each value is decrypted with
/// the key that encrypted it.
#[derive(Clone)]
pub struct Keyring {
    /// The current key.
    current: Key,
    /// The others, oldest first.
    old: Vec<Key>,
}

impl fmt::Debug for Keyring {
    /// Prints ids only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let old: Vec<_> = self.old.iter().map(Key::id).collect();
        f.debug_struct("Keyring")
            .field("current", &self.current.id)
            .field("old", &old)
            .finish_non_exhaustive()
    }
}

impl Keyring {
    /// A keyring with one new key, in memory only.
    pub fn generate() -> Result<Self, KeyringError> {
        Ok(Self { current: Key::generate()?, old: Vec::new() })
    }

    /// The keyring of these keys, oldest first. The last one is the current key. `None` if there are none.
    pub(super) fn of_keys(mut keys: Vec<Key>) -> Option<Self> {
        let current = keys.pop()?;
        Some(Self { current, old: keys })
    }

    /// The id of the key for new values.
    pub fn current(&self) -> KeyId {
        self.current.id
    }

    /// The ids of all keys, oldest first; the current one is the last.
    pub fn ids(&self) -> Vec<KeyId> {
        self.keys().map(Key::id).collect()
    }

    /// Whether the keyring holds a key.
    pub fn holds(&self, id: KeyId) -> bool {
        self.find(id).is_some()
    }

    /// A keyring with the same keys and a new one, which is the current key.
    pub fn rotated(&self) -> Result<Self, KeyringError> {
        self.check_not_full()?;
        Ok(Self { current: Key::generate()?, old: self.keys().cloned().collect() })
    }

    /// Checks that there is room for one more key.
    pub(super) fn check_not_full(&self) -> Result<(), KeyringError> {
        if self.old.len() + 1 >= KEYS { Err(KeyringError::Full) } else { Ok(()) }
    }

    /// A keyring with the same keys, of which this one is the current key; `None` if it is not among them.
    pub(super) fn with_current(&self, id: KeyId) -> Option<Self> {
        let current = self.find(id)?.clone();
        Some(Self { current, old: self.keys().filter(|key| key.id != id).cloned().collect() })
    }

    /// A keyring without one key, which must not be the current one.
    pub fn without(&self, id: KeyId) -> Result<Self, KeyringError> {
        if id == self.current.id {
            return Err(KeyringError::Current(id));
        }
        if !self.holds(id) {
            return Err(KeyringError::NoSuchKey(id));
        }
        let old = self.old.iter().filter(|key| key.id != id).cloned().collect();
        Ok(Self { current: self.current.clone(), old })
    }

    pub(super) fn current_key(&self) -> &Key {
        &self.current
    }

    pub(super) fn find(&self, id: KeyId) -> Option<&Key> {
        self.keys().find(|key| key.id == id)
    }

    fn keys(&self) -> impl Iterator<Item = &Key> {
        self.old.iter().chain([&self.current])
    }

    /// The text of the file, which is secret.
    pub fn to_text(&self) -> Zeroizing<String> {
        // Allocated at its full length: growing it would leave copies of seeds in memory.
        let mut text = Zeroizing::new(String::with_capacity(1024 + 128 * (self.old.len() + 1)));
        text.push_str(
            "# Postern's at-rest keys. This file and the database together give access to all data.\n\
             # Without this file the data is lost. Keep a copy, but not together with the database's.\n\
             # One line for each key: its id, its seed. New values are encrypted with the current key.\n\
             version 1\n",
        );
        for key in self.keys() {
            let seed = Zeroizing::new(BASE64.encode(key.seed()));
            for part in ["key ", &key.id.to_string(), " ", &seed, "\n"] {
                text.push_str(part);
            }
        }
        for part in ["current ", &self.current.id.to_string(), "\n"] {
            text.push_str(part);
        }
        text
    }

    /// Parses the text of the file. Refuses any line that it does not understand.
    pub(super) fn from_text(text: &str) -> Result<Self, KeyringError> {
        let mut parsed = Parsed::default();
        for (number, line) in (1..).zip(text.lines()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let understood = match words.as_slice() {
                [] => Ok(()),
                [word, ..] if word.starts_with('#') => Ok(()),
                ["version", "1"] => parsed.set_version(),
                ["key", id, seed] => parsed.add(id, seed),
                ["current", id] => parsed.set_current(id),
                _ => Err("not understood"),
            };
            understood.map_err(|why| malformed(&format!("line {number}: {why}")))?;
        }
        parsed.finish()
    }
}

fn malformed(why: &str) -> KeyringError {
    KeyringError::Malformed(why.to_owned())
}

#[derive(Default)]
struct Parsed {
    version: bool,
    keys: Vec<Key>,
    current: Option<KeyId>,
}

impl Parsed {
    fn set_version(&mut self) -> Result<(), &'static str> {
        if std::mem::replace(&mut self.version, true) {
            return Err("a second version");
        }
        Ok(())
    }

    fn add(&mut self, id: &str, seed: &str) -> Result<(), &'static str> {
        let id: KeyId = id.parse().map_err(|_| "a key id is 16 hexadecimal digits")?;
        let decoded =
            BASE64.decode(seed).map(Zeroizing::new).map_err(|_| "the seed is no base64")?;
        let mut seed = Zeroizing::new([0; SEED_BYTES]);
        if decoded.len() != SEED_BYTES {
            return Err("a seed has 32 bytes");
        }
        seed.copy_from_slice(&decoded);
        let key = Key::from_zeroizing(seed).map_err(|_| "the cryptographic library failed")?;
        if key.id != id {
            return Err("the seed does not belong to the id");
        }
        if self.keys.len() >= KEYS {
            return Err("too many keys");
        }
        if self.keys.iter().any(|other| other.id == id) {
            return Err("the same key twice");
        }
        self.keys.push(key);
        Ok(())
    }

    fn set_current(&mut self, id: &str) -> Result<(), &'static str> {
        let id = id.parse().map_err(|_| "a key id is 16 hexadecimal digits")?;
        if self.current.replace(id).is_some() {
            return Err("a second current key");
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Keyring, KeyringError> {
        if !self.version {
            return Err(malformed("it does not say \"version 1\""));
        }
        let id = self.current.ok_or_else(|| malformed("it names no current key"))?;
        let at = self.keys.iter().position(|key| key.id == id);
        let at = at.ok_or_else(|| malformed("the current key is not among the keys"))?;
        Ok(Keyring { current: self.keys.remove(at), old: self.keys })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keyring() -> Keyring {
        Keyring::generate().unwrap().rotated().unwrap().rotated().unwrap()
    }

    #[test]
    fn its_text_is_read_back() {
        let keyring = keyring();
        let read = Keyring::from_text(&keyring.to_text()).unwrap();
        assert_eq!(read.ids(), keyring.ids());
        assert_eq!(read.current(), keyring.current());
        for id in keyring.ids() {
            assert_eq!(read.find(id).unwrap().seed(), keyring.find(id).unwrap().seed());
        }
    }

    #[test]
    fn rotation_keeps_the_old_keys_and_the_current_one_stays() {
        let keyring = keyring();
        let [first, _, last] = keyring.ids().try_into().unwrap();
        assert_eq!(keyring.current(), last);
        assert!(matches!(keyring.without(last), Err(KeyringError::Current(_))));
        let fewer = keyring.without(first).unwrap();
        assert!(!fewer.holds(first) && fewer.holds(last));
        assert!(matches!(fewer.without(first), Err(KeyringError::NoSuchKey(_))));
    }

    #[test]
    fn debug_prints_no_seed() {
        let keyring = keyring();
        let printed = format!("{keyring:?}");
        for key in keyring.keys() {
            assert!(!printed.contains(&BASE64.encode(key.seed())));
            assert!(!printed.contains(&hex::encode(key.seed())));
        }
    }

    #[test]
    fn a_text_that_is_not_fully_understood_is_refused() {
        let text = keyring().to_text().to_string();
        let key_line = text.lines().find(|line| line.starts_with("key ")).unwrap().to_owned();
        let current = text.lines().last().unwrap().to_owned();
        for (what, bad) in [
            ("no version", text.replace("version 1\n", "")),
            ("another version", text.replace("version 1\n", "version 2\n")),
            ("no current key", text.replace(&current, "")),
            ("two current keys", format!("{text}{current}\n")),
            ("a key twice", format!("{text}{key_line}\n")),
            ("something else", format!("{text}colour blue\n")),
            ("an unknown current key", text.replace(&current, "current 0011223344556677")),
            (
                "another's seed",
                text.replace(key_line.split(' ').nth(1).unwrap(), "0011223344556677"),
            ),
            ("no seed", text.replace(&key_line, "key 0011223344556677")),
            ("nothing", String::new()),
        ] {
            let error = Keyring::from_text(&bad).unwrap_err();
            assert!(matches!(error, KeyringError::Malformed(_)), "{what}: {error}");
        }
    }
}
