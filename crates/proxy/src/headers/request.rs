//! The headers of a request on its way to the upstream.

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, SEC_WEBSOCKET_PROTOCOL, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version, request};

use super::{announced_trailers, begins, is_hop_by_hop, is_identity, is_one_of, tokens, websocket};
use crate::error::ProxyError;
use crate::origin::Origin;

/// Names in one `Connection` header, beyond the usual ones. Each is compared with each header.
const MAX_CONNECTION_NAMES: usize = 16;

/// Options of `Connection` that are no names of headers to remove, or of such that are removed anyway.
const USUAL_OPTIONS: &[&str] =
    &["close", "http2-settings", "keep-alive", "te", "trailer", "upgrade"];

/// Headers that the decision about a request depends on. `Connection` must not take them away.
const PROTECTED: &[&str] =
    &["connection", "content-length", "content-type", "expect", "host", "transfer-encoding"];

/// A protocol that a connection can be upgraded to. Others, such as HTTP/2 without TLS, would hide
/// further requests from authorization, and are not passed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Upgrade {
    /// RFC 6455.
    WebSocket,
    /// The protocol of kubectl for exec, attach and port-forward until 1.31.
    Spdy,
}

impl Upgrade {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::WebSocket => "websocket",
            Self::Spdy => "SPDY/3.1",
        }
    }

    pub(crate) fn is_named(self, name: &[u8]) -> bool {
        name.eq_ignore_ascii_case(self.name().as_bytes())
    }
}

/// The properties of a request that the answer is checked against.
#[derive(Debug, Default)]
pub(crate) struct RequestFacts {
    pub(crate) method: Method,
    pub(crate) upgrade: Option<Upgrade>,
    /// The WebSocket sub-protocols that the upstream is offered.
    pub(crate) sub_protocols: Vec<String>,
    /// Whether the client waits for a word before it sends the body.
    pub(crate) expects_continue: bool,
}

/// The framing of a request's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Framing {
    None,
    Exact(u64),
    Chunked,
}

/// The protocol that a request asks to upgrade to, if the proxy passes it on.
pub(crate) fn wanted_upgrade(parts: &request::Parts) -> Option<Upgrade> {
    let asks = parts.version == Version::HTTP_11
        && parts.method != Method::CONNECT
        && tokens(&parts.headers, &CONNECTION)
            .any(|option| option.eq_ignore_ascii_case(b"upgrade"));
    if !asks {
        return None;
    }
    tokens(&parts.headers, &UPGRADE).find_map(|name| {
        [Upgrade::WebSocket, Upgrade::Spdy].into_iter().find(|upgrade| upgrade.is_named(name))
    })
}

/// The headers for the upstream, and the requested upgrade and trailers. `own` are the added
/// headers, which replace any of their names.
///
/// # Errors
/// [`ProxyError::BadRequest`] if `Connection` names a header that it must not take away.
pub(crate) fn request(
    parts: &request::Parts,
    framing: Framing,
    own: HeaderMap,
    upstream: &Origin,
) -> Result<(HeaderMap, RequestFacts), ProxyError> {
    let headers = &parts.headers;
    let upgrade = wanted_upgrade(parts);
    let dropped = connection_names(headers, &own)?;
    let own_names: Vec<HeaderName> = own.keys().cloned().collect();
    let passes = |name: &HeaderName| {
        let bytes = name.as_str().as_bytes();
        !is_identity(bytes)
            && !is_hop_by_hop(bytes)
            && !is_one_of(bytes, &["host", "expect", "sec-websocket-protocol"])
            && !own_names.iter().any(|own| super::is_same(bytes, own.as_str()))
            && !dropped.contains(name)
    };
    let mut outgoing = HeaderMap::with_capacity(headers.len() + own.len() + 4);
    for (name, value) in headers.iter().filter(|(name, _)| passes(name)) {
        outgoing.append(name, value.clone());
    }
    let sub_protocols = match upgrade {
        Some(Upgrade::WebSocket) => websocket::offered(headers)?,
        _ => Vec::new(),
    };
    if !sub_protocols.is_empty() {
        let value = HeaderValue::from_str(&sub_protocols.join(", "));
        outgoing.insert(
            SEC_WEBSOCKET_PROTOCOL,
            value.map_err(|_| bad("Sec-WebSocket-Protocol is no list of names"))?,
        );
    }
    let expects_continue = framing != Framing::None
        && parts.version >= Version::HTTP_11
        && tokens(headers, &EXPECT).any(|value| value.eq_ignore_ascii_case(b"100-continue"));
    if expects_continue {
        outgoing.insert(EXPECT, HeaderValue::from_static("100-continue"));
    }
    // Only chunks can be followed by trailers, also where the length is known: HTTP/2 has both.
    let trailers = announced_trailers(headers, &own_names).filter(|_| framing != Framing::None);
    let framing = if trailers.is_some() { Framing::Chunked } else { framing };
    outgoing.extend(trailers.map(|names| (TRAILER, names)));
    add_own(&mut outgoing, own, upstream);
    frame(&mut outgoing, &parts.method, framing);
    connect(&mut outgoing, headers, upgrade);
    let method = parts.method.clone();
    Ok((outgoing, RequestFacts { method, upgrade, sub_protocols, expects_continue }))
}

fn bad(reason: &str) -> ProxyError {
    ProxyError::BadRequest(reason.to_owned())
}

/// The headers that `Connection` names, which are for this connection only.
fn connection_names(headers: &HeaderMap, own: &HeaderMap) -> Result<Vec<HeaderName>, ProxyError> {
    let mut names = Vec::new();
    for option in tokens(headers, &CONNECTION) {
        if USUAL_OPTIONS.iter().any(|usual| option.eq_ignore_ascii_case(usual.as_bytes())) {
            continue;
        }
        let name = HeaderName::from_bytes(option)
            .map_err(|_| bad("the Connection header is no list of names"))?;
        let is_ours = is_identity(option)
            || is_one_of(option, PROTECTED)
            || begins(option, "sec-websocket-")
            || own.keys().any(|own| super::is_same(option, own.as_str()));
        if is_ours {
            return Err(bad(&format!(
                "the Connection header names {name}, which is not for one connection only: leave \
                 it out"
            )));
        }
        if names.len() == MAX_CONNECTION_NAMES {
            return Err(bad("the Connection header names too many headers"));
        }
        names.push(name);
    }
    Ok(names)
}

/// Adds the proxy's headers: the host and the added headers.
fn add_own(outgoing: &mut HeaderMap, own: HeaderMap, upstream: &Origin) {
    let mut current = None;
    for (name, mut value) in own {
        current = name.or(current);
        let Some(name) = &current else { continue };
        let bytes = name.as_str().as_bytes();
        if is_one_of(bytes, super::HOP_BY_HOP) || name == HOST || name == EXPECT {
            continue;
        }
        value.set_sensitive(name == AUTHORIZATION);
        outgoing.append(name, value);
    }
    outgoing.insert(HOST, upstream.host_header.clone());
}

fn frame(outgoing: &mut HeaderMap, method: &Method, framing: Framing) {
    match framing {
        Framing::Exact(length) => {
            outgoing.insert(CONTENT_LENGTH, length.into());
        }
        Framing::Chunked => {
            outgoing.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        // RFC 9110 section 8.6: where a body is usual, its absence is said.
        Framing::None if [Method::POST, Method::PUT, Method::PATCH].contains(method) => {
            outgoing.insert(CONTENT_LENGTH, 0.into());
        }
        Framing::None => {}
    }
}

fn connect(outgoing: &mut HeaderMap, headers: &HeaderMap, upgrade: Option<Upgrade>) {
    if let Some(upgrade) = upgrade {
        outgoing.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        outgoing.insert(UPGRADE, HeaderValue::from_static(upgrade.name()));
    } else if tokens(headers, &TE).any(|coding| coding.eq_ignore_ascii_case(b"trailers")) {
        outgoing.insert(CONNECTION, HeaderValue::from_static("te"));
        outgoing.insert(TE, HeaderValue::from_static("trailers"));
    }
}
