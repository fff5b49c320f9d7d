//! The keys of tokens: the private one that signs a JWT, and the public ones that are published (JWK, RFC
//! 7517).

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
    ParsedPublicKey,
};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64URL;
use postern_kinds::SecretText;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{ALGORITHM, Claims, MAX_TOKEN_BYTES, TYPE};

/// Bytes of one coordinate of a point on P-256.
const COORDINATE_BYTES: usize = 32;

/// The first byte of a point that is not compressed (SEC 1 section 2.3.3).
const UNCOMPRESSED: u8 = 4;

/// The header of a token, as RFC 7515 names its fields.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    pub(super) alg: String,
    #[serde(default)]
    pub(super) typ: String,
    #[serde(default)]
    pub(super) kid: String,
    /// Extensions that the reader must understand. There are none.
    #[serde(default, skip_serializing)]
    pub(super) crit: Option<serde_json::Value>,
    /// The type of the token's content, if the content is itself a token.
    #[serde(default, skip_serializing)]
    pub(super) cty: Option<serde_json::Value>,
}

/// A key that signs tokens: ECDSA on P-256 with SHA-256. It cannot be printed.
pub struct SigningKey {
    id: String,
    pair: EcdsaKeyPair,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.id)
    }
}

/// A key cannot be made or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidKey;

impl fmt::Display for InvalidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the signing key cannot be made or read")
    }
}

impl std::error::Error for InvalidKey {}

/// Why no token was issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IssueError {
    /// It would have more than the allowed bytes.
    TooLong,
    /// It could not be signed.
    Failed,
}

impl SigningKey {
    /// Makes a new key. The randomness is that of the cryptographic library.
    ///
    /// # Errors
    /// [`InvalidKey`] when the library has none.
    pub fn generate() -> Result<Self, InvalidKey> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING);
        pair.map_err(|_| InvalidKey).and_then(Self::of)
    }

    /// Reads what [`SigningKey::to_pkcs8`] returns.
    ///
    /// # Errors
    /// [`InvalidKey`] for anything else.
    pub fn from_pkcs8(bytes: &[u8]) -> Result<Self, InvalidKey> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, bytes);
        pair.map_err(|_| InvalidKey).and_then(Self::of)
    }

    fn of(pair: EcdsaKeyPair) -> Result<Self, InvalidKey> {
        let public = Jwk::of_point(pair.public_key().as_ref()).ok_or(InvalidKey)?;
        Ok(Self { id: public.kid, pair })
    }

    /// The private key. It must be stored encrypted.
    ///
    /// # Errors
    /// [`InvalidKey`] if the library cannot encode it.
    pub fn to_pkcs8(&self) -> Result<Zeroizing<Vec<u8>>, InvalidKey> {
        let document = self.pair.to_pkcs8v1().map_err(|_| InvalidKey)?;
        Ok(Zeroizing::new(document.as_ref().to_vec()))
    }

    /// Its id (`kid`): the thumbprint of the public key (RFC 7638).
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The public key.
    pub fn public(&self) -> Jwk {
        // It was read once, when the id was made.
        Jwk::of_point(self.pair.public_key().as_ref()).unwrap_or_default()
    }

    /// A signed token of at most 8 KiB, which foreign proxies pass on.
    ///
    /// # Errors
    /// [`IssueError::TooLong`] if the claims are too long.
    pub fn issue(&self, claims: &Claims) -> Result<SecretText, IssueError> {
        self.issue_within(MAX_TOKEN_BYTES, claims)
    }

    /// A signed token of at most `max_bytes`.
    ///
    /// # Errors
    /// [`IssueError::TooLong`] if the claims are too long.
    pub fn issue_within(
        &self,
        max_bytes: usize,
        claims: &Claims,
    ) -> Result<SecretText, IssueError> {
        let header = Header {
            alg: ALGORITHM.to_owned(),
            typ: TYPE.to_owned(),
            kid: self.id.clone(),
            crit: None,
            cty: None,
        };
        let header = serde_json::to_vec(&header).map_err(|_| IssueError::Failed)?;
        let payload = serde_json::to_vec(claims).map_err(|_| IssueError::Failed)?;
        let token = self.sign(&header, &payload).map_err(|_| IssueError::Failed)?;
        if token.len() > max_bytes {
            return Err(IssueError::TooLong);
        }
        Ok(SecretText::from(token))
    }

    /// Signs a token: header, payload and signature in the compact form.
    pub(super) fn sign(&self, header: &[u8], payload: &[u8]) -> Result<String, InvalidKey> {
        let mut token = BASE64URL.encode(header);
        token.push('.');
        BASE64URL.encode_string(payload, &mut token);
        let signature = self.pair.sign(&SystemRandom::new(), token.as_bytes());
        let signature = signature.map_err(|_| InvalidKey)?;
        token.push('.');
        BASE64URL.encode_string(signature, &mut token);
        Ok(token)
    }
}

/// A public key, as RFC 7517 and RFC 7518 section 6.2 write it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jwk {
    /// Its type: `EC`.
    pub kty: String,
    /// Its curve: `P-256`.
    #[serde(default)]
    pub crv: String,
    /// Its use: `sig`.
    #[serde(rename = "use", default)]
    pub usage: String,
    /// Its algorithm: `ES256`.
    #[serde(default)]
    pub alg: String,
    /// Its id.
    #[serde(default)]
    pub kid: String,
    /// The x coordinate, in base64url.
    #[serde(default)]
    pub x: String,
    /// The y coordinate, in base64url.
    #[serde(default)]
    pub y: String,
}

/// Public keys, as RFC 7517 section 5 writes them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JwkSet {
    /// The keys.
    pub keys: Vec<Jwk>,
}

impl Jwk {
    /// The key of a point that is not compressed.
    fn of_point(point: &[u8]) -> Option<Self> {
        let (first, coordinates) = point.split_first()?;
        if *first != UNCOMPRESSED || coordinates.len() != 2 * COORDINATE_BYTES {
            return None;
        }
        let (x, y) = coordinates.split_at(COORDINATE_BYTES);
        let (x, y) = (BASE64URL.encode(x), BASE64URL.encode(y));
        Some(Self {
            kty: "EC".to_owned(),
            crv: "P-256".to_owned(),
            usage: "sig".to_owned(),
            alg: ALGORITHM.to_owned(),
            kid: thumbprint(&x, &y),
            x,
            y,
        })
    }

    /// The key, ready for verification. `None` for a key of another kind, for a key that is no
    /// point on the curve, and for a key with an id other than its own. So no key can take the
    /// place of another key.
    pub(super) fn parsed(&self) -> Option<ParsedPublicKey> {
        let coordinate = |text: &str| BASE64URL.decode(text).ok();
        let point = [vec![UNCOMPRESSED], coordinate(&self.x)?, coordinate(&self.y)?].concat();
        if Self::of_point(&point).as_ref() != Some(self) {
            return None;
        }
        ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).ok()
    }
}

/// The thumbprint of a key: the hash of its required members in the order of their names.
fn thumbprint(x: &str, y: &str) -> String {
    let members = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
    BASE64URL.encode(digest(&SHA256, members.as_bytes()))
}
