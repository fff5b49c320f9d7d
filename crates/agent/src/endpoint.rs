//! The address at which clients reach the agent, as the operator sets it: `HOST` or `HOST:PORT`.

use std::net::IpAddr;

/// The longest name (RFC 1035 section 2.3.4).
const MAX_NAME_BYTES: usize = 253;

/// Where clients reach the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// A name or an address, without brackets.
    name: String,
    port: Option<u16>,
}

impl Endpoint {
    /// Reads an endpoint.
    ///
    /// # Errors
    /// The required form.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not HOST or HOST:PORT, such as east.example.com, east.example.com:6443 or \
                 [2001:db8::1]:6443: leave out https:// and any path"
            )
        };
        let (name, port) = match text.rsplit_once(':') {
            // An address without brackets has no port.
            _ if text.parse::<IpAddr>().is_ok() => (text, None),
            Some((name, port)) if !text.ends_with(']') => {
                let port = port.parse().ok().filter(|port| *port != 0);
                (name, Some(port.ok_or_else(wrong)?))
            }
            _ => (text, None),
        };
        let in_brackets = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        let is_good = match in_brackets {
            Some(address) => address.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6()),
            None => is_dns_name(name) || name.parse::<IpAddr>().is_ok(),
        };
        if !is_good {
            return Err(wrong());
        }
        Ok(Self { name: in_brackets.unwrap_or(name).to_owned(), port })
    }

    /// The name or the address, without brackets.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The endpoint as `HOST:PORT`, with this port where the operator gives none.
    pub(crate) fn with_port(&self, port: u16) -> String {
        let port = self.port.unwrap_or(port);
        let Self { name, .. } = self;
        if name.contains(':') { format!("[{name}]:{port}") } else { format!("{name}:{port}") }
    }
}

fn is_dns_name(name: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    name.len() <= MAX_NAME_BYTES && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_may_have_a_port_and_nothing_else() {
        for (text, name, with_port) in [
            ("east", "east", "east:9443"),
            ("east.example.com:6443", "east.example.com", "east.example.com:6443"),
            ("192.0.2.1", "192.0.2.1", "192.0.2.1:9443"),
            ("192.0.2.1:1", "192.0.2.1", "192.0.2.1:1"),
            ("2001:db8::1", "2001:db8::1", "[2001:db8::1]:9443"),
            ("[2001:db8::1]", "2001:db8::1", "[2001:db8::1]:9443"),
            ("[2001:db8::1]:6443", "2001:db8::1", "[2001:db8::1]:6443"),
        ] {
            let endpoint = Endpoint::parse(text).unwrap();
            assert_eq!((endpoint.name(), endpoint.with_port(9443)), (name, with_port.to_owned()));
        }
        for text in [
            "",
            "https://east",
            "https://east:6443",
            "east/path",
            "east:6443/path",
            "east:",
            "east:0",
            "east:65536",
            "east:x",
            "user@east",
            "-east",
            "a..b",
            "[east]",
            "[192.0.2.1]",
            "a b",
        ] {
            let why = Endpoint::parse(text).unwrap_err();
            assert!(why.contains("HOST or HOST:PORT"), "{text}: {why}");
        }
    }
}
