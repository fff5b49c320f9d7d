//! The part of a key management service (KMS) in the store: it encrypts ("wraps") the seeds of
//! at-rest keys with a key that never leaves it. The implementations decide which service that is,
//! and how it is called.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use prost::Message;
use zeroize::Zeroizing;

/// A seed that a KMS has encrypted, with everything that it needs to decrypt it. Not secret.
#[derive(Clone, PartialEq, Message)]
pub struct WrappedSeed {
    /// The kind of the KMS: see [`Kms::kind`].
    #[prost(string, tag = "1")]
    pub kind: String,
    /// The encrypted seed.
    #[prost(bytes = "bytes", tag = "2")]
    pub ciphertext: Bytes,
    /// The id of the key of the KMS, if the KMS needs it.
    #[prost(string, tag = "3")]
    pub wrapping_key: String,
    /// Data that the KMS needs back with the ciphertext.
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub annotations: BTreeMap<String, Vec<u8>>,
}

/// Why a KMS did not perform a call: the reason, and the advice.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct KmsError(String);

impl KmsError {
    /// The error with a message that says which service failed, why, and what to do. It never has a part of a seed.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// A key management service. Each call has a deadline.
#[async_trait]
pub trait Kms: Send + Sync {
    /// The kind, which each seed that is wrapped by it names.
    fn kind(&self) -> &'static str;

    /// The address, as the operator has written it.
    fn address(&self) -> &str;

    /// Encrypts a seed.
    async fn wrap(&self, seed: &[u8]) -> Result<WrappedSeed, KmsError>;

    /// Decrypts a seed.
    async fn unwrap(&self, wrapped: &WrappedSeed) -> Result<Zeroizing<Vec<u8>>, KmsError>;

    /// Checks that the service works. `sample` is a seed that it has wrapped.
    async fn check(&self, sample: &WrappedSeed) -> Result<(), KmsError>;
}
