//! The loop that accepts connections until the process drains.

use std::net::IpAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// The pause after a failed accept, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The shortest time between two warnings about the limit of connections, or about a failed accept.
const WARNING_INTERVAL: Duration = Duration::from_mins(1);

/// Accepts connections until the process drains. Then waits for open connections, for at most `drain_timeout`. `start`
/// spawns the task of a connection, or drops the connection.
pub async fn accept_until_draining(
    listener: TcpListener,
    mut draining: watch::Receiver<bool>,
    drain_timeout: Duration,
    mut start: impl FnMut(&mut JoinSet<()>, TcpStream, IpAddr),
) {
    let mut connections = JoinSet::new();
    let mut failing: Option<Instant> = None;
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
                // Clients that hold all file descriptors cause it with each attempt.
                if failing.is_none_or(|last| last.elapsed() >= WARNING_INTERVAL) {
                    failing = Some(Instant::now());
                    tracing::warn!("cannot accept a connection: {error}");
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let finish = async { while connections.join_next().await.is_some() {} };
    if timeout(drain_timeout, finish).await.is_err() {
        tracing::warn!(
            "closing connections that are still open after the drain timeout of {drain_timeout:?}"
        );
    }
}

/// The warning about the limit of connections, at most once a minute.
#[derive(Debug, Default)]
pub struct FullWarning {
    last: Option<Instant>,
}

impl FullWarning {
    /// Logs the warning, unless the last one was within the minute. `open` is the number of open connections.
    pub fn warn(&mut self, address: IpAddr, open: usize) {
        if self.last.is_none_or(|last| last.elapsed() >= WARNING_INTERVAL) {
            self.last = Some(Instant::now());
            tracing::warn!(
                %address,
                open,
                "the limit of open connections is reached: closing the oldest unauthenticated ones"
            );
        }
    }
}
