//! Bodies of responses: whole, a list that is encoded as it is sent, or a stream.

use std::io::Write as _;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::vec::IntoIter;

use bytes::{BufMut as _, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream::{BoxStream, StreamExt as _};
use http_body::SizeHint;

use crate::cache::CachedObject;

/// Lists are sent in chunks of about this size: large enough that a chunk costs little, small
/// enough that a list of any length takes little memory.
pub(crate) const CHUNK_BYTES: usize = 64 * 1024;

/// The body of a response.
pub(crate) enum Body {
    /// All bytes, or none.
    Whole(Option<Bytes>),
    /// A list.
    List(Box<ListBody>),
    /// A watch.
    Stream(BoxStream<'static, Bytes>),
}

impl Body {
    /// Returns how many bytes it keeps in memory until it has been sent. Those of objects in a list
    /// are the cache's own.
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.as_ref().map_or(0, Bytes::len),
            Self::List(list) => {
                let objects = list.objects.len() * size_of::<Arc<CachedObject>>();
                objects + CHUNK_BYTES.min(list.plain_bytes)
            }
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
    pub(crate) fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().filter(|bytes| !bytes.is_empty())),
            Self::List(list) => Poll::Ready(list.next_chunk()),
            Self::Stream(stream) => stream.poll_next_unpin(cx),
        }
    }

    /// Returns whether there are no more bytes.
    pub(crate) fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::List(list) => list.is_at_end(),
            Self::Stream(_) => false,
        }
    }

    /// Returns how many bytes there are, as far as that is known.
    pub(crate) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::List(list) => list.size_hint(),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// A list in JSON: its head, the objects' own bytes with commas between them, and its end.
pub(crate) struct ListBody {
    head: Option<Bytes>,
    objects: IntoIter<Arc<CachedObject>>,
    first: bool,
    end: Option<&'static [u8]>,
    plain_bytes: usize,
    gzip: Option<GzEncoder<Vec<u8>>>,
}

impl ListBody {
    /// Returns the body of a list; `head` ends with `"items":[`.
    pub(crate) fn new(head: Bytes, objects: Vec<Arc<CachedObject>>) -> Self {
        let end: &[u8] = b"]}\n";
        let items: usize = objects.iter().map(|object| object.json().len()).sum();
        let commas = objects.len().saturating_sub(1);
        let plain_bytes = head.len() + items + commas + end.len();
        Self {
            head: Some(head),
            objects: objects.into_iter(),
            first: true,
            end: Some(end),
            plain_bytes,
            gzip: None,
        }
    }

    /// Returns all bytes, before compression.
    pub(crate) fn whole(&self) -> Bytes {
        let mut copy =
            Self::new(self.head.clone().unwrap_or_default(), self.objects.as_slice().into());
        let mut whole = BytesMut::with_capacity(self.plain_bytes);
        while let Some(chunk) = copy.next_chunk() {
            whole.put_slice(&chunk);
        }
        whole.freeze()
    }

    /// Returns its length before compression.
    pub(crate) fn plain_bytes(&self) -> usize {
        self.plain_bytes
    }

    /// Returns the same list, compressed at the fastest level: for lists, the network is what is
    /// slow.
    pub(crate) fn gzipped(mut self) -> Self {
        self.gzip = Some(GzEncoder::new(Vec::new(), Compression::fast()));
        self
    }

    fn size_hint(&self) -> SizeHint {
        match self.gzip {
            None => SizeHint::with_exact(self.plain_bytes as u64),
            Some(_) => SizeHint::default(),
        }
    }

    fn is_at_end(&self) -> bool {
        self.end.is_none() && self.gzip.is_none()
    }

    fn next_chunk(&mut self) -> Option<Bytes> {
        loop {
            let plain = self.next_plain();
            let Some(gzip) = &mut self.gzip else {
                if let Some(plain) = &plain {
                    self.plain_bytes = self.plain_bytes.saturating_sub(plain.len());
                }
                return plain;
            };
            let Some(plain) = plain else {
                // Writing to memory cannot fail.
                let rest = self.gzip.take().and_then(|gzip| gzip.finish().ok())?;
                self.plain_bytes = 0;
                return Some(Bytes::from(rest));
            };
            if gzip.write_all(&plain).is_err() {
                return None;
            }
            let ready = std::mem::take(gzip.get_mut());
            if !ready.is_empty() {
                return Some(Bytes::from(ready));
            }
        }
    }

    fn next_plain(&mut self) -> Option<Bytes> {
        self.end?;
        let mut chunk = BytesMut::with_capacity(CHUNK_BYTES.min(self.plain_bytes.max(64)));
        if let Some(head) = self.head.take() {
            chunk.put_slice(&head);
        }
        while chunk.len() < CHUNK_BYTES {
            let Some(object) = self.objects.next() else {
                chunk.put_slice(self.end.take().unwrap_or_default());
                break;
            };
            if !std::mem::take(&mut self.first) {
                chunk.put_u8(b',');
            }
            chunk.put_slice(&object.json());
        }
        Some(chunk.freeze())
    }
}
