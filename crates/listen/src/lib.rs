//! The protection of listeners against clients that connect and do nothing: the table of open connections, their limits
//! and their timeouts. This crate does not interpret the bytes of a connection.

mod accept;
mod guarded;
mod peer;
mod proxied;
mod socket;
mod table;
mod unauthenticated;

pub use accept::{FullWarning, accept_until_draining};
pub use guarded::GuardedIo;
pub use peer::Peer;
pub use proxied::{InvalidNetwork, Networks, read_proxy_header};
pub use socket::{bind, raise_descriptor_limit};
pub use table::{
    Admission, ConnectionLimits, ConnectionTable, Moved, OpenConnection, network,
    upstream_descriptors,
};
pub use unauthenticated::{Answering, UnauthenticatedLimit};
