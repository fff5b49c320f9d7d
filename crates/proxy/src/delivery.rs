//! `DeliveredBody`: an answer whose last bytes leave before it fails.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

use crate::body::ProxyBody;
use crate::error::ProxyError;

/// The body of an answer for an HTTP server, which keeps bytes until they are written, and drops them when the body fails.
/// A body without a known length, such as a log, fails only after its last bytes have left. So its reader must not keep
/// them.
#[derive(Debug)]
pub struct DeliveredBody {
    body: ProxyBody,
    sent: Arc<Sent>,
    /// Why the body failed, while the last bytes are on their way.
    failed: Option<ProxyError>,
}

/// The bytes of one body that were handed on.
#[derive(Debug, Default)]
struct Sent {
    /// The pieces that have not left.
    pieces: AtomicUsize,
    waiting: Mutex<Option<Waker>>,
}

/// A piece, until it is dropped.
struct Piece {
    bytes: Bytes,
    sent: Arc<Sent>,
}

impl DeliveredBody {
    /// The same body.
    pub fn new(body: ProxyBody) -> Self {
        Self { body, sent: Arc::default(), failed: None }
    }
}

impl Sent {
    /// Is ready when all bytes have left.
    fn poll_complete(&self, cx: &Context<'_>) -> Poll<()> {
        *self.waiting.lock() = Some(cx.waker().clone());
        if self.pieces.load(Ordering::Acquire) == 0 { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Body for DeliveredBody {
    type Data = Bytes;
    type Error = ProxyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        if self.failed.is_none() {
            let has_length = self.body.size_hint().exact().is_some();
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) if !has_length => {
                    return Poll::Ready(Some(Ok(frame.map_data(|bytes| {
                        self.sent.pieces.fetch_add(1, Ordering::AcqRel);
                        Bytes::from_owner(Piece { bytes, sent: self.sent.clone() })
                    }))));
                }
                Some(Err(error)) => self.failed = Some(error),
                other => return Poll::Ready(other),
            }
        }
        ready!(self.sent.poll_complete(cx));
        Poll::Ready(self.failed.take().map(Err))
    }

    fn is_end_stream(&self) -> bool {
        self.failed.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if self.sent.pieces.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(waiting) = self.sent.waiting.lock().take()
        {
            waiting.wake();
        }
    }
}
