//! One request to an identity provider: over TLS, to an address that may be dialled, without redirects, and within
//! limits of time and size.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use parking_lot::Mutex;
use postern_proxy::{Forward, Proxy, ProxyError, Upstream, UpstreamAddresses, UpstreamConfig};
use postern_registry::registry::Registry;

use postern_gateway::Gateway;

/// The value of `Accept` in requests to a provider. Its documents are JSON, and kube-apiserver has
/// a special media type for its keys.
const ACCEPTED: &str = "application/json, application/jwk-set+json, */*;q=0.5";

/// The time for a request and its whole response.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The most origins of one provider: issuer, keys, tokens and more may be at different ones.
const MAX_ORIGINS: usize = 8;

/// Why there is no document.
#[derive(Debug)]
pub(super) enum Failed {
    /// The provider cannot be reached. The reason is for the log only: it may name an address.
    Unreachable(String),
    /// The whole response did not come in time.
    Timeout,
    /// It answered with a redirect.
    Redirect,
    /// It answered with this status.
    Status(StatusCode),
    /// The response has more bytes than are read.
    TooLarge,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(_) => {
                f.write_str("the provider could not be reached: the log of the server says why")
            }
            Self::Timeout => {
                write!(f, "the provider did not answer within {} s", TIMEOUT.as_secs())
            }
            Self::Redirect => f.write_str("the provider answered with a redirect"),
            Self::Status(status) => {
                write!(f, "the provider answered with status {}", status.as_u16())
            }
            Self::TooLarge => f.write_str("the response of the provider is too large"),
        }
    }
}

/// A request.
pub(super) struct Asked<'a> {
    /// The https address; for a cluster, the path.
    pub(super) address: &'a str,
    /// The value of `Authorization`.
    pub(super) authorization: Option<HeaderValue>,
    /// A form to post; a GET without one.
    pub(super) form: Option<String>,
    /// The most bytes of the response.
    pub(super) max_bytes: usize,
}

/// The route to one provider.
pub(super) struct Route {
    proxy: Proxy,
    to: To,
}

enum To {
    /// The provider is at addresses that may be dialled.
    Addresses {
        addresses: UpstreamAddresses,
        /// The certificate authorities, in PEM.
        ca_pem: Option<Vec<u8>>,
        upstreams: Mutex<HashMap<String, Upstream>>,
    },
    /// It is a connected cluster.
    Cluster { gateway: Arc<Gateway>, registry: Arc<Registry>, cluster: String },
}

impl Route {
    pub(super) fn new(proxy: Proxy, addresses: UpstreamAddresses, ca_pem: Option<Vec<u8>>) -> Self {
        Self { proxy, to: To::Addresses { addresses, ca_pem, upstreams: Mutex::default() } }
    }

    /// The route to a connected cluster.
    pub(super) fn to_cluster(
        gateway: Arc<Gateway>,
        registry: Arc<Registry>,
        cluster: &str,
    ) -> Self {
        let proxy = gateway.proxy().clone();
        Self { proxy, to: To::Cluster { gateway, registry, cluster: cluster.to_owned() } }
    }

    /// Whether it leads to a connected cluster.
    pub(super) fn is_to_cluster(&self) -> bool {
        matches!(self.to, To::Cluster { .. })
    }

    /// The status and the body of a response. For a posted form, a status that is no success is
    /// returned, too: the body has the reason.
    pub(super) async fn fetch(&self, asked: Asked<'_>) -> Result<(StatusCode, Bytes), Failed> {
        let fetched = tokio::time::timeout(TIMEOUT, self.fetch_slowly(asked)).await;
        fetched.unwrap_or(Err(Failed::Timeout))
    }

    async fn fetch_slowly(&self, asked: Asked<'_>) -> Result<(StatusCode, Bytes), Failed> {
        let Asked { address, authorization, form, max_bytes } = asked;
        let invalid = || Failed::Unreachable("the address is invalid".to_owned());
        let uri: Uri = address.parse().map_err(|_| invalid())?;
        let (upstream, mut headers) = self.upstream(&uri).await?;
        let path = uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        headers.extend(authorization.map(|value| (AUTHORIZATION, value)));
        let forward = Forward { headers, answer_timeout: Some(TIMEOUT), ..Forward::new(path) };
        let is_form = form.is_some();
        let mut request = Request::new(Full::new(Bytes::from(form.unwrap_or_default())));
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(ACCEPTED));
        if is_form {
            *request.method_mut() = Method::POST;
            let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
            request.headers_mut().insert(CONTENT_TYPE, kind);
        }
        let response = self.proxy.forward(&upstream, request, forward).await.map_err(failed)?;
        let status = response.status();
        if status.is_redirection() {
            return Err(Failed::Redirect);
        }
        if !status.is_success() && !is_form {
            return Err(Failed::Status(status));
        }
        let mut body = response.into_body();
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(failed)?.into_data() else { continue };
            if whole.len() + data.len() > max_bytes {
                return Err(Failed::TooLarge);
            }
            whole.extend_from_slice(&data);
        }
        Ok((status, whole.freeze()))
    }

    /// The upstream of an address (its scheme, host and port), and the headers of each request to it.
    async fn upstream(&self, uri: &Uri) -> Result<(Upstream, HeaderMap), Failed> {
        let (addresses, ca_pem, upstreams) = match &self.to {
            To::Addresses { addresses, ca_pem, upstreams } => (addresses, ca_pem, upstreams),
            To::Cluster { gateway, registry, cluster } => {
                return gateway.issuer_of(registry, cluster).await.map_err(Failed::Unreachable);
            }
        };
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        if uri.scheme_str() != Some("https") || authority.is_empty() {
            return Err(Failed::Unreachable("the address does not begin with https://".to_owned()));
        }
        if let Some(known) = upstreams.lock().get(&authority) {
            return Ok((known.clone(), HeaderMap::new()));
        }
        let url = format!("https://{authority}").parse();
        let url = url.map_err(|_| Failed::Unreachable("the host is invalid".to_owned()))?;
        let (addresses, ca_pem) = (addresses.clone(), ca_pem.clone());
        let config = UpstreamConfig { ca_pem, addresses, ..UpstreamConfig::new(url) };
        // It may read the system's authorities from the disk.
        let made = tokio::task::spawn_blocking(move || Upstream::new(config)).await;
        let made =
            made.map_err(|_| Failed::Unreachable("its certificates cannot be read".to_owned()))?;
        let made = made.map_err(|error| Failed::Unreachable(error.to_string()))?;
        let mut known = upstreams.lock();
        if known.len() >= MAX_ORIGINS {
            known.clear();
        }
        known.insert(authority, made.clone());
        Ok((made, HeaderMap::new()))
    }
}

fn failed(error: ProxyError) -> Failed {
    match error {
        ProxyError::Redirect { .. } => Failed::Redirect,
        ProxyError::AnswerTimeout { .. } | ProxyError::ConnectTimeout { .. } => Failed::Timeout,
        other => Failed::Unreachable(other.to_string()),
    }
}
