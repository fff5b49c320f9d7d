//! Kubernetes' KMS v2 protocol: a plugin on this machine, called with gRPC over a Unix socket.
//!
//! The messages are written by hand, with the field numbers of the public protocol, so that a build needs no compiler
//! for protocol buffers.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use aws_lc_rs::rand;
use bytes::Bytes;
use http::uri::PathAndQuery;
use prost::Message;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::transport::Endpoint;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;
use zeroize::{Zeroize as _, Zeroizing};

use super::kms::{Kms, KmsError, WrappedSeed};

const STATUS: &str = "/v2.KeyManagementService/Status";
const DECRYPT: &str = "/v2.KeyManagementService/Decrypt";
const ENCRYPT: &str = "/v2.KeyManagementService/Encrypt";

/// The longest time for one call, as in kube-apiserver.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// The largest response that is read.
const MAX_MESSAGE_BYTES: usize = 128 * 1024;

/// The versions of the protocol that have these messages.
const VERSIONS: [&str; 2] = ["v2", "v2beta1"];

/// The health of a plugin that works.
const HEALTHY: &str = "ok";

#[derive(Clone, PartialEq, Message)]
struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
struct StatusResponse {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(string, tag = "2")]
    healthz: String,
    #[prost(string, tag = "3")]
    key_id: String,
}

#[derive(Clone, PartialEq, Message)]
struct DecryptRequest {
    #[prost(bytes = "bytes", tag = "1")]
    ciphertext: Bytes,
    #[prost(string, tag = "2")]
    uid: String,
    #[prost(string, tag = "3")]
    key_id: String,
    #[prost(btree_map = "string, bytes", tag = "4")]
    annotations: BTreeMap<String, Vec<u8>>,
}

/// The plaintext is secret: it is not printed, and zeroed on drop.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
struct DecryptResponse {
    #[prost(bytes = "vec", tag = "1")]
    plaintext: Vec<u8>,
}

/// The plaintext is secret, as in [`DecryptResponse`].
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
struct EncryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    plaintext: Vec<u8>,
    #[prost(string, tag = "2")]
    uid: String,
}

#[derive(Clone, PartialEq, Message)]
struct EncryptResponse {
    #[prost(bytes = "bytes", tag = "1")]
    ciphertext: Bytes,
    #[prost(string, tag = "2")]
    key_id: String,
    #[prost(btree_map = "string, bytes", tag = "3")]
    annotations: BTreeMap<String, Vec<u8>>,
}

impl std::fmt::Debug for DecryptResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DecryptResponse").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for EncryptRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EncryptRequest").field("uid", &self.uid).finish_non_exhaustive()
    }
}

impl Drop for DecryptResponse {
    fn drop(&mut self) {
        self.plaintext.zeroize();
    }
}

impl Drop for EncryptRequest {
    fn drop(&mut self) {
        self.plaintext.zeroize();
    }
}

/// A plugin of the KMS v2 protocol.
#[derive(Clone, Debug)]
pub struct KmsV2 {
    /// As in `kms-v2:unix:///run/kms.sock`.
    address: String,
    /// As in `unix:///run/kms.sock`.
    endpoint: String,
}

impl KmsV2 {
    /// The plugin at a socket. Nothing is connected yet.
    pub fn new(socket: &Path) -> Self {
        let endpoint = format!("unix://{}", socket.display());
        Self { address: format!("kms-v2:{endpoint}"), endpoint }
    }

    /// Calls the plugin, over a new connection: calls are rare, and the plugin may have been restarted.
    async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, KmsError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let called = timeout(CALL_TIMEOUT, self.call_once(path, request)).await;
        let late = |_| Err(Status::deadline_exceeded("it did not answer within 3 s"));
        called.unwrap_or_else(late).map_err(|status| {
            let method = path.rsplit('/').next().unwrap_or(path);
            self.error(&format!(
                "{method} failed: {} ({:?}); check that the plugin runs, that it can use its key, and that this \
                 process can connect to its socket",
                shortened(status.message()),
                status.code(),
            ))
        })
    }

    async fn call_once<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let unavailable = |error: tonic::transport::Error| Status::unavailable(explain(&error));
        let endpoint = Endpoint::from_shared(self.endpoint.clone()).map_err(unavailable)?;
        let channel = endpoint.connect().await.map_err(unavailable)?;
        let mut grpc = Grpc::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
        grpc.ready().await.map_err(unavailable)?;
        let codec: ProstCodec<Q, A> = ProstCodec::default();
        let response = grpc.unary(Request::new(request), PathAndQuery::from_static(path), codec);
        Ok(response.await?.into_inner())
    }

    fn error(&self, what: &str) -> KmsError {
        KmsError::new(format!("the KMS {}: {what}", self.address))
    }
}

#[async_trait]
impl Kms for KmsV2 {
    fn kind(&self) -> &'static str {
        "kms-v2"
    }

    fn address(&self) -> &str {
        &self.address
    }

    async fn wrap(&self, seed: &[u8]) -> Result<WrappedSeed, KmsError> {
        let request = EncryptRequest { plaintext: seed.to_vec(), uid: self.request_id()? };
        let EncryptResponse { ciphertext, key_id, annotations } =
            self.call(ENCRYPT, request).await?;
        Ok(WrappedSeed {
            kind: self.kind().to_owned(),
            ciphertext,
            wrapping_key: key_id,
            annotations,
        })
    }

    async fn unwrap(&self, wrapped: &WrappedSeed) -> Result<Zeroizing<Vec<u8>>, KmsError> {
        let WrappedSeed { ciphertext, wrapping_key, annotations, .. } = wrapped.clone();
        let uid = self.request_id()?;
        let request = DecryptRequest { ciphertext, uid, key_id: wrapping_key, annotations };
        let mut response: DecryptResponse = self.call(DECRYPT, request).await?;
        Ok(Zeroizing::new(std::mem::take(&mut response.plaintext)))
    }

    async fn check(&self, _: &WrappedSeed) -> Result<(), KmsError> {
        let status: StatusResponse = self.call(STATUS, StatusRequest {}).await?;
        if status.healthz != HEALTHY {
            let health = shortened(&status.healthz);
            return Err(self.error(&format!("the plugin says that it does not work: {health:?}")));
        }
        if !VERSIONS.contains(&status.version.as_str()) {
            let version = shortened(&status.version);
            return Err(self.error(&format!(
                "the plugin speaks version {version:?} of the protocol: update it to one with v2"
            )));
        }
        Ok(())
    }
}

impl KmsV2 {
    /// A new id for a request, which the logs of the plugin have.
    fn request_id(&self) -> Result<String, KmsError> {
        let mut id = [0; 16];
        rand::fill(&mut id).map_err(|_| self.error("the cryptographic library failed"))?;
        Ok(hex::encode(id))
    }
}

/// The beginning of a text of the plugin.
fn shortened(text: &str) -> String {
    text.chars().take(200).collect()
}

/// An error with all its causes, which tonic leaves out.
fn explain(error: &dyn std::error::Error) -> String {
    let mut text = shortened(&error.to_string());
    let mut source = error.source();
    while let Some(cause) = source {
        let next = shortened(&cause.to_string());
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        source = cause.source();
    }
    text
}
