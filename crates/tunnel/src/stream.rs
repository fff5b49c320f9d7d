//! `TunnelStream`: the bytes of a tunnel, for HTTP on top of it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio_util::sync::DropGuard;

/// The bytes of a tunnel. The end of the peer's bytes is an end only if the peer said so: otherwise it is an error, and
/// a body without a length cannot be cut short unnoticed. Dropped, it closes the tunnel, and its own bytes have no end
/// unless it was shut down before.
#[derive(Debug)]
pub struct TunnelStream {
    inner: DuplexStream,
    /// Whether the peer has ended its bytes.
    has_ended: Arc<AtomicBool>,
    /// Whether this end has ended its bytes.
    is_shut: Arc<AtomicBool>,
    _dropped: DropGuard,
}

impl TunnelStream {
    pub(crate) fn new(
        inner: DuplexStream,
        has_ended: Arc<AtomicBool>,
        is_shut: Arc<AtomicBool>,
        dropped: DropGuard,
    ) -> Self {
        Self { inner, has_ended, is_shut, _dropped: dropped }
    }
}

impl AsyncRead for TunnelStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        let is_end = buffer.filled().len() == before && buffer.remaining() > 0;
        if is_end && !self.has_ended.load(Ordering::Acquire) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TunnelStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.is_shut.store(true, Ordering::Release);
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
