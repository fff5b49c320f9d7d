//! `ReadingEnd`: a connection that ends when its reader finds the end.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection on which bytes that the other end no longer takes are dropped without an error. A write can fail while
/// the last bytes of the other end are still unread. So only reading says that the connection has ended.
#[derive(Debug)]
pub(crate) struct ReadingEnd<S> {
    inner: S,
    /// Whether the other end takes bytes no longer.
    is_deaf: bool,
}

impl<S> ReadingEnd<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, is_deaf: false }
    }
}

impl<S: AsyncWrite + Unpin> ReadingEnd<S> {
    /// Writes, unless the other end is deaf. `dropped` is the result if it is.
    fn poll_unless_deaf<R>(
        &mut self,
        dropped: R,
        write: impl FnOnce(Pin<&mut S>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if !self.is_deaf {
            match ready!(write(Pin::new(&mut self.inner))) {
                Ok(written) => return Poll::Ready(Ok(written)),
                Err(_) => self.is_deaf = true,
            }
        }
        Poll::Ready(Ok(dropped))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadingEnd<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadingEnd<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_unless_deaf(bytes.len(), |inner| inner.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = buffers.iter().map(|buffer| buffer.len()).sum();
        self.poll_unless_deaf(length, |inner| inner.poll_write_vectored(cx, buffers))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_unless_deaf((), |inner| inner.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_unless_deaf((), |inner| inner.poll_shutdown(cx))
    }
}
