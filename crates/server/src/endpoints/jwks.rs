//! The public keys of endpoint tokens (RFC 7517 section 5). They need no credential: agents and other programs verify
//! tokens with them (`docs/reference/endpoint-tokens.md#signing-keys`).

use bytes::Bytes;
use http::header::{CACHE_CONTROL, HeaderValue};
use http::{Response, StatusCode};

use postern_http::wire::body::Body;
use postern_http::wire::respond;

/// The path below the base path, as in Kubernetes.
pub(crate) const PATH: &str = "/openid/v1/jwks";

/// How long clients may cache the keys. A new key is published long before it signs. Agents get the removal of a key
/// at once, with their configuration.
const CACHING: HeaderValue = HeaderValue::from_static("public, max-age=300");

/// The response with the keys.
pub(crate) fn response(document: Bytes) -> Response<Body> {
    let mut response = respond::whole(StatusCode::OK, "application/jwk-set+json", document);
    response.headers_mut().insert(CACHE_CONTROL, CACHING);
    response
}
