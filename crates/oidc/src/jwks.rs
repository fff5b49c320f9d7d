//! The public keys of a provider (JWK Set, RFC 7517), and the signatures that they verify.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, RSA_PKCS1_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64URL;
use postern_meta::decode::{Format, decode};
use serde_json::Value;

/// The path of the keys of a Kubernetes cluster.
pub const OF_CLUSTER: &str = "/openid/v1/jwks";

/// Bytes of a document of keys.
pub const MAX_BYTES: usize = 512 * 1024;

/// Keys in a document.
pub const MAX_KEYS: usize = 100;

/// Bits of an RSA key.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// The first byte of a point that is not compressed (SEC 1 section 2.3.3).
const UNCOMPRESSED: u8 = 4;

/// The algorithms that are accepted. Neither `none` nor one with a shared secret is among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// RSA with PKCS #1 v1.5 and SHA-256.
    Rs256,
    /// RSA-PSS with SHA-256.
    Ps256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Rs256, Self::Ps256, Self::Es256, Self::Es384];

    /// Its name in a header (RFC 7518 section 3.1).
    pub fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Ps256 => "PS256",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
        }
    }

    /// The algorithm of a name; `None` for one that is not accepted.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }
}

/// The public keys of a provider that can verify a signature.
#[derive(Clone, Debug, Default)]
pub struct KeySet {
    keys: Vec<PublicKey>,
}

#[derive(Clone)]
struct PublicKey {
    /// Its `kid`.
    id: Option<String>,
    /// The only algorithm that it is for, if it names one.
    algorithm: Option<Algorithm>,
    material: Material,
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicKey").field("id", &self.id).finish_non_exhaustive()
    }
}

#[derive(Clone)]
enum Material {
    Rsa {
        /// Big-endian, without zeros in front.
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// A point that is not compressed.
    P256(Vec<u8>),
    P384(Vec<u8>),
}

/// Why a document of keys is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeysRefused {
    /// It has more than [`MAX_BYTES`].
    TooLarge,
    /// It is no JWK Set, or has a field twice.
    Malformed,
    /// It has more than [`MAX_KEYS`].
    TooMany,
    /// None of its keys can be used.
    NoKey,
}

impl fmt::Display for KeysRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "the key set has more than 512 KiB",
            Self::Malformed => "the key set is not a JSON object with a list of keys",
            Self::TooMany => "the key set has more than 100 keys",
            Self::NoKey => {
                "the key set has no signing key for RS256 or PS256 (2048 to 8192 bits), ES256 or ES384"
            }
        })
    }
}

impl std::error::Error for KeysRefused {}

/// Why no key verifies a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureRefused {
    /// No key has this `kid` and is for this algorithm. The provider may have published a new one.
    UnknownKey,
    /// The token has no `kid`, and several keys could be meant.
    Ambiguous,
    /// The signature is wrong.
    Wrong,
}

impl KeySet {
    /// Reads a document. Keys that are not for signatures, and those of other types and sizes, are left out.
    ///
    /// # Errors
    /// See [`KeysRefused`].
    pub fn parse(bytes: &[u8]) -> Result<Self, KeysRefused> {
        if bytes.len() > MAX_BYTES {
            return Err(KeysRefused::TooLarge);
        }
        let decoded = decode(bytes, Format::Json).map_err(|_| KeysRefused::Malformed)?;
        if !decoded.duplicates.is_empty() {
            return Err(KeysRefused::Malformed);
        }
        let keys = decoded.value.get("keys").and_then(Value::as_array);
        let keys = keys.ok_or(KeysRefused::Malformed)?;
        if keys.len() > MAX_KEYS {
            return Err(KeysRefused::TooMany);
        }
        let keys: Vec<PublicKey> = keys.iter().filter_map(PublicKey::of).collect();
        if keys.is_empty() { Err(KeysRefused::NoKey) } else { Ok(Self { keys }) }
    }

    /// The number of keys that can be used.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The keys of this set with one of these thumbprints.
    #[must_use]
    pub fn only(&self, thumbprints: &[String]) -> Self {
        let keys = self.keys.iter().filter(|key| thumbprints.contains(&key.thumbprint()));
        Self { keys: keys.cloned().collect() }
    }

    /// Verifies a signature with the keys that have this `kid`, and that are for this algorithm.
    ///
    /// # Errors
    /// See [`SignatureRefused`].
    pub fn verify(
        &self,
        algorithm: Algorithm,
        key_id: Option<&str>,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), SignatureRefused> {
        let fits = |key: &&PublicKey| {
            key.is_for(algorithm) && key_id.is_none_or(|id| key.id.as_deref() == Some(id))
        };
        let mut fitting = self.keys.iter().filter(fits).peekable();
        if fitting.peek().is_none() {
            return Err(SignatureRefused::UnknownKey);
        }
        if key_id.is_none() && self.keys.iter().filter(fits).count() > 1 {
            return Err(SignatureRefused::Ambiguous);
        }
        let is_verified = fitting.any(|key| key.verifies(algorithm, message, signature));
        if is_verified { Ok(()) } else { Err(SignatureRefused::Wrong) }
    }
}

impl PublicKey {
    /// A key of a document, if it can be used.
    fn of(jwk: &Value) -> Option<Self> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        if jwk.get("use").is_some() && text("use") != Some("sig") {
            return None;
        }
        if let Some(operations) = jwk.get("key_ops") {
            let mut operations = operations.as_array()?.iter();
            operations.find(|operation| operation.as_str() == Some("verify"))?;
        }
        let algorithm = match jwk.get("alg") {
            None => None,
            Some(name) => Some(Algorithm::named(name.as_str()?)?),
        };
        let number = |name: &str| -> Option<Vec<u8>> {
            let bytes = BASE64URL.decode(text(name)?).ok()?;
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            Some(bytes.get(zeros..)?.to_vec())
        };
        let material = match (text("kty")?, text("crv")) {
            ("RSA", _) => {
                let (modulus, exponent) = (number("n")?, number("e")?);
                let unused = modulus.first()?.leading_zeros() as usize;
                RSA_BITS.contains(&(modulus.len() * 8 - unused)).then_some(())?;
                Material::Rsa { modulus, exponent }
            }
            ("EC", Some("P-256")) => Material::P256(point(jwk, 32)?),
            ("EC", Some("P-384")) => Material::P384(point(jwk, 48)?),
            _ => return None,
        };
        let key = Self { id: text("kid").map(str::to_owned), algorithm, material };
        Algorithm::ALL.into_iter().any(|algorithm| key.is_for(algorithm)).then_some(key)
    }

    /// Its SHA-256 thumbprint (RFC 7638), in base64url.
    fn thumbprint(&self) -> String {
        let members = match &self.material {
            Material::Rsa { modulus, exponent } => {
                let [n, e] = [modulus, exponent].map(|number| BASE64URL.encode(number));
                format!(r#"{{"e":"{e}","kty":"RSA","n":"{n}"}}"#)
            }
            Material::P256(point) | Material::P384(point) => {
                let curve = if point.len() == 65 { "P-256" } else { "P-384" };
                let (x, y) = point[1..].split_at(point.len() / 2);
                let [x, y] = [x, y].map(|coordinate| BASE64URL.encode(coordinate));
                format!(r#"{{"crv":"{curve}","kty":"EC","x":"{x}","y":"{y}"}}"#)
            }
        };
        BASE64URL.encode(digest(&SHA256, members.as_bytes()))
    }

    /// Whether the key can verify signatures of an algorithm: by its type, and by the algorithm
    /// that it names.
    fn is_for(&self, algorithm: Algorithm) -> bool {
        let has_type = match self.material {
            Material::Rsa { .. } => matches!(algorithm, Algorithm::Rs256 | Algorithm::Ps256),
            Material::P256(_) => algorithm == Algorithm::Es256,
            Material::P384(_) => algorithm == Algorithm::Es384,
        };
        has_type && self.algorithm.is_none_or(|only| only == algorithm)
    }

    fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        match &self.material {
            Material::Rsa { modulus, exponent } => {
                let parameters = match algorithm {
                    Algorithm::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
                    Algorithm::Ps256 => &RSA_PSS_2048_8192_SHA256,
                    Algorithm::Es256 | Algorithm::Es384 => return false,
                };
                let key = RsaPublicKeyComponents { n: modulus, e: exponent };
                key.verify(parameters, message, signature).is_ok()
            }
            Material::P256(point) => {
                let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
                key.verify(message, signature).is_ok()
            }
            Material::P384(point) => {
                let key = UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, point);
                key.verify(message, signature).is_ok()
            }
        }
    }
}

/// The point of an elliptic curve key with coordinates of this many bytes.
fn point(jwk: &Value, coordinate_bytes: usize) -> Option<Vec<u8>> {
    let mut point = vec![UNCOMPRESSED];
    for name in ["x", "y"] {
        let coordinate = BASE64URL.decode(jwk.get(name)?.as_str()?).ok()?;
        (coordinate.len() == coordinate_bytes).then_some(())?;
        point.extend(coordinate);
    }
    Some(point)
}
