//! Which addresses may be dialled. A name that users give (in a kubeconfig) must not lead to services of this
//! machine, or to the metadata service of its cloud.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::own_addresses::OwnAddresses;

/// The addresses that upstreams may have. By default, all are allowed except special ones
/// (loopback, link-local and similar: `SPECIAL_V4` and `SPECIAL_V6` list them) and those of this
/// machine's own interfaces. Private networks are not special: clusters are there. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamAddresses(Arc<Rules>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rules {
    is_local_allowed: bool,
    allowed: Vec<IpNet>,
    denied: Vec<IpNet>,
}

/// A text that is no network, and how to write it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidNetwork(String);

impl UpstreamAddresses {
    /// The policy that allows all addresses: for development, and for upstreams that the operator has chosen.
    pub fn any() -> Self {
        Self(Arc::new(Rules { is_local_allowed: true, ..Rules::default() }))
    }

    /// Allows a network with all its addresses, including special addresses and those of this
    /// machine. It is written as `ADDRESS/LENGTH` (CIDR), or as one address.
    ///
    /// # Errors
    /// When the text is no network.
    pub fn allow(&mut self, network: &str) -> Result<(), InvalidNetwork> {
        let network = parse(network)?;
        Arc::make_mut(&mut self.0).allowed.push(network);
        Ok(())
    }

    /// Denies a network. This takes precedence over every permission.
    ///
    /// # Errors
    /// When the text is no network.
    pub fn deny(&mut self, network: &str) -> Result<(), InvalidNetwork> {
        let network = parse(network)?;
        Arc::make_mut(&mut self.0).denied.push(network);
        Ok(())
    }

    /// Checks all addresses of a name. If one is refused, all are: no honest name has both.
    ///
    /// # Errors
    /// The first address that may not be dialled, and its description.
    pub(crate) fn check(
        &self,
        ips: impl IntoIterator<Item = IpAddr>,
    ) -> Result<(), (IpAddr, &'static str)> {
        let own = OwnAddresses::default();
        let own = |ip| match own.contain(ip) {
            Ok(false) => None,
            Ok(true) => Some("one of this machine's own addresses"),
            Err(_) => {
                Some("perhaps this machine's own: its addresses cannot be read by AF_NETLINK")
            }
        };
        ips.into_iter().try_for_each(|ip| self.refusal(ip, own).map_or(Ok(()), |of| Err((ip, of))))
    }

    /// The reason why an address may not be dialled; `None` when it may. `own` has the reason for
    /// this machine's own addresses.
    fn refusal(
        &self,
        ip: IpAddr,
        own: impl Fn(IpAddr) -> Option<&'static str>,
    ) -> Option<&'static str> {
        // To the kernel, an IPv4-mapped address is the IPv4 address (RFC 4291, section 2.5.5.2).
        let plain = ip.to_canonical();
        let embedded = embedded_v4(plain).map(IpAddr::V4);
        if [Some(ip), Some(plain), embedded].into_iter().flatten().any(|ip| self.denies(ip)) {
            return Some("in a network that is denied");
        }
        if self.0.is_local_allowed {
            return None;
        }
        let judged = [Some(plain), embedded].into_iter().flatten();
        let is_allowed = |ip: &IpAddr| self.0.allowed.iter().any(|network| network.contains(ip));
        judged.filter(|ip| !is_allowed(ip)).find_map(|ip| special(ip).or_else(|| own(ip)))
    }

    fn denies(&self, ip: IpAddr) -> bool {
        self.0.denied.iter().any(|network| network.contains(&ip))
    }
}

fn parse(text: &str) -> Result<IpNet, InvalidNetwork> {
    let text = text.trim();
    let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
    let network = text.parse::<IpNet>().ok().or_else(address).ok_or_else(|| {
        InvalidNetwork(format!(
            "{text:?} is no network: write it as ADDRESS/LENGTH, such as 10.0.0.0/8 or fd00::/8"
        ))
    })?;
    // Perhaps a shorter network was meant, perhaps a longer one.
    let whole = network.trunc();
    if network != whole {
        return Err(InvalidNetwork(format!(
            "{text:?} has bits after its first {}: write {whole} for the network, or {} for the address",
            network.prefix_len(),
            network.addr()
        )));
    }
    Ok(match network {
        IpNet::V6(v6) => unmapped(v6).map_or(network, IpNet::V4),
        IpNet::V4(_) => network,
    })
}

/// The IPv4 network that a network of IPv4-mapped addresses is.
fn unmapped(network: Ipv6Net) -> Option<Ipv4Net> {
    const MAPPED_LENGTH: u8 = 96;
    let length = network.prefix_len().checked_sub(MAPPED_LENGTH)?;
    Ipv4Net::new(network.addr().to_ipv4_mapped()?, length).ok()
}

/// The kind of a special address.
fn special(ip: IpAddr) -> Option<&'static str> {
    match ip {
        IpAddr::V4(ip) => SPECIAL_V4.iter().find(|(net, _)| net.contains(&ip)).map(|(_, of)| *of),
        IpAddr::V6(ip) => SPECIAL_V6.iter().find(|(net, _)| net.contains(&ip)).map(|(_, of)| *of),
    }
}

/// The IPv4 address that an IPv6 address leads to.
fn embedded_v4(ip: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(ip) = ip else { return None };
    let v4 = |high: u16, low: u16| {
        let ([first, second], [third, last]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(first, second, third, last)
    };
    match ip.segments() {
        // IPv4-translated (RFC 2765, section 2.1).
        [0, 0, 0, 0, 0xffff, 0, high, low]
        // NAT64 (RFC 6052, section 2.1).
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        // 6to4 (RFC 3056, section 2).
        | [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

const fn v4(address: [u8; 4], length: u8) -> Ipv4Net {
    let [first, second, third, last] = address;
    Ipv4Net::new_assert(Ipv4Addr::new(first, second, third, last), length)
}

const fn v6(segments: [u16; 8], length: u8) -> Ipv6Net {
    let of = segments;
    let address = Ipv6Addr::new(of[0], of[1], of[2], of[3], of[4], of[5], of[6], of[7]);
    Ipv6Net::new_assert(address, length)
}

/// The IPv4 networks that are refused, with their descriptions. Private networks (RFC 1918), those
/// of carriers (RFC 6598) and of benchmarks (RFC 2544) are not, because clusters are there. Those
/// of documentation (RFC 5737) are not, because they lead nowhere, and laboratories use them.
const SPECIAL_V4: [(Ipv4Net, &str); 9] = [
    // RFC 1122, section 3.2.1.3 (a) and (b); RFC 791, section 3.2.
    (v4([0, 0, 0, 0], 8), "in \"this network\""),
    // RFC 1122, section 3.2.1.3 (g).
    (v4([127, 0, 0, 0], 8), "a loopback address"),
    // RFC 3927; most clouds have their metadata service there.
    (v4([169, 254, 0, 0], 16), "a link-local address"),
    // RFC 6890, section 2.1.
    (v4([192, 0, 0, 0], 24), "an address for protocol assignments"),
    // RFC 3068, deprecated by RFC 7526: a relay leads to any IPv6 address.
    (v4([192, 88, 99, 0], 24), "a 6to4 relay"),
    // RFC 5771.
    (v4([224, 0, 0, 0], 4), "a multicast address"),
    // RFC 1112, section 4, with the limited broadcast of RFC 919.
    (v4([240, 0, 0, 0], 4), "a reserved address"),
    // Alibaba Cloud.
    (v4([100, 100, 100, 200], 32), "a metadata service"),
    // Azure's host agent, which hands out credentials of the machine.
    (v4([168, 63, 129, 16], 32), "a metadata service"),
];

/// The IPv6 networks that are refused, with their descriptions. An address that leads to a refused
/// IPv4 address is refused too: see [`embedded_v4`]. Unique local addresses (RFC 4193) and those of
/// documentation (RFC 3849, RFC 9637) are not refused, for the reasons of their IPv4 kin.
const SPECIAL_V6: [(Ipv6Net, &str); 16] = [
    // RFC 4291, sections 2.5.2, 2.5.3 and 2.5.5.1: unspecified, loopback, and IPv4-compatible, which is deprecated.
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 128), "the unspecified address"),
    (v6([0, 0, 0, 0, 0, 0, 0, 1], 128), "the loopback address"),
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 96), "an IPv4-compatible address"),
    // RFC 4291, sections 2.5.6 and 2.7.
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), "a link-local address"),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), "a multicast address"),
    // RFC 3879.
    (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), "a site-local address"),
    // RFC 8215: which part of it is the IPv4 address, the network decides (RFC 6052, section 2.2).
    (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), "a local-use NAT64 address"),
    // RFC 6666.
    (v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64), "a discard-only address"),
    // RFC 4380: it leads to an IPv4 address and port.
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32), "a Teredo address"),
    // RFC 9602: it names no host.
    (v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16), "a segment identifier"),
    // Amazon: metadata, credentials of pods, names and time, each at an address of this network.
    (v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 48), "a metadata service"),
    // Google, Oracle, Scaleway, Akamai, Alibaba.
    (v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128), "a metadata service"),
    (v6([0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0], 112), "a metadata service"),
    (v6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42], 128), "a metadata service"),
    (v6([0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1], 128), "a metadata service"),
    (v6([0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200], 128), "a metadata service"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// The reason why a policy rejects an address, on a machine with the address 10.9.9.9.
    fn refused(policy: &UpstreamAddresses, address: &str) -> Option<&'static str> {
        policy.refusal(ip(address), |ip| (ip == self::ip("10.9.9.9")).then_some("own"))
    }

    fn policy(allowed: &[&str], denied: &[&str]) -> UpstreamAddresses {
        with(UpstreamAddresses::default(), allowed, denied)
    }

    fn with(mut policy: UpstreamAddresses, allowed: &[&str], denied: &[&str]) -> UpstreamAddresses {
        for network in allowed {
            policy.allow(network).unwrap();
        }
        for network in denied {
            policy.deny(network).unwrap();
        }
        policy
    }

    /// Each network with its first and last address, and the addresses right before and after it.
    #[test]
    fn each_special_network_is_refused_to_its_edges_and_no_further() {
        let edges = [
            ("0.0.0.0", "0.255.255.255", "", "1.0.0.0"),
            ("127.0.0.0", "127.255.255.255", "126.255.255.255", "128.0.0.0"),
            ("169.254.0.0", "169.254.255.255", "169.253.255.255", "169.255.0.0"),
            ("192.0.0.0", "192.0.0.255", "191.255.255.255", "192.0.1.0"),
            ("192.88.99.0", "192.88.99.255", "192.88.98.255", "192.88.100.0"),
            ("224.0.0.0", "255.255.255.255", "223.255.255.255", ""),
            ("100.100.100.200", "100.100.100.200", "100.100.100.199", "100.100.100.201"),
            ("168.63.129.16", "168.63.129.16", "168.63.129.15", "168.63.129.17"),
            ("::", "::ffff:ffff", "", "::1:0:0"),
            ("fe80::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fe7f:ffff::1", ""),
            ("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "", ""),
            (
                "64:ff9b:1::",
                "64:ff9b:1:ffff:ffff:ffff:ffff:ffff",
                "64:ff9b:0:ffff::1",
                "64:ff9b:2::",
            ),
            ("100::", "100::ffff:ffff:ffff:ffff", "ff:ffff::1", "100:0:0:1::"),
            ("2001::", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff", "2000:ffff::1", "2001:1::"),
            ("5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "5eff:ffff::1", "5f01::"),
            (
                "fd00:ec2::",
                "fd00:ec2:0:ffff:ffff:ffff:ffff:ffff",
                "fd00:ec1:ffff::1",
                "fd00:ec2:1::",
            ),
            ("fd20:ce::254", "fd20:ce::254", "fd20:ce::253", "fd20:ce::255"),
            ("fd00:c1::a9fe:0", "fd00:c1::a9fe:ffff", "fd00:c1::a9fd:ffff", "fd00:c1::a9ff:0"),
            ("fd00:42::42", "fd00:42::42", "fd00:42::41", "fd00:42::43"),
            ("fd00:a9fe:a9fe::1", "fd00:a9fe:a9fe::1", "fd00:a9fe:a9fe::", "fd00:a9fe:a9fe::2"),
            ("fd00:100::100:200", "fd00:100::100:200", "fd00:100::100:1ff", "fd00:100::100:201"),
        ];
        let policy = UpstreamAddresses::default();
        for (first, last, before, after) in edges {
            for inside in [first, last] {
                assert!(refused(&policy, inside).is_some(), "{inside}");
                assert_eq!(refused(&UpstreamAddresses::any(), inside), None, "{inside}");
            }
            for outside in [before, after].into_iter().filter(|outside| !outside.is_empty()) {
                assert_eq!(refused(&policy, outside), None, "{outside}");
            }
        }
        let all = SPECIAL_V4.iter().map(|(net, _)| IpNet::V4(*net));
        for network in all.chain(SPECIAL_V6.iter().map(|(net, _)| IpNet::V6(*net))) {
            let is_in_table = edges.iter().any(|(first, last, ..)| {
                network.network() >= ip(first) && network.broadcast() <= ip(last)
            });
            assert!(is_in_table, "{network} has no row");
        }
    }

    #[test]
    fn special_addresses_are_refused_in_every_form() {
        let special = "127.0.0.1 169.254.169.254 168.63.129.16 0.0.0.0 10.9.9.9";
        for v4 in special.split(' ') {
            let [a, b, c, d] = v4.parse::<Ipv4Addr>().unwrap().octets().map(u16::from);
            let (high, low) = (a << 8 | b, c << 8 | d);
            for form in [
                v4.to_owned(),
                format!("::ffff:{v4}"),
                format!("::{v4}"),
                format!("::ffff:0:{v4}"),
                format!("64:ff9b::{v4}"),
                format!("64:ff9b:1::{v4}"),
                format!("64:ff9b:1:{high:x}:{c:x}:{:x}::", d << 8),
                format!("2002:{high:x}:{low:x}::1"),
                format!("2001:0:{high:x}:{low:x}::1"),
            ] {
                assert!(refused(&UpstreamAddresses::default(), &form).is_some(), "{form}");
            }
        }
        let others = "10.0.0.1 172.16.0.1 192.168.1.1 100.64.0.1 198.18.0.1 192.0.2.1 8.8.8.8 fc00::1 fd00::1 \
             2001:db8::1 2600::1 ::ffff:10.0.0.1 ::ffff:0:10.0.0.1 64:ff9b::10.0.0.1 2002:a00:1::1";
        for other in others.split_whitespace() {
            assert_eq!(refused(&UpstreamAddresses::default(), other), None, "{other}");
        }
    }

    #[test]
    fn a_denied_network_wins_over_everything_and_an_allowed_one_over_the_rest() {
        let (any, default) = (UpstreamAddresses::any, UpstreamAddresses::default);
        for (base, allowed, denied, address, is_refused) in [
            (default(), &["127.0.0.0/8"][..], &[][..], "127.0.0.1", false),
            (default(), &["127.0.0.0/8"], &[], "::ffff:127.0.0.1", false),
            (default(), &["127.0.0.0/8"], &[], "64:ff9b::127.0.0.1", false),
            (default(), &["127.0.0.0/8"], &[], "::1", true),
            (default(), &["127.0.0.1"], &[], "127.0.0.2", true),
            (default(), &["10.9.9.9/32"], &[], "10.9.9.9", false),
            (default(), &["0.0.0.0/0"], &[], "10.9.9.9", false),
            // The embedded address is judged on its own, and IPv4 is not in an IPv6 network.
            (default(), &["::/0"], &[], "::1", false),
            (default(), &["::/0"], &[], "::ffff:127.0.0.1", true),
            (default(), &["64:ff9b::/96"], &[], "64:ff9b::127.0.0.1", true),
            (default(), &["64:ff9b:1::/48"], &[], "64:ff9b:1::1", false),
            (default(), &["::ffff:127.0.0.0/104"], &[], "127.0.0.1", false),
            (default(), &[], &["10.0.0.0/8"], "10.1.2.3", true),
            (default(), &[], &["10.0.0.0/8"], "9.255.255.255", false),
            (default(), &[], &["10.0.0.0/8"], "11.0.0.0", false),
            (default(), &[], &["10.0.0.0/8"], "::ffff:10.1.2.3", true),
            (default(), &[], &["10.0.0.0/8"], "64:ff9b::10.1.2.3", true),
            (default(), &[], &["::ffff:10.0.0.0/104"], "10.1.2.3", true),
            (default(), &[], &["::/0"], "::ffff:10.1.2.3", true),
            (default(), &["10.1.0.0/16"], &["10.0.0.0/8"], "10.1.2.3", true),
            (default(), &["10.0.0.0/8"], &["10.1.0.0/16"], "10.1.2.3", true),
            (default(), &["127.0.0.0/8"], &["127.0.0.1"], "127.0.0.1", true),
            (any(), &[], &["fd00::/8"], "fd00::1", true),
            (any(), &[], &["169.254.0.0/16"], "169.254.169.254", true),
            (any(), &["127.0.0.1"], &["127.0.0.0/8"], "127.0.0.1", true),
            (any(), &[], &["fd00::/8"], "10.9.9.9", false),
        ] {
            let policy = with(base, allowed, denied);
            assert_eq!(refused(&policy, address).is_some(), is_refused, "{policy:?} {address}");
        }
    }

    #[test]
    fn a_network_is_written_as_cidr_or_as_an_address() {
        for (text, network) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            (" 10.0.0.1 ", "10.0.0.1/32"),
            ("::1", "::1/128"),
            ("fd00::/8", "fd00::/8"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ] {
            assert_eq!(policy(&[text], &[]), policy(&[network], &[]), "{text}");
        }
        for text in ["", "10.0.0.0/33", "10.0.0/8", "localhost", "10.0.0.0/", "[::1]", "::/129"] {
            let error = UpstreamAddresses::default().deny(text).unwrap_err().to_string();
            assert!(error.contains("is no network: write it as ADDRESS/LENGTH"), "{error}");
        }
        let error = UpstreamAddresses::default().allow("10.0.0.1/8").unwrap_err().to_string();
        assert!(error.contains("write 10.0.0.0/8 for the network, or 10.0.0.1 for"), "{error}");
    }
}
