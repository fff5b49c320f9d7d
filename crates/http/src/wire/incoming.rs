//! The body of a request as it arrives, and its unread rest when the response is ready.
//!
//! A response may be ready before the body is read: an early error, or the response to a GET with an unexpected body.
//! Over HTTP/1.1, the next request follows the rest of this body. So a short rest is read. Otherwise the connection is
//! closed after the response. Over HTTP/2, the stream is reset, and older versions of curl then drop the response.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use parking_lot::Mutex;

/// The most bytes of an unwanted body that are read, and the most time for it.
const MAX_DISCARDED_BYTES: u64 = 64 * 1024;
const DISCARD_TIMEOUT: Duration = Duration::from_millis(500);

/// The body of a request. On drop, the unread rest goes to its [`Leftover`].
pub struct IncomingBody {
    incoming: Option<Incoming>,
    is_requested: bool,
    leftover: Option<Leftover>,
}

/// The unread rest of a body.
#[derive(Clone)]
pub struct Leftover(Arc<Mutex<Rest>>);

#[derive(Default)]
struct Rest {
    incoming: Option<Incoming>,
    /// Whether the client still waits for "100 Continue".
    awaits_continue: bool,
}

impl IncomingBody {
    /// The body of a request, without a [`Leftover`].
    pub fn new(incoming: Incoming) -> Self {
        Self { incoming: Some(incoming), is_requested: false, leftover: None }
    }

    /// An empty body, for tests.
    #[doc(hidden)]
    pub fn empty() -> Self {
        Self { incoming: None, is_requested: false, leftover: None }
    }

    /// The body of a request, and its leftover; `None` when the body is empty.
    pub fn with_leftover(incoming: Incoming, headers: &HeaderMap) -> (Self, Option<Leftover>) {
        if incoming.is_end_stream() {
            return (Self::new(incoming), None);
        }
        let awaits_continue = headers.contains_key(header::EXPECT);
        let leftover = Leftover(Arc::new(Mutex::new(Rest { incoming: None, awaits_continue })));
        let mut body = Self::new(incoming);
        body.leftover = Some(leftover.clone());
        (body, Some(leftover))
    }
}

impl Body for IncomingBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.is_requested = true;
        match &mut self.incoming {
            Some(incoming) => Pin::new(incoming).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(SizeHint::default, Incoming::size_hint)
    }
}

impl Drop for IncomingBody {
    fn drop(&mut self) {
        let Some(leftover) = &self.leftover else { return };
        let mut rest = leftover.0.lock();
        rest.incoming = self.incoming.take().filter(|incoming| !incoming.is_end_stream());
        rest.awaits_continue &= !self.is_requested;
    }
}

impl Leftover {
    /// Reads the rest of the body, if it is short and arrives soon. Returns whether the whole body was read. A client
    /// that waits for "100 Continue" does not get it.
    pub async fn read(self) -> bool {
        let Rest { incoming, awaits_continue } = std::mem::take(&mut *self.0.lock());
        let Some(incoming) = incoming else { return true };
        if awaits_continue || incoming.size_hint().lower() > MAX_DISCARDED_BYTES {
            return false;
        }
        tokio::time::timeout(DISCARD_TIMEOUT, discard(incoming)).await.unwrap_or(false)
    }
}

async fn discard(mut incoming: Incoming) -> bool {
    let mut bytes = 0;
    while let Some(frame) = incoming.frame().await {
        let Ok(frame) = frame else { return false };
        bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        if bytes > MAX_DISCARDED_BYTES {
            return false;
        }
    }
    true
}
