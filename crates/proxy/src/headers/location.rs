//! Where an answer sends its client. A redirect is never followed here, and never leads a
//! client to another place: it would go there with its credentials.

use http::HeaderValue;
use http::uri::{Authority, Uri};

use crate::origin::Origin;

/// The value of `Location` for the client; `None` if it leads elsewhere. Paths of the upstream get
/// the prefix under which the client knows them.
pub(super) fn location(
    value: &HeaderValue,
    upstream: &Origin,
    prefix: &str,
) -> Option<HeaderValue> {
    let text = value.to_str().ok()?;
    // Browsers read a backslash as a slash, and skip blanks.
    if text.bytes().any(|byte| byte == b'\\' || byte <= b' ') {
        return None;
    }
    let path = match Reference::of(text, upstream) {
        Reference::Path(path) => path,
        // The reference must not lead above the request's own path.
        Reference::Relative if !has_parent_segment(text) => return Some(value.clone()),
        Reference::Relative | Reference::Elsewhere => return None,
    };
    // A client that is told to repeat a request elsewhere must stay at this upstream.
    if has_parent_segment(path) || path.starts_with("//") {
        return None;
    }
    let below = match path.strip_prefix(upstream.prefix.as_str()) {
        Some(below) if below.is_empty() || below.starts_with(['/', '?', '#']) => below,
        // Outside the path of the upstream.
        _ => return None,
    };
    let slash = if below.starts_with('/') { "" } else { "/" };
    HeaderValue::from_str(&format!("{prefix}{slash}{below}")).ok()
}

/// Where a reference leads.
enum Reference<'a> {
    /// To a path at the upstream.
    Path(&'a str),
    /// To a place that depends on the request's path.
    Relative,
    /// To another origin.
    Elsewhere,
}

impl<'a> Reference<'a> {
    fn of(text: &'a str, upstream: &Origin) -> Self {
        if text.starts_with("//") {
            return Self::Elsewhere;
        }
        if text.starts_with('/') {
            return Self::Path(text);
        }
        let end = text.find(['/', '?', '#']).unwrap_or(text.len());
        if !text[..end].contains(':') {
            return Self::Relative;
        }
        let scheme = if upstream.is_plain { "http" } else { "https" };
        match text.split_once("://") {
            Some((own, rest)) if own.eq_ignore_ascii_case(scheme) => {
                let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                let (authority, path) = rest.split_at(end);
                if is_upstream(authority, upstream) { Self::Path(path) } else { Self::Elsewhere }
            }
            _ => Self::Elsewhere,
        }
    }
}

fn is_upstream(authority: &str, upstream: &Origin) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else { return false };
    let default = if upstream.is_plain { 80 } else { 443 };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    !authority.as_str().contains('@')
        && host.eq_ignore_ascii_case(&upstream.host)
        && (authority.port().is_none() || authority.port_u16().is_some())
        && authority.port_u16().unwrap_or(default) == upstream.port
}

/// Whether a reference has a segment that means "one up", in any spelling.
fn has_parent_segment(reference: &str) -> bool {
    let end = reference.find(['?', '#']).unwrap_or(reference.len());
    let plain = reference[..end].to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/");
    plain.replace("%5c", "/").split('/').any(|segment| segment.split(';').next() == Some(".."))
        // An invalid URI is not passed on, either.
        || reference.starts_with('/') && reference.parse::<Uri>().is_err()
}

#[cfg(test)]
mod tests {
    use crate::{Upstream, UpstreamConfig};

    use super::*;

    fn of(url: &'static str, value: &str) -> Option<String> {
        let mut config = UpstreamConfig::new(Uri::from_static(url));
        config.insecure = true;
        let upstream = Upstream::new(config).unwrap();
        let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
        let found = location(&value, &upstream.inner.origin, "/kubernetes/cluster/c");
        found.map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn what_stays_at_the_upstream_is_told_in_our_own_paths() {
        for (value, told) in [
            ("/api/v1/", "/kubernetes/cluster/c/api/v1/"),
            ("/api?a=/../b#c", "/kubernetes/cluster/c/api?a=/../b#c"),
            ("https://u.example:6443/x/", "/kubernetes/cluster/c/x/"),
            ("HTTPS://U.Example:6443", "/kubernetes/cluster/c/"),
            ("https://u.example:6443?q", "/kubernetes/cluster/c/?q"),
            ("proxy/", "proxy/"),
            ("?a=b:c", "?a=b:c"),
            ("", ""),
        ] {
            assert_eq!(of("https://u.example:6443", value).as_deref(), Some(told), "{value}");
        }
        let told = of("https://u.example/deep/er", "/deep/er/x");
        assert_eq!(told.as_deref(), Some("/kubernetes/cluster/c/x"));
    }

    #[test]
    fn what_leads_elsewhere_is_not_told() {
        for value in [
            "https://evil.example/x",
            "https://u.example/x",
            "https://u.example:6444/x",
            "http://u.example:6443/x",
            "https://u.example:6443@evil.example/x",
            "https://me@u.example:6443/x",
            "https://u.example:6443.evil.example/",
            "//evil.example/x",
            "/\\evil.example/x",
            "\\\\evil.example",
            "///evil.example",
            "https://u.example:6443//evil.example",
            "javascript:alert(1)",
            "data:text/html,x",
            "https:evil.example",
            "/a/../../management/x",
            "/a/%2e%2E/x",
            "/a/..%2fx",
            "/a/..;b/x",
            "..",
            "../x",
            "x/../../y",
            " /x",
            "/x\t",
        ] {
            assert_eq!(of("https://u.example:6443", value), None, "{value}");
        }
        for value in ["/x", "/deeper", "/deep/er2"] {
            assert_eq!(of("https://u.example/deep/er", value), None, "{value}");
        }
    }
}
