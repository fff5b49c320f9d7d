//! Serves the requests of logins: finds the handler by the path.

use super::places::Place;
use super::token_error::TokenError;
use crate::Refused;
use crate::Sso;
use crate::command_line;
use crate::exchange;
use crate::refused::Uncounted;
use crate::refused::allowed;
use crate::refused::refusal;
use crate::sso::BACKCHANNEL_LOGOUT;
use crate::sso::CONNECTORS;
use crate::sso::NO_CONSOLE;
use http::{Method, Request, Response, StatusCode};
use postern_audit::SignIn;
use postern_http::stages::parse::AUTHORIZE_PATH;
use postern_http::wire::body::Body;
use postern_http::wire::incoming::IncomingBody;
use postern_http::wire::respond;
use postern_listen::network;
use postern_meta::decode::Format;
use postern_meta::status::ApiError;
use std::net::IpAddr;

/// The response to a request that is refused before it is read, in the form that clients of its path expect. It counts as no
/// failed login: clients that retry while the server starts would be locked out afterwards.
pub fn error(path: &str, error: &ApiError, is_page: bool) -> Response<Body> {
    let mut response = if Sso::is_of_program(path) {
        TokenError::from(error).response()
    } else if is_page {
        refusal(&Refused::from(error))
    } else {
        respond::error(error, Format::Json, false)
    };
    response.extensions_mut().insert(Uncounted);
    response
}

/// Whether a response counts as a failed login of the client's address.
pub fn is_failure(response: &Response<Body>) -> bool {
    let code = response.status();
    (code.is_client_error() || code.is_server_error())
        && response.extensions().get::<Uncounted>().is_none()
}

/// A request without a credential.
pub struct Visit<'a> {
    /// The address that it comes from.
    pub address: IpAddr,
    /// The id of its audit record.
    pub audit_id: &'a http::HeaderValue,
    /// Whether this server has the web console, where users consent to logins of the command line.
    pub has_console: bool,
}

impl Sso {
    /// Whether a request is served here, without a credential.
    pub fn serves(method: &Method, path: &str) -> bool {
        path.starts_with(CONNECTORS)
            || Self::is_of_program(path)
            || (path == AUTHORIZE_PATH && method != Method::POST)
    }

    /// Whether a path is that of programs: exchanges of tokens and codes, and logins with a browser on another machine.
    pub fn is_of_program(path: &str) -> bool {
        path == exchange::PATH || path == command_line::DEVICE_PATH
    }

    /// Whether a path is that of logouts at a provider.
    pub fn is_logout(path: &str) -> bool {
        path.starts_with(CONNECTORS) && path.ends_with(BACKCHANNEL_LOGOUT)
    }

    /// Serves a request of a browser, a program or a provider. Scarce resources are taken after its
    /// body has arrived.
    pub async fn serve(&self, request: Request<IncomingBody>, visit: Visit<'_>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let address = visit.address;
        let record = SignIn::begin(&self.audit, &head.uri, &head.headers, address, visit.audit_id);
        match head.uri.path() {
            command_line::DEVICE_PATH if !visit.has_console => {
                record.end(StatusCode::NOT_FOUND, Some(NO_CONSOLE));
                return TokenError::of(StatusCode::NOT_FOUND, "access_denied", NO_CONSOLE)
                    .response();
            }
            command_line::DEVICE_PATH => {
                return self.begin_device(&head, body, address, record).await;
            }
            exchange::PATH => return self.exchange(&head, body, address, record).await,
            _ => {}
        }
        let path = head.uri.path().strip_prefix(CONNECTORS).unwrap_or_default();
        let served = match path.split_once('/') {
            None if head.uri.path() == AUTHORIZE_PATH && !visit.has_console => {
                Err(Refused::new(StatusCode::NOT_FOUND, NO_CONSOLE))
            }
            None if head.uri.path() == AUTHORIZE_PATH => command_line::authorize(&head),
            Some((name, "backchannel-logout")) => {
                return self.logout(name, &head, address, body, record).await;
            }
            Some((name, page @ ("start" | "callback"))) => {
                drop(body);
                match self.place_of_browser(name, &head, address).await {
                    Err(refused) => Err(refused),
                    Ok(_place) if page == "start" => self.start(name, &head).await,
                    Ok(_place) => return self.callback(name, &head, address, record).await,
                }
            }
            _ => Err(Refused::new(StatusCode::NOT_FOUND, "there is no such page")),
        };
        served.unwrap_or_else(|refused| {
            record.end(refused.code, Some(&refused.text));
            refusal(&refused)
        })
    }

    /// A place for the login of a browser, which has no body.
    async fn place_of_browser(
        &self,
        connector: &str,
        head: &http::request::Parts,
        address: IpAddr,
    ) -> Result<Place, Refused> {
        allowed(&head.method, &Method::GET)?;
        Ok(self.logins_of_browsers.take(connector, network(address)).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_that_is_refused_before_it_is_read_is_no_failure() {
        let starting = ApiError::unavailable("the server is starting", Some(1));
        for (path, is_page) in
            [("/auth/token", false), ("/auth/authorize", true), ("/auth/authorize", false)]
        {
            let response = error(path, &starting, is_page);
            assert_eq!(response.status(), 503, "{path}");
            assert!(!is_failure(&response), "{path}");
        }
        let refused = respond::error(&starting, Format::Json, false);
        assert!(is_failure(&refused), "other errors of the server count");
    }
}
