//! The entry point of a request: a public path, a login, a request of another server, or the API. It is decided once, and
//! then says which stages the request passes.

use std::net::IpAddr;

use http::{Method, Request, Response, StatusCode};
use postern_meta::status::ApiError;

use super::browser_headers::AUTH_PREFIX;
use super::login_failures::LoginKind;
use super::{Outcome, Server, login, public};
use postern_gateway::relay::{self, Relay};
use postern_http::metrics::Measured;
use postern_http::wire::body::Body;
use postern_http::wire::incoming::IncomingBody;
use postern_sso::Sso;

/// The seconds after which a client may retry a request that was rejected at the server's start or shutdown.
const RETRY_AFTER_SECONDS: u32 = 1;

/// The entry point of a request: the part of the server that serves it.
pub(super) enum EntryPoint {
    /// A path that needs no credential, with its response. It is boxed: other requests need no room for it.
    Public(Box<Outcome>),
    /// A login, an exchange of a token, or a logout at a provider. None needs a credential of this server.
    Login(LoginKind),
    /// A request that another server hands over.
    Relay,
    /// The request of another server that opens a connection for requests with long heads.
    RelayOpening,
    /// The API. A 401 counts as a failed login of this kind.
    Api(Option<LoginKind>),
}

/// Which responses count as failed logins of the client's address.
#[derive(Clone, Copy)]
pub(super) enum CountedFailures {
    /// No response.
    None,
    /// Those of a login that failed by a fault of the client.
    OfLogin(LoginKind),
    /// A 401 of the API.
    Unauthenticated(LoginKind),
}

impl EntryPoint {
    /// The entry point of a request. The series of a path that needs no credential is set as well.
    pub(super) fn of(
        server: &Server,
        request: &Request<IncomingBody>,
        measured: &mut Measured,
    ) -> Self {
        match relay::check(&server.gateway, &server.registry, request) {
            Relay::None => {}
            Relay::Valid => return Self::Relay,
            Relay::Opening => return Self::RelayOpening,
            Relay::Refused => return Self::Api(Some(LoginKind::Server)),
        }
        let path = request.uri().path();
        if Sso::serves(request.method(), path) {
            measured.set_public_path(path);
            return Self::Login(login::kind_of(path));
        }
        match public::outcome(server, request, measured) {
            Some(outcome) => Self::Public(Box::new(outcome)),
            None => Self::Api(begins_session(request).then_some(LoginKind::Person)),
        }
    }

    /// Checks that the server serves requests of this entry point. It decides no request before the whole policy is loaded.
    ///
    /// # Errors
    /// 503 while the server starts, and during its shutdown. Public paths are served then, too.
    pub(super) fn check_phase(&self, server: &Server) -> Result<(), ApiError> {
        let unavailable = |message| Err(ApiError::unavailable(message, Some(RETRY_AFTER_SECONDS)));
        match self {
            Self::Public(_) | Self::RelayOpening => return Ok(()),
            Self::Login(_) | Self::Relay | Self::Api(_) => {}
        }
        if !server.is_loaded() {
            return unavailable("the server is starting: the stored objects are not loaded yet");
        }
        if server.is_draining() {
            return unavailable("the server is shutting down");
        }
        Ok(())
    }

    /// Whether the path is known to contain no access key before the request is parsed.
    pub(super) fn has_clean_path(&self) -> bool {
        match self {
            Self::Public(_) | Self::Relay | Self::RelayOpening => true,
            Self::Login(_) | Self::Api(_) => false,
        }
    }

    /// Which responses count as failed logins.
    pub(super) fn counted_failures(&self) -> CountedFailures {
        match self {
            Self::Login(kind) => CountedFailures::OfLogin(*kind),
            Self::Api(Some(kind)) => CountedFailures::Unauthenticated(*kind),
            Self::Public(_) | Self::Relay | Self::RelayOpening | Self::Api(None) => {
                CountedFailures::None
            }
        }
    }
}

impl CountedFailures {
    /// Counts a response, if it is a failed login.
    ///
    /// # Errors
    /// 429 in the place of a 401 if the address has failed too often. A login gets the 429 at its next request instead: this
    /// one was served already.
    pub(super) fn count(
        self,
        server: &Server,
        address: IpAddr,
        response: &Response<Body>,
    ) -> Result<(), ApiError> {
        match self {
            Self::OfLogin(kind) if postern_sso::is_failure(response) => {
                let _ = server.count_failure(kind, address);
                Ok(())
            }
            Self::Unauthenticated(kind) if response.status() == StatusCode::UNAUTHORIZED => {
                server.count_failure(kind, address)
            }
            Self::None | Self::OfLogin(_) | Self::Unauthenticated(_) => Ok(()),
        }
    }
}

/// Whether a request begins a session, or something else that needs a key or a session at a path
/// for logins. A 401 counts as a failed login, and a valid key is never refused for the failures of
/// others at its address. A request that reads or ends a session does not count: a browser with an
/// ended session sends it with each page.
fn begins_session(request: &Request<IncomingBody>) -> bool {
    request.method() == Method::POST && request.uri().path().starts_with(AUTH_PREFIX)
}
