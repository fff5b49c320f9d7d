//! The body of an answer on its way to the client.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::error::ProxyError;
use crate::exchange::{Exchange, reason_of};
use crate::headers;
use crate::session::{Session, SessionEnd};
use crate::shared::Shared;

/// The body of a response, as it comes from the upstream, without buffering of the whole. It ends
/// with an error when the upstream is lost ([`ProxyError::Lost`]) or the session ends
/// ([`ProxyError::SessionEnded`]). The client must then treat the body as incomplete. Dropped
/// before its end, it closes the connection to the upstream.
pub struct ProxyBody {
    streaming: Option<Box<Streaming>>,
}

struct Streaming {
    incoming: Incoming,
    exchange: Exchange,
    session: Session,
    shared: Arc<Shared>,
    address: Arc<str>,
}

impl ProxyBody {
    /// An empty body, for a response that switches protocols.
    pub(crate) fn empty() -> Self {
        Self { streaming: None }
    }

    pub(crate) fn new(
        incoming: Incoming,
        exchange: Exchange,
        session: Session,
        shared: Arc<Shared>,
        address: Arc<str>,
    ) -> Self {
        if incoming.is_end_stream() {
            exchange.finish();
            return Self::empty();
        }
        let streaming = Streaming { incoming, exchange, session, shared, address };
        Self { streaming: Some(Box::new(streaming)) }
    }

    fn finish(&mut self) {
        if let Some(streaming) = self.streaming.take() {
            streaming.exchange.finish();
        }
    }

    fn fail(&mut self, error: ProxyError) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        if let Some(streaming) = self.streaming.take() {
            streaming.shared.counters.count_failure(error.failure());
        }
        Poll::Ready(Some(Err(error)))
    }
}

impl Streaming {
    fn lost(&self, error: &hyper::Error) -> ProxyError {
        if self.shared.ending.is_cancelled() {
            return ProxyError::SessionEnded(SessionEnd::Drain);
        }
        ProxyError::Lost { address: self.address.to_string(), reason: reason_of(error) }
    }
}

impl Body for ProxyBody {
    type Data = Bytes;
    type Error = ProxyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        loop {
            let Some(streaming) = &mut self.streaming else { return Poll::Ready(None) };
            if let Poll::Ready(end) = streaming.session.poll_ended(cx) {
                return self.fail(ProxyError::SessionEnded(end));
            }
            let frame = match Pin::new(&mut streaming.incoming).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => {
                    self.finish();
                    return Poll::Ready(None);
                }
                Poll::Ready(Some(Err(error))) => {
                    let error = streaming.lost(&error);
                    return self.fail(error);
                }
                Poll::Ready(Some(Ok(frame))) => frame,
            };
            match frame.into_trailers() {
                Err(data) => {
                    if streaming.incoming.is_end_stream() {
                        self.finish();
                    }
                    return Poll::Ready(Some(Ok(data)));
                }
                Ok(mut trailers) => {
                    headers::clean_trailers(&mut trailers, &[]);
                    if !trailers.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.streaming.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let incoming = self.streaming.as_ref().map(|streaming| streaming.incoming.size_hint());
        incoming.unwrap_or_else(|| SizeHint::with_exact(0))
    }
}

impl fmt::Debug for ProxyBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyBody").field("is_end", &self.is_end_stream()).finish_non_exhaustive()
    }
}
