//! The protection of every listener against clients that connect and do nothing: the table of open
//! connections, their timeouts, and how many there may be. The bytes of a connection are not known here.

mod accept;
mod guarded;
mod peer;
mod socket;
mod table;

pub use accept::{FullWarning, accept_until_draining};
pub use guarded::GuardedIo;
pub use peer::Peer;
pub use socket::{bind, raise_descriptor_limit};
pub use table::{
    Admission, ConnectionLimits, ConnectionTable, OpenConnection, upstream_descriptors,
};
