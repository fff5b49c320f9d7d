//! Every way in which a request can fail, told apart as far as its sender can do something else
//! about it.

use std::io;
use std::time::Duration;

use postern_meta::status::{Reason, Status};
use rustls::CertificateError;

/// Why a request has no answer, or not the one that was wanted. No error holds a secret value.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The access key has characters that no key has.
    #[error("the access key holds characters that no access key has")]
    Key,
    /// Something about whom to act as that cannot be sent.
    #[error("cannot act as somebody else: {0}")]
    Impersonation(String),
    /// A name that cannot stand in a path.
    #[error("{0:?} is no name of an object")]
    Name(String),
    /// The authorities to trust cannot be used.
    #[error("{0}")]
    Trust(String),
    /// The host's name leads nowhere.
    #[error("the name {host} cannot be resolved: {source}")]
    Resolve {
        /// The host's name.
        host: String,
        /// What the system says.
        source: io::Error,
    },
    /// Nothing listens there, or the network does not lead there.
    #[error("no connection to {address}: {source}")]
    Connect {
        /// `HOST:PORT`
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// Whoever listens there does not speak TLS as the server does.
    #[error("no TLS connection to {address}: {reason}")]
    Handshake {
        /// `HOST:PORT`
        address: String,
        /// What TLS says.
        reason: String,
    },
    /// Whoever listens there is not who he should be.
    #[error("the certificate of {address} is not accepted: {problem}")]
    Certificate {
        /// `HOST:PORT`
        address: String,
        /// What is wrong with it.
        problem: CertificateProblem,
    },
    /// It took too long. Whether a write took effect is not known.
    #[error("{address} did not answer within {} s", after.as_secs_f64())]
    Timeout {
        /// `HOST:PORT`
        address: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// The connection broke. Whether a write took effect is not known.
    #[error("the connection to {address} broke: {reason}")]
    Lost {
        /// `HOST:PORT`
        address: String,
        /// What HTTP says.
        reason: String,
    },
    /// An answer beyond any that the server gives.
    #[error("the answer is larger than {limit_bytes} bytes")]
    TooLarge {
        /// The limit.
        limit_bytes: usize,
    },
    /// An answer that this kind of server does not give.
    #[error("{what} (HTTP {code})")]
    Unexpected {
        /// The HTTP status code.
        code: u16,
        /// What is odd about it.
        what: String,
    },
    /// The server's own words.
    #[error("{}", .0.message)]
    Status(Box<Status>),
}

/// What is wrong with a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateProblem {
    /// Signed by an authority that is not trusted.
    #[error("its authority is not trusted")]
    UnknownIssuer,
    /// Made for other names.
    #[error("it is not for this name")]
    WrongName,
    /// Its time is over, or has not come.
    #[error("it is not valid at this time")]
    WrongTime,
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// The server's reason, if it was the server that said no.
    pub fn reason(&self) -> Option<Reason> {
        self.status().map(|status| status.reason)
    }

    /// The server's Status, if it was the server that said no.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Status(status) => Some(status),
            _ => None,
        }
    }

    /// Is it unknown whether the request took effect?
    pub fn is_uncertain(&self) -> bool {
        matches!(
            self,
            Self::Timeout { .. }
                | Self::Lost { .. }
                | Self::TooLarge { .. }
                | Self::Unexpected { .. }
        )
    }

    /// What a handshake's error means: TLS wraps its own into the system's.
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
