//! The digest of an access key: its HMAC-SHA-256 under a secret of the server. Only this is stored.
//!
//! Generated keys have 256 random bits, so a plain hash is enough for them. Keys that clients supply
//! may have fewer. Without the server's secret, they cannot be guessed from a stolen digest.

use std::fmt;

use aws_lc_rs::hmac;
use zeroize::Zeroizing;

use crate::bearer::BearerToken;

/// Length of a digest and of the digester's secret, in bytes.
pub const DIGEST_BYTES: usize = 32;

/// The digest of a key. It is not secret. `Debug` prints only its first bytes, which identify it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; DIGEST_BYTES]);

impl Digest {
    /// The digest in hexadecimal, as in a storage key.
    pub fn to_hex(self) -> String {
        hex::encode(self.0)
    }

    /// Parses what [`Digest::to_hex`] returns; `None` for anything else.
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; DIGEST_BYTES];
        hex::decode_to_slice(text, &mut bytes).ok().map(|()| Self(bytes))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({}…)", hex::encode(&self.0[..4]))
    }
}

/// Computes digests with the server's secret for them.
pub struct Digester(hmac::Key);

impl Digester {
    /// A digester with the server's secret.
    pub fn new(key: &Zeroizing<[u8; DIGEST_BYTES]>) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key.as_slice()))
    }

    /// The digest of a credential.
    pub fn digest(&self, token: &BearerToken) -> Digest {
        let tag = hmac::sign(&self.0, token.expose().as_bytes());
        let mut bytes = [0; DIGEST_BYTES];
        bytes.copy_from_slice(tag.as_ref());
        Digest(bytes)
    }
}

impl Digester {
    /// A secret key for another purpose, the same on all servers on a store. The purpose has a blank, so it is no
    /// credential, and the key is no digest that is stored.
    pub fn derived_key(&self, purpose: &'static str) -> [u8; DIGEST_BYTES] {
        debug_assert!(purpose.contains(' '), "a purpose is no credential");
        let mut key = [0; DIGEST_BYTES];
        key.copy_from_slice(hmac::sign(&self.0, purpose.as_bytes()).as_ref());
        key
    }
}

impl fmt::Debug for Digester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digester(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_differ_by_key_and_by_token() {
        let one = Digester::new(&Zeroizing::new([1; 32]));
        let two = Digester::new(&Zeroizing::new([2; 32]));
        let token = |text: &str| BearerToken::of_key(&text.to_owned().into());
        assert_eq!(one.digest(&token("a")), one.digest(&token("a")));
        assert_ne!(one.digest(&token("a")), one.digest(&token("b")));
        assert_ne!(one.digest(&token("a")), two.digest(&token("a")));
    }

    #[test]
    fn hex_round_trip() {
        let digest = Digester::new(&Zeroizing::new([7; 32]))
            .digest(&BearerToken::of_key(&"x".to_owned().into()));
        assert_eq!(Digest::from_hex(&digest.to_hex()), Some(digest));
        assert_eq!(Digest::from_hex("zz"), None);
    }
}
