//! A provider for the tests of this module: its keys, and tokens with any header and claims.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
    RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaKeyPair,
};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64URL;
use serde_json::{Value, json};

use super::jwks::{Algorithm, KeySet};

/// The time of all tests.
pub(super) const NOW: i64 = 1_800_000_000;
pub(super) const ISSUER: &str = "https://login.example.com/realms/corp";
pub(super) const CLIENT: &str = "postern";

/// A provider with one key of each type.
pub(super) struct Provider {
    rsa: RsaKeyPair,
    p256: EcdsaKeyPair,
    p384: EcdsaKeyPair,
}

impl Provider {
    pub(super) fn new() -> Self {
        Self {
            rsa: RsaKeyPair::generate(KeySize::Rsa2048).unwrap(),
            p256: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap(),
            p384: EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).unwrap(),
        }
    }

    pub(super) fn keys(&self) -> KeySet {
        let keys = json!({ "keys": [self.rsa_key(), self.p256_key(), self.p384_key()] });
        KeySet::parse(keys.to_string().as_bytes()).unwrap()
    }

    pub(super) fn rsa_key(&self) -> Value {
        let [modulus, exponent] = integers(self.rsa.public_key().as_ref());
        json!({ "kty": "RSA", "kid": "rsa", "use": "sig", "n": modulus, "e": exponent })
    }

    pub(super) fn p256_key(&self) -> Value {
        point("p256", "P-256", self.p256.public_key().as_ref())
    }

    pub(super) fn p384_key(&self) -> Value {
        point("p384", "P-384", self.p384.public_key().as_ref())
    }

    /// A token with the signature of an algorithm, regardless of its header.
    pub(super) fn sign(&self, algorithm: Algorithm, header: &Value, claims: &Value) -> String {
        self.sign_text(algorithm, &header.to_string(), &claims.to_string())
    }

    pub(super) fn sign_text(&self, algorithm: Algorithm, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", BASE64URL.encode(header), BASE64URL.encode(claims));
        let random = SystemRandom::new();
        let rsa = |padding| {
            let mut signature = vec![0; self.rsa.public_modulus_len()];
            self.rsa.sign(padding, &random, signed.as_bytes(), &mut signature).unwrap();
            signature
        };
        let signature = match algorithm {
            Algorithm::Rs256 => rsa(&RSA_PKCS1_SHA256),
            Algorithm::Ps256 => rsa(&RSA_PSS_SHA256),
            Algorithm::Es256 => {
                self.p256.sign(&random, signed.as_bytes()).unwrap().as_ref().to_vec()
            }
            Algorithm::Es384 => {
                self.p384.sign(&random, signed.as_bytes()).unwrap().as_ref().to_vec()
            }
        };
        format!("{signed}.{}", BASE64URL.encode(signature))
    }

    /// A token that its provider would issue, with one claim changed; null removes it.
    pub(super) fn token(&self, claim: &str, value: Value) -> String {
        self.sign(Algorithm::Es256, &header(Algorithm::Es256), &with(claims(), claim, value))
    }
}

/// The header that belongs to an algorithm.
pub(super) fn header(algorithm: Algorithm) -> Value {
    let key = match algorithm {
        Algorithm::Rs256 | Algorithm::Ps256 => "rsa",
        Algorithm::Es256 => "p256",
        Algorithm::Es384 => "p384",
    };
    json!({ "alg": algorithm.name(), "kid": key, "typ": "JWT" })
}

/// The claims of an ID token.
pub(super) fn claims() -> Value {
    json!({
        "iss": ISSUER, "aud": CLIENT, "sub": "248289761001", "nonce": "n-0S6",
        "iat": NOW - 5, "exp": NOW + 300, "email": "ada@example.com"
    })
}

/// An object with one field changed; null removes it.
pub(super) fn with(mut object: Value, field: &str, value: Value) -> Value {
    let fields = object.as_object_mut().unwrap();
    if value.is_null() {
        fields.remove(field);
    } else {
        fields.insert(field.to_owned(), value);
    }
    object
}

fn point(id: &str, curve: &str, point: &[u8]) -> Value {
    let (x, y) = point[1..].split_at((point.len() - 1) / 2);
    json!({ "kty": "EC", "kid": id, "crv": curve, "x": BASE64URL.encode(x), "y": BASE64URL.encode(y) })
}

/// The two integers of an RSA public key in DER, in base64url.
fn integers(der: &[u8]) -> [String; 2] {
    let (_, content) = element(der);
    let (rest, modulus) = element(content);
    let (_, exponent) = element(rest);
    [modulus, exponent].map(|integer| {
        let zeros = integer.iter().take_while(|byte| **byte == 0).count();
        BASE64URL.encode(&integer[zeros..])
    })
}

/// The bytes after the first element in DER, and the content of that element.
fn element(der: &[u8]) -> (&[u8], &[u8]) {
    let (length, begin) = match der[1] {
        short @ ..0x80 => (usize::from(short), 2),
        long => {
            let bytes = usize::from(long & 0x7f);
            let length =
                der[2..2 + bytes].iter().fold(0, |sum, byte| sum * 256 + usize::from(*byte));
            (length, 2 + bytes)
        }
    };
    (&der[begin + length..], &der[begin..begin + length])
}
