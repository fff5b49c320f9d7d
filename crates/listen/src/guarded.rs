//! The stream under a connection, with timeouts for what can stall, and an end that loses nothing.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tokio_rustls::server::TlsStream;

use crate::table::OpenConnection;

/// The timeout for the first bytes over HTTP/2, where hyper itself has none.
const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes that every HTTP/2 client sends first (RFC 9113 section 3.4).
const PREFACE_BYTES: usize = 24;

/// A connection that accepts no byte for this long is closed. So a watch ends whose client has
/// stopped reading.
const WRITE_STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How much is still read, and for how long, from a client that sends on after the last response.
/// The longest body fits. Otherwise the client would get a reset, which can make it lose the
/// response that it has not read yet (RFC 9112 section 9.6).
const MAX_LINGER_BYTES: usize = 8 * 1024 * 1024;
const LINGER_TIMEOUT: Duration = Duration::from_secs(5);

/// A TLS stream that does not stall for ever.
#[derive(Debug)]
pub struct GuardedIo {
    inner: TlsStream<TcpStream>,
    preface: Option<(Pin<Box<Sleep>>, usize)>,
    stalled: Option<Pin<Box<Sleep>>>,
    /// Set when the client may send on after the last response.
    lingers: Arc<AtomicBool>,
    lingering: Option<Lingering>,
    /// Its place among the connections, also when it goes on in another protocol. Without it, no byte goes on.
    open: OpenConnection,
}

#[derive(Debug)]
struct Lingering {
    deadline: Pin<Box<Sleep>>,
    bytes: usize,
}

impl GuardedIo {
    /// A stream that guards `inner`. With `await_preface`, the first bytes of HTTP/2 must come in time.
    /// When `lingers` is set at the end, what the client still sends is read and dropped.
    pub fn new(
        inner: TlsStream<TcpStream>,
        await_preface: bool,
        lingers: Arc<AtomicBool>,
        open: OpenConnection,
    ) -> Self {
        let preface = await_preface.then(|| (Box::pin(sleep(PREFACE_TIMEOUT)), PREFACE_BYTES));
        Self { inner, preface, stalled: None, lingers, lingering: None, open }
    }

    /// Checks that the connection has not lost its place.
    fn check_place(&self) -> io::Result<()> {
        let is_closing = self.open.peer.is_closing();
        if is_closing { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    /// The current progress. If it is pending, the task is woken when the connection loses its place.
    fn or_closed<R>(&self, cx: &Context<'_>, now: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if now.is_pending() {
            self.open.peer.wake_at_close(cx.waker());
            // After the waker is there: what happens in between is not missed.
            self.check_place()?;
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
        let deadline = Instant::now() + WRITE_STALL_TIMEOUT;
        let timer = self.stalled.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        match timer.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Reads what the client still sends, and drops it, until the client has closed its side.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let lingering = self.lingering.get_or_insert_with(|| Lingering {
            deadline: Box::pin(sleep(LINGER_TIMEOUT)),
            bytes: 0,
        });
        let mut buffer = [0; 16 * 1024];
        while lingering.bytes < MAX_LINGER_BYTES {
            let mut read = ReadBuf::new(&mut buffer);
            // Below TLS: what comes is not looked at.
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
        self.check_place()?;
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
        self.check_place()?;
        let progress = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.note_write(cx, progress)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_place()?;
        let progress = Pin::new(&mut self.inner).poll_write_vectored(cx, buffers);
        self.note_write(cx, progress)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_place()?;
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
    use tokio_rustls::{TlsAcceptor, TlsConnector, client};

    use super::*;
    use crate::{Admission, ConnectionLimits, ConnectionTable, Peer, bind};

    fn admitted(table: &Arc<ConnectionTable>) -> OpenConnection {
        let peer = Arc::new(Peer::new(IpAddr::from([127, 0, 0, 1])));
        match table.admit(&peer) {
            Admission::Admitted { connection, .. } => connection,
            Admission::Refused => panic!("there is room, or a connection to close"),
        }
    }

    /// A connection with this place, and its other end.
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
        let (ours, theirs) =
            tokio::join!(acceptor.accept(accepted), connector.connect(name, stream));
        (GuardedIo::new(ours.unwrap(), false, Arc::default(), open), theirs.unwrap())
    }

    /// This holds whichever task drives the bytes. After an upgrade, it is not the one that waits for the end
    /// of the connection.
    #[tokio::test]
    async fn no_byte_goes_on_over_a_connection_that_has_lost_its_place() {
        let table = ConnectionTable::new(ConnectionLimits::of_descriptors(4));
        let (mut ours, mut theirs) = connected(admitted(&table)).await;
        theirs.write_all(b"before").await.unwrap();
        let mut received = [0; 6];
        ours.read_exact(&mut received).await.unwrap();
        let waiting = async { ours.read(&mut received).await.unwrap_err().kind() };
        // It was the oldest unauthenticated connection of its address.
        let (ended, _other) = tokio::join!(waiting, async { admitted(&table) });
        assert_eq!(ended, io::ErrorKind::ConnectionAborted);
        assert_eq!(ours.write(b"x").await.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
        drop(ours);
        assert!(theirs.read(&mut received).await.map_or(true, |length| length == 0));
    }
}
