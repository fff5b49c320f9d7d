//! The listening socket, and how many descriptors there are for connections.

use std::io;
use std::net::SocketAddr;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpSocket};

/// Connections that wait to be accepted. When there are more, a client tries again after a second.
const BACKLOG: u32 = 4096;

/// Descriptors of a process whose limit cannot be read.
const FEW_DESCRIPTORS: usize = 1024;

/// Returns a listener.
///
/// # Errors
/// When the address is taken, or is not one of this machine.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
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
