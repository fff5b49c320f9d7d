//! The filter of headers, of requests and of answers. A header that names the caller, frames the
//! message, or is for one connection only, never passes. Names are compared as a backend may read
//! them: in any case, and with any punctuation in place of a hyphen. `X_Remote_User` is
//! `X-Remote-User` for a CGI program.

mod location;
mod request;
mod response;
mod websocket;

use http::{HeaderMap, HeaderName};

pub(crate) use request::{Framing, RequestFacts, request, wanted_upgrade};
pub(crate) use response::response;

/// Headers that name the sender of a request, or the proxies on its way: an upstream would believe
/// them. Only the proxy writes them.
const IDENTITY: &[&str] =
    &["authorization", "cookie", "cookie2", "forwarded", "impersonate", "x-forwarded", "x-real-ip"];
const IDENTITY_PREFIXES: &[&str] = &["impersonate-", "x-remote-", "x-forwarded-", "proxy-"];

/// Headers that are for one connection only, or frame a message (RFC 9110 section 7.6.1, RFC 9112
/// section 6). The proxy writes its own.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "content-length",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The other headers that a trailer must not have (RFC 9110 section 6.5.1). A server that merges
/// trailers into headers would read them too late, or believe them.
const NOT_IN_TRAILERS: &[&str] = &[
    "cache-control",
    "content-encoding",
    "content-range",
    "content-type",
    "date",
    "expect",
    "expires",
    "host",
    "location",
    "range",
    "set-cookie",
    "set-cookie2",
    "vary",
    "www-authenticate",
];

/// Whether two names are the same to a backend. `plain` is in lower case, with hyphens.
fn is_same(name: &[u8], plain: &str) -> bool {
    name.len() == plain.len() && begins(name, plain)
}

fn begins(name: &[u8], plain: &str) -> bool {
    name.len() >= plain.len()
        && name.iter().zip(plain.as_bytes()).all(|(byte, plain)| {
            byte.to_ascii_lowercase() == *plain || *plain == b'-' && !byte.is_ascii_alphanumeric()
        })
}

fn is_one_of(name: &[u8], names: &[&str]) -> bool {
    names.iter().any(|plain| is_same(name, plain))
}

fn is_identity(name: &[u8]) -> bool {
    is_one_of(name, IDENTITY) || IDENTITY_PREFIXES.iter().any(|prefix| begins(name, prefix))
}

fn is_hop_by_hop(name: &[u8]) -> bool {
    // Proxy-Connection, Proxy-Authenticate and the like.
    is_one_of(name, HOP_BY_HOP) || begins(name, "proxy-")
}

fn may_be_trailer(name: &[u8], own: &[HeaderName]) -> bool {
    !is_identity(name)
        && !is_hop_by_hop(name)
        && !begins(name, "sec-websocket-")
        && !is_one_of(name, NOT_IN_TRAILERS)
        && !own.iter().any(|own| is_same(name, own.as_str()))
}

/// Removes the fields that a trailer must not have. `own` are the names of the added headers.
pub(crate) fn clean_trailers(trailers: &mut HeaderMap, own: &[HeaderName]) {
    let bad: Vec<_> = trailers
        .keys()
        .filter(|name| !may_be_trailer(name.as_str().as_bytes(), own))
        .cloned()
        .collect();
    for name in bad {
        trailers.remove(name);
    }
}

/// The tokens of all lines of a header: lists are separated by commas.
fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    headers
        .get_all(name)
        .into_iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|token| !token.is_empty())
}

/// The announced trailers that may be there, as the value of `Trailer`.
fn announced_trailers(headers: &HeaderMap, own: &[HeaderName]) -> Option<http::HeaderValue> {
    let names: Vec<&[u8]> = tokens(headers, &http::header::TRAILER)
        .filter(|name| HeaderName::from_bytes(name).is_ok() && may_be_trailer(name, own))
        .collect();
    if names.is_empty() {
        return None;
    }
    http::HeaderValue::from_bytes(&names.join(&b", "[..])).ok()
}
