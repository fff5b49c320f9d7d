//! The accept loop: admits connections, and serves each in a task.

mod connection;
mod sending;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(crate) use postern_listen::bind;
use postern_listen::{
    Admission, ConnectionLimits, ConnectionTable, FullWarning, accept_until_draining,
    raise_descriptor_limit, upstream_descriptors,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use self::connection::{Connection, MAX_ALL_UNAUTHENTICATED_STREAMS};
use crate::pipeline::{Client, Server};
use postern_http::metrics::connections::Closed;

/// Accepts connections until the server drains. Then waits for open connections, for at most `drain_timeout`.
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
        unauthenticated: Arc::new(Semaphore::new(MAX_ALL_UNAUTHENTICATED_STREAMS)),
        warning: FullWarning::default(),
    };
    server.metrics().connections.limit.store(limits.total, Ordering::Relaxed);
    let draining = server.draining();
    let start = |connections: &mut JoinSet<()>, stream, address| {
        accepting.start(connections, stream, address);
    };
    accept_until_draining(listener, draining, drain_timeout, start).await;
}

/// The state for new connections.
struct Accepting {
    server: Arc<Server>,
    tls: TlsAcceptor,
    table: Arc<ConnectionTable>,
    unauthenticated: Arc<Semaphore>,
    warning: FullWarning,
}

impl Accepting {
    fn start(&mut self, connections: &mut JoinSet<()>, stream: TcpStream, address: IpAddr) {
        let client = Arc::new(Client::new(address, self.server.flow().clone()));
        let server = self.server.clone();
        let counts = &server.metrics().connections;
        let (open, evicted) = match self.table.admit(&client.peer) {
            Admission::Admitted { connection, evicted } => (connection, evicted),
            Admission::Refused => {
                counts.count_closed(Closed::Refused);
                self.warning.warn(address, self.table.open());
                return;
            }
        };
        if evicted {
            counts.count_closed(Closed::Evicted);
            self.warning.warn(address, self.table.open());
        }
        counts.open.store(self.table.open(), Ordering::Relaxed);
        let connection = Connection::new(server.clone(), client, self.unauthenticated.clone());
        let (tls, table) = (self.tls.clone(), self.table.clone());
        connections.spawn(async move {
            if let Err(error) = connection.serve(stream, tls, open).await {
                tracing::debug!("a connection ended: {error}");
            }
            server.metrics().connections.open.store(table.open(), Ordering::Relaxed);
        });
    }
}
