//! Tokens (JWTs) of the server itself: for other servers, and for agents. No caller is given one.

use http::HeaderValue;
use postern_auth::endpoint_token::{Claims, PlatformClaims};
use postern_meta::status::ApiError;
use postern_registry::clock::new_uid;
use postern_registry::registry::Registry;

/// The lifetime of a token. It only has to last until the receiver has read the head of the request.
const TTL_SECONDS: i64 = 60;

/// The name of the issuer's side in a token.
pub(super) const SUBJECT: &str = "system:postern";

/// The value of a header with a token for one audience, after `scheme`.
///
/// # Errors
/// 503 when no token can be issued.
pub(super) fn header(
    registry: &Registry,
    scheme: &str,
    audience: String,
) -> Result<HeaderValue, ApiError> {
    let now = registry.source().now();
    let seconds = now.unix_seconds();
    let claims = Claims {
        iss: registry.token_policy().issuer.clone(),
        sub: SUBJECT.to_owned(),
        aud: vec![audience],
        iat: seconds,
        nbf: seconds,
        exp: seconds + TTL_SECONDS,
        jti: new_uid(registry.source()),
        groups: Vec::new(),
        platform: PlatformClaims::default(),
    };
    let unavailable =
        || ApiError::unavailable("cannot issue a token of the server itself".to_owned(), None);
    let keys = registry.cache().signing_keys();
    let signer = keys.signer(now).ok_or_else(unavailable)?;
    let token = signer.issue(&claims).map_err(|_| unavailable())?;
    let value = HeaderValue::from_str(&[scheme, token.expose()].concat());
    let mut value = value.map_err(|_| unavailable())?;
    value.set_sensitive(true);
    Ok(value)
}
