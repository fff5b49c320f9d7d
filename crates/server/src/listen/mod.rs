//! The accept loop: which connections are taken, and what becomes of them.

mod connection;
mod sending;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(crate) use postern_listen::bind;
use postern_listen::{
    Admission, ConnectionLimits, ConnectionTable, raise_descriptor_limit, upstream_descriptors,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsAcceptor;

use self::connection::{Connection, MAX_ALL_STRANGER_STREAMS};
use crate::metrics::connections::Closed;
use crate::pipeline::{Client, Server};

/// After a failed accept (no file descriptors left, say) the next try waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How often the log says that all connections are taken.
const WARNING_INTERVAL: Duration = Duration::from_mins(1);

/// Accepts connections until the server drains, then waits for those that are open, for at most
/// `drain_timeout`.
pub(crate) async fn serve(
    server: Arc<Server>,
    listener: TcpListener,
    tls: TlsAcceptor,
    drain_timeout: Duration,
) {
    let descriptors = raise_descriptor_limit();
    let own = descriptors - upstream_descriptors(descriptors);
    let limits = ConnectionLimits::of_descriptors(own);
    let mut accepting = Accepting {
        server: server.clone(),
        tls,
        table: ConnectionTable::new(limits),
        strangers: Arc::new(Semaphore::new(MAX_ALL_STRANGER_STREAMS)),
        warned: None,
    };
    server.metrics().connections.limit.store(limits.total, Ordering::Relaxed);
    let mut draining = server.draining();
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener) => accepted,
            _ = draining.wait_for(|draining| *draining) => break,
            Some(_) = connections.join_next() => continue,
        };
        if let Some((stream, address)) = accepted {
            accepting.start(&mut connections, stream, address);
        }
    }
    drop(listener);
    let finish = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(drain_timeout, finish).await.is_err() {
        tracing::warn!("connections were still open after {drain_timeout:?} and are closed");
    }
}

async fn accept(listener: &TcpListener) -> Option<(TcpStream, IpAddr)> {
    match listener.accept().await {
        Ok((stream, address)) => Some((stream, address.ip().to_canonical())),
        Err(error) => {
            tracing::warn!("a connection could not be accepted: {error}");
            sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

/// The state that new connections are accepted with.
struct Accepting {
    server: Arc<Server>,
    tls: TlsAcceptor,
    table: Arc<ConnectionTable>,
    strangers: Arc<Semaphore>,
    /// When the log said last that all connections are taken.
    warned: Option<Instant>,
}

impl Accepting {
    fn start(&mut self, connections: &mut JoinSet<()>, stream: TcpStream, address: IpAddr) {
        let client = Arc::new(Client::new(address));
        let server = self.server.clone();
        let counts = &server.metrics().connections;
        let (open, evicted) = match self.table.admit(&client.peer) {
            Admission::Admitted { connection, evicted } => (connection, evicted),
            Admission::Refused => {
                counts.count_closed(Closed::Refused);
                self.warn(address);
                return;
            }
        };
        if evicted {
            counts.count_closed(Closed::Evicted);
            self.warn(address);
        }
        counts.open.store(self.table.open(), Ordering::Relaxed);
        let connection = Connection::new(server.clone(), client, self.strangers.clone());
        let (tls, table) = (self.tls.clone(), self.table.clone());
        connections.spawn(async move {
            if let Err(error) = connection.serve(stream, tls, open).await {
                tracing::debug!("a connection ended: {error}");
            }
            server.metrics().connections.open.store(table.open(), Ordering::Relaxed);
        });
    }

    fn warn(&mut self, address: IpAddr) {
        if self.warned.is_none_or(|warned| warned.elapsed() >= WARNING_INTERVAL) {
            self.warned = Some(Instant::now());
            tracing::warn!(
                %address,
                open = self.table.open(),
                "all connections are taken: the oldest without a valid key are closed"
            );
        }
    }
}
