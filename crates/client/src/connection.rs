//! Opening a connection: TCP, also through a proxy, TLS and HTTP/1.1, with a deadline.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::{CertificateProblem, Error};
use crate::proxy::{Proxy, authority};
use crate::server_url::ServerUrl;
use crate::tunnel;

/// For the name, the connection and the handshake together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends requests on a connection.
pub(crate) type Sender = SendRequest<Full<Bytes>>;

/// Connects; the connection's own work is done by a task in `tasks`.
pub(crate) async fn open(
    server: &ServerUrl,
    proxy: Option<&Proxy>,
    tls_name: Option<&str>,
    tls: &Arc<ClientConfig>,
    tasks: &mut JoinSet<()>,
) -> Result<Sender, Error> {
    let opened =
        tokio::time::timeout(CONNECT_TIMEOUT, handshakes(server, proxy, tls_name, tls, tasks));
    let late = || match proxy {
        Some(proxy) => of_proxy(proxy, server, "no answer in time".to_owned()),
        None => Error::Timeout { address: server.authority(), after: CONNECT_TIMEOUT },
    };
    opened.await.map_err(|_| late())?
}

async fn handshakes(
    server: &ServerUrl,
    proxy: Option<&Proxy>,
    tls_name: Option<&str>,
    tls: &Arc<ClientConfig>,
    tasks: &mut JoinSet<()>,
) -> Result<Sender, Error> {
    let stream = secure(server, proxy, tls_name, tls).await?;
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let address = server.authority();
    let (sender, connection) =
        shaken.map_err(|error| Error::Lost { address, reason: error.to_string() })?;
    tasks.spawn(async move {
        // The request that waits for an answer gets the error, too.
        let _ = connection.await;
    });
    Ok(sender)
}

/// Connects, also through a proxy, with TLS. It has no deadline.
pub(crate) async fn secure(
    server: &ServerUrl,
    proxy: Option<&Proxy>,
    tls_name: Option<&str>,
    tls: &Arc<ClientConfig>,
) -> Result<TlsStream<TcpStream>, Error> {
    let address = server.authority();
    let name = tls_name.unwrap_or(server.host()).to_owned();
    let name = ServerName::try_from(name).map_err(|_| Error::Certificate {
        address: address.clone(),
        problem: CertificateProblem::WrongName,
    })?;
    let stream = match proxy {
        None => connect(server.host(), server.port(), address.clone()).await?,
        // The proxy resolves the name of the server.
        Some(proxy) => {
            let stream = connect(proxy.host(), proxy.port(), proxy.authority()).await;
            let mut stream = stream.map_err(|error| of_proxy(proxy, server, error.to_string()))?;
            tunnel::open(&mut stream, proxy, server).await?;
            stream
        }
    };
    let stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await;
    stream.map_err(|error| Error::of_handshake(address.clone(), &error))
}

/// An error of a proxy on the way to a server.
fn of_proxy(proxy: &Proxy, server: &ServerUrl, reason: String) -> Error {
    let target = authority(server.host(), server.port());
    Error::Proxy { proxy: proxy.authority(), target, reason }
}

async fn connect(host: &str, port: u16, address: String) -> Result<TcpStream, Error> {
    let found = lookup_host((host, port)).await;
    let found: Vec<_> =
        found.map_err(|source| Error::Resolve { host: host.to_owned(), source })?.collect();
    let stream = TcpStream::connect(&found[..]).await;
    let stream = stream.map_err(|source| Error::Connect { address, source })?;
    // A request is one small write, which must not be delayed. Without this it is only slower.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}
