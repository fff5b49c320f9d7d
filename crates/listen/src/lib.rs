//! The protection of listeners against clients that connect and do nothing: the table of open connections, their limits
//! and their timeouts, also those of HTTP.

mod accept;
mod guarded;
mod http;
mod peer;
mod proxied;
mod socket;
mod table;
mod unauthenticated;

pub use accept::{FullWarning, accept_until_draining};
pub use guarded::GuardedIo;
pub use http::{HTTP1_BUFFER_BYTES, Http2Limits, http1_builder, http2_builder};
pub use peer::Peer;
pub use proxied::{InvalidNetwork, Networks, read_proxy_header};
pub use socket::{bind, raise_descriptor_limit};
pub use table::{
    Admission, ConnectionLimits, ConnectionTable, Moved, OpenConnection, network,
    upstream_descriptors,
};
pub use unauthenticated::{Answering, UnauthenticatedLimit};
