//! Where requests go: an address, how it is trusted, and who we are there.

use std::fmt;
use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderValue, Uri};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use crate::address::LocalAddresses;
use crate::dial::display_address;
use crate::pool::Pool;
use crate::secret_bytes::SecretBytes;
use crate::tls;

/// What an upstream is made of.
#[derive(Clone, Debug)]
pub struct UpstreamConfig {
    /// `https://host[:port][/prefix]`; `http` only when `allow_plain`. What is asked for is below the
    /// prefix. No user, no query.
    pub url: Uri,
    /// The certificate authorities that may vouch for it, in PEM; `None`: those that the system trusts.
    pub ca_pem: Option<Vec<u8>>,
    /// The name that its certificate must be for, when it is not the host of the URL.
    pub server_name: Option<String>,
    /// Takes any certificate. It cannot be together with `ca_pem`.
    pub insecure: bool,
    /// Who we are, in the TLS handshake.
    pub client_certificate: Option<ClientCertificate>,
    /// The value of `Authorization`: `Bearer …`.
    pub authorization: Option<SecretBytes>,
    /// Whether it may be on a local address.
    pub local: LocalAddresses,
    /// Whether it may be without TLS. Credentials are sent all the same.
    pub allow_plain: bool,
}

/// A certificate of ours, and its key.
#[derive(Clone, Debug)]
pub struct ClientCertificate {
    /// The certificate, and those that lead to its authority, in PEM.
    pub certificate_pem: Vec<u8>,
    /// Its private key, in PEM.
    pub key_pem: SecretBytes,
}

impl UpstreamConfig {
    /// Returns the configuration of an upstream that the system's authorities vouch for, without
    /// any credential.
    pub fn new(url: Uri) -> Self {
        Self {
            url,
            ca_pem: None,
            server_name: None,
            insecure: false,
            client_certificate: None,
            authorization: None,
            local: LocalAddresses::Refused,
            allow_plain: false,
        }
    }
}

/// Why there can be no such upstream. No message has anything of a key or a credential.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// The URL.
    #[error("{url}: {reason}")]
    Url {
        /// The URL, without its user.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The certificate authorities.
    #[error("the certificate authorities cannot be used: {0}")]
    Authorities(String),
    /// Authorities, and the wish not to ask them.
    #[error("certificate authorities and insecure-skip-tls-verify cannot be together: give one")]
    InsecureWithAuthorities,
    /// The client certificate or its key.
    #[error("the client certificate cannot be used: {0}")]
    ClientCertificate(String),
    /// The name for TLS.
    #[error("{0:?} is no server name: give a DNS name or an IP address")]
    ServerName(String),
    /// The credential.
    #[error("the credential has characters that a header cannot have")]
    Authorization,
    /// Anything else of TLS.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
}

/// An upstream that speaks HTTP/1.1, such as a Kubernetes API server, with its idle connections. Cheap to clone;
/// clones share the connections, which are closed with the last of them. Two upstreams
/// that are made apart share nothing, so that a connection is never used with other credentials.
#[derive(Clone)]
pub struct Upstream {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// For messages.
    pub(crate) address: Arc<str>,
    pub(crate) local: LocalAddresses,
    pub(crate) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    pub(crate) authorization: Option<HeaderValue>,
    pub(crate) host_header: HeaderValue,
    /// Begins with a slash and does not end with one, or is empty.
    pub(crate) prefix: String,
    pub(crate) pool: Arc<Pool>,
}

impl Upstream {
    /// Returns an upstream. Nothing is connected yet. It may read the system's authorities from disk.
    ///
    /// # Errors
    /// What is wrong with the configuration.
    pub fn new(config: UpstreamConfig) -> Result<Self, UpstreamError> {
        let place = Place::of(&config.url, config.allow_plain)?;
        if config.insecure && config.ca_pem.is_some() {
            return Err(UpstreamError::InsecureWithAuthorities);
        }
        let tls = if place.is_plain {
            None
        } else {
            let name = config.server_name.as_ref().unwrap_or(&place.host).clone();
            let server_name =
                ServerName::try_from(name.clone()).map_err(|_| UpstreamError::ServerName(name))?;
            Some((tls::client_config(&config)?, server_name))
        };
        let authorization = config.authorization.as_ref().map(header_value).transpose()?;
        let address = display_address(&place.host, place.port).into();
        Ok(Self {
            inner: Arc::new(Inner {
                host: place.host,
                port: place.port,
                address,
                local: config.local,
                tls,
                authorization,
                host_header: place.host_header,
                prefix: place.prefix,
                pool: Arc::default(),
            }),
        })
    }

    /// Returns its address, `host:port`, for messages.
    pub fn address(&self) -> &str {
        &self.inner.address
    }
}

impl Inner {
    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns what the upstream is asked for: the path below its prefix.
    pub(crate) fn uri(&self, path_and_query: &PathAndQuery) -> Result<Uri, http::Error> {
        if self.prefix.is_empty() {
            return Ok(Uri::from(path_and_query.clone()));
        }
        Uri::builder().path_and_query(format!("{}{path_and_query}", self.prefix)).build()
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Upstream").field(&self.inner.address).finish()
    }
}

fn header_value(secret: &SecretBytes) -> Result<HeaderValue, UpstreamError> {
    let value = HeaderValue::from_bytes(secret.expose());
    let mut value = value.map_err(|_| UpstreamError::Authorization)?;
    value.set_sensitive(true);
    Ok(value)
}

/// What a URL says.
struct Place {
    is_plain: bool,
    host: String,
    port: u16,
    host_header: HeaderValue,
    prefix: String,
}

impl Place {
    fn of(url: &Uri, allow_plain: bool) -> Result<Self, UpstreamError> {
        let shown = || match (url.scheme_str(), url.host()) {
            (Some(scheme), Some(host)) => format!("{scheme}://{host}{}", url.path()),
            _ => "the URL".to_owned(),
        };
        let wrong = |reason| UpstreamError::Url { url: shown(), reason };
        let is_plain = match url.scheme_str() {
            Some("https") => false,
            Some("http") if allow_plain => true,
            Some("http") => return Err(wrong("plain HTTP is not allowed: give an https URL")),
            _ => return Err(wrong("give a URL that begins with https://")),
        };
        let authority = url.authority().ok_or_else(|| wrong("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("it has a user: give credentials apart from the URL"));
        }
        if url.query().is_some() {
            return Err(wrong("it has a query: only a path may follow the host"));
        }
        let prefix = url.path().trim_end_matches('/');
        if prefix.split('/').skip(1).any(|segment| matches!(segment, "" | "." | "..")) {
            return Err(wrong("its path has empty segments or dots"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(wrong("it has no host"));
        }
        if authority.port().is_some() && authority.port_u16().is_none_or(|port| port == 0) {
            return Err(wrong("its port is not between 1 and 65535"));
        }
        Ok(Self {
            is_plain,
            host: host.to_ascii_lowercase(),
            port: authority.port_u16().unwrap_or(if is_plain { 80 } else { 443 }),
            host_header: HeaderValue::from_str(authority.as_str())
                .map_err(|_| wrong("its host cannot be in a header"))?,
            prefix: prefix.to_owned(),
        })
    }
}
