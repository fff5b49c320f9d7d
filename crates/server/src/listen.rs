//! The accept loop: connections, TLS, HTTP/1.1 and HTTP/2, and timeouts for all that can stall.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::audit::LastSender;
use crate::pipeline::Server;
use crate::pipeline::{self, Client};
use crate::stages::flow::ConnectionState;

/// Connections open at once; more wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 10_000;

/// The timeout of the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The timeout for the head of a request over HTTP/1.1, idle time included.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The timeout for the first bytes over HTTP/2, where hyper itself has none.
const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes that every HTTP/2 client sends first (RFC 9113 section 3.4).
const PREFACE_BYTES: usize = 24;

/// A connection that accepts no byte for this long is closed. So a watch ends whose client has
/// stopped reading.
const WRITE_STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How often HTTP/2 clients get a PING, and how long they have to respond.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Requests and watches at once on one HTTP/2 connection, as kube-apiserver.
const MAX_STREAMS: u32 = 250;

/// Bytes of a request's headers: a token of 8 KiB and room for the rest.
const MAX_HEADER_BYTES: u32 = 32 * 1024;

/// Bytes that HTTP/1.1 buffers; bounds the head of a request.
const HTTP1_BUFFER_BYTES: usize = 64 * 1024;

/// Bytes that one HTTP/2 stream buffers for a client that does not read.
const SEND_BUFFER_BYTES: usize = 256 * 1024;

/// After a failed accept (no file descriptors left, say) the next try waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections until the server drains, then waits for those that are open, for at most
/// `drain_timeout`.
pub(crate) async fn serve(
    server: Arc<Server>,
    listener: TcpListener,
    tls: TlsAcceptor,
    drain_timeout: Duration,
) {
    let limit = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut draining = server.draining();
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &limit) => accepted,
            _ = draining.wait_for(|draining| *draining) => break,
            Some(_) = connections.join_next() => continue,
        };
        let Some((stream, address, permit)) = accepted else { continue };
        let (server, tls) = (server.clone(), tls.clone());
        connections.spawn(async move {
            if let Err(error) = connection(server, stream, address, tls).await {
                tracing::debug!("a connection ended: {error}");
            }
            drop(permit);
        });
    }
    drop(listener);
    let finish = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(drain_timeout, finish).await.is_err() {
        tracing::warn!("connections were still open after {drain_timeout:?} and are closed");
    }
}

async fn accept(
    listener: &TcpListener,
    limit: &Arc<Semaphore>,
) -> Option<(TcpStream, IpAddr, tokio::sync::OwnedSemaphorePermit)> {
    let permit = limit.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, address)) => Some((stream, address.ip().to_canonical(), permit)),
        Err(error) => {
            tracing::warn!("a connection could not be accepted: {error}");
            sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

type Guarded = TokioIo<Pin<Box<GuardedIo<TlsStream<TcpStream>>>>>;
type BoxError = Box<dyn std::error::Error + Send + Sync>;

async fn connection(
    server: Arc<Server>,
    stream: TcpStream,
    address: IpAddr,
    tls: TlsAcceptor,
) -> Result<(), BoxError> {
    // Events are small and must not wait for more to come.
    stream.set_nodelay(true)?;
    let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await??;
    let speaks_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let io = TokioIo::new(Box::pin(GuardedIo::new(stream, speaks_http2)));
    let client = Arc::new(Client {
        address,
        connection: ConnectionState::new(),
        last_sender: LastSender::default(),
    });
    if speaks_http2 {
        http2_connection(server, client, io).await
    } else {
        http1_connection(server, client, io).await
    }
}

async fn http1_connection(
    server: Arc<Server>,
    client: Arc<Client>,
    io: Guarded,
) -> Result<(), BoxError> {
    let mut draining = server.draining();
    let service = service_fn(|request| {
        let (server, client) = (server.clone(), client.clone());
        async move { Ok::<_, Infallible>(pipeline::handle(&server, &client, request).await) }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(HTTP1_BUFFER_BYTES)
            .serve_connection(io, service)
    );
    tokio::select! {
        ended = connection.as_mut() => return Ok(ended?),
        _ = draining.wait_for(|draining| *draining) => connection.as_mut().graceful_shutdown(),
    }
    Ok(connection.await?)
}

async fn http2_connection(
    server: Arc<Server>,
    client: Arc<Client>,
    io: Guarded,
) -> Result<(), BoxError> {
    let mut draining = server.draining();
    let service = service_fn(|request| {
        let (server, client) = (server.clone(), client.clone());
        async move { Ok::<_, Infallible>(pipeline::handle(&server, &client, request).await) }
    });
    let mut connection = pin!(
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEADER_BYTES)
            .max_send_buf_size(SEND_BUFFER_BYTES)
            .serve_connection(io, service)
    );
    tokio::select! {
        ended = connection.as_mut() => return Ok(ended?),
        _ = draining.wait_for(|draining| *draining) => connection.as_mut().graceful_shutdown(),
    }
    Ok(connection.await?)
}

/// A stream with two timeouts: for its first bytes, and for a write that makes no progress.
struct GuardedIo<T> {
    inner: T,
    preface: Option<(Pin<Box<Sleep>>, usize)>,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<T> GuardedIo<T> {
    fn new(inner: T, await_preface: bool) -> Self {
        let preface = await_preface.then(|| (Box::pin(sleep(PREFACE_TIMEOUT)), PREFACE_BYTES));
        Self { inner, preface, stalled: None }
    }

    fn note_write<R>(
        &mut self,
        cx: &mut Context<'_>,
        progress: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if progress.is_ready() {
            self.stalled = None;
            return progress;
        }
        let deadline = Instant::now() + WRITE_STALL_TIMEOUT;
        let timer =
            self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        match timer.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for GuardedIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        let Some((timer, missing)) = &mut self.preface else { return read };
        *missing = missing.saturating_sub(buffer.filled().len() - before);
        if *missing == 0 {
            self.preface = None;
        } else if read.is_pending() && timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for GuardedIo<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.note_write(cx, progress)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.inner).poll_write_vectored(cx, buffers);
        self.note_write(cx, progress)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.inner).poll_flush(cx);
        self.note_write(cx, progress)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.note_write(cx, progress)
    }
}
