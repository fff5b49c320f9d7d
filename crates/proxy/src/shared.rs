//! The shared state of all connections of one proxy: limits, counters, tasks, and the signals of a
//! shutdown.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::counts::Counters;
use crate::dial::Dial;
use crate::error::ProxyError;

/// How long a client of a stream may read nothing: a pager in a terminal is left alone for a while.
pub const STREAM_STALL: Duration = Duration::from_hours(4);

/// The limits of a proxy. Its caller limits the number of requests and bodies.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections to all upstreams, idle ones included.
    pub max_connections: usize,
    /// Idle connections to one upstream.
    pub max_idle_per_upstream: usize,
    /// Idle connections to all upstreams.
    pub max_idle: usize,
    /// An idle connection is closed after this time. It is shorter than the idle timeout of most
    /// servers (Postern's is 30 s). The side that closes first never finds a dead connection right
    /// after a write.
    pub idle_timeout: Duration,
    /// For resolving a name and connecting to it.
    pub connect_timeout: Duration,
    /// For the TLS handshake.
    pub handshake_timeout: Duration,
    /// A client that asks with `Expect: 100-continue` is made to send its body after this time,
    /// when the upstream says nothing.
    pub continue_timeout: Duration,
    /// A side of an upgraded connection that takes no byte for this time ends it.
    pub stream_stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            max_idle_per_upstream: 64,
            max_idle: 1000,
            idle_timeout: Duration::from_secs(20),
            connect_timeout: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(10),
            continue_timeout: Duration::from_secs(1),
            stream_stall: STREAM_STALL,
        }
    }
}

pub(crate) struct Shared {
    pub(crate) limits: Limits,
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) counters: Counters,
    pub(crate) tasks: TaskTracker,
    /// New requests are refused, and idle connections closed.
    pub(crate) draining: CancellationToken,
    /// Everything ends.
    pub(crate) ending: CancellationToken,
}

impl Shared {
    pub(crate) fn new(limits: Limits, dial: Arc<dyn Dial>) -> Arc<Self> {
        Arc::new(Self {
            limits,
            dial,
            counters: Counters::default(),
            tasks: TaskTracker::new(),
            draining: CancellationToken::new(),
            ending: CancellationToken::new(),
        })
    }

    /// Counts a new connection, if the limit allows one more.
    pub(crate) fn connection(self: &Arc<Self>) -> Result<Counted, ProxyError> {
        let max = self.limits.max_connections;
        let counted = Counted::new(self, |shared| &shared.counters.connections);
        if self.counters.connections.load(Ordering::Relaxed) > max {
            return Err(ProxyError::Overloaded { max });
        }
        Ok(counted)
    }
}

/// Something that is there: counted until it is dropped.
pub(crate) struct Counted {
    shared: Arc<Shared>,
    of: fn(&Shared) -> &AtomicUsize,
}

impl Counted {
    pub(crate) fn new(shared: &Arc<Shared>, of: fn(&Shared) -> &AtomicUsize) -> Self {
        of(shared).fetch_add(1, Ordering::Relaxed);
        Self { shared: shared.clone(), of }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.of)(&self.shared).fetch_sub(1, Ordering::Relaxed);
    }
}
