//! Proxies in front of the server: the networks of those that are trusted, and the header with the address of the client
//! that they send before TLS (PROXY protocol, version 2).

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::timeout;

/// The first bytes of the header.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// The bytes of the header before the addresses.
const FIXED_BYTES: usize = 16;

/// The most bytes of addresses and extensions. Proxies send some hundreds at most.
const MAX_REST_BYTES: usize = 4096;

/// How long a proxy may take to send the header.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// The bits of an IPv6 address that has an IPv4 address in it, before that address.
const MAPPED_PREFIX: u32 = 96;

/// A list of networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Vec<Network>);

/// A network, as IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    bits: u128,
    prefix: u32,
}

/// A text that is no network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidNetwork(String);

impl fmt::Display for InvalidNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no network: write an address, or an address without further bits and its prefix length, such as \
             10.0.0.0/8",
            self.0
        )
    }
}

impl std::error::Error for InvalidNetwork {}

impl Networks {
    /// Adds a network or an address.
    ///
    /// # Errors
    /// When the text is neither, or has bits after its prefix.
    pub fn add(&mut self, text: &str) -> Result<(), InvalidNetwork> {
        let network = Network::parse(text.trim());
        self.0.push(network.ok_or_else(|| InvalidNetwork(text.to_owned()))?);
        Ok(())
    }

    /// Whether there is no network.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an address is in one of the networks.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| (bits_of(address) ^ network.bits) & network.mask() == 0)
    }
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address.parse::<IpAddr>().ok()?, Some(prefix)),
            None => (text.parse().ok()?, None),
        };
        let (before, longest) = if address.is_ipv4() { (MAPPED_PREFIX, 32) } else { (0, 128) };
        let prefix = prefix.map_or(Some(longest), |prefix| prefix.parse::<u32>().ok())?;
        let network = Self { bits: bits_of(address), prefix: before + prefix };
        (prefix <= longest && network.bits & !network.mask() == 0).then_some(network)
    }

    fn mask(self) -> u128 {
        u128::MAX.checked_shl(128 - self.prefix).unwrap_or_default()
    }
}

fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Reads the header of the PROXY protocol, and nothing after it. Returns the address of the client; `None` for a
/// connection of the proxy itself, such as a health check.
///
/// # Errors
/// When there is no such header, or it does not arrive in time.
pub async fn read_proxy_header(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<IpAddr>> {
    timeout(HEADER_TIMEOUT, read_header(stream)).await?
}

async fn read_header(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<IpAddr>> {
    let invalid = |text| io::Error::new(io::ErrorKind::InvalidData, text);
    let mut fixed = [0; FIXED_BYTES];
    stream.read_exact(&mut fixed).await?;
    let [.., version, family, high, low] = fixed;
    if !fixed.starts_with(&SIGNATURE) || version >> 4 != 2 {
        return Err(invalid("a trusted proxy sent no header of the PROXY protocol, version 2"));
    }
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > MAX_REST_BYTES {
        return Err(invalid("the header of a trusted proxy is too long"));
    }
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).await?;
    // The lower bits are the command (0 is local, 1 has addresses), and the upper ones the family.
    let short = || invalid("the header of a trusted proxy is too short");
    match (version & 0xf, family >> 4) {
        (1, 1) => {
            let source = rest.first_chunk::<4>().filter(|_| rest.len() >= 12).ok_or_else(short)?;
            Ok(Some(Ipv4Addr::from(*source).into()))
        }
        (1, 2) => {
            let source = rest.first_chunk::<16>().filter(|_| rest.len() >= 36).ok_or_else(short)?;
            Ok(Some(IpAddr::from(Ipv6Addr::from(*source)).to_canonical()))
        }
        (0 | 1, _) => Ok(None),
        _ => Err(invalid("the header of a trusted proxy has an unknown command")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> Networks {
        let mut networks = Networks::default();
        for text in texts {
            networks.add(text).unwrap();
        }
        networks
    }

    #[test]
    fn networks_contain_their_addresses_and_no_others() {
        let some = networks(&["10.1.0.0/16", "192.0.2.7", " 2001:db8::/32"]);
        let contains = |text: &str| some.contains(text.parse().unwrap());
        assert!(
            ["10.1.2.3", "192.0.2.7", "2001:db8:1::1", "::ffff:10.1.2.3"]
                .iter()
                .all(|one| contains(one))
        );
        assert!(["10.2.0.1", "192.0.2.8", "2001:db9::1", "::1"].iter().all(|one| !contains(one)));
        assert!(networks(&["0.0.0.0/0"]).contains("8.8.8.8".parse().unwrap()));
        assert!(!networks(&["0.0.0.0/0"]).contains("::1".parse().unwrap()));
        assert!(networks(&["::/0"]).contains("::1".parse().unwrap()));
        for wrong in ["", "x", "10.0.0.0/33", "10.0.0.1/8", "::/129", "10.0.0.0/-1", "10.0.0.0/"] {
            assert!(Networks::default().add(wrong).is_err(), "{wrong}");
        }
    }

    fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let mut header = SIGNATURE.to_vec();
        header.extend([command, family]);
        header.extend(u16::try_from(rest.len()).unwrap().to_be_bytes());
        header.extend(rest);
        header
    }

    async fn read(bytes: &[u8]) -> (Option<Option<IpAddr>>, usize) {
        let mut stream = bytes;
        let read = read_proxy_header(&mut stream).await.ok();
        (read, stream.len())
    }

    #[tokio::test]
    async fn the_header_of_a_proxy_has_the_address_of_the_client() {
        let mut v4 = header(0x21, 0x11, &[192, 0, 2, 1, 10, 0, 0, 1, 0, 1, 0, 2]);
        v4.extend(b"next");
        assert_eq!(read(&v4).await, (Some(Some(IpAddr::from([192, 0, 2, 1]))), 4), "TLS follows");
        let mut addresses = [0; 40];
        addresses[..2].copy_from_slice(&[0x20, 1]);
        let v6 = header(0x21, 0x21, &addresses);
        assert_eq!(read(&v6).await, (Some(Some("2001::".parse().unwrap())), 0));
        assert_eq!(read(&header(0x20, 0, &[])).await, (Some(None), 0), "a health check");
        assert_eq!(read(&header(0x21, 0x31, &[0; 216])).await, (Some(None), 0), "a socket of UNIX");
    }

    #[tokio::test]
    async fn what_is_no_header_is_an_error() {
        let long = header(0x21, 0x11, &[0; MAX_REST_BYTES + 1]);
        for wrong in [
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03abcdefgh".to_vec(),
            b"PROXY TCP4 192.0.2.1 10.0.0.1 1 2\r\n".to_vec(),
            header(0x21, 0x11, &[0; 4]),
            header(0x11, 0x11, &[0; 12]),
            header(0x22, 0x11, &[0; 12]),
            SIGNATURE.to_vec(),
            long,
        ] {
            assert_eq!(read(&wrong).await.0, None, "{wrong:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_proxy_that_sends_nothing_is_not_waited_for() {
        let (_client, mut server) = tokio::io::duplex(64);
        assert!(read_proxy_header(&mut server).await.is_err());
    }
}
