//! Why a request could not be sent on, or its answer broke off.

use std::error::Error;
use std::net::IpAddr;
use std::time::Duration;

use http::StatusCode;

use crate::session::SessionEnd;

/// An error of a body that comes in.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// The message for a client about an upstream that could not be reached, after its name.
pub const UNREACHABLE: &str =
    "could not be reached, or gave no answer: the log of the server says why";

/// Why a request could not be sent on, or the body of its answer broke off. No message has a value of a
/// header or of a body. Addresses are `host:port` of the upstream. A server that sends a message to a
/// client decides whether the client may know them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// The client's request cannot be sent on. The client can repair it.
    #[error("{0}")]
    BadRequest(String),
    /// The upstream's name stands for an address that may not be dialled.
    #[error("{address} is at {ip}, which may not be dialled: it is {what}")]
    AddressRefused {
        /// The upstream.
        address: String,
        /// One of its addresses.
        ip: IpAddr,
        /// The reason.
        what: &'static str,
    },
    /// There is no connection to the upstream.
    #[error("cannot connect to {address}: {reason}")]
    Unreachable {
        /// The upstream.
        address: String,
        /// Why.
        reason: String,
    },
    /// The TLS handshake failed: a certificate that is not trusted, or no common version.
    #[error("the TLS handshake with {address} failed: {reason}")]
    Tls {
        /// The upstream.
        address: String,
        /// Why.
        reason: String,
    },
    /// Connection or handshake took too long.
    #[error("{address} did not take a connection within {} seconds", after.as_secs_f32())]
    ConnectTimeout {
        /// The upstream.
        address: String,
        /// The limit.
        after: Duration,
    },
    /// The head of the answer did not come in time.
    #[error("{address} did not answer within {} seconds", after.as_secs_f32())]
    AnswerTimeout {
        /// The upstream.
        address: String,
        /// The limit.
        after: Duration,
    },
    /// The upstream's bytes are no answer to the request.
    #[error("{address} sent a malformed answer: {reason}")]
    Malformed {
        /// The upstream.
        address: String,
        /// The reason.
        reason: String,
    },
    /// The upstream wants the client to go to another origin.
    #[error("{address} answered with a redirect to another place, which is not passed on")]
    Redirect {
        /// The upstream.
        address: String,
    },
    /// The connection broke off before the answer was complete.
    #[error("the connection to {address} was lost: {reason}")]
    Lost {
        /// The upstream.
        address: String,
        /// Why.
        reason: String,
    },
    /// The upstream takes no long heads, and the request has one.
    #[error("{address} takes no long heads: it answered with {status} in place of an upgrade")]
    NoLongHeads {
        /// The upstream.
        address: String,
        /// The status of its answer.
        status: StatusCode,
    },
    /// The client's body broke off.
    #[error("the client's request broke off")]
    ClientGone,
    /// The session of the request ended first.
    #[error("{0}")]
    SessionEnded(SessionEnd),
    /// There are as many connections as may be.
    #[error("there are {max} connections to upstreams, and no more are opened: try again later")]
    Overloaded {
        /// How many there may be.
        max: usize,
    },
    /// Every connection that the upstream has opened is in use.
    #[error("{address} has no free tunnel: try again later")]
    NoTunnel {
        /// The upstream.
        address: String,
    },
    /// The proxy is shutting down.
    #[error("the server is shutting down: try again")]
    Draining,
}

impl ProxyError {
    /// The status for the client. It is the same for every unreachable upstream, regardless of the
    /// cause. A client that chooses the address of an upstream must not learn which addresses and
    /// ports are open. For a broken body, the response has begun already.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(_) | Self::ClientGone => StatusCode::BAD_REQUEST,
            Self::Redirect { .. } => StatusCode::BAD_GATEWAY,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Whether the upstream could not be reached, or gave no answer: then the client is told this alone
    /// ([`UNREACHABLE`]), and the cause is for the log.
    pub fn is_unreachable(&self) -> bool {
        matches!(
            self,
            Self::AddressRefused { .. }
                | Self::Unreachable { .. }
                | Self::Tls { .. }
                | Self::ConnectTimeout { .. }
                | Self::AnswerTimeout { .. }
                | Self::Malformed { .. }
                | Self::Lost { .. }
        )
    }

    /// The class that it is counted in.
    pub fn failure(&self) -> Failure {
        match self {
            Self::BadRequest(_) => Failure::BadRequest,
            Self::AddressRefused { .. } => Failure::AddressRefused,
            Self::Unreachable { .. } => Failure::Unreachable,
            Self::Tls { .. } => Failure::Tls,
            Self::ConnectTimeout { .. } | Self::AnswerTimeout { .. } => Failure::Timeout,
            Self::Malformed { .. } | Self::Redirect { .. } | Self::NoLongHeads { .. } => {
                Failure::Malformed
            }
            Self::Lost { .. } => Failure::Lost,
            Self::ClientGone => Failure::ClientGone,
            Self::SessionEnded(_) => Failure::SessionEnded,
            Self::Overloaded { .. } | Self::NoTunnel { .. } | Self::Draining => Failure::Refused,
        }
    }
}

/// The classes in which failures are counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Failure {
    /// The client's request cannot be sent on.
    BadRequest,
    /// An address that may not be dialled.
    AddressRefused,
    /// No connection.
    Unreachable,
    /// The TLS handshake.
    Tls,
    /// Connection or answer took too long.
    Timeout,
    /// No answer, or a redirect to elsewhere.
    Malformed,
    /// The connection broke off.
    Lost,
    /// The client's body broke off.
    ClientGone,
    /// The session ended.
    SessionEnded,
    /// Too many connections, or shutting down.
    Refused,
}

impl Failure {
    /// All classes.
    pub const ALL: [Self; 10] = [
        Self::BadRequest,
        Self::AddressRefused,
        Self::Unreachable,
        Self::Tls,
        Self::Timeout,
        Self::Malformed,
        Self::Lost,
        Self::ClientGone,
        Self::SessionEnded,
        Self::Refused,
    ];

    /// The name of the class, for the label of a metric.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::AddressRefused => "address_refused",
            Self::Unreachable => "unreachable",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Malformed => "malformed",
            Self::Lost => "lost",
            Self::ClientGone => "client_gone",
            Self::SessionEnded => "session_ended",
            Self::Refused => "refused",
        }
    }
}
