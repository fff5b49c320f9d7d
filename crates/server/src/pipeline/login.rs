//! The entry point of logins. A login passes other checks in place of authentication, and takes
//! other slots than those of an owner.

use http::{HeaderMap, Request, Response, StatusCode, header};
use postern_meta::status::ApiError;

use super::{Caller, LoginKind, Server};
use postern_audit::SignIn;
use postern_http::wire::body::Body;
use postern_http::wire::incoming::IncomingBody;
use postern_sso::{Sso, Visit};

/// The kind of the login at a path, for the limits of failed logins.
pub(super) fn kind_of(path: &str) -> LoginKind {
    if Sso::is_logout(path) {
        LoginKind::Logout
    } else if Sso::is_of_program(path) {
        LoginKind::Token
    } else {
        LoginKind::Person
    }
}

/// Serves a login, which needs no credential. `admitted` is the result of the stages before. The failed logins of the
/// address are checked here. Its slots are the places of its connector and of its address, and its audit record is a
/// [`SignIn`].
pub(super) async fn serve(
    server: &Server,
    caller: Caller<'_>,
    request: Request<IncomingBody>,
    kind: LoginKind,
    admitted: Result<(), ApiError>,
) -> Response<Body> {
    let Caller { address, audit_id, .. } = caller;
    let path = request.uri().path().to_owned();
    let is_page = accepts_html(request.headers());
    // Not a refused stream: a browser repeats that, and shows its page no code and no time to wait.
    let refused = |error: &ApiError| postern_sso::error(&path, error, is_page);
    if let Err(error) = admitted {
        return refused(&error);
    }
    if let Err(error) = server.check_failures(kind, address) {
        let (uri, headers) = (request.uri(), request.headers());
        let record = SignIn::begin(&server.audit, uri, headers, address, audit_id);
        record.end(StatusCode::TOO_MANY_REQUESTS, Some(&error.status().message));
        return refused(&error);
    }
    let visit = Visit { address, audit_id, has_console: server.console.is_some() };
    server.sso.serve(request, visit).await
}

/// Whether a client wants a page: a browser that follows a link or a redirect.
fn accepts_html(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}
