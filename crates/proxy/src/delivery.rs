//! `DeliveredBody`: a response that hands on few bytes at a time. Its last bytes leave before it
//! fails.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

use crate::body::ProxyBody;
use crate::error::ProxyError;

/// Bytes of one body that an HTTP server may have in its buffers, and the most bytes of one piece. A client that reads
/// nothing for hours keeps so many.
const MAX_UNSENT_BYTES: usize = 32 * 1024;

/// The body of an answer for an HTTP server, which keeps bytes until they are written, and drops them when the body fails.
/// So it hands on the next bytes when the last ones have left, and fails only then. Its reader must not keep them.
#[derive(Debug)]
pub struct DeliveredBody {
    body: ProxyBody,
    /// The bytes that are not handed on yet.
    rest: Option<Bytes>,
    sent: Arc<Sent>,
    /// Why the body failed, while the last bytes are on their way.
    failed: Option<ProxyError>,
}

/// The bytes of one body that were handed on.
#[derive(Debug, Default)]
struct Sent {
    /// The bytes that have not left.
    unsent: AtomicUsize,
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
        Self { body, rest: None, sent: Arc::default(), failed: None }
    }
}

impl Sent {
    /// Is ready when at most so many bytes have not left. Only a body that waits is woken: another wake-up would poll
    /// the whole connection once more for each response.
    fn poll_at_most(&self, unsent: usize, cx: &Context<'_>) -> Poll<()> {
        let is_ready = || self.unsent.load(Ordering::Acquire) <= unsent;
        if is_ready() {
            return Poll::Ready(());
        }
        *self.waiting.lock() = Some(cx.waker().clone());
        // Bytes may have left before the waker was there.
        if is_ready() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn hand_on(self: &Arc<Self>, bytes: Bytes) -> Frame<Bytes> {
        self.unsent.fetch_add(bytes.len(), Ordering::AcqRel);
        Frame::data(Bytes::from_owner(Piece { bytes, sent: self.clone() }))
    }
}

impl DeliveredBody {
    /// The next bytes of the body, or of the rest of the last ones.
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        let frame = match self.rest.take() {
            Some(rest) => Frame::data(rest),
            None => match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                other => return Poll::Ready(other),
            },
        };
        Poll::Ready(Some(Ok(match frame.into_data() {
            Ok(mut bytes) => {
                if bytes.len() > MAX_UNSENT_BYTES {
                    self.rest = Some(bytes.split_off(MAX_UNSENT_BYTES));
                }
                self.sent.hand_on(bytes)
            }
            Err(trailers) => trailers,
        })))
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
            ready!(self.sent.poll_at_most(MAX_UNSENT_BYTES - 1, cx));
            match ready!(self.poll_next(cx)) {
                Some(Err(error)) => self.failed = Some(error),
                other => return Poll::Ready(other),
            }
        }
        ready!(self.sent.poll_at_most(0, cx));
        Poll::Ready(self.failed.take().map(Err))
    }

    fn is_end_stream(&self) -> bool {
        self.failed.is_none() && self.rest.is_none() && self.body.is_end_stream()
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
        self.sent.unsent.fetch_sub(self.bytes.len(), Ordering::AcqRel);
        // Apart from the wake-up, which must not run under the lock.
        let waiting = self.sent.waiting.lock().take();
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct WakeUps(AtomicUsize);

    impl Wake for WakeUps {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn only_a_body_that_waits_is_woken() {
        let (sent, wake_ups) = (Arc::new(Sent::default()), Arc::new(WakeUps::default()));
        let waker = Waker::from(wake_ups.clone());
        let cx = Context::from_waker(&waker);
        assert!(sent.poll_at_most(0, &cx).is_ready());
        drop(sent.hand_on(Bytes::from_static(b"ab")));
        assert_eq!(wake_ups.0.load(Ordering::Relaxed), 0);
        let piece = sent.hand_on(Bytes::from_static(b"ab"));
        assert!(sent.poll_at_most(2, &cx).is_ready() && sent.poll_at_most(1, &cx).is_pending());
        drop(piece);
        assert_eq!(wake_ups.0.load(Ordering::Relaxed), 1);
        assert!(sent.poll_at_most(0, &cx).is_ready());
    }
}
