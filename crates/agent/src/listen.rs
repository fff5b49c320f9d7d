//! The listener: which connections are taken, within which limits, and how they end.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use postern_proxy::BoxError;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::serve::Agent;

/// Connections at once. More wait until one is closed.
const MAX_CONNECTIONS: usize = 4096;

/// After a failed accept (no file descriptors left, say) the next try waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The timeout of the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The timeout for the head of a request over HTTP/1.1, idle time included.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How often HTTP/2 clients get a PING, and how long they have to respond.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Requests and watches at once on one HTTP/2 connection, as kube-apiserver.
const MAX_STREAMS: u32 = 250;

/// Bytes of a request's headers: a token of 8 KiB and room for the rest.
const MAX_HEADER_BYTES: u32 = 32 * 1024;

/// Bytes that HTTP/1.1 buffers; bounds the head of a request.
const HTTP1_BUFFER_BYTES: usize = 48 * 1024;

/// Bytes of bodies that HTTP/2 clients may send before the cluster takes them.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 256 * 1024;

/// Bytes that one HTTP/2 stream buffers for a client that does not read.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// Accepts connections until the agent drains, then waits for those that are open, for at most
/// `drain_timeout`.
pub(crate) async fn serve(
    agent: Arc<Agent>,
    listener: TcpListener,
    tls: TlsAcceptor,
    drain_timeout: Duration,
) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut draining = agent.draining.subscribe();
    let mut connections = JoinSet::new();
    loop {
        let place = async {
            let place = places.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            accepted = place => accepted,
            _ = draining.wait_for(|draining| *draining) => break,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, _)) => {
                let (agent, tls) = (agent.clone(), tls.clone());
                connections.spawn(async move {
                    let _kept = place;
                    if let Err(error) = serve_one(agent, stream, tls).await {
                        tracing::debug!("a connection ended: {error}");
                    }
                });
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

async fn serve_one(agent: Arc<Agent>, stream: TcpStream, tls: TlsAcceptor) -> Result<(), BoxError> {
    // Events are small and must not wait for more to come.
    stream.set_nodelay(true)?;
    let stream = timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await??;
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        serve_http2(agent, TokioIo::new(stream)).await
    } else {
        serve_http1(agent, TokioIo::new(stream)).await
    }
}

async fn serve_http1(agent: Arc<Agent>, io: TokioIo<TlsStream<TcpStream>>) -> Result<(), BoxError> {
    let mut draining = agent.draining.subscribe();
    let service = service_fn(move |request| {
        let agent = agent.clone();
        async move { Ok::<_, Infallible>(agent.answer(request).await) }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(HTTP1_BUFFER_BYTES)
            .serve_connection(io, service)
            .with_upgrades()
    );
    tokio::select! {
        ended = connection.as_mut() => return Ok(ended?),
        _ = draining.wait_for(|draining| *draining) => connection.as_mut().graceful_shutdown(),
    }
    Ok(connection.await?)
}

async fn serve_http2(agent: Arc<Agent>, io: TokioIo<TlsStream<TcpStream>>) -> Result<(), BoxError> {
    let mut draining = agent.draining.subscribe();
    let service = service_fn(move |request| {
        let agent = agent.clone();
        async move { Ok::<_, Infallible>(agent.answer(request).await) }
    });
    let mut connection = pin!(
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEADER_BYTES)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_send_buf_size(SEND_BUFFER_BYTES)
            .serve_connection(io, service)
    );
    tokio::select! {
        ended = connection.as_mut() => return Ok(ended?),
        _ = draining.wait_for(|draining| *draining) => connection.as_mut().graceful_shutdown(),
    }
    Ok(connection.await?)
}
