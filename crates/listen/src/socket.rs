//! The listening socket, and the limit of file descriptors.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpSocket};

/// The most connections that wait to be accepted. Beyond it, the client's system retries after a second.
const BACKLOG: u32 = 4096;

/// The TCP keepalive: the idle time, the interval and the number of probes. It closes connections to machines that are
/// gone, such as watches without events.
const PROBE_AFTER: Duration = Duration::from_mins(1);
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;

/// The assumed limit of file descriptors if it does not fit in `usize`.
const FALLBACK_DESCRIPTORS: usize = 1024;

/// Opens a listener. The kernel closes its connections when their client is gone for more than a minute and a half.
///
/// # Errors
/// When the address is in use, or is not an address of this machine.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let keepalive = TcpKeepalive::new()
        .with_time(PROBE_AFTER)
        .with_interval(PROBE_INTERVAL)
        .with_retries(PROBES);
    // On Linux, accepted connections inherit it.
    SockRef::from(&socket).set_tcp_keepalive(&keepalive)?;
    socket.listen(BACKLOG)
}

/// Raises the limit of open file descriptors to the maximum that the system allows. Returns the limit.
pub fn raise_descriptor_limit() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let limit = if raised.is_ok() { maximum } else { current };
    // `None` means no limit.
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(FALLBACK_DESCRIPTORS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn accepted_connections_have_keepalive() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let connect = tokio::net::TcpStream::connect(address);
        let (accepted, _open) = tokio::join!(listener.accept(), connect);
        let (stream, _) = accepted.unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), PROBE_AFTER);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), PROBES);
    }
}
