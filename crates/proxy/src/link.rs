//! One connection to an upstream: the task that drives it, and how it is closed at once.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

use crate::dial::Stream;
use crate::request_body::RequestBody;
use crate::shared::{Counted, Shared};

/// Bytes that one connection buffers each way. It bounds the head of an answer, too.
pub(crate) const BUFFER_BYTES: usize = 64 * 1024;

/// A connection, and the right to send requests on it.
pub(crate) struct Link {
    pub(crate) sender: SendRequest<RequestBody>,
    pub(crate) state: Arc<LinkState>,
}

/// The state of a connection.
pub(crate) struct LinkState {
    pub(crate) shared: Arc<Shared>,
    /// Closes the connection in every state.
    close: CancellationToken,
    is_idle: AtomicBool,
    /// Whether anything came since the last request was sent.
    heard: AtomicBool,
}

impl Link {
    /// Begins to speak HTTP/1.1 on a stream. The future drives it until its end, which the shutdown of the proxy waits for.
    pub(crate) async fn start(
        shared: &Arc<Shared>,
        stream: Box<dyn Stream>,
        counted: Counted,
    ) -> hyper::Result<(Self, impl Future<Output = ()> + Send + use<>)> {
        let state = Arc::new(LinkState {
            shared: shared.clone(),
            close: CancellationToken::new(),
            is_idle: AtomicBool::new(false),
            heard: AtomicBool::new(false),
        });
        let io = LinkIo { stream, state: state.clone(), _counted: counted };
        let (sender, connection) =
            http1::Builder::new().max_buf_size(BUFFER_BYTES).handshake(TokioIo::new(io)).await?;
        shared.counters.count_opened();
        // Boxed: the future would have room for the connection twice.
        let connection = Box::pin(connection.with_upgrades());
        let driven = shared.tasks.track_future(drive(connection, state.clone()));
        Ok((Self { sender, state }, driven))
    }
}

impl LinkState {
    /// Closes the connection. Bytes that were sent on it may be lost.
    pub(crate) fn close(&self) {
        self.close.cancel();
    }

    pub(crate) fn set_idle(&self, is_idle: bool) {
        self.is_idle.store(is_idle, Ordering::Release);
    }

    /// Forgets the earlier bytes, before the next request is sent.
    pub(crate) fn expect_answer(&self) {
        self.heard.store(false, Ordering::Release);
    }

    /// Whether a byte came since then.
    pub(crate) fn has_heard(&self) -> bool {
        self.heard.load(Ordering::Acquire)
    }
}

async fn drive(
    mut connection: Pin<Box<impl Future<Output = hyper::Result<()>>>>,
    state: Arc<LinkState>,
) {
    let shared = &state.shared;
    let mut knows_of_drain = false;
    loop {
        tokio::select! {
            biased;
            () = state.close.cancelled() => return,
            () = shared.ending.cancelled() => return,
            // The sender of the request or the reader of the answer gets the error.
            _ = &mut connection => return,
            () = shared.draining.cancelled(), if !knows_of_drain => {
                if state.is_idle.load(Ordering::Acquire) {
                    return;
                }
                knows_of_drain = true;
            }
        }
    }
}

/// The bytes of a connection. It is counted for as long as these are there, also upgraded.
struct LinkIo {
    stream: Box<dyn Stream>,
    state: Arc<LinkState>,
    _counted: Counted,
}

impl AsyncRead for LinkIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            if self.state.is_idle.load(Ordering::Acquire) {
                // A response without a request would count as the response to the next one.
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            self.state.heard.store(true, Ordering::Release);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for LinkIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
