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
    /// Its place among the connections, also when it goes on in another protocol.
    _open: OpenConnection,
}

#[derive(Debug)]
struct Lingering {
    deadline: Pin<Box<Sleep>>,
    bytes: usize,
}

impl GuardedIo {
    /// Returns a stream that guards `inner`. With `await_preface`, the first bytes of HTTP/2 must come in time.
    /// When `lingers` is set at the end, what the client still sends is read and dropped.
    pub fn new(
        inner: TlsStream<TcpStream>,
        await_preface: bool,
        lingers: Arc<AtomicBool>,
        open: OpenConnection,
    ) -> Self {
        let preface = await_preface.then(|| (Box::pin(sleep(PREFACE_TIMEOUT)), PREFACE_BYTES));
        Self { inner, preface, stalled: None, lingers, lingering: None, _open: open }
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

impl AsyncWrite for GuardedIo {
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
