//! Requests of the secret sync to the API server of the cluster, and to those of virtual clusters.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use postern_meta::decode::decode_typed;
use postern_proxy::{Forward, ProxyBody, SecretBytes};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;

use super::location::{Place, SecretId};
use super::native::{Metadata, NativeSecret, Page, Partial, SELECTOR};
use crate::issuer::OWN_REQUEST;
use crate::route::Route;
use crate::secret_counts::SyncFailure;
use crate::serve::Agent;
use crate::virtual_clusters::VirtualClusterRef;

/// How long an API server has for the head of its response, and for all of it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// The most bytes of a Secret, in base64 and with its metadata, and of a response without data.
const MAX_SECRET_BYTES: usize = 3 * 1024 * 1024;
const MAX_METADATA_BYTES: usize = 2 * 1024 * 1024;

/// The Secrets of a page of a list, and the most bytes of a page. The annotations of a Secret have at most 256 KiB.
const PAGE_SECRETS: usize = 50;
const MAX_PAGE_BYTES: usize = 32 * 1024 * 1024;

/// The longest silence of a watch. API servers send a bookmark about every minute.
const WATCH_SILENCE: Duration = Duration::from_mins(3);

/// How long a watch takes before the API server ends it.
const WATCH_SECONDS: u64 = 300;

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// Why a request has no result. It has no part of a response, which could have a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ApiFailure {
    /// There is no response: the reason is for the log.
    Silent(String),
    /// The API server responded with this code.
    Status(u16),
}

impl ApiFailure {
    /// Whether the API server has this code.
    pub(super) fn is(&self, code: StatusCode) -> bool {
        *self == Self::Status(code.as_u16())
    }

    /// Whether the same request may succeed a moment later.
    pub(super) fn may_pass(&self) -> bool {
        matches!(self, Self::Silent(_) | Self::Status(429 | 500..))
    }

    /// The kind of failure of a write.
    pub(super) fn kind(&self) -> SyncFailure {
        match self {
            Self::Status(401 | 403) => SyncFailure::Forbidden,
            Self::Status(409) => SyncFailure::Conflict,
            Self::Status(400 | 413 | 415 | 422) => SyncFailure::Rejected,
            Self::Silent(_) | Self::Status(_) => SyncFailure::Unreachable,
        }
    }
}

impl std::fmt::Display for ApiFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Silent(why) => f.write_str(why),
            Self::Status(code) => write!(f, "the API server responds with {code}"),
        }
    }
}

/// A request to an API server.
struct ApiRequest {
    method: Method,
    path: String,
    accept: &'static str,
    content_type: Option<&'static str>,
    body: Bytes,
}

impl ApiRequest {
    fn get(path: String, accept: &'static str) -> Self {
        Self { method: Method::GET, path, accept, content_type: None, body: Bytes::new() }
    }
}

/// The API server of the cluster, or of a virtual cluster.
#[derive(Clone)]
pub(super) enum Server {
    Cluster,
    VirtualCluster(VirtualClusterRef),
}

/// Sends the requests.
pub(super) struct ClusterApi {
    agent: Arc<Agent>,
}

impl ClusterApi {
    pub(super) fn new(agent: Arc<Agent>) -> Self {
        Self { agent }
    }

    /// A page of the labelled Secrets of all namespaces, or of one: their metadata. `next` is the token of the page.
    pub(super) async fn page(
        &self,
        server: &Server,
        namespace: Option<&str>,
        next: &str,
    ) -> Result<Page, ApiFailure> {
        let mut path = format!("{}?labelSelector={SELECTOR}&limit={PAGE_SECRETS}", list(namespace));
        if !next.is_empty() {
            path.push_str("&continue=");
            path.push_str(&encoded(next));
        }
        self.read(server, ApiRequest::get(path, METADATA_LIST), MAX_PAGE_BYTES).await
    }

    /// Watches the labelled Secrets of the cluster, or of one namespace, from a version on: their metadata.
    pub(super) async fn watch(
        &self,
        namespace: Option<&str>,
        resource_version: &str,
    ) -> Result<SecretWatch, ApiFailure> {
        let path = format!(
            "{}?labelSelector={SELECTOR}&watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={}",
            list(namespace),
            encoded(resource_version)
        );
        let response = self.send(&Server::Cluster, ApiRequest::get(path, METADATA)).await?;
        let response = successful(response)?;
        Ok(SecretWatch { body: response.into_body(), received: BytesMut::new(), searched: 0 })
    }

    /// A whole Secret.
    pub(super) async fn secret(
        &self,
        server: &Server,
        id: &SecretId,
    ) -> Result<NativeSecret, ApiFailure> {
        self.read(server, ApiRequest::get(path_of(id), JSON), MAX_SECRET_BYTES).await
    }

    /// Patches a Secret, and returns its metadata.
    pub(super) async fn patch(
        &self,
        server: &Server,
        id: &SecretId,
        patch: SecretBytes,
    ) -> Result<Metadata, ApiFailure> {
        let request = ApiRequest {
            method: Method::PATCH,
            path: format!("{}?fieldManager=postern-agent", path_of(id)),
            accept: METADATA,
            content_type: Some(MERGE_PATCH),
            body: Bytes::from_owner(Wiped(patch)),
        };
        let written: Partial = self.read(server, request, MAX_SECRET_BYTES).await?;
        Ok(written.metadata)
    }

    /// The uid of a namespace of the cluster.
    pub(super) async fn namespace_uid(&self, namespace: &str) -> Result<String, ApiFailure> {
        let request = ApiRequest::get(format!("/api/v1/namespaces/{namespace}"), METADATA);
        let found: Partial = self.read(&Server::Cluster, request, MAX_METADATA_BYTES).await?;
        Ok(found.metadata.uid)
    }

    /// Creates an Event in the namespace of a Secret.
    pub(super) async fn create_event(
        &self,
        server: &Server,
        id: &SecretId,
        event: &Value,
    ) -> Result<(), ApiFailure> {
        let request = ApiRequest {
            method: Method::POST,
            path: format!("/api/v1/namespaces/{}/events", id.namespace),
            accept: METADATA,
            content_type: Some(JSON),
            body: Bytes::from(event.to_string()),
        };
        let _: Partial = self.read(server, request, MAX_METADATA_BYTES).await?;
        Ok(())
    }

    async fn read<T: DeserializeOwned>(
        &self,
        server: &Server,
        request: ApiRequest,
        max_bytes: usize,
    ) -> Result<T, ApiFailure> {
        let answered = timeout(ANSWER_TIMEOUT, async {
            let response = successful(self.send(server, request).await?)?;
            let body = Limited::new(response.into_body(), max_bytes).collect().await;
            let bytes = body.map_err(|error| ApiFailure::Silent(error.to_string()))?.to_bytes();
            let broken = || ApiFailure::Silent("the response cannot be read".to_owned());
            decode_typed(&bytes).map_err(|_| broken())
        });
        answered.await.map_err(|_| ApiFailure::Silent("it took too long".to_owned()))?
    }

    async fn send(
        &self,
        server: &Server,
        request: ApiRequest,
    ) -> Result<Response<ProxyBody>, ApiFailure> {
        let silent = |why: String| ApiFailure::Silent(why);
        let route = match server {
            Server::Cluster => Route::Cluster(self.agent.upstream.current()),
            Server::VirtualCluster(place) => {
                let route = self.agent.virtual_clusters.route_to(place).await;
                let route = route.map_err(|error| silent(error.status().message.clone()))?;
                Route::VirtualCluster(place.clone(), route)
            }
        };
        let path = PathAndQuery::try_from(&request.path);
        let path = path.map_err(|error| silent(error.to_string()))?;
        let mut built = Request::builder().method(request.method).uri(request.path);
        built = built.header(ACCEPT, request.accept);
        if let Some(content_type) = request.content_type {
            built = built.header(CONTENT_TYPE, content_type);
        }
        let built = built.body(Full::new(request.body));
        let built = built.map_err(|error| silent(error.to_string()))?;
        let headers = HeaderMap::from_iter([(USER_AGENT, OWN_REQUEST)]);
        let forward = Forward { headers, answer_timeout: Some(HEAD_TIMEOUT), ..Forward::new(path) };
        let response = self.agent.proxy.forward(route.upstream(), built, forward).await;
        let response = response.map_err(|error| {
            route.note_failure(&error);
            silent(error.to_string())
        })?;
        if response.status() == StatusCode::UNAUTHORIZED {
            route.note_rejected_credential();
        }
        Ok(response)
    }
}

/// Bytes that are wiped after they were sent.
struct Wiped(SecretBytes);

impl AsRef<[u8]> for Wiped {
    fn as_ref(&self) -> &[u8] {
        self.0.expose()
    }
}

fn successful(response: Response<ProxyBody>) -> Result<Response<ProxyBody>, ApiFailure> {
    let status = response.status();
    if status.is_success() { Ok(response) } else { Err(ApiFailure::Status(status.as_u16())) }
}

/// The path of all Secrets, or of those in a namespace. Names are those of the API server or of the configuration.
fn list(namespace: Option<&str>) -> String {
    match namespace {
        None => "/api/v1/secrets".to_owned(),
        Some(namespace) => format!("/api/v1/namespaces/{namespace}/secrets"),
    }
}

fn path_of(id: &SecretId) -> String {
    format!("/api/v1/namespaces/{}/secrets/{}", id.namespace, id.name)
}

/// A text as the value of a query parameter.
fn encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encode = |byte: u8| {
        if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    text.bytes().map(encode).collect()
}

/// An open watch.
pub(super) struct SecretWatch {
    body: ProxyBody,
    received: BytesMut,
    /// The number of bytes in `received` that have no end of a line.
    searched: usize,
}

/// An event of a watch.
pub(super) enum SecretEvent {
    /// The Secret is as it says.
    Present(Metadata),
    /// It does not exist, or does not have both labels.
    Gone(Metadata),
    /// There was no change up to this version.
    Bookmark(String),
    /// The watch must begin with a list.
    Expired,
}

impl SecretWatch {
    /// The next event; `None` when the watch has ended.
    pub(super) async fn next(&mut self) -> Result<Option<SecretEvent>, ApiFailure> {
        #[derive(Deserialize)]
        struct Line {
            #[serde(rename = "type")]
            event_type: String,
            object: Partial,
        }
        let Some(line) = self.next_line().await? else { return Ok(None) };
        let broken = || ApiFailure::Silent("the watch sends something that is no event".to_owned());
        let Line { event_type, object } = decode_typed(&line).map_err(|_| broken())?;
        let metadata = object.metadata;
        Ok(Some(match event_type.as_str() {
            "ADDED" | "MODIFIED" => SecretEvent::Present(metadata),
            "DELETED" => SecretEvent::Gone(metadata),
            "BOOKMARK" => SecretEvent::Bookmark(metadata.resource_version),
            _ => SecretEvent::Expired,
        }))
    }

    async fn next_line(&mut self) -> Result<Option<BytesMut>, ApiFailure> {
        loop {
            let end = self.received[self.searched..].iter().position(|byte| *byte == b'\n');
            if let Some(end) = end {
                let line = self.received.split_to(self.searched + end);
                self.received.advance(1);
                self.searched = 0;
                return Ok(Some(line));
            }
            self.searched = self.received.len();
            let frame = timeout(WATCH_SILENCE, self.body.frame()).await;
            let silent = |why: &str| ApiFailure::Silent(why.to_owned());
            let frame = frame.map_err(|_| silent("the watch is silent"))?;
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|error| silent(&error.to_string()))?;
            let Ok(data) = frame.into_data() else { continue };
            if self.received.len() + data.len() > MAX_METADATA_BYTES {
                return Err(silent("the watch sends a line that is too long"));
            }
            self.received.extend_from_slice(&data);
        }
    }
}

impl Place {
    /// Whether a failure of it says nothing about other places.
    pub(super) fn is_virtual_cluster(&self) -> bool {
        matches!(self, Self::VirtualCluster(_))
    }
}
