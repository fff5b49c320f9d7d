//! The sub-protocols of a WebSocket (RFC 6455 section 11.3.4). Browsers cannot set `Authorization` on
//! a WebSocket, so Kubernetes takes a bearer token as one of them.

use http::header::SEC_WEBSOCKET_PROTOCOL;
use http::{HeaderMap, HeaderName};

use super::tokens;
use crate::error::ProxyError;

/// How a sub-protocol begins that is a bearer token.
const BEARER_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// Sub-protocols in one request.
const MAX_SUB_PROTOCOLS: usize = 32;

/// The sub-protocols that a client offers, without its credential.
pub(super) fn offered(headers: &HeaderMap) -> Result<Vec<String>, ProxyError> {
    let mut offered = Vec::new();
    for token in tokens(headers, &SEC_WEBSOCKET_PROTOCOL) {
        let name = std::str::from_utf8(token)
            .ok()
            .filter(|name| name.len() <= BEARER_PREFIX.len() + 16 * 1024 && is_name(name));
        let name = name.ok_or_else(|| {
            ProxyError::BadRequest("Sec-WebSocket-Protocol is no list of names".to_owned())
        })?;
        let is_token = name
            .get(..BEARER_PREFIX.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(BEARER_PREFIX));
        if is_token {
            continue;
        }
        if offered.len() == MAX_SUB_PROTOCOLS {
            let reason = format!("there are more than {MAX_SUB_PROTOCOLS} WebSocket sub-protocols");
            return Err(ProxyError::BadRequest(reason));
        }
        offered.push(name.to_owned());
    }
    Ok(offered)
}

/// Whether a sub-protocol is a token, or several with slashes between them. The RFC allows no slash, but
/// kubectl's port-forward has one: `SPDY/3.1+portforward.k8s.io`.
fn is_name(text: &str) -> bool {
    // The rule for tokens is that for names of headers.
    text.split('/').all(|token| HeaderName::from_bytes(token.as_bytes()).is_ok())
}

/// Whether an upstream chose at most one sub-protocol, and only an offered one.
pub(super) fn is_choice_offered(headers: &HeaderMap, offered: &[String]) -> bool {
    let mut chosen = tokens(headers, &SEC_WEBSOCKET_PROTOCOL);
    match (chosen.next(), chosen.next()) {
        (None, _) => true,
        (Some(one), None) => offered.iter().any(|offered| offered.as_bytes() == one),
        (Some(_), Some(_)) => false,
    }
}
