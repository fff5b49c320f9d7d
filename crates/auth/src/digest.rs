//! What is kept of a key: its HMAC-SHA-256 under a key of the server's own.
//!
//! Generated keys hold 256 random bits, so a plain hash would do for them; keys that clients
//! supply may hold less, and a stolen digest of those must not be open to guessing without the
//! server's key.

use std::fmt;

use aws_lc_rs::hmac;
use zeroize::Zeroizing;

use crate::bearer::BearerToken;

/// Bytes in a digest and in the digester's key.
pub const DIGEST_BYTES: usize = 32;

/// The digest of a key. Not secret, but of no use to anybody else, so `Debug` shows its start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; DIGEST_BYTES]);

impl Digest {
    /// As it stands in a storage key.
    pub fn to_hex(self) -> String {
        hex::encode(self.0)
    }

    /// Reads what [`Digest::to_hex`] wrote.
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

/// Makes digests; holds the server's key for them.
pub struct Digester(hmac::Key);

impl Digester {
    /// From the server's key.
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
