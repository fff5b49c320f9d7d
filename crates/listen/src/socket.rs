//! The listening socket, and how many descriptors there are for connections.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpSocket};

/// Connections that wait to be accepted. When there are more, a client tries again after a second.
const BACKLOG: u32 = 4096;

/// A client from which nothing came for so long is probed, so often and so many times: one whose machine has gone
/// keeps no watch open, to which nothing is sent.
const PROBE_AFTER: Duration = Duration::from_mins(1);
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;

/// Descriptors of a process whose limit cannot be read.
const FEW_DESCRIPTORS: usize = 1024;

/// A listener. Connections that it accepts are closed by the kernel when their other end has gone for longer
/// than a minute and a half.
///
/// # Errors
/// When the address is taken, or is not one of this machine.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let keepalive = TcpKeepalive::new()
        .with_time(PROBE_AFTER)
        .with_interval(PROBE_INTERVAL)
        .with_retries(PROBES);
    // Linux gives it to those that are accepted.
    SockRef::from(&socket).set_tcp_keepalive(&keepalive)?;
    socket.listen(BACKLOG)
}

/// Raises the limit of open file descriptors as far as the system lets it. Returns the limit.
pub fn raise_descriptor_limit() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let limit = if raised.is_ok() { maximum } else { current };
    // None is no limit.
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(FEW_DESCRIPTORS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_accepted_is_probed() {
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
