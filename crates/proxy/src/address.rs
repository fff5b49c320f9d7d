//! Which addresses may be dialled. A name that users give (in a kubeconfig) must not lead to services of this
//! machine, or to the metadata service of its cloud.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Whether an upstream may be on a special address (`SPECIAL_V4`, `SPECIAL_V6`) or on one of this machine's own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum LocalAddresses {
    /// It may not. Private networks are not special: clusters are there.
    #[default]
    Refused,
    /// It may: for development, and for upstreams that the operator has chosen.
    Allowed,
}

/// Networks that the operator names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamNetworks(Arc<Lists>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Lists {
    allowed: Vec<IpNet>,
    denied: Vec<IpNet>,
}

/// The IPv4 networks that are refused, with what they are. Private networks (RFC 1918), those of carriers (RFC 6598),
/// of benchmarks (RFC 2544) and of documentation (RFC 5737) are not: the first are where clusters are, and the last
/// lead nowhere.
const SPECIAL_V4: [(Ipv4Net, &str); 9] = [
    // RFC 1122, section 3.2.1.3.
    (v4(0, 0, 0, 0, 8), "this network"),
    (v4(127, 0, 0, 0, 8), "loopback"),
    // RFC 3927; most clouds have their metadata service there.
    (v4(169, 254, 0, 0, 16), "link-local"),
    // RFC 6890.
    (v4(192, 0, 0, 0, 24), "protocol assignments"),
    // RFC 3068, deprecated by RFC 7526: a relay leads to any IPv6 address.
    (v4(192, 88, 99, 0, 24), "6to4 relay"),
    // RFC 5771.
    (v4(224, 0, 0, 0, 4), "multicast"),
    // RFC 1112, section 4, with the limited broadcast of RFC 919.
    (v4(240, 0, 0, 0, 4), "reserved"),
    // Metadata services and host agents of clouds, which are not link-local.
    (v4(100, 100, 100, 200, 32), "a metadata service"),
    (v4(168, 63, 129, 16, 32), "a host agent"),
];

/// The IPv6 networks that are refused, with what they are. An address that leads to an IPv4 address is refused with that
/// one: see [`embedded_v4`].
const SPECIAL_V6: [(Ipv6Net, &str); 11] = [
    // RFC 4291, sections 2.5.2, 2.5.3, 2.5.6 and 2.7.
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 128), "unspecified"),
    (v6([0, 0, 0, 0, 0, 0, 0, 1], 128), "loopback"),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), "link-local"),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), "multicast"),
    // RFC 3879.
    (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), "site-local"),
    // RFC 8215: which part of it is the IPv4 address, the network decides.
    (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), "local-use NAT64"),
    // RFC 6666.
    (v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64), "discard-only"),
    // RFC 4380: it leads to an IPv4 address and port.
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32), "Teredo"),
    // Metadata services of clouds.
    (v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128), "a metadata service"),
    (v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128), "a metadata service"),
    (v6([0xfd00, 0xc1, 0, 0, 0xa9fe, 0xa9fe, 0, 0], 96), "a metadata service"),
];

const fn v4(one: u8, two: u8, three: u8, four: u8, length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(one, two, three, four), length)
}

const fn v6(segments: [u16; 8], length: u8) -> Ipv6Net {
    let of = segments;
    let address = Ipv6Addr::new(of[0], of[1], of[2], of[3], of[4], of[5], of[6], of[7]);
    Ipv6Net::new_assert(address, length)
}

/// A text that is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no network: write it as ADDRESS/LENGTH, such as 10.0.0.0/8 or fd00::/8")]
pub struct InvalidNetwork(String);

impl UpstreamNetworks {
    /// Reads the networks that are allowed, whatever they are, and those that are denied, whatever else is allowed, each
    /// as `ADDRESS/LENGTH` (CIDR) or as an address.
    ///
    /// # Errors
    /// The text that is no network.
    pub fn parse<'a>(
        allowed: impl IntoIterator<Item = &'a str>,
        denied: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, InvalidNetwork> {
        let read = |text: &str| {
            let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
            let network = text.parse::<IpNet>().ok().or_else(address);
            network.ok_or_else(|| InvalidNetwork(text.to_owned()))
        };
        let allowed = allowed.into_iter().map(read).collect::<Result<_, _>>()?;
        let denied = denied.into_iter().map(read).collect::<Result<_, _>>()?;
        Ok(Self(Arc::new(Lists { allowed, denied })))
    }

    /// Returns whether an address may be dialled.
    pub fn allow(&self, local: LocalAddresses, ip: IpAddr) -> bool {
        let forms = || std::iter::once(ip).chain(embedded(ip));
        let is_in = |networks: &[IpNet], ip: IpAddr| networks.iter().any(|one| one.contains(&ip));
        if forms().any(|ip| is_in(&self.0.denied, ip)) {
            return false;
        }
        local == LocalAddresses::Allowed
            || is_in(&self.0.allowed, ip)
            || forms().all(|ip| special(ip).is_none() && !is_own(ip))
    }
}

/// Returns what a special address is.
fn special(ip: IpAddr) -> Option<&'static str> {
    match ip {
        IpAddr::V4(ip) => SPECIAL_V4.iter().find(|(net, _)| net.contains(&ip)).map(|(_, of)| *of),
        IpAddr::V6(ip) => SPECIAL_V6.iter().find(|(net, _)| net.contains(&ip)).map(|(_, of)| *of),
    }
}

/// Is this an address of one of this machine's interfaces, as they are now? The kernel would send from an address to
/// itself. A datagram socket that is connected sends nothing.
fn is_own(ip: IpAddr) -> bool {
    const ANY_PORT: u16 = 9;
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let from = UdpSocket::bind(SocketAddr::new(any, 0)).and_then(|socket| {
        socket.connect(SocketAddr::new(ip, ANY_PORT))?;
        socket.local_addr()
    });
    // Where there is no route, nothing is dialled.
    from.is_ok_and(|from| from.ip() == ip)
}

fn embedded(ip: IpAddr) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(_) => None,
        IpAddr::V6(ip) => embedded_v4(ip).map(IpAddr::V4),
    }
}

/// Returns the IPv4 address that an IPv6 address leads to: compatible and mapped (RFC 4291), SIIT (RFC 7915), NAT64
/// (RFC 6052), 6to4 (RFC 3056).
fn embedded_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| {
        let ([first, second], [third, last]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(first, second, third, last)
    };
    match ip.segments() {
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

    fn allows(local: LocalAddresses, ip: &str) -> bool {
        UpstreamNetworks::default().allow(local, ip.parse().unwrap())
    }

    #[test]
    fn special_addresses_are_refused_in_every_form() {
        let special = "127.0.0.1 127.8.8.8 0.0.0.0 0.1.2.3 169.254.0.0 169.254.169.254 169.254.255.255 224.0.0.1 \
             239.255.255.255 240.0.0.1 255.255.255.255 100.100.100.200 168.63.129.16 192.0.0.1 192.0.0.192 192.88.99.1 \
             ::1 :: fe80::1 febf::1 fec0::1 feff::1 ff02::1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 ::127.0.0.1 \
             ::ffff:168.63.129.16 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b:1::1 64:ff9b:1:ffff::a00:1 \
             2002:7f00:1:: 2002:a83f:8110:: ::ffff:0:7f00:1 2001::1 2001:0:ffff::1 100::1 fd00:ec2::254 fd20:ce::254 \
             fd00:c1::a9fe:a9fe:0:1";
        for ip in special.split_whitespace() {
            assert!(!allows(LocalAddresses::Refused, ip), "{ip}");
            assert!(allows(LocalAddresses::Allowed, ip), "{ip}");
        }
        let others = "10.0.0.1 172.16.0.1 192.168.1.1 100.64.0.1 8.8.8.8 1.0.0.1 126.255.255.255 128.0.0.1 \
             169.253.255.255 169.255.0.0 192.0.1.1 223.255.255.255 168.63.129.15 168.63.129.17 fd00::1 2001:db8::1 \
             2001:1::1 ::ffff:10.0.0.1 64:ff9b::a00:1 64:ff9b:2::1 2002:a00:1:: 100:0:0:1::1 fe00::1";
        for ip in others.split_whitespace() {
            assert!(allows(LocalAddresses::Refused, ip), "{ip}");
        }
    }

    #[test]
    fn an_address_of_this_machine_is_its_own_and_others_are_not() {
        assert!(is_own("127.0.0.1".parse().unwrap()));
        // TEST-NET-1 (RFC 5737) is nobody's.
        assert!(!is_own("192.0.2.1".parse().unwrap()));
        // Where this machine has another address than loopback, that is refused as well.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("192.0.2.1:9").is_ok() {
            let own = socket.local_addr().unwrap().ip();
            assert!(!UpstreamNetworks::default().allow(LocalAddresses::Refused, own), "{own}");
        }
    }

    #[test]
    fn what_the_operator_denies_wins_over_what_is_allowed() {
        let networks = |allowed: &[&str], denied: &[&str]| {
            UpstreamNetworks::parse(allowed.iter().copied(), denied.iter().copied()).unwrap()
        };
        let error = UpstreamNetworks::parse([], ["10.0.0.0/33"]).unwrap_err().to_string();
        assert!(error.starts_with("\"10.0.0.0/33\" is no network"), "{error}");
        assert_eq!(UpstreamNetworks::parse(["::1"], []), UpstreamNetworks::parse(["::1/128"], []));
        let (refused, allowed) = (LocalAddresses::Refused, LocalAddresses::Allowed);
        for (allow, deny, local, ip, expected) in [
            (&["127.0.0.0/8"][..], &[][..], refused, "127.0.0.1", true),
            (&["127.0.0.0/8"], &[], refused, "::1", false),
            (&["127.0.0.1/32"], &[], refused, "127.0.0.2", false),
            // An address that leads to an allowed one is not meant.
            (&["127.0.0.0/8"], &[], refused, "::ffff:127.0.0.1", false),
            (&[], &["10.0.0.0/8"], refused, "10.1.2.3", false),
            (&[], &["10.0.0.0/8"], refused, "::ffff:10.1.2.3", false),
            (&[], &["10.0.0.0/8"], refused, "64:ff9b::a01:203", false),
            (&[], &["10.0.0.0/8"], refused, "11.0.0.0", true),
            (&["10.1.0.0/16"], &["10.0.0.0/8"], allowed, "10.1.2.3", false),
            (&["fe80::/10"], &["fd00::/8"], refused, "fe80::1", true),
            (&[], &["fd00::/8"], allowed, "fd00::1", false),
        ] {
            let networks = networks(allow, deny);
            assert_eq!(networks.allow(local, ip.parse().unwrap()), expected, "{networks:?} {ip}");
        }
    }
}
