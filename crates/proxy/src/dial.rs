//! The only module that opens a connection to an upstream, below TLS. The upstream itself opens
//! [`Tunnels`](crate::Tunnels).
//!
//! # When a dead upstream is noticed
//! Within [`Liveness::default`]. TCP keepalive probes a connection after 15 s if it is idle, or if
//! only the upstream has to send something (an open watch). The kernel closes it when nothing was
//! received for 30 s. Bytes that the peer does not acknowledge for 30 s close it as well
//! (`TCP_USER_TIMEOUT`). This relies on Linux, and on the upstream's own kernel. A kernel that runs
//! while the program hangs is alive, and so is a load balancer that holds the connection for a dead
//! upstream. The time limit for the head of a response covers these cases.
//!
//! `TCP_USER_TIMEOUT` also closes a connection to a live peer that takes nothing for that long. In
//! requests that is wanted. In an upgraded connection it is not, because the standard input of a
//! pod may pause for an hour. There it is off, and an idle connection is still probed.
//! Unacknowledged bytes end it when the kernel gives up (`tcp_retries2`, about 15 minutes) or the
//! session ends.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::address::UpstreamAddresses;
use crate::error::ProxyError;

/// Bytes both ways.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A stream that is being opened.
pub type DialFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Box<dyn Stream>, ProxyError>> + Send + 'a>>;

/// Where a connection is to go.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The name or the address, without brackets.
    pub host: &'a str,
    /// The port.
    pub port: u16,
    /// Which addresses may be dialled.
    pub addresses: &'a UpstreamAddresses,
    /// Whether the connection is for an upgrade. Its peer may take nothing for a long time.
    pub may_stall: bool,
}

/// Opens connections. The proxy limits how long it may take, and puts TLS on top.
pub trait Dial: Send + Sync + 'static {
    /// A new stream to the target.
    ///
    /// # Errors
    /// [`ProxyError::AddressRefused`] and [`ProxyError::Unreachable`].
    fn dial<'a>(&'a self, target: Target<'a>) -> DialFuture<'a>;
}

/// Addresses that are being looked up.
pub type ResolveFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'a>>;

/// Finds the addresses of a name.
pub trait Resolve: Send + Sync + 'static {
    /// The addresses of a name, or the address that it is.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> ResolveFuture<'a>;
}

/// The highest number of simultaneous name lookups. Each takes one of the threads for blocking
/// work, until the system gives up. It does so even when no request waits for it: a name server
/// that does not answer must not take all threads.
const MAX_LOOKUPS: usize = 64;

/// Addresses of one name that are dialled, one after the other. A name server can return thousands of addresses, and
/// one request would then dial each of them.
const MAX_ADDRESSES: usize = 16;

/// The system's resolver.
struct SystemResolver {
    lookups: Arc<Semaphore>,
}

impl SystemResolver {
    fn new() -> Self {
        Self { lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)) }
    }
}

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> ResolveFuture<'a> {
        Box::pin(async move {
            if let Ok(address) = host.parse::<IpAddr>() {
                return Ok(vec![SocketAddr::new(address, port)]);
            }
            let turn = self.lookups.clone().acquire_owned().await.map_err(io::Error::other)?;
            let host = host.to_owned();
            let looked_up = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                (host.as_str(), port).to_socket_addrs().map(Iterator::collect)
            });
            looked_up.await.map_err(io::Error::other)?
        })
    }
}

/// How fast a dead peer is noticed. The kernel counts keepalive in whole seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Liveness {
    /// A connection on which nothing came for this long is probed.
    pub probe_after: Duration,
    /// Time between probes.
    pub probe_interval: Duration,
    /// Probes without a reply, after which the peer is dead.
    pub probes: u32,
    /// The time limit for the acknowledgement of sent bytes.
    pub user_timeout: Duration,
}

impl Default for Liveness {
    /// 30 s each way.
    fn default() -> Self {
        Self {
            probe_after: Duration::from_secs(15),
            probe_interval: Duration::from_secs(5),
            probes: 3,
            user_timeout: Duration::from_secs(30),
        }
    }
}

/// Dials over TCP. A name is looked up once for each connection. Its addresses are checked, and the
/// checked ones are dialled: the name server cannot give another address in between.
pub struct TcpDial {
    resolver: Arc<dyn Resolve>,
    liveness: Liveness,
}

impl TcpDial {
    /// A dialler with the system's resolver.
    pub fn new() -> Self {
        Self::with(Arc::new(SystemResolver::new()), Liveness::default())
    }

    /// A dialler with another resolver, and other times.
    pub fn with(resolver: Arc<dyn Resolve>, liveness: Liveness) -> Self {
        Self { resolver, liveness }
    }

    async fn connect(&self, target: Target<'_>) -> Result<Box<dyn Stream>, ProxyError> {
        let address = || display_address(target.host, target.port);
        let unreachable = |error: io::Error| ProxyError::Unreachable {
            address: address(),
            reason: error.to_string(),
        };
        let found = self.resolver.resolve(target.host, target.port).await;
        let mut found = found.map_err(unreachable)?;
        found.truncate(MAX_ADDRESSES);
        let checked = target.addresses.check(found.iter().map(SocketAddr::ip));
        checked.map_err(|(ip, what)| ProxyError::AddressRefused {
            address: address(),
            ip,
            what,
        })?;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for found in found {
            match self.open(found, target.may_stall).await {
                Ok(stream) => return Ok(Box::new(stream)),
                Err(error) => last = error,
            }
        }
        Err(unreachable(last))
    }

    async fn open(&self, address: SocketAddr, may_stall: bool) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(address).await?;
        // A request is one small write, which must not be delayed.
        stream.set_nodelay(true)?;
        let socket = SockRef::from(&stream);
        let keepalive = TcpKeepalive::new()
            .with_time(self.liveness.probe_after)
            .with_interval(self.liveness.probe_interval)
            .with_retries(self.liveness.probes);
        socket.set_tcp_keepalive(&keepalive)?;
        if !may_stall {
            socket.set_tcp_user_timeout(Some(self.liveness.user_timeout))?;
        }
        Ok(stream)
    }
}

impl Default for TcpDial {
    fn default() -> Self {
        Self::new()
    }
}

impl Dial for TcpDial {
    fn dial<'a>(&'a self, target: Target<'a>) -> DialFuture<'a> {
        Box::pin(self.connect(target))
    }
}

/// The address as `host:port`, with brackets around an IPv6 address.
pub(crate) fn display_address(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's settings find a dead upstream under an open watch.
    #[tokio::test]
    async fn a_dead_upstream_is_noticed_within_45_seconds() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let dial = TcpDial::new();
        let stream = dial.open(address, false).await.unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        let silent = socket.tcp_keepalive_time().unwrap()
            + socket.tcp_keepalive_interval().unwrap() * socket.tcp_keepalive_retries().unwrap();
        assert!(silent <= Duration::from_secs(45), "{silent:?}");
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(30)));

        let stream = dial.open(address, true).await.unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        let unset = socket.tcp_user_timeout().unwrap().unwrap_or_default();
        assert_eq!(unset, Duration::ZERO, "standard input may stand still");
    }
}
