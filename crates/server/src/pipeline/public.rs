//! The entry point of public paths: health, version, the ways to log in, the console, and the public keys of tokens.

use http::{Method, Request, Response, StatusCode};
use postern_kinds::BASE_PATH;
use postern_meta::decode::Format;
use postern_meta::options::{Query, parameter_warnings};
use postern_meta::status::{ApiError, Reason};

use super::{Outcome, Server};
use crate::endpoints::{console, health, jwks, version};
use postern_http::metrics::Measured;
use postern_http::wire::body::Body;
use postern_http::wire::incoming::IncomingBody;
use postern_http::wire::respond;

/// The response to a path that needs no credential, at the root or under the base path; `None` for all other
/// paths.
pub(super) fn outcome(
    server: &Server,
    request: &Request<IncomingBody>,
    measured: &mut Measured,
) -> Option<Outcome> {
    let path = request.uri().path();
    let under_base = path.strip_prefix(BASE_PATH).filter(|rest| rest.starts_with('/'));
    let path = under_base.unwrap_or(path);
    let query = request.uri().query().unwrap_or_default();
    let response = if path.strip_suffix('/').unwrap_or(path) == "/version" {
        let at_root = under_base.is_none();
        let document = if at_root { version::document_at_root() } else { version::document() };
        respond::value(StatusCode::OK, &document, true)
    } else if path == "/auth/methods" && under_base.is_none() {
        respond::value(StatusCode::OK, &server.sso.methods(), false)
    } else if under_base.is_none()
        && let Some(console) = &server.console
        && let Some(page) = console::response(console, request)
    {
        page
    } else if path == jwks::PATH && under_base.is_some() && server.is_loaded() {
        jwks::response(server.registry.cache().signing_keys().document().clone())
    } else {
        health::response(path, query, || server.condition())?
    };
    let warnings = warnings(request);
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        measured.set_public_path(path);
        return Some(Outcome { warnings, ..response.into() });
    }
    Some(Outcome { warnings, ..not_get(request.method()).into() })
}

fn not_get(method: &Method) -> Response<Body> {
    respond::error(&method_not_allowed(method), Format::Json, false)
}

/// The error for a method that a path without objects does not serve.
pub(super) fn method_not_allowed(method: &Method) -> ApiError {
    let message = format!("{method} is not supported on this path: use GET");
    ApiError::new(405, Reason::MethodNotAllowed, message)
}

/// Warnings about the parameters of a public path. Health checks have parameters of their own.
fn warnings<T>(request: &Request<T>) -> Vec<String> {
    let is_methods = request.uri().path() == "/auth/methods";
    let query = request.uri().query().filter(|_| is_methods).map(Query::parse);
    query.and_then(Result::ok).map_or(Vec::new(), |query| parameter_warnings(&query, None))
}
