//! The target of requests: its address, its trust, the proxy's own credentials there, and the idle
//! connections.

use std::fmt;
use std::sync::Arc;

use http::{HeaderName, HeaderValue, Request, Uri};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use crate::address::UpstreamAddresses;
use crate::origin::Origin;
use crate::pool::Pool;
use crate::secret_bytes::SecretBytes;
use crate::tls;
use crate::tunnels::Tunnels;
use crate::upstream_config::{UpstreamConfig, UpstreamError};

/// An upstream that speaks HTTP/1.1, such as a Kubernetes API server, with its idle connections. Cheap to clone;
/// clones share the connections, which are closed with the last of them. Two upstreams
/// that are made apart share nothing, so that a connection is never used with other credentials.
#[derive(Clone)]
pub struct Upstream {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) origin: Origin,
    pub(crate) addresses: UpstreamAddresses,
    pub(crate) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    pub(crate) authorization: Option<HeaderValue>,
    pub(crate) pool: Arc<Pool>,
    /// The idle connections that take long heads.
    pub(crate) long_heads: Arc<Pool>,
    /// The header with the number of requests that wait for a tunnel.
    pub(crate) waiting_header: Option<HeaderName>,
}

impl Inner {
    /// The idle connections for a request.
    pub(crate) fn pool_for(&self, has_long_head: bool) -> &Arc<Pool> {
        if has_long_head { &self.long_heads } else { &self.pool }
    }

    /// Sets the number of further requests that wait for a tunnel in a header, so that the upstream
    /// opens more tunnels. The client's own headers of this name do not reach the upstream.
    pub(crate) fn tell_waiting<B>(&self, request: &mut Request<B>) {
        if let Some(name) = &self.waiting_header {
            request.headers_mut().insert(name, HeaderValue::from(self.pool.waiting()));
        }
    }
}

impl Upstream {
    /// An upstream. Nothing is connected yet. It may read the system's authorities from disk.
    ///
    /// # Errors
    /// The invalid part of the configuration.
    pub fn new(config: UpstreamConfig) -> Result<Self, UpstreamError> {
        let origin = Origin::of(&config.url, config.allow_plain)?;
        if config.insecure && config.ca_pem.is_some() {
            return Err(UpstreamError::InsecureWithAuthorities);
        }
        let authorization = config.authorization.as_ref().map(header_value).transpose()?;
        let tls = if origin.is_plain {
            None
        } else {
            let tls = tls::client_config(&config)?;
            let name = config.server_name.unwrap_or_else(|| origin.host.clone());
            let server_name = ServerName::try_from(name.clone());
            Some((tls, server_name.map_err(|_| UpstreamError::ServerName(name))?))
        };
        let (addresses, pool) = (config.addresses, Arc::default());
        let inner = Inner {
            origin,
            addresses,
            tls,
            authorization,
            pool,
            long_heads: Arc::default(),
            waiting_header: None,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// An upstream that opens the connections itself. All upstreams of the same tunnels share them. The host of `url`
    /// is only a name, and the connections have their own encryption.
    ///
    /// # Errors
    /// The invalid part of the configuration.
    pub fn through(url: &Uri, tunnels: &Tunnels) -> Result<Self, UpstreamError> {
        let Tunnels { pool, waiting_header } = tunnels.clone();
        let inner = Inner {
            origin: Origin::of(url, true)?,
            addresses: UpstreamAddresses::default(),
            tls: None,
            authorization: None,
            pool,
            long_heads: Arc::default(),
            waiting_header: Some(waiting_header),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Its address, `host:port`, for messages.
    pub fn address(&self) -> &str {
        &self.inner.origin.address
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Upstream").field(&self.inner.origin.address).finish()
    }
}

fn header_value(secret: &SecretBytes) -> Result<HeaderValue, UpstreamError> {
    let value = HeaderValue::from_bytes(secret.expose());
    let mut value = value.map_err(|_| UpstreamError::Authorization)?;
    value.set_sensitive(true);
    Ok(value)
}
