//! The WebSocket headers of a request (RFC 6455): whether it requests a WebSocket, the offered sub-protocols, the
//! credential among them, and the origin.
//!
//! `wire::websocket` has the handshake and the frames. The gateway forwards upgrades, and has other rules for the
//! headers.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{CONNECTION, HOST, HeaderName, ORIGIN, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::uri::Authority;
use http::{HeaderMap, Uri};
use postern_meta::status::{ApiError, Reason};
use zeroize::Zeroizing;

/// The prefix of a sub-protocol that is a bearer token, as in kube-apiserver. Browsers cannot set `Authorization` on a
/// WebSocket.
const BEARER_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// The credential among the sub-protocols.
pub enum Credential {
    /// There is no credential.
    None,
    /// The bearer token.
    Token(Zeroizing<String>),
    /// The credential is invalid, and the text says what to do. There are several, or the token is not base64url, or it
    /// is the only sub-protocol. In the last case the response could select none, and kube-apiserver rejects it too.
    Unusable(&'static str),
}

/// Whether a request is for a WebSocket.
pub fn is_requested(headers: &HeaderMap) -> bool {
    if !headers.contains_key(UPGRADE) {
        return false;
    }
    let has = |name, wanted: &str| {
        listed(headers, name).any(|token: &str| token.eq_ignore_ascii_case(wanted))
    };
    has(&UPGRADE, "websocket") && has(&CONNECTION, "upgrade")
}

/// The offered sub-protocols, without the credential.
pub fn sub_protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    listed(headers, &SEC_WEBSOCKET_PROTOCOL).filter(|offered| encoded_token(offered).is_none())
}

/// Whether a credential is among the sub-protocols.
pub fn has_credential(headers: &HeaderMap) -> bool {
    listed(headers, &SEC_WEBSOCKET_PROTOCOL).any(|offered| encoded_token(offered).is_some())
}

/// The credential among the sub-protocols of a request for a WebSocket. Other requests have none.
pub fn credential(headers: &HeaderMap) -> Credential {
    if !is_requested(headers) {
        return Credential::None;
    }
    let mut tokens = listed(headers, &SEC_WEBSOCKET_PROTOCOL).filter_map(encoded_token);
    let Some(encoded) = tokens.next() else { return Credential::None };
    if tokens.next().is_some() {
        return Credential::Unusable(
            "offer only one sub-protocol with a bearer token: there is more than one",
        );
    }
    if sub_protocols(headers).next().is_none() {
        return Credential::Unusable(
            "the bearer token is the only sub-protocol: offer base64.binary.k8s.io as well",
        );
    }
    let decoded = URL_SAFE_NO_PAD.decode(encoded).map(Zeroizing::new);
    let text = decoded.ok().and_then(|bytes| std::str::from_utf8(&bytes).map(str::to_owned).ok());
    text.map_or(
        Credential::Unusable("the bearer token must be base64url without padding"),
        |text| Credential::Token(Zeroizing::new(text)),
    )
}

/// Checks the origin of a request for a WebSocket, if it has one. It must be the host in the request, or the server's
/// own address `own_url`. Other origins cannot be allowed.
///
/// # Errors
/// 403 for another origin.
pub fn check_origin(uri: &Uri, headers: &HeaderMap, own_url: &str) -> Result<(), ApiError> {
    if !headers.contains_key(ORIGIN) || is_own_origin(uri, headers, own_url) {
        return Ok(());
    }
    let message = "the Origin is not this server: only its own pages can open a WebSocket";
    Err(ApiError::new(403, Reason::Forbidden, message))
}

/// Whether a request has one `Origin`, and this is the host in the request, or the server's own address `own_url`.
/// HTTP/2 clients send the host as a part of the URI.
pub fn is_own_origin(uri: &Uri, headers: &HeaderMap, own_url: &str) -> bool {
    let mut origins = headers.get_all(ORIGIN).iter();
    let Some(origin) = origins.next().filter(|_| origins.next().is_none()) else { return false };
    let is_own = || {
        let origin = origin_of(origin.to_str().ok()?)?;
        let host = || headers.get(HOST).and_then(|host| host.to_str().ok());
        let host = uri.authority().map(Authority::as_str).or_else(host);
        let host = host.and_then(|host| origin_of(&format!("https://{host}")));
        Some(host.is_some_and(|host| host == origin) || origin_of(own_url)? == origin)
    };
    is_own() == Some(true)
}

/// The scheme, host and port of a URL.
fn origin_of(url: &str) -> Option<(String, String, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let default_port = match &*scheme {
        "https" => 443,
        "http" => 80,
        _ => return None,
    };
    let authority: Authority = rest.split(['/', '?', '#']).next()?.parse().ok()?;
    // `user@host` is not a host.
    if authority.as_str().contains('@') {
        return None;
    }
    let port = authority.port_u16().unwrap_or(default_port);
    Some((scheme, authority.host().to_ascii_lowercase(), port))
}

/// The text after the prefix of a credential. The prefix is case-insensitive, as in the gateway: a text that looks like a
/// credential is never used as a name.
fn encoded_token(offered: &str) -> Option<&str> {
    let (start, token) = offered.split_at_checked(BEARER_PREFIX.len())?;
    start.eq_ignore_ascii_case(BEARER_PREFIX).then_some(token)
}

fn listed<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(HeaderName, &str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    fn read(lines: &[(HeaderName, &str)]) -> Result<Option<String>, &'static str> {
        let mut all = vec![(CONNECTION, "keep-alive, Upgrade"), (UPGRADE, "WebSocket")];
        all.extend_from_slice(lines);
        match credential(&headers(&all)) {
            Credential::None => Ok(None),
            Credential::Token(token) => Ok(Some(token.to_string())),
            Credential::Unusable(advice) => Err(advice),
        }
    }

    #[test]
    fn credentials_among_sub_protocols() {
        let token = |token: &str| format!("{BEARER_PREFIX}{token}");
        let with = |offered: &str| read(&[(SEC_WEBSOCKET_PROTOCOL, offered)]);
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(with("base64.binary.k8s.io"), Ok(None));
        let secret = Ok(Some("secret".to_owned()));
        assert_eq!(with(&format!("{}, base64.binary.k8s.io", token("c2VjcmV0"))), secret);
        let two_lines =
            [(SEC_WEBSOCKET_PROTOCOL, "a"), (SEC_WEBSOCKET_PROTOCOL, &*token("c2VjcmV0"))];
        assert_eq!(read(&two_lines), secret);
        for bad in ["c2VjcmV0==", "c2 V", "_-8", ""] {
            let read = with(&format!("a, {}", token(bad)));
            assert!(read.is_err() || read == Ok(Some(String::new())), "{bad}: {read:?}");
        }
        let both = format!("a, {}, {}", token("YQ"), token("YQ").to_uppercase());
        assert!(with(&both).unwrap_err().contains("more than one"));
        assert!(with(&token("YQ")).unwrap_err().contains("only sub-protocol"));
        let plain = headers(&[(SEC_WEBSOCKET_PROTOCOL, &format!("a, {}", token("YQ")))]);
        assert!(
            matches!(credential(&plain), Credential::None),
            "without an upgrade it is no credential"
        );
        assert_eq!(sub_protocols(&plain).collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn only_pages_of_the_server_open_websockets() {
        let check = |host: &str, origin: &str| {
            let own = "https://api.example/x";
            let one = check_origin(
                &Uri::from_static("/a"),
                &headers(&[(HOST, host), (ORIGIN, origin)]),
                own,
            );
            // HTTP/2 has the host in the URI.
            let uri = format!("https://{host}/a").parse().unwrap();
            let two = check_origin(&uri, &headers(&[(ORIGIN, origin)]), own);
            assert_eq!(one.is_ok(), two.is_ok(), "{host} {origin}");
            one.is_ok()
        };
        let path = Uri::from_static("/a");
        assert!(check_origin(&path, &headers(&[(HOST, "h")]), "").is_ok(), "no browser");
        for (host, origin, is_own) in [
            ("h:8443", "https://h:8443", true),
            ("H", "https://h", true),
            ("h:443", "https://h", true),
            ("[::1]:8443", "https://[::1]:8443", true),
            ("inner:8443", "https://api.example", true),
            ("h:8443", "https://h", false),
            ("h", "http://h", false),
            ("h", "https://h.evil.example", false),
            ("h", "https://h@evil.example", false),
            ("h", "null", false),
            ("h", "", false),
            ("h", "file://h", false),
            ("inner", "https://api.example.evil", false),
        ] {
            assert_eq!(check(host, origin), is_own, "{host} {origin}");
        }
        let two = [(HOST, "h"), (ORIGIN, "https://h"), (ORIGIN, "https://h")];
        assert!(check_origin(&path, &headers(&two), "").is_err());
    }
}
