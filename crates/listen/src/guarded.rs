//! `GuardedIo`: the stream of a connection, with timeouts for stalls, and a close that loses no response.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::table::OpenConnection;

/// The timeout of the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The timeout for the first bytes over HTTP/2, for which hyper has none.
const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);

/// The length of the HTTP/2 connection preface in bytes (RFC 9113 section 3.4).
const PREFACE_BYTES: usize = 24;

/// The most bytes that are read after the last response, and the most time for it. The longest body fits. Without it, a
/// client that still sends would get a reset, and could lose the response (RFC 9112 section 9.6).
const MAX_LINGER_BYTES: usize = 8 * 1024 * 1024;
const LINGER_TIMEOUT: Duration = Duration::from_secs(5);

/// A TLS stream with timeouts for stalls.
#[derive(Debug)]
pub struct GuardedIo {
    inner: TlsStream<TcpStream>,
    preface: Option<(Pin<Box<Sleep>>, usize)>,
    stalled: Option<Stalled>,
    /// Whether the client may still send after the last response.
    lingers: Arc<AtomicBool>,
    lingering: Option<Lingering>,
    /// The entry in the table of connections. It stays also after an upgrade to another protocol. No byte is
    /// transferred after the entry is closed.
    open: OpenConnection,
}

/// A client that takes no bytes.
#[derive(Debug)]
struct Stalled {
    since: Instant,
    timer: Pin<Box<Sleep>>,
}

#[derive(Debug)]
struct Lingering {
    deadline: Pin<Box<Sleep>>,
    bytes: usize,
}

impl GuardedIo {
    /// Completes the TLS handshake. Returns the stream, and whether the client speaks HTTP/2. If `lingers` is set at the
    /// end, further bytes of the client are read and dropped.
    ///
    /// # Errors
    /// When the handshake fails, or takes too long.
    pub async fn accept(
        stream: TcpStream,
        tls: TlsAcceptor,
        lingers: Arc<AtomicBool>,
        open: OpenConnection,
    ) -> io::Result<(Pin<Box<Self>>, bool)> {
        // Watch events are small, and must not wait for further data.
        stream.set_nodelay(true)?;
        let stream = timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await??;
        let speaks_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok((Box::pin(Self::new(stream, speaks_http2, lingers, open)), speaks_http2))
    }

    /// Guards `inner`. With `await_preface`, the first bytes of HTTP/2 must arrive in time.
    fn new(
        inner: TlsStream<TcpStream>,
        await_preface: bool,
        lingers: Arc<AtomicBool>,
        open: OpenConnection,
    ) -> Self {
        let preface = await_preface.then(|| (Box::pin(sleep(PREFACE_TIMEOUT)), PREFACE_BYTES));
        Self { inner, preface, stalled: None, lingers, lingering: None, open }
    }

    /// Checks that the connection must not end.
    fn check_open(&self) -> io::Result<()> {
        let is_closing = self.open.peer.is_closing();
        if is_closing { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    /// The current progress. If it is pending, the task is also woken when the connection must end.
    fn or_closed<R>(&self, cx: &Context<'_>, now: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if now.is_pending() {
            self.open.peer.wake_at_close(cx.waker());
            // The check follows the registration, so that a close in between is not missed.
            self.check_open()?;
        }
        now
    }

    fn note_write<R>(
        &mut self,
        cx: &mut Context<'_>,
        progress: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        let progress = self.or_closed(cx, progress);
        if progress.is_ready() {
            self.stalled = None;
            return progress;
        }
        let since = self.stalled.as_ref().map_or_else(Instant::now, |stalled| stalled.since);
        let deadline = self.open.peer.stall_timeout().and_then(|limit| since.checked_add(limit));
        let Some(deadline) = deadline else { return Poll::Pending };
        let stalled = self
            .stalled
            .get_or_insert_with(|| Stalled { since, timer: Box::pin(sleep_until(deadline)) });
        if stalled.timer.deadline() != deadline {
            stalled.timer.as_mut().reset(deadline);
        }
        stalled.timer.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Reads and drops bytes until the client has closed its side.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let lingering = self.lingering.get_or_insert_with(|| Lingering {
            deadline: Box::pin(sleep(LINGER_TIMEOUT)),
            bytes: 0,
        });
        let mut buffer = [0; 16 * 1024];
        while lingering.bytes < MAX_LINGER_BYTES {
            let mut read = ReadBuf::new(&mut buffer);
            // It reads below TLS, because the bytes are not used.
            match Pin::new(&mut *self.inner.get_mut().0).poll_read(cx, &mut read) {
                Poll::Ready(Ok(())) if !read.filled().is_empty() => {
                    lingering.bytes += read.filled().len();
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return lingering.deadline.as_mut().poll(cx),
            }
        }
        Poll::Ready(())
    }
}

impl AsyncRead for GuardedIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_open()?;
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        let read = self.or_closed(cx, read);
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

impl AsyncWrite for GuardedIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check_open()?;
        let progress = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.note_write(cx, progress)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_open()?;
        let progress = Pin::new(&mut self.inner).poll_write_vectored(cx, buffers);
        self.note_write(cx, progress)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_open()?;
        let progress = Pin::new(&mut self.inner).poll_flush(cx);
        self.note_write(cx, progress)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            let progress = Pin::new(&mut self.inner).poll_shutdown(cx);
            ready!(self.note_write(cx, progress))?;
        }
        if self.lingers.load(Ordering::Acquire) {
            ready!(self.poll_linger(cx));
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use rustls::pki_types::{PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, RootCertStore, ServerConfig};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_rustls::{TlsConnector, client};

    use super::*;
    use crate::{Admission, ConnectionLimits, ConnectionTable, Peer, bind};

    fn admitted(table: &Arc<ConnectionTable>) -> OpenConnection {
        let peer = Arc::new(Peer::new(IpAddr::from([127, 0, 0, 1])));
        match table.admit(&peer) {
            Admission::Admitted { connection, .. } => connection,
            Admission::Refused => panic!("there is room, or a connection that can be closed"),
        }
    }

    /// A connection with this entry, and its other end.
    async fn connected(open: OpenConnection) -> (GuardedIo, client::TlsStream<TcpStream>) {
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(own.cert.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let (acceptor, connector) =
            (TlsAcceptor::from(Arc::new(server)), TlsConnector::from(Arc::new(client)));
        let (server, client) =
            tokio::join!(acceptor.accept(accepted), connector.connect(name, stream));
        (GuardedIo::new(server.unwrap(), false, Arc::default(), open), client.unwrap())
    }

    /// Writes until the client, which reads nothing, has stalled for too long. Returns the time.
    async fn stalls_for(timeout: Option<Duration>) -> Duration {
        let table = ConnectionTable::new(ConnectionLimits::of_descriptors(4));
        let (mut server, _client) = connected(admitted(&table)).await;
        let peer = server.open.peer.clone();
        // The timers of tests count time only while nothing else happens.
        tokio::time::pause();
        let start = Instant::now();
        let late = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if let Some(timeout) = timeout {
                peer.set_stall_timeout(timeout);
            }
        };
        let written = async {
            let bytes = vec![0; 64 * 1024];
            loop {
                if let Err(error) = server.write(&bytes).await {
                    return error.kind();
                }
            }
        };
        let (ended, ()) = tokio::join!(written, late);
        assert_eq!(ended, io::ErrorKind::TimedOut);
        start.elapsed()
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_is_given_up_after_its_timeout() {
        let second = Duration::from_secs(1);
        let usual = stalls_for(None).await;
        assert!(usual >= 30 * second && usual < 32 * second, "{usual:?}");
        // It may also change while the client takes nothing.
        tokio::time::resume();
        let long = stalls_for(Some(Duration::from_hours(4))).await;
        assert!(long >= Duration::from_hours(4) && long < Duration::from_hours(5), "{long:?}");
    }

    /// It holds for any task that transfers bytes. After an upgrade, another task waits for the end of the connection.
    #[tokio::test]
    async fn no_byte_is_transferred_over_a_closed_connection() {
        let table = ConnectionTable::new(ConnectionLimits::of_descriptors(4));
        let (mut server, mut client) = connected(admitted(&table)).await;
        client.write_all(b"before").await.unwrap();
        let mut received = [0; 6];
        server.read_exact(&mut received).await.unwrap();
        let waiting = async { server.read(&mut received).await.unwrap_err().kind() };
        // It is the oldest unauthenticated connection of its address, and is closed for the new
        // one.
        let (ended, _other) = tokio::join!(waiting, async { admitted(&table) });
        assert_eq!(ended, io::ErrorKind::ConnectionAborted);
        assert_eq!(server.write(b"x").await.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
        drop(server);
        assert!(client.read(&mut received).await.map_or(true, |length| length == 0));
    }
}
