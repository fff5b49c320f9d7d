//! The public keys of endpoint tokens (RFC 7517 section 5), which everyone may read: agents and other
//! readers of tokens verify with them (`docs/reference/endpoint-tokens.md#signing-keys`).

use bytes::Bytes;
use http::header::{CACHE_CONTROL, HeaderValue};
use http::{Response, StatusCode};

use crate::wire::body::Body;
use crate::wire::respond;

/// The path, under the base path: as in Kubernetes.
pub(crate) const PATH: &str = "/openid/v1/jwks";

/// How long a reader may keep it. A new key is published long before it signs; agents hear of a dropped one
/// at once by another way.
const CACHING: HeaderValue = HeaderValue::from_static("public, max-age=300");

/// The response with the keys.
pub(crate) fn response(document: Bytes) -> Response<Body> {
    let mut response = respond::whole(StatusCode::OK, "application/jwk-set+json", document);
    response.headers_mut().insert(CACHE_CONTROL, CACHING);
    response
}
