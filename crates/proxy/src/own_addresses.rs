//! The addresses at which this machine itself answers, as they are now.

use std::cell::OnceCell;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, recv, send, socket,
};

/// The addresses of this machine. The interfaces are read once, when an address is looked for first: one value is
/// for one dial, because interfaces change while the process runs.
#[derive(Default)]
pub(crate) struct OwnAddresses {
    interfaces: OnceCell<Vec<IpAddr>>,
}

impl OwnAddresses {
    /// Whether this machine answers at an address.
    ///
    /// # Errors
    /// When that cannot be found out. The address must not be dialled then.
    pub(crate) fn contain(&self, ip: IpAddr) -> io::Result<bool> {
        let read = if let Some(read) = self.interfaces.get() {
            read
        } else {
            let read = read_interfaces()?;
            self.interfaces.get_or_init(|| read)
        };
        Ok(read.contains(&ip) || is_routed_here(ip)?)
    }
}

/// The addresses of all interfaces.
fn read_interfaces() -> io::Result<Vec<IpAddr>> {
    let addresses = getifaddrs()?.filter_map(|interface| interface.address);
    Ok(addresses.filter_map(|address| ip_of(&address)).collect())
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}

/// Whether a connection to an address would stay on this machine, as the kernel's routes say. A route of the
/// type `local` can have addresses that no interface has: those of load balancers, and at a loopback interface the whole
/// network of its address. Other types than `unicast` lead to no single host.
fn is_routed_here(ip: IpAddr) -> io::Result<bool> {
    let family = if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let address = match ip {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let (kind, protocol) = (SockType::Datagram, SockProtocol::NetlinkRoute);
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Netlink, kind, flags, protocol)?;
    send(socket.as_raw_fd(), &route_request(family as u8, &address), MsgFlags::empty())?;
    let mut answer = [0; MAX_ANSWER_BYTES];
    // The kernel answers while it takes the request.
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    leads_here(&answer[..length]).ok_or_else(|| io::Error::other("the kernel's answer is no route"))
}

/// The request for the route to an address (rtnetlink(7)).
fn route_request(family: u8, address: &[u8]) -> Vec<u8> {
    let (address_bits, address_bytes) = (8 * address.len(), address.len());
    let attribute_bytes = ATTRIBUTE_HEADER_BYTES + address_bytes;
    let all_bytes = HEADER_BYTES + ROUTE_BYTES + attribute_bytes;
    let mut request = Vec::with_capacity(all_bytes);
    // struct nlmsghdr: length, type, flags, sequence number and port, which the kernel fills in.
    request.extend(u32::try_from(all_bytes).unwrap_or_default().to_ne_bytes());
    request.extend(RTM_GETROUTE.to_ne_bytes());
    request.extend(NLM_F_REQUEST.to_ne_bytes());
    request.extend([0; 8]);
    // struct rtmsg: family, length of the destination; the query leaves the rest empty.
    request.extend([family, u8::try_from(address_bits).unwrap_or_default()]);
    request.extend([0; ROUTE_BYTES - 2]);
    // struct rtattr: length, type, value.
    request.extend(u16::try_from(attribute_bytes).unwrap_or_default().to_ne_bytes());
    request.extend(RTA_DST.to_ne_bytes());
    request.extend(address);
    request
}

/// Whether an answer's route leads to this machine. `None` when it is no answer.
fn leads_here(answer: &[u8]) -> Option<bool> {
    let kind = answer.get(4..6)?.try_into().ok().map(u16::from_ne_bytes)?;
    match kind {
        // No route is there, or the kernel has no answer to this.
        NLMSG_ERROR => Some(false),
        RTM_NEWROUTE => Some(*answer.get(HEADER_BYTES + ROUTE_TYPE_AT)? != RTN_UNICAST),
        _ => None,
    }
}

/// The most bytes of an answer that are read: its head is looked at alone.
const MAX_ANSWER_BYTES: usize = 4096;

// Constants of linux/netlink.h and linux/rtnetlink.h.
const HEADER_BYTES: usize = 16;
const ROUTE_BYTES: usize = 12;
const ROUTE_TYPE_AT: usize = 7;
const ATTRIBUTE_HEADER_BYTES: usize = 4;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTA_DST: u16 = 1;
const RTN_UNICAST: u8 = 1;

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    /// The addresses of this machine as procfs has them: another source than the code's own.
    #[expect(clippy::disallowed_methods, reason = "procfs is no file of the server")]
    pub(crate) fn of_procfs() -> Vec<IpAddr> {
        let mut own = Vec::new();
        let mut last = None;
        for line in fs::read_to_string("/proc/net/fib_trie").unwrap_or_default().lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            match words[..] {
                ["|--", address] => last = address.parse().ok(),
                ["/32", "host", "LOCAL"] => own.extend(last.map(IpAddr::V4)),
                _ => {}
            }
        }
        for line in fs::read_to_string("/proc/net/if_inet6").unwrap_or_default().lines() {
            let address = line.split(' ').next().unwrap();
            let bits = u128::from_str_radix(address, 16).unwrap();
            own.push(Ipv6Addr::from_bits(bits).into());
        }
        own.sort();
        own.dedup();
        own
    }

    /// Also the second address of a network on one interface, and those of routes of the type `local`.
    #[test]
    fn every_address_of_every_interface_is_this_machines() {
        let found = of_procfs();
        assert!(found.contains(&Ipv4Addr::LOCALHOST.into()), "{found:?}");
        let own = OwnAddresses::default();
        for ip in found {
            assert!(own.contain(ip).unwrap(), "{ip}");
        }
        for ip in ["127.8.8.8", "0.0.0.0"] {
            assert!(is_routed_here(ip.parse().unwrap()).unwrap(), "{ip}");
        }
    }

    #[test]
    fn an_answer_that_is_none_says_nothing() {
        let answer = |kind: u16, route_type: u8| {
            let mut answer = vec![0; HEADER_BYTES + ROUTE_BYTES];
            answer[4..6].copy_from_slice(&kind.to_ne_bytes());
            answer[HEADER_BYTES + ROUTE_TYPE_AT] = route_type;
            answer
        };
        assert_eq!(leads_here(&answer(RTM_NEWROUTE, RTN_UNICAST)), Some(false));
        for local_broadcast_anycast_multicast in 2..=5 {
            let answer = answer(RTM_NEWROUTE, local_broadcast_anycast_multicast);
            assert_eq!(leads_here(&answer), Some(true));
        }
        assert_eq!(leads_here(&answer(NLMSG_ERROR, 0)), Some(false));
        assert_eq!(leads_here(&answer(3, 0)), None, "NLMSG_DONE");
        for cut in 0..HEADER_BYTES + ROUTE_TYPE_AT {
            assert_ne!(leads_here(&answer(RTM_NEWROUTE, 2)[..=cut]), Some(false));
        }
    }

    #[test]
    fn what_no_interface_has_is_not_this_machines() {
        let found = of_procfs();
        // TEST-NET-3 and the prefix for documentation (RFC 5737, RFC 3849) belong to no machine.
        for ip in ["203.0.113.77", "2001:db8::77"] {
            let ip = ip.parse().unwrap();
            assert!(found.contains(&ip) || !OwnAddresses::default().contain(ip).unwrap(), "{ip}");
        }
    }
}
