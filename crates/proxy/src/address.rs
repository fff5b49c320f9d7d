//! Which addresses may be dialled. A name that users give (in a kubeconfig) must not lead to
//! services of this machine, or to the metadata service of its cloud.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an upstream may be on a local address: loopback, link-local, unspecified, multicast.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum LocalAddresses {
    /// It may not. Private networks are not local: clusters are there.
    #[default]
    Refused,
    /// It may: for development, and for upstreams that the operator has chosen.
    Allowed,
}

/// The metadata services of clouds that are not at a link-local address.
const METADATA: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

impl LocalAddresses {
    /// Returns whether an address may be dialled.
    pub fn allows(self, ip: IpAddr) -> bool {
        self == Self::Allowed || !is_local(ip)
    }
}

fn is_local(ip: IpAddr) -> bool {
    METADATA.contains(&ip)
        || match ip {
            IpAddr::V4(ip) => is_local_v4(ip),
            IpAddr::V6(ip) => is_local_v6(ip),
        }
}

fn is_local_v4(ip: Ipv4Addr) -> bool {
    ip.is_loopback()
        || ip.is_link_local()
        || ip.is_multicast()
        || ip.is_broadcast()
        // All of 0.0.0.0/8 is "this host".
        || ip.octets()[0] == 0
}

fn is_local_v6(ip: Ipv6Addr) -> bool {
    ip.is_loopback()
        || ip.is_unspecified()
        || ip.is_multicast()
        || ip.is_unicast_link_local()
        || embedded_v4(ip).is_some_and(|ip| is_local(IpAddr::V4(ip)))
}

/// Returns the IPv4 address that an IPv6 address leads to: mapped, compatible, NAT64, 6to4.
fn embedded_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| {
        let ([first, second], [third, last]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(first, second, third, last)
    };
    match ip.segments() {
        // Compatible, mapped; SIIT (RFC 7915); NAT64.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_addresses_are_refused_in_every_form() {
        let local = "127.0.0.1 127.8.8.8 0.0.0.0 0.1.2.3 169.254.169.254 224.0.0.1 255.255.255.255 \
             100.100.100.200 ::1 :: fe80::1 febf::1 ff02::1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 \
             ::127.0.0.1 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 2002:7f00:1:: ::ffff:0:7f00:1 \
             fd00:ec2::254 fd20:ce::254";
        for ip in local.split_whitespace() {
            let ip: IpAddr = ip.parse().unwrap();
            assert!(!LocalAddresses::Refused.allows(ip), "{ip}");
            assert!(LocalAddresses::Allowed.allows(ip), "{ip}");
        }
        let others = "10.0.0.1 172.16.0.1 192.168.1.1 100.64.0.1 8.8.8.8 fd00::1 2001:db8::1 \
                      ::ffff:10.0.0.1 64:ff9b::a00:1 2002:a00:1::";
        for ip in others.split_whitespace() {
            assert!(LocalAddresses::Refused.allows(ip.parse().unwrap()), "{ip}");
        }
    }
}
