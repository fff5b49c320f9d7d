//! The loop that accepts connections, until the process drains.

use std::net::IpAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// After a failed accept (no file descriptors left, say) the next try waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How often the log says that all connections are taken.
const WARNING_INTERVAL: Duration = Duration::from_mins(1);

/// Accepts connections until the process drains, then waits for those that are open, for at most `drain_timeout`.
/// `start` spawns the task of a connection, or drops it.
pub async fn accept_until_draining(
    listener: TcpListener,
    mut draining: watch::Receiver<bool>,
    drain_timeout: Duration,
    mut start: impl FnMut(&mut JoinSet<()>, TcpStream, IpAddr),
) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = draining.wait_for(|draining| *draining) => break,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, address)) => {
                start(&mut connections, stream, address.ip().to_canonical());
            }
            Err(error) => {
                tracing::warn!("a connection could not be accepted: {error}");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let finish = async { while connections.join_next().await.is_some() {} };
    if timeout(drain_timeout, finish).await.is_err() {
        tracing::warn!("connections were still open after {drain_timeout:?} and are closed");
    }
}

/// The warning that all connections are taken, once a minute.
#[derive(Debug, Default)]
pub struct FullWarning {
    last: Option<Instant>,
}

impl FullWarning {
    /// Warns, unless the last warning was within the minute. `open` is the number of open connections.
    pub fn warn(&mut self, address: IpAddr, open: usize) {
        if self.last.is_none_or(|last| last.elapsed() >= WARNING_INTERVAL) {
            self.last = Some(Instant::now());
            tracing::warn!(
                %address,
                open,
                "all connections are taken: the oldest without a valid credential are closed"
            );
        }
    }
}
