//! The keys that sign endpoint tokens: which keys exist, which of them signs, and when the next one takes over
//! (`docs/reference/endpoint-tokens.md#signing-keys`).
//!
//! They are one value in the store, encrypted at rest like all values. A change has the value that was read as its
//! condition, and each server follows the store, so several servers agree. `schedule` has pure functions of the value
//! and the time, and `stored` reads and writes it in the store. A controller rotates the keys. An action serves
//! requests for tokens.

mod schedule;
mod stored;

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use postern_auth::endpoint_token::{JwkSet, SigningKey};
use postern_kinds::SecretText;
use postern_meta::decode::decode_typed;
use postern_meta::time::Timestamp;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

pub use self::schedule::Rotation;
pub use self::stored::{drop_key, keep_rotating, prepare, rotate};

/// The operator's settings for endpoint tokens.
#[derive(Clone, Debug)]
pub struct TokenPolicy {
    /// The issuer: the URL under which clients reach this server.
    pub issuer: String,
    /// The maximum lifetime of a token.
    pub max_ttl_seconds: i64,
    /// The time that an agent works without contact to this server. A new key is published this long before it signs.
    pub max_offline_seconds: i64,
    /// The time that a key signs before the next key takes over.
    pub rotation_seconds: i64,
    /// The groups of callers that agents forward to their clusters, as the gateway does.
    pub forward_groups: Vec<String>,
}

impl Default for TokenPolicy {
    fn default() -> Self {
        let day = 24 * 3600;
        Self {
            issuer: String::new(),
            max_ttl_seconds: day,
            max_offline_seconds: day,
            rotation_seconds: 30 * day,
            forward_groups: Vec::new(),
        }
    }
}

/// A key, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KeyRecord {
    /// Its id.
    pub(crate) kid: String,
    /// The private key: PKCS #8 in base64.
    private_key: SecretText,
    /// The time from which it is published.
    pub(crate) created: Timestamp,
    /// The time from which it signs.
    pub(crate) signs_from: Timestamp,
    /// The time until which it signs; `None` if no next key exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) signs_until: Option<Timestamp>,
    /// The time until which it is published. By then, the last token that it signed has expired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dropped_after: Option<Timestamp>,
}

/// All keys as they are stored, in the order in which they sign.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyList {
    pub(crate) keys: Vec<KeyRecord>,
}

impl KeyRecord {
    /// Makes a new key.
    fn generate(now: Timestamp, signs_from: Timestamp) -> anyhow::Result<Self> {
        let key = SigningKey::generate()?;
        let private_key = SecretText::from(BASE64_STANDARD.encode(key.to_pkcs8()?.as_slice()));
        Ok(Self {
            kid: key.id().to_owned(),
            private_key,
            created: now,
            signs_from,
            signs_until: None,
            dropped_after: None,
        })
    }

    /// The key itself; `None` if it cannot be decoded.
    fn read(&self) -> Option<SigningKey> {
        let bytes = Zeroizing::new(BASE64_STANDARD.decode(self.private_key.expose()).ok()?);
        SigningKey::from_pkcs8(&bytes).ok().filter(|key| key.id() == self.kid)
    }
}

/// All keys, ready to sign.
#[derive(Debug, Default)]
pub struct SigningKeys {
    list: KeyList,
    keys: Vec<Arc<SigningKey>>,
    public: JwkSet,
    document: Bytes,
}

impl SigningKeys {
    /// Reads the stored value. An unreadable key is left out. Without any key, no token is issued.
    pub(crate) fn read(value: &[u8]) -> Self {
        let Ok(list) = decode_typed::<KeyList>(value) else {
            tracing::error!(
                "the signing keys of endpoint tokens cannot be decoded: run postern admin rotate-signing-key --force"
            );
            return Self::default();
        };
        let (mut records, mut keys) = (Vec::new(), Vec::new());
        for record in list.keys {
            if let Some(key) = record.read() {
                keys.push(Arc::new(key));
                records.push(record);
            } else {
                tracing::error!(
                    kid = record.kid,
                    "a signing key of endpoint tokens cannot be decoded and is not used"
                );
            }
        }
        let public = JwkSet { keys: keys.iter().map(|key| key.public()).collect() };
        let document = serde_json::to_vec(&public).map(Bytes::from).unwrap_or_default();
        Self { list: KeyList { keys: records }, keys, public, document }
    }

    /// The key that signs at a time.
    pub fn signer(&self, now: Timestamp) -> Option<&Arc<SigningKey>> {
        let kid = &self.list.signer(now)?.kid;
        self.keys.iter().find(|key| key.id() == kid)
    }

    /// The public keys.
    pub fn public(&self) -> &JwkSet {
        &self.public
    }

    /// The public keys as a document (RFC 7517 section 5).
    pub fn document(&self) -> &Bytes {
        &self.document
    }
}
