//! The address of a server, as users write it and as kubeconfigs hold it.

use std::fmt;

use http::Uri;
use postern_kinds::BASE_PATH;

/// The port of `https` if the URL names none.
const HTTPS_PORT: u16 = 443;

/// `https://HOST[:PORT]/…/kubernetes/management`. Always TLS: an access key goes with every
/// request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    host: String,
    port: u16,
    path: String,
}

impl ServerUrl {
    /// Parses the user's text: the scheme and the base path may be left out.
    ///
    /// # Errors
    /// A sentence that names the error. It does not repeat the text, which may be a key in the
    /// wrong argument.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let rest = match text.split_once("://") {
            None => text,
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => rest,
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("http") => {
                return Err(
                    "only https:// is supported: every request contains the access key".to_owned()
                );
            }
            Some(_) => return Err("the URL does not begin with https://".to_owned()),
        };
        if rest.contains(['?', '#', '@']) {
            return Err(
                "the URL must not have a user, query or fragment: use https://HOST:PORT".to_owned()
            );
        }
        let wrong = || "this is no URL of a server: write it as https://HOST:PORT".to_owned();
        let uri: Uri = format!("https://{rest}").parse().map_err(|_| wrong())?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = match uri.authority().map(http::uri::Authority::as_str) {
            Some(authority) if authority.ends_with(':') => return Err(wrong()),
            _ => uri.port_u16(),
        };
        // The parser drops a port that is out of range, and it would silently become 443.
        if port.is_none() && has_port(rest) {
            return Err("the port is a number from 1 to 65535".to_owned());
        }
        let path = uri.path().trim_end_matches('/');
        let base = if path.ends_with(BASE_PATH) { "" } else { BASE_PATH };
        Ok(Self {
            host: host.to_ascii_lowercase(),
            port: port.unwrap_or(HTTPS_PORT),
            path: format!("{path}{base}"),
        })
    }

    /// Whether a kubeconfig's URL belongs to a Postern server: whether it ends with the base path.
    pub fn is_postern(text: &str) -> bool {
        text.starts_with("https://") && text.trim_end_matches('/').ends_with(BASE_PATH)
    }

    /// The name or address; an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The path that all paths of the API begin with.
    pub fn base_path(&self) -> &str {
        &self.path
    }

    /// The path that all paths of the gateway begin with: `/kubernetes`, where nothing stands before
    /// the base path.
    pub fn gateway_path(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(before, _)| before)
    }

    /// The path before the base path: empty, unless the server is behind a path of a proxy.
    pub fn root_path(&self) -> &str {
        self.path.strip_suffix(BASE_PATH).unwrap_or_default()
    }

    /// The URL of a path at the root of the server, such as `/ui/`.
    pub fn at_root(&self, path: &str) -> String {
        format!("https://{}{}{path}", self.authority(), self.root_path())
    }

    /// The URL of a target behind a path of the gateway, such as `/cluster/east`.
    pub fn of_gateway(&self, path: &str) -> String {
        format!("https://{}{}{path}", self.authority(), self.gateway_path())
    }

    /// The text `HOST:PORT`, or `HOST` if the port is 443; for the `Host` header and messages.
    pub fn authority(&self) -> String {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == HTTPS_PORT { host } else { format!("{host}:{}", self.port) }
    }
}

fn has_port(rest: &str) -> bool {
    let authority = rest.split('/').next().unwrap_or(rest);
    authority.rsplit_once(']').map_or(authority, |(_, behind)| behind).contains(':')
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}{}", self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_write_is_understood() {
        for (text, url, host, port) in [
            ("https://h:8443", "https://h:8443/kubernetes/management", "h", 8443),
            ("https://h:8443/", "https://h:8443/kubernetes/management", "h", 8443),
            ("HTTPS://H", "https://h/kubernetes/management", "h", 443),
            ("h:8443", "https://h:8443/kubernetes/management", "h", 8443),
            ("https://h/kubernetes/management/", "https://h/kubernetes/management", "h", 443),
            ("https://h/p", "https://h/p/kubernetes/management", "h", 443),
            (" https://[::1]:1/ ", "https://[::1]:1/kubernetes/management", "::1", 1),
        ] {
            let parsed = ServerUrl::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(parsed.to_string(), url, "{text}");
            assert_eq!((parsed.host(), parsed.port()), (host, port), "{text}");
            assert_eq!(ServerUrl::parse(url).unwrap(), parsed, "{text}");
        }
    }

    #[test]
    fn the_gateway_is_next_to_the_management_api() {
        for (text, url) in [
            ("https://h:1", "https://h:1/kubernetes/cluster/east"),
            ("https://[::1]/p", "https://[::1]/p/kubernetes/cluster/east"),
        ] {
            assert_eq!(ServerUrl::parse(text).unwrap().of_gateway("/cluster/east"), url);
        }
    }

    #[test]
    fn what_is_no_server_is_refused_and_not_repeated() {
        for text in [
            "",
            "https://",
            "http://hush:1",
            "ftp://hush",
            "https://u:hush@h",
            "https://h?hush",
            "https://h#hush",
            "https://h:hush",
            "https://h:99999",
            "https://h:",
            "h h",
            "https://[::1",
        ] {
            let error = ServerUrl::parse(text).expect_err(text);
            assert!(!error.contains("hush"), "{text}: {error}");
        }
    }

    #[test]
    fn a_servers_url_is_distinguished_from_a_clusters() {
        assert!(ServerUrl::is_postern("https://h:1/kubernetes/management"));
        assert!(!ServerUrl::is_postern("https://h:6443"));
        assert!(!ServerUrl::is_postern("http://h/kubernetes/management"));
    }
}
