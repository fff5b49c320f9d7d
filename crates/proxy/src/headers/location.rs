//! Where an answer sends its client. A redirect is never followed here, and never leads a
//! client to another place: it would go there with its credentials.

use http::uri::{Authority, Uri};
use http::{HeaderValue, StatusCode};

use crate::upstream::Inner;

/// Returns the value of `Location` for the client; `None` if it leads elsewhere. Paths of the upstream get
/// the prefix under which the client knows them.
pub(super) fn location(
    status: StatusCode,
    value: &HeaderValue,
    upstream: &Inner,
    prefix: &str,
) -> Option<HeaderValue> {
    let text = value.to_str().ok()?;
    // Browsers read a backslash as a slash, and skip blanks.
    if text.bytes().any(|byte| byte == b'\\' || byte <= b' ') {
        return None;
    }
    let path = match own_path(text, upstream)? {
        Some(path) => path,
        // Relative to the request's own path, which it must not leave upwards.
        None if climbs(text) => return None,
        None => return Some(value.clone()),
    };
    // A client that is told to repeat a request elsewhere must stay at this upstream.
    if climbs(path) || status.is_redirection() && path.starts_with("//") {
        return None;
    }
    let below = match path.strip_prefix(upstream.prefix.as_str()) {
        Some(below) if below.is_empty() || below.starts_with(['/', '?', '#']) => below,
        // Outside of what the upstream is asked for.
        _ => return None,
    };
    let slash = if below.starts_with('/') { "" } else { "/" };
    HeaderValue::from_str(&format!("{prefix}{slash}{below}")).ok()
}

/// Returns the path of a reference with the upstream's own origin; `Some(None)` if it is relative to the request's
/// path; `None` if it has another origin.
fn own_path<'a>(text: &'a str, upstream: &Inner) -> Option<Option<&'a str>> {
    if text.starts_with("//") {
        return None;
    }
    if text.starts_with('/') {
        return Some(Some(text));
    }
    let end = text.find(['/', '?', '#']).unwrap_or(text.len());
    if !text[..end].contains(':') {
        return Some(None);
    }
    let scheme = if upstream.is_tls() { "https" } else { "http" };
    let rest = text.split_once("://").filter(|(own, _)| own.eq_ignore_ascii_case(scheme))?.1;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    is_upstream(authority, upstream).then_some(Some(path))
}

fn is_upstream(authority: &str, upstream: &Inner) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else { return false };
    let default = if upstream.is_tls() { 443 } else { 80 };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    !authority.as_str().contains('@')
        && host.eq_ignore_ascii_case(&upstream.host)
        && (authority.port().is_none() || authority.port_u16().is_some())
        && authority.port_u16().unwrap_or(default) == upstream.port
}

/// Returns whether a reference has a segment that means "one up", in any spelling.
fn climbs(reference: &str) -> bool {
    let end = reference.find(['?', '#']).unwrap_or(reference.len());
    let plain = reference[..end].to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/");
    plain.replace("%5c", "/").split('/').any(|segment| segment.split(';').next() == Some(".."))
        // What is no URI is not passed on, either.
        || reference.starts_with('/') && reference.parse::<Uri>().is_err()
}
