//! `Body`: the body of a response. It is complete, a list that is encoded as it is sent, a stream, or the body from a
//! target behind the gateway.

use std::io::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream::{BoxStream, StreamExt as _};
use http::HeaderMap;
use http_body::{Body as _, SizeHint};
use parking_lot::Mutex;

use postern_meta::status::ApiError;
use postern_proxy::{ProxyBody, ProxyError};

use super::list::{EncodedList, ListBody};
use super::websocket::Socket;

/// The body of a response.
pub enum Body {
    /// All bytes, or none.
    Whole(Option<Bytes>),
    /// A list of objects in their stored encoding.
    List(Box<ListBody>),
    /// A list that is encoded on the threads for large work.
    Encoded(EncodedList),
    /// A watch.
    Stream(BoxStream<'static, Bytes>),
    /// The body of a response from a target behind the gateway.
    Proxied(Box<ProxiedBody>),
    /// An empty body, after which the connection becomes a WebSocket with a watch. `None` after the connection has
    /// taken it.
    Socket(Option<Box<Socket>>),
}

/// Values that live as long as a request to a target, also after an upgrade to another protocol.
#[derive(Clone, Default)]
pub struct Guards(Arc<Mutex<Vec<Box<dyn Send>>>>);

impl Guards {
    /// Keeps one more value.
    pub fn keep(&self, value: impl Send + 'static) {
        self.0.lock().push(Box::new(value));
    }
}

/// The body of a response from a target behind the gateway.
pub struct ProxiedBody {
    body: ProxyBody,
    /// Whether it is a watch, which may end after any line.
    is_watch: bool,
    is_long: bool,
    trailers: Option<HeaderMap>,
    guards: Guards,
}

impl ProxiedBody {
    /// The body of a response. The session shares `guards`.
    pub fn new(body: ProxyBody, is_watch: bool, is_long: bool, guards: Guards) -> Self {
        Self { body, is_watch, is_long, trailers: None, guards }
    }

    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ApiError>>> {
        loop {
            let frame = match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(Some(Err(ProxyError::SessionEnded(_) | ProxyError::Lost { .. })))
                    if self.is_watch =>
                {
                    // The client watches again, and then gets the reason.
                    return Poll::Ready(None);
                }
                Poll::Ready(Some(Err(error))) => {
                    let error =
                        ApiError::internal("the response of the target was interrupted", error);
                    return Poll::Ready(Some(Err(error)));
                }
            };
            match frame.into_data() {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => return Poll::Ready(Some(Ok(bytes))),
                Err(frame) => self.trailers = frame.into_trailers().ok(),
            }
        }
    }
}

impl Body {
    /// The bytes that it keeps in memory until it is sent. The objects of a list belong to the cache, and are not
    /// counted.
    pub fn held_bytes(&self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.as_ref().map_or(0, Bytes::len),
            Self::List(list) => list.held_bytes(),
            Self::Encoded(list) => list.held_bytes(),
            Self::Stream(_) | Self::Proxied(_) | Self::Socket(_) => 0,
        }
    }

    /// Whether it continues long after the head of the response.
    pub fn is_long(&self) -> bool {
        match self {
            Self::Stream(_) | Self::Socket(_) => true,
            Self::Proxied(proxied) => proxied.is_long,
            Self::Whole(_) | Self::List(_) | Self::Encoded(_) => false,
        }
    }

    /// Whether its bytes arrive over time, so that their number is unknown.
    pub fn is_stream(&self) -> bool {
        matches!(self, Self::Stream(_) | Self::Proxied(_) | Self::Socket(_))
    }

    /// A complete body, compressed at the fastest level.
    pub fn gzipped(bytes: &[u8]) -> Self {
        Self::Whole(Some(gzip(bytes, Compression::fast())))
    }

    /// The same body. A stream owns `value`, which is dropped with it.
    #[must_use]
    pub fn owning(self, value: impl Send + 'static) -> Self {
        match self {
            Self::Stream(events) => {
                let own = move |_: &Bytes| {
                    let _ = &value;
                };
                Self::Stream(events.inspect(own).boxed())
            }
            Self::Proxied(proxied) => {
                proxied.guards.keep(value);
                Self::Proxied(proxied)
            }
            Self::Socket(socket) => {
                Self::Socket(socket.map(|socket| Box::new(socket.owning(value))))
            }
            whole => whole,
        }
    }
}

/// Compresses bytes.
pub fn gzip(bytes: &[u8], level: Compression) -> Bytes {
    let mut gzip = GzEncoder::new(Vec::new(), level);
    // Writing to memory cannot fail.
    let written = gzip.write_all(bytes).and_then(|()| gzip.finish());
    Bytes::from(written.unwrap_or_default())
}

impl Body {
    /// The next bytes, of any length; `None` at the end.
    ///
    /// # Errors
    /// When an object of a list cannot be encoded. The response is then incomplete.
    pub fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ApiError>>> {
        match self {
            Self::Whole(bytes) => {
                Poll::Ready(bytes.take().filter(|bytes| !bytes.is_empty()).map(Ok))
            }
            Self::List(list) => Poll::Ready(list.next_chunk().transpose()),
            Self::Encoded(list) => list.poll_chunk(cx),
            Self::Stream(stream) => stream.poll_next_unpin(cx).map(|bytes| bytes.map(Ok)),
            Self::Proxied(proxied) => proxied.poll_bytes(cx),
            Self::Socket(_) => Poll::Ready(None),
        }
    }

    /// Takes the WebSocket that the connection becomes.
    pub fn take_socket(&mut self) -> Option<Box<Socket>> {
        if let Self::Socket(socket) = self { socket.take() } else { None }
    }

    /// Takes the trailers that follow the last bytes.
    pub fn take_trailers(&mut self) -> Option<HeaderMap> {
        if let Self::Proxied(proxied) = self { proxied.trailers.take() } else { None }
    }

    /// Whether all bytes have been taken.
    pub fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::List(list) => list.is_at_end(),
            Self::Encoded(_) | Self::Stream(_) => false,
            Self::Proxied(proxied) => proxied.body.is_end_stream() && proxied.trailers.is_none(),
            Self::Socket(_) => true,
        }
    }

    /// The number of bytes, if it is known.
    pub fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::List(list) => list.size_hint(),
            Self::Encoded(_) | Self::Stream(_) => SizeHint::default(),
            Self::Proxied(proxied) => proxied.body.size_hint(),
            Self::Socket(_) => SizeHint::with_exact(0),
        }
    }
}
