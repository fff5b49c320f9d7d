//! The session cookie of the console, and when it is a credential (`docs/reference/sessions.md#cookie`).
//!
//! A browser adds the cookie to requests of any page of the same site. The cookie counts only for requests that such a
//! page cannot send: with the header of the console, and from the console's own origin.

use http::header::{AUTHORIZATION, COOKIE, HeaderName, ORIGIN, UPGRADE};
use http::{HeaderMap, HeaderValue};
use postern_auth::bearer::{BearerToken, MAX_TOKEN_BYTES};
use postern_kinds::SecretText;
use zeroize::Zeroizing;

use super::parse::Parsed;
use super::websocket::is_own_origin;

/// The name of the cookie. With this prefix, browsers take it only from this host, with `Secure` and the path `/`.
pub const NAME: &str = "__Host-postern";

/// The header that the console sends with each request.
const CONSOLE: HeaderName = HeaderName::from_static("x-postern-console");

/// The header of requests that the browser sends without its user, such as watches. They are no use of the session.
const BACKGROUND: HeaderName = HeaderName::from_static("x-postern-background");

/// The headers that browsers set, and no page can.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SERVICE_WORKER: HeaderName = HeaderName::from_static("service-worker");

/// The credential in the cookie; `None` unless every condition holds. `own_url` is the address of the server, if it is
/// known.
pub fn credential(parsed: &Parsed, own_url: &str) -> Option<BearerToken> {
    let headers = parsed.headers();
    let value = only_value(headers)?;
    let has_other_purpose =
        [AUTHORIZATION, UPGRADE, SERVICE_WORKER].iter().any(|name| headers.contains_key(name));
    let from_console = is_only(headers, &CONSOLE, "1");
    let from_own_origin =
        !headers.contains_key(ORIGIN) || is_own_origin(parsed.uri(), headers, own_url);
    let from_same_origin =
        !headers.contains_key(FETCH_SITE) || is_only(headers, &FETCH_SITE, "same-origin");
    let counts = !has_other_purpose && from_console && from_own_origin && from_same_origin;
    counts.then(|| BearerToken::of_key(&SecretText::from(value.to_owned())))
}

/// The attributes of the cookie. Without `Max-Age`, it ends with the browser.
pub const ATTRIBUTES: &str = "Path=/; Secure; HttpOnly; SameSite=Strict";

/// The header that sets the cookie to the value of a session.
pub fn set(value: &SecretText) -> Option<HeaderValue> {
    let cookie = Zeroizing::new(format!("{NAME}={}; {ATTRIBUTES}", value.expose()));
    let mut cookie = HeaderValue::from_str(&cookie).ok()?;
    cookie.set_sensitive(true);
    Some(cookie)
}

/// Whether a request with the session cookie is no use of the session.
pub fn is_background(headers: &HeaderMap) -> bool {
    is_only(headers, &BACKGROUND, "1")
}

/// Whether a request has a session cookie, also one that does not count.
pub fn is_sent(headers: &HeaderMap) -> bool {
    values(headers).next().is_some()
}

/// The value of the cookie, if there is exactly one.
fn only_value(headers: &HeaderMap) -> Option<&str> {
    let mut values = values(headers);
    let value = values.next().filter(|_| values.next().is_none())?;
    let is_token = value.bytes().all(|byte| byte.is_ascii_graphic());
    (is_token && !value.is_empty() && value.len() <= MAX_TOKEN_BYTES).then_some(value)
}

/// The values of all cookies of this name. HTTP/2 clients may send several `Cookie` headers.
fn values(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
    pairs.filter(|(name, _)| name.trim() == NAME).map(|(_, value)| value.trim())
}

/// Whether a header is there once, with this value.
fn is_only(headers: &HeaderMap, name: &HeaderName, wanted: &str) -> bool {
    let mut values = headers.get_all(name).iter();
    values.next().is_some_and(|value| value == wanted) && values.next().is_none()
}
