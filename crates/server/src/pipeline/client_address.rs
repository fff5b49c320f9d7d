//! The address of the client of a request, behind proxies that the operator trusts.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName};
use postern_listen::Networks;

/// Which proxies are trusted, and how they say the address of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientAddresses {
    /// The networks of the trusted proxies.
    pub trusted_proxies: Networks,
    /// The header with a list of addresses, to which each proxy appends the one that it sees.
    pub header: Option<HeaderName>,
    /// Whether trusted proxies send the PROXY protocol, and must do so.
    pub proxy_protocol: bool,
}

impl ClientAddresses {
    /// Whether a connection from an address must begin with the header of the PROXY protocol.
    pub(crate) fn has_proxy_header(&self, peer: IpAddr) -> bool {
        self.proxy_protocol && self.trusted_proxies.contains(peer)
    }

    /// The address of the client of a request on a connection with `peer`. The header is read from
    /// the right, up to the first untrusted address. A client can forge only the part to the left
    /// of that address.
    pub(super) fn of(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let Some(header) = &self.header else { return peer };
        let mut client = peer;
        for value in headers.get_all(header).iter().rev() {
            for text in value.as_bytes().rsplit(|byte| *byte == b',') {
                if !self.trusted_proxies.contains(client) {
                    return client;
                }
                // If a proxy gives no valid address for its client, the proxy counts as the client.
                let Some(next) = address_in(text) else { return client };
                client = next;
            }
        }
        client
    }
}

/// An address, perhaps with a port.
fn address_in(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().ok();
    let address = address.or_else(|| text.parse::<SocketAddr>().ok().map(|with| with.ip()));
    address.map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn client(peer: &str, lines: &[&'static str]) -> String {
        let mut trusted_proxies = Networks::default();
        trusted_proxies.add("10.0.0.0/8").unwrap();
        let header = HeaderName::from_static("x-forwarded-for");
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(&header, HeaderValue::from_static(line));
        }
        let addresses =
            ClientAddresses { trusted_proxies, header: Some(header), proxy_protocol: false };
        addresses.of(peer.parse().unwrap(), &headers).to_string()
    }

    #[test]
    fn the_first_address_from_the_right_that_is_not_trusted_is_the_client() {
        assert_eq!(client("10.0.0.1", &["192.0.2.1"]), "192.0.2.1");
        assert_eq!(client("10.0.0.1", &["203.0.113.9, 192.0.2.1, 10.0.0.2"]), "192.0.2.1");
        assert_eq!(client("10.0.0.1", &["203.0.113.9", "192.0.2.1:4711", "10.0.0.2"]), "192.0.2.1");
        assert_eq!(client("10.0.0.1", &["[2001:db8::1]:80"]), "2001:db8::1");
        assert_eq!(client("10.0.0.1", &["[2001:db8::1]"]), "2001:db8::1");
        assert_eq!(client("10.0.0.1", &["10.0.0.3, 10.0.0.2"]), "10.0.0.3", "all are trusted");
    }

    #[test]
    fn a_client_cannot_choose_its_address() {
        assert_eq!(client("192.0.2.1", &["203.0.113.9"]), "192.0.2.1", "not through a proxy");
        assert_eq!(client("10.0.0.1", &["203.0.113.9, x"]), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &["203.0.113.9, "]), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &[]), "10.0.0.1");
        let none = ClientAddresses::default();
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", HeaderValue::from_static("203.0.113.9"));
        assert_eq!(none.of("10.0.0.1".parse().unwrap(), &headers).to_string(), "10.0.0.1");
    }
}
