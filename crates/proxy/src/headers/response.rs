//! The headers of an answer on its way to the client.

use http::header::{CONNECTION, CONTENT_LENGTH, LOCATION, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, StatusCode, response};

use super::location::location;
use super::{RequestFacts, announced_trailers, is_hop_by_hop, is_one_of, tokens, websocket};
use crate::error::ProxyError;
use crate::origin::Origin;

/// The headers that an upstream must not send in our name. Cookies would be set for our origin, and some headers lead
/// the client elsewhere. A browser applies the last ones to all of our origin. It would forget stored data, demand TLS
/// of our other ports, report its requests elsewhere, or let a script of the upstream see them.
const NOT_PASSED: &[&str] = &[
    "set-cookie",
    "set-cookie2",
    "alt-svc",
    "refresh",
    "clear-site-data",
    "nel",
    "public-key-pins",
    "report-to",
    "reporting-endpoints",
    "service-worker-allowed",
    "strict-transport-security",
];

/// The headers for the client. `prefix` is the path of the upstream at this server's address.
///
/// # Errors
/// [`ProxyError::Malformed`] if the message has two lengths, or switches protocols without being
/// asked; [`ProxyError::Redirect`] if it leads to another place.
pub(crate) fn response(
    parts: &response::Parts,
    facts: &RequestFacts,
    upstream: &Origin,
    prefix: &str,
) -> Result<HeaderMap, ProxyError> {
    let malformed = |reason: &str| ProxyError::Malformed {
        address: upstream.address.to_string(),
        reason: reason.to_owned(),
    };
    let headers = &parts.headers;
    check_framing(headers).map_err(malformed)?;
    let mut passed = HeaderMap::with_capacity(headers.len());
    let dropped: Vec<&[u8]> = tokens(headers, &CONNECTION).take(64).collect();
    for (name, value) in headers {
        let bytes = name.as_str().as_bytes();
        let is_dropped = is_hop_by_hop(bytes)
            || is_one_of(bytes, NOT_PASSED)
            || dropped.iter().any(|dropped| bytes.eq_ignore_ascii_case(dropped));
        if !is_dropped && name != LOCATION {
            passed.append(name, value.clone());
        }
    }
    let mut locations = headers.get_all(LOCATION).iter();
    if let Some(value) = locations.next() {
        let redirect = || ProxyError::Redirect { address: upstream.address.to_string() };
        let value = match locations.next() {
            None => location(value, upstream, prefix),
            Some(_) => None,
        };
        match value {
            Some(value) => {
                passed.insert(LOCATION, value);
            }
            None if parts.status.is_redirection() => return Err(redirect()),
            // Elsewhere it is only a hint.
            None => {}
        }
    }
    if parts.status == StatusCode::SWITCHING_PROTOCOLS {
        switch(&mut passed, headers, facts).map_err(malformed)?;
        return Ok(passed);
    }
    if facts.upgrade.is_some() {
        // The connection stays one exchange: the next bytes of the client on it are no request.
        passed.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if let Some(names) = announced_trailers(headers, &[]) {
        passed.insert(TRAILER, names);
    }
    if (facts.method == Method::HEAD || parts.status == StatusCode::NOT_MODIFIED)
        && let Some(length) = length(headers)
    {
        passed.insert(CONTENT_LENGTH, length.into());
    }
    Ok(passed)
}

/// An answer has one length: two can be read in two ways, by two readers.
fn check_framing(headers: &HeaderMap) -> Result<(), &'static str> {
    let has_length = headers.contains_key(CONTENT_LENGTH);
    if headers.contains_key(TRANSFER_ENCODING) {
        let mut codings = tokens(headers, &TRANSFER_ENCODING);
        if has_length {
            return Err("it has both Content-Length and Transfer-Encoding");
        }
        let is_chunked =
            codings.next().is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked"));
        if !is_chunked || codings.next().is_some() {
            return Err("its Transfer-Encoding is something else than chunked");
        }
    }
    if has_length && length(headers).is_none() {
        return Err("its Content-Length is no number, or several");
    }
    Ok(())
}

/// The one length that a message has.
fn length(headers: &HeaderMap) -> Option<u64> {
    let mut lengths = tokens(headers, &CONTENT_LENGTH).map(|length| {
        let text = std::str::from_utf8(length).ok()?;
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok())?
    });
    let first = lengths.next()??;
    lengths.all(|length| length == Some(first)).then_some(first)
}

/// Checks that the upstream switches to the requested protocol, and says so to the client.
fn switch(
    passed: &mut HeaderMap,
    headers: &HeaderMap,
    facts: &RequestFacts,
) -> Result<(), &'static str> {
    let Some(upgrade) = facts.upgrade else {
        return Err("it switches protocols, and was not asked to");
    };
    let mut names = tokens(headers, &UPGRADE);
    let is_asked = names.next().is_some_and(|name| upgrade.is_named(name));
    if !is_asked || names.next().is_some() {
        return Err("it switches to another protocol than it was facts for");
    }
    if !websocket::is_choice_offered(headers, &facts.sub_protocols) {
        return Err("it chose a WebSocket sub-protocol that was not offered");
    }
    passed.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    passed.insert(UPGRADE, HeaderValue::from_static(upgrade.name()));
    Ok(())
}
