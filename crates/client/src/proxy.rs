//! An HTTP proxy between the client and the server, and the servers that are reached without it.
//! The settings come from `HTTPS_PROXY` and `NO_PROXY`, as Go's `net/http` reads them. Opening the
//! tunnel is in `tunnel.rs`.

use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ipnet::IpNet;
use percent_encoding::percent_decode_str;
use postern_kinds::SecretText;
use zeroize::Zeroizing;

use crate::server_url::ServerUrl;

/// The port of a proxy with a URL that names none.
const HTTP_PORT: u16 = 80;

/// An HTTP proxy. It sees the name of the server, and nothing of the requests: TLS goes through it.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    host: String,
    port: u16,
    /// The value of `Proxy-Authorization`.
    authorization: Option<SecretText>,
}

/// Servers that are reached without a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct NoProxy {
    all: bool,
    entries: Vec<Entry>,
}

/// An entry of `NO_PROXY`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Network(IpNet),
    Address(IpAddr, Option<u16>),
    Domain {
        /// With a dot before it.
        suffix: String,
        /// Whether the domain itself is meant, too.
        with_itself: bool,
        port: Option<u16>,
    },
}

impl Proxy {
    /// Parses the URL of a proxy: `http://[USER:PASSWORD@]HOST[:PORT]`, also without the scheme.
    ///
    /// # Errors
    /// A sentence that names the error. It does not repeat the URL, which may have a password.
    pub fn parse(url: &str) -> Result<Self, String> {
        let rest = match url.split_once("://") {
            None => url,
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
            Some(("https" | "HTTPS" | "socks5" | "socks5h", _)) => {
                return Err("only http:// proxies are supported, which tunnel TLS".to_owned());
            }
            Some(_) => return Err("the URL does not begin with http://".to_owned()),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
        let (user, address) = match authority.rsplit_once('@') {
            Some((user, address)) => (Some(user), address),
            None => (None, authority),
        };
        let wrong = || "the URL is no http://[USER:PASSWORD@]HOST[:PORT]".to_owned();
        let (host, port) = host_and_port(address).ok_or_else(wrong)?;
        if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(wrong());
        }
        let authorization = user.filter(|user| !user.is_empty()).map(basic);
        Ok(Self { host: host.to_owned(), port: port.unwrap_or(HTTP_PORT), authorization })
    }

    /// The proxy for a server, as Go's programs such as kubectl choose it: `HTTPS_PROXY` of the environment, unless
    /// `NO_PROXY` lists the server. The same names in lower case come second. Servers on this machine have none.
    ///
    /// `variable` reads a variable of the environment. An empty one counts as absent.
    ///
    /// # Errors
    /// An error of `variable`, and the errors of [`Proxy::parse`] with the name of the variable before them.
    pub fn of_environment(
        server: &ServerUrl,
        variable: impl Fn(&str) -> Result<Option<String>, String>,
    ) -> Result<Option<Self>, String> {
        let first = |names: [&'static str; 2]| {
            for name in names {
                if let Some(text) = variable(name)?.filter(|text| !text.is_empty()) {
                    return Ok(Some((name, text)));
                }
            }
            Ok::<_, String>(None)
        };
        let Some((name, url)) = first(["HTTPS_PROXY", "https_proxy"])? else { return Ok(None) };
        let no_proxy = first(["NO_PROXY", "no_proxy"])?;
        let no_proxy = no_proxy.map_or_else(NoProxy::default, |(_, list)| NoProxy::parse(&list));
        if is_on_this_machine(server.host()) || no_proxy.contains(server.host(), server.port()) {
            return Ok(None);
        }
        Self::parse(&url).map(Some).map_err(|what| format!("{name}: {what}"))
    }

    /// The name or address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The text `HOST:PORT`, for messages.
    pub fn authority(&self) -> String {
        authority(&self.host, self.port)
    }

    pub(crate) fn authorization(&self) -> Option<&SecretText> {
        self.authorization.as_ref()
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("address", &self.authority()).finish_non_exhaustive()
    }
}

impl NoProxy {
    /// Parses a list with commas. Entries without meaning are ignored.
    ///
    /// | entry | servers |
    /// |---|---|
    /// | `*` | all |
    /// | `example.com` | the domain and all names in it |
    /// | `.example.com`, `*.example.com` | all names in the domain |
    /// | `192.0.2.1`, `2001:db8::1` | the address |
    /// | `192.0.2.0/24` | all addresses of the network |
    ///
    /// A name or an address may have a port: `example.com:8443`.
    fn parse(text: &str) -> Self {
        let mut parsed = Self::default();
        for entry in text.split(',') {
            let entry = entry.trim().to_ascii_lowercase();
            if entry == "*" {
                return Self { all: true, entries: Vec::new() };
            }
            parsed.entries.extend(Entry::parse(&entry));
        }
        parsed
    }

    /// Whether a server is reached without a proxy. `host` is a name, or an address without brackets.
    fn contains(&self, host: &str, port: u16) -> bool {
        let host = host.trim().to_ascii_lowercase();
        self.all || self.entries.iter().any(|entry| entry.contains(&host, port))
    }
}

impl Entry {
    fn parse(text: &str) -> Option<Self> {
        if let Ok(network) = text.parse::<IpNet>() {
            return Some(Self::Network(network));
        }
        let address = |text: &str| text.parse::<IpAddr>().ok();
        // An IPv6 address has colons and needs no brackets without a port.
        if let Some(address) = address(text) {
            return Some(Self::Address(address, None));
        }
        let (host, port) = host_and_port(text)?;
        if let Some(address) = address(host) {
            return Some(Self::Address(address, port));
        }
        let domain = host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host);
        match domain.strip_prefix('.') {
            Some("") => None,
            Some(_) => Some(Self::Domain { suffix: domain.to_owned(), with_itself: false, port }),
            None if domain.is_empty() => None,
            None => Some(Self::Domain { suffix: format!(".{domain}"), with_itself: true, port }),
        }
    }

    fn contains(&self, host: &str, port: u16) -> bool {
        let has_port = |wanted: &Option<u16>| wanted.is_none_or(|wanted| wanted == port);
        match self {
            Self::Network(network) => {
                host.parse::<IpAddr>().is_ok_and(|address| network.contains(&address))
            }
            Self::Address(address, wanted) => host.parse() == Ok(*address) && has_port(wanted),
            Self::Domain { suffix, with_itself, port: wanted } => {
                let is_in = host.ends_with(suffix) || *with_itself && host == &suffix[1..];
                is_in && has_port(wanted)
            }
        }
    }
}

/// Go has no proxy for `localhost` and for loopback addresses, regardless of `NO_PROXY`.
fn is_on_this_machine(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Splits `HOST`, `HOST:PORT`, `[ADDRESS]` or `[ADDRESS]:PORT`. `None` for a port that is no number.
fn host_and_port(text: &str) -> Option<(&str, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, behind) = rest.split_once(']')?;
        return match behind.strip_prefix(':') {
            Some(port) => Some((host, Some(port.parse().ok()?))),
            None => Some((host, None)).filter(|_| behind.is_empty()),
        };
    }
    match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => Some((host, Some(port.parse().ok()?))),
        Some(_) => None,
        None => Some((text, None)),
    }
}

/// The text `HOST:PORT`, with brackets around an IPv6 address.
pub(crate) fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// The value of `Proxy-Authorization` for the `USER[:PASSWORD]` of a URL.
fn basic(user: &str) -> SecretText {
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    let mut bytes = Zeroizing::new(Vec::new());
    bytes.extend(percent_decode_str(name));
    bytes.push(b':');
    bytes.extend(percent_decode_str(password));
    SecretText::from(format!("Basic {}", STANDARD.encode(&*bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_without_a_proxy() {
        for (list, host, port, wanted) in [
            ("", "example.com", 443, false),
            ("*", "example.com", 443, true),
            ("a, * ,b", "example.com", 443, true),
            ("example.com", "example.com", 443, true),
            ("example.com", "EXAMPLE.com", 443, true),
            ("Example.COM", "www.example.com", 443, true),
            ("example.com", "notexample.com", 443, false),
            ("example.com", "example.com.org", 443, false),
            (".example.com", "example.com", 443, false),
            (".example.com", "www.example.com", 443, true),
            ("*.example.com", "example.com", 443, false),
            ("*.example.com", "a.b.example.com", 443, true),
            ("*example.com", "www.example.com", 443, false),
            ("x.org, example.com ", "example.com", 443, true),
            ("example.com:8443", "example.com", 8443, true),
            ("example.com:8443", "www.example.com", 8443, true),
            ("example.com:8443", "example.com", 443, false),
            ("example.com:https", "example.com", 443, false),
            (":8443", "example.com", 8443, false),
            ("192.0.2.1", "192.0.2.1", 443, true),
            ("192.0.2.1", "192.0.2.10", 443, false),
            ("192.0.2.1:8443", "192.0.2.1", 8443, true),
            ("192.0.2.1:8443", "192.0.2.1", 443, false),
            ("192.0.2.0/24", "192.0.2.77", 8443, true),
            ("192.0.2.0/24", "192.0.3.77", 8443, false),
            ("192.0.2.0/24", "example.com", 443, false),
            ("192.0.2.0/99", "192.0.2.1", 443, false),
            ("2001:db8::1", "2001:db8::1", 443, true),
            ("2001:db8::1", "2001:db8:0:0::1", 443, true),
            ("[2001:db8::1]:8443", "2001:db8::1", 8443, true),
            ("[2001:db8::1]:8443", "2001:db8::1", 443, false),
            ("2001:db8::/32", "2001:db8::7", 443, true),
            ("2001:db8::/32", "2001:db9::7", 443, false),
            (",,", "example.com", 443, false),
            (".", "example.com", 443, false),
        ] {
            assert_eq!(NoProxy::parse(list).contains(host, port), wanted, "{list:?} {host}:{port}");
        }
    }

    #[test]
    fn the_environment_names_the_proxy() {
        let chosen = |variables: &[(&str, &str)], url: &str| {
            let variable = |name: &str| {
                let found = variables.iter().find(|(variable, _)| *variable == name);
                Ok(found.map(|(_, text)| (*text).to_owned()))
            };
            let proxy = Proxy::of_environment(&ServerUrl::parse(url).unwrap(), variable)?;
            Ok::<_, String>(proxy.map(|proxy| proxy.authority()))
        };
        let (upper, lower) = (("HTTPS_PROXY", "http://upper:1"), ("https_proxy", "lower:2"));
        let never_read = ("HTTPS_PROXY", "ftp://never-read");
        for (variables, url, wanted) in [
            (&[][..], "https://h", None),
            (&[upper], "https://h", Some("upper:1")),
            (&[lower], "https://h", Some("lower:2")),
            (&[lower, upper], "https://h", Some("upper:1")),
            (&[("HTTPS_PROXY", ""), lower], "https://h", Some("lower:2")),
            (&[("HTTP_PROXY", "http://p"), ("ALL_PROXY", "http://p")], "https://h", None),
            (&[upper, ("NO_PROXY", "h")], "https://h", None),
            (&[upper, ("no_proxy", "h")], "https://h", None),
            (&[upper, ("NO_PROXY", ""), ("no_proxy", "h")], "https://h", None),
            (&[upper, ("NO_PROXY", "other"), ("no_proxy", "h")], "https://h", Some("upper:1")),
            (&[never_read, ("NO_PROXY", "h")], "https://h", None),
            (&[upper], "https://localhost:8443", None),
            (&[upper], "https://127.0.0.1", None),
            (&[upper], "https://127.9.9.9:1", None),
            (&[upper], "https://[::1]", None),
            (&[upper], "https://localhost.example.com", Some("upper:1")),
            (&[upper], "https://192.0.2.1", Some("upper:1")),
            (&[upper], "https://[2001:db8::1]", Some("upper:1")),
        ] {
            let wanted = Ok(wanted.map(str::to_owned));
            assert_eq!(chosen(variables, url), wanted, "{url} {variables:?}");
        }
        let error = chosen(&[("https_proxy", "socks5://u:hush@p")], "https://h").unwrap_err();
        assert!(error.starts_with("https_proxy: only http://"), "{error}");
        assert!(!error.contains("hush"), "{error}");
        let server = ServerUrl::parse("https://h").unwrap();
        let unreadable = Proxy::of_environment(&server, |_| Err("not UTF-8".to_owned()));
        assert_eq!(unreadable, Err("not UTF-8".to_owned()));
    }

    #[test]
    fn urls_of_proxies() {
        for (url, address, authorization) in [
            ("http://proxy:3128", "proxy:3128", None),
            ("HTTP://proxy", "proxy:80", None),
            ("proxy:3128", "proxy:3128", None),
            ("http://[2001:db8::1]:3128/", "[2001:db8::1]:3128", None),
            ("http://ada:p%40ss@proxy:1/x?y", "proxy:1", Some("Basic YWRhOnBAc3M=")),
            ("http://ada@proxy", "proxy:80", Some("Basic YWRhOg==")),
            ("http://a@b:c@proxy", "proxy:80", Some("Basic YUBiOmM=")),
        ] {
            let proxy = Proxy::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(proxy.authority(), address, "{url}");
            assert_eq!(proxy.authorization().map(SecretText::expose), authorization, "{url}");
            assert!(!format!("{proxy:?}").contains("Basic"), "{proxy:?}");
        }
        for url in [
            "",
            "http://",
            "ftp://hush",
            "socks5://hush:1",
            "https://hush",
            "http://u:hush@h:port",
            "http://u:hush@",
            "http://hush hush",
            "http://a:b:c",
        ] {
            let error = Proxy::parse(url).expect_err(url);
            assert!(!error.contains("hush"), "{url}: {error}");
        }
    }
}
