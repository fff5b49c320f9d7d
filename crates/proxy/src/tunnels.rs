//! Connections that the other side opens: requests wait for one in place of dialling.

use std::fmt;
use std::sync::Arc;

use http::HeaderName;

use crate::pool::Pool;

/// The connections that one upstream has opened, of which each takes one request at a time. Cheap to clone; clones are
/// the same tunnels. [`Proxy::offer`](crate::Proxy::offer) adds one, [`Upstream::through`](crate::Upstream::through)
/// uses them.
#[derive(Clone)]
pub struct Tunnels {
    pub(crate) pool: Arc<Pool>,
    pub(crate) waiting_header: HeaderName,
}

impl Tunnels {
    /// No tunnels yet. Each request in one tells in this header how many others wait for a tunnel.
    pub fn new(waiting_header: HeaderName) -> Self {
        Self { pool: Pool::of_tunnels(), waiting_header }
    }

    /// How many tunnels are idle.
    pub fn idle(&self) -> usize {
        self.pool.idle()
    }

    /// How many requests wait for a tunnel.
    pub fn waiting(&self) -> usize {
        self.pool.waiting()
    }
}

impl fmt::Debug for Tunnels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnels")
            .field("idle", &self.idle())
            .field("waiting", &self.waiting())
            .finish()
    }
}
