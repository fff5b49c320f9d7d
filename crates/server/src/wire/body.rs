//! Bodies of responses: whole, a list that is encoded as it is sent, or a stream.

use std::io::Write as _;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream::{BoxStream, StreamExt as _};
use http_body::SizeHint;

use postern_meta::status::ApiError;

use super::list::{EncodedList, ListBody};

/// The body of a response.
pub(crate) enum Body {
    /// All bytes, or none.
    Whole(Option<Bytes>),
    /// A list, whose objects are sent as they are stored.
    List(Box<ListBody>),
    /// A list that takes time to encode, and so is encoded elsewhere.
    Encoded(EncodedList),
    /// A watch.
    Stream(BoxStream<'static, Bytes>),
}

impl Body {
    /// Returns how many bytes it keeps in memory until it has been sent. Those of objects in a list
    /// are the cache's own.
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.as_ref().map_or(0, Bytes::len),
            Self::List(list) => list.held_bytes(),
            Self::Encoded(list) => list.held_bytes(),
            Self::Stream(_) => 0,
        }
    }

    /// Returns a whole body, compressed at the fastest level.
    pub(crate) fn gzipped(bytes: &[u8]) -> Self {
        Self::Whole(Some(gzip(bytes)))
    }

    /// Returns the same body. A stream owns `value` from now on, which is dropped with the stream.
    pub(crate) fn owning(self, value: impl Send + 'static) -> Self {
        match self {
            Self::Stream(events) => {
                let own = move |_: &Bytes| {
                    let _ = &value;
                };
                Self::Stream(events.inspect(own).boxed())
            }
            whole => whole,
        }
    }
}

/// Returns bytes, compressed at the fastest level.
pub(crate) fn gzip(bytes: &[u8]) -> Bytes {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory cannot fail.
    let written = gzip.write_all(bytes).and_then(|()| gzip.finish());
    Bytes::from(written.unwrap_or_default())
}

impl Body {
    /// Returns the next bytes, of any length; `None` at the end.
    ///
    /// # Errors
    /// When an object of a list cannot be encoded. The response then ends without its end.
    pub(crate) fn poll_bytes(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, ApiError>>> {
        match self {
            Self::Whole(bytes) => {
                Poll::Ready(bytes.take().filter(|bytes| !bytes.is_empty()).map(Ok))
            }
            Self::List(list) => Poll::Ready(list.next_chunk().transpose()),
            Self::Encoded(list) => list.poll_chunk(cx),
            Self::Stream(stream) => stream.poll_next_unpin(cx).map(|bytes| bytes.map(Ok)),
        }
    }

    /// Returns whether there are no more bytes.
    pub(crate) fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::List(list) => list.is_at_end(),
            Self::Encoded(_) | Self::Stream(_) => false,
        }
    }

    /// Returns how many bytes there are, as far as that is known.
    pub(crate) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::List(list) => list.size_hint(),
            Self::Encoded(_) | Self::Stream(_) => SizeHint::default(),
        }
    }
}
