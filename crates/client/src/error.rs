//! The reasons for which a request fails. Reasons are distinguished where the caller can act differently on them. This
//! module gives no advice.

use std::io;
use std::time::Duration;

use postern_meta::status::{Reason, Status};
use postern_tls::CaDigest;
use rustls::CertificateError;

/// Why a request failed. No error holds a secret value.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The access key has characters that no key has.
    #[error("the access key contains invalid characters: it must be one word of printable ASCII")]
    Key,
    /// The impersonation cannot be sent in headers.
    #[error("cannot act as another user: {0}")]
    Impersonation(String),
    /// A name that is not allowed in a path.
    #[error("invalid object name {0:?}")]
    Name(String),
    /// The authorities to trust cannot be used.
    #[error("{0}")]
    Trust(String),
    /// The host's name has no address.
    #[error("the name {host} cannot be resolved: {source}")]
    Resolve {
        /// The host's name.
        host: String,
        /// The error of the system.
        source: io::Error,
    },
    /// Nothing listens there, or there is no route to it.
    #[error("no connection to {address}: {source}")]
    Connect {
        /// `HOST:PORT`
        address: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The proxy opened no tunnel to the server.
    #[error("the proxy {proxy} does not connect to {target}: {reason}")]
    Proxy {
        /// `HOST:PORT` of the proxy.
        proxy: String,
        /// `HOST:PORT` of the server.
        target: String,
        /// The answer of the proxy.
        reason: String,
    },
    /// The TLS handshake failed, for another reason than the certificate.
    #[error("no TLS connection to {address}: {reason}")]
    Handshake {
        /// `HOST:PORT`
        address: String,
        /// The error of TLS.
        reason: String,
    },
    /// The server's certificate is not accepted.
    #[error("the certificate of {address} is not accepted: {problem}")]
    Certificate {
        /// `HOST:PORT`
        address: String,
        /// The problem.
        problem: CertificateProblem,
    },
    /// The request took too long. Whether a write took effect is not known.
    #[error("{address} did not answer within {} s", after.as_secs_f64())]
    Timeout {
        /// `HOST:PORT`
        address: String,
        /// The deadline that has passed.
        after: Duration,
    },
    /// The connection broke. Whether a write took effect is not known.
    #[error("the connection to {address} broke: {reason}")]
    Lost {
        /// `HOST:PORT`
        address: String,
        /// The error of HTTP.
        reason: String,
    },
    /// The answer is larger than any that the server gives.
    #[error("the answer is larger than {limit_bytes} bytes")]
    TooLarge {
        /// The limit.
        limit_bytes: usize,
    },
    /// The answer is not one of this kind of server.
    #[error("{what} (HTTP {code})")]
    Unexpected {
        /// The HTTP status code.
        code: u16,
        /// The unexpected content.
        what: String,
    },
    /// The server answers a watch with something else than events: it has none of this.
    #[error("this resource cannot be watched")]
    NoWatch,
    /// The server refused the request, and says why.
    #[error("{}", .0.message)]
    Status(Box<Status>),
}

/// A problem with a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateProblem {
    /// Signed by an authority that is not trusted.
    #[error("its authority is not trusted")]
    UnknownIssuer,
    /// Valid for other names only.
    #[error("it is not for this name")]
    WrongName,
    /// Expired, or not yet valid.
    #[error("it is not valid at this time")]
    WrongTime,
    /// Its authority is not the one that the client knows by its digest.
    #[error("{}", other_authority(.wanted, .sent.as_ref()))]
    OtherAuthority {
        /// The digest that the client has.
        wanted: CaDigest,
        /// That of the authority that the server sends, if it sends a certificate that can be read.
        sent: Option<CaDigest>,
    },
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

fn other_authority(wanted: &CaDigest, sent: Option<&CaDigest>) -> String {
    match sent {
        Some(sent) => format!("its authority has the digest {sent}, and not {wanted}"),
        None => format!("it comes without an authority, and not with that of the digest {wanted}"),
    }
}

impl Error {
    /// The server's reason, if it was the server that refused.
    pub fn reason(&self) -> Option<Reason> {
        self.status().map(|status| status.reason)
    }

    /// The server's Status, if it was the server that refused.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Status(status) => Some(status),
            _ => None,
        }
    }

    /// Whether every other request would fail for the same reason: there is no connection,
    /// or the access key is refused.
    pub fn fails_all_requests(&self) -> bool {
        match self {
            Self::Status(status) => status.code == 401,
            Self::Name(_) | Self::TooLarge { .. } | Self::Unexpected { .. } | Self::NoWatch => {
                false
            }
            _ => true,
        }
    }

    /// Whether it is unknown if the request took effect.
    pub fn is_uncertain(&self) -> bool {
        matches!(
            self,
            Self::Timeout { .. }
                | Self::Lost { .. }
                | Self::TooLarge { .. }
                | Self::Unexpected { .. }
        )
    }

    /// The error of a failed handshake: TLS wraps its own error into the system's.
    pub(crate) fn of_handshake(address: String, error: &io::Error) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let problem = match inner {
            Some(rustls::Error::InvalidCertificate(problem)) => problem,
            Some(other) => return Self::Handshake { address, reason: other.to_string() },
            None => return Self::Handshake { address, reason: error.to_string() },
        };
        let problem = match problem {
            CertificateError::UnknownIssuer => CertificateProblem::UnknownIssuer,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                CertificateProblem::WrongName
            }
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => CertificateProblem::WrongTime,
            other => CertificateProblem::Other(other.to_string()),
        };
        Self::Certificate { address, problem }
    }
}
