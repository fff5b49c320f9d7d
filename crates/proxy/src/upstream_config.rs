//! The configuration of an upstream, and the reasons why it is invalid.

use http::Uri;

use crate::address::UpstreamAddresses;
use crate::secret_bytes::SecretBytes;

/// The configuration of an upstream.
#[derive(Clone, Debug)]
pub struct UpstreamConfig {
    /// `https://host[:port][/prefix]`; `http` only when `allow_plain`. Paths of requests are below
    /// the prefix. No user, no query.
    pub url: Uri,
    /// The certificate authorities that may vouch for it, in PEM; `None`: those that the system trusts.
    pub ca_pem: Option<Vec<u8>>,
    /// The name that its certificate must be for, when it is not the host of the URL.
    pub server_name: Option<String>,
    /// Takes any certificate. It cannot be together with `ca_pem`.
    pub insecure: bool,
    /// The client certificate for the TLS handshake.
    pub client_certificate: Option<ClientCertificate>,
    /// The value of `Authorization`: `Bearer …`.
    pub authorization: Option<SecretBytes>,
    /// Which addresses it may be at.
    pub addresses: UpstreamAddresses,
    /// Whether it may be without TLS. Credentials are sent all the same.
    pub allow_plain: bool,
}

/// The proxy's own certificate, and its key.
#[derive(Clone, Debug)]
pub struct ClientCertificate {
    /// The certificate, and those that lead to its authority, in PEM.
    pub certificate_pem: Vec<u8>,
    /// Its private key, in PEM.
    pub key_pem: SecretBytes,
}

impl UpstreamConfig {
    /// The configuration of an upstream that the system's authorities vouch for, without
    /// any credential.
    pub fn new(url: Uri) -> Self {
        Self {
            url,
            ca_pem: None,
            server_name: None,
            insecure: false,
            client_certificate: None,
            authorization: None,
            addresses: UpstreamAddresses::default(),
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
        /// The reason.
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
