//! The keys that sign endpoint tokens: which keys exist, which of them signs, and when the next one takes
//! over (`docs/reference/endpoint-tokens.md#signing-keys`).
//!
//! They are one value in the store, encrypted at rest as all values are. So several servers agree on them: a
//! change has the value that was read as its condition, and each server follows the store. This module has
//! functions of that value and the time (`schedule`), and reads and writes it in the store (`stored`). A
//! controller decides when keys are rotated. An action serves requests for tokens.

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
    /// The longest life of a token.
    pub max_ttl_seconds: i64,
    /// How long an agent goes on without hearing from this server; a new key is published so long before
    /// it signs.
    pub max_offline_seconds: i64,
    /// How long a key signs before another one takes over.
    pub rotation_seconds: i64,
    /// The groups of callers that agents tell their clusters of: those of the gateway.
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
    /// Since when it is published.
    pub(crate) created: Timestamp,
    /// From when on it signs.
    pub(crate) signs_from: Timestamp,
    /// Until when it signs; `None` as long as no other one is to take over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) signs_until: Option<Timestamp>,
    /// Until when it is published: the last token that it has signed has expired by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dropped_after: Option<Timestamp>,
}

/// All keys, as they are stored: in the order in which they sign.
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

    /// The key itself; `None` when it cannot be read.
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
    /// Reads what is stored. A key that cannot be read is left out; without any, no token is issued.
    pub(crate) fn read(value: &[u8]) -> Self {
        let Ok(list) = decode_typed::<KeyList>(value) else {
            tracing::error!("the signing keys of endpoint tokens cannot be read");
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
                    "a signing key of endpoint tokens cannot be read"
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
    pub(crate) fn public(&self) -> &JwkSet {
        &self.public
    }

    /// The public keys as a document (RFC 7517 section 5).
    pub fn document(&self) -> &Bytes {
        &self.document
    }
}
