//! The sending of a response: in chunks, a few at a time. It is aborted if its client does not read them.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use postern_flow::budget::Charge;
use postern_meta::status::ApiError;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::pipeline::ResponseGuard;
use postern_http::wire::body::Body;
use postern_http::wire::encode::SMALL_BODY_BYTES;
use postern_http::wire::list::CHUNK_BYTES;

/// The time without progress after which a response is aborted. Responses of targets have a longer one.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The time after which a slow response releases its slot, so that other requests are served. Its bytes stay counted.
const SLOT_TIMEOUT: Duration = Duration::from_secs(5);

/// The unsent bytes of one response at which no further chunk is made: one chunk is sent while the next is made.
const MAX_OUTSTANDING_BYTES: usize = CHUNK_BYTES + 1;

/// The most bytes of a chunk of a target's response. Its client may read nothing for hours, and two chunks are then unsent.
const PATIENT_CHUNK_BYTES: usize = CHUNK_BYTES / 2;

/// The unsent chunks of one connection.
pub(super) struct Outgoing {
    start: Instant,
    /// The unsent bytes.
    outstanding: AtomicUsize,
    /// When the last chunk was sent, in milliseconds after `start`.
    progress: AtomicU64,
    /// The responses of targets that are being sent.
    patient: AtomicUsize,
    /// The time without progress after which one of these is aborted.
    stream_stall: Duration,
}

/// The unsent chunks of one response.
pub(super) struct Transfer {
    outgoing: Arc<Outgoing>,
    /// The unsent bytes.
    outstanding: AtomicUsize,
    /// As in [`Outgoing`].
    progress: AtomicU64,
    producer: AtomicWaker,
    /// The request's slot and the response's charge, until the last chunk is sent.
    guard: OnceLock<ResponseGuard>,
    /// The permits of an unauthenticated request, until its response is sent.
    unauthenticated: Mutex<Vec<OwnedSemaphorePermit>>,
    /// The charge of the stream, until the request takes it.
    stream: Mutex<Option<Charge>>,
    /// Whether the response comes from a target. Then the client may pause for long.
    is_patient: AtomicBool,
}

/// A response that is being sent.
pub(super) enum Sending {
    /// At most 16 KiB of a response over HTTP/1.1, which its connection takes at once. The connection also ends if its client
    /// does not read them.
    Small(Option<Bytes>),
    /// Any other response.
    Chunked(Chunked),
}

/// A response that is sent in chunks.
pub(super) struct Chunked {
    body: Body,
    rest: Option<Bytes>,
    /// The charge for bytes that only this response has. `rest` is the unsent part of them.
    own: Option<Arc<Charge>>,
    /// When the first bytes were requested.
    started: Option<Instant>,
    transfer: Arc<Transfer>,
    /// Why the body failed, while its last chunks are sent.
    failed: Option<Aborted>,
}

/// A chunk, which is counted until it is sent or dropped.
struct Chunk {
    bytes: Bytes,
    transfer: Arc<Transfer>,
    _charge: Option<Arc<Charge>>,
}

/// Why a response is aborted.
#[derive(Debug)]
pub(super) enum Aborted {
    /// The byte budget is used up.
    NoRoom,
    /// An object could not be encoded.
    NotEncoded(ApiError),
}

impl fmt::Display for Aborted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoom => {
                f.write_str("too many bytes of responses wait for this owner's clients")
            }
            Self::NotEncoded(error) => error.fmt(f),
        }
    }
}

impl Error for Aborted {}

impl Outgoing {
    pub(super) fn new(stream_stall: Duration) -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            outstanding: AtomicUsize::new(0),
            progress: AtomicU64::new(0),
            patient: AtomicUsize::new(0),
            stream_stall,
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The time by which the next chunk must be sent; `None` when no chunk is unsent.
    fn deadline(
        &self,
        outstanding: &AtomicUsize,
        progress: &AtomicU64,
        is_patient: bool,
    ) -> Option<Instant> {
        let timeout = if is_patient { self.stream_stall } else { STALL_TIMEOUT };
        (outstanding.load(Ordering::Acquire) > 0)
            .then(|| self.start + Duration::from_millis(progress.load(Ordering::Acquire)) + timeout)
    }

    /// Whether there are unsent chunks.
    pub(super) fn has_unsent(&self) -> bool {
        self.outstanding.load(Ordering::Acquire) > 0
    }

    /// Whether there are unsent chunks, and none was sent for too long.
    pub(super) fn is_stalled(&self) -> bool {
        let is_patient = self.patient.load(Ordering::Acquire) > 0;
        let deadline = self.deadline(&self.outstanding, &self.progress, is_patient);
        deadline.is_some_and(|deadline| deadline <= Instant::now())
    }
}

impl Transfer {
    pub(super) fn new(outgoing: Arc<Outgoing>) -> Arc<Self> {
        Arc::new(Self {
            outgoing,
            outstanding: AtomicUsize::new(0),
            progress: AtomicU64::new(0),
            producer: AtomicWaker::new(),
            guard: OnceLock::new(),
            unauthenticated: Mutex::default(),
            stream: Mutex::default(),
            is_patient: AtomicBool::new(false),
        })
    }

    /// Lets the client pause for long: the response comes from a target.
    fn set_patient(&self) {
        if !self.is_patient.swap(true, Ordering::AcqRel) {
            self.outgoing.patient.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Keeps the charge of the stream.
    pub(super) fn set_stream(&self, charge: Option<Charge>) {
        *self.stream.lock() = charge;
    }

    /// Takes the charge of the stream, for its request.
    pub(super) fn take_stream(&self) -> Option<Charge> {
        self.stream.lock().take()
    }

    /// Keeps the permits of an unauthenticated request.
    pub(super) fn keep(&self, permits: impl IntoIterator<Item = OwnedSemaphorePermit>) {
        self.unauthenticated.lock().extend(permits);
    }

    /// Whether it has permits of an unauthenticated request.
    pub(super) fn has_unauthenticated_permits(&self) -> bool {
        !self.unauthenticated.lock().is_empty()
    }

    /// Releases the permits of an unauthenticated request, because its sender is authenticated now.
    pub(super) fn release_unauthenticated_permits(&self) {
        self.unauthenticated.lock().clear();
    }

    fn hand_over(self: &Arc<Self>, bytes: Bytes, charge: Option<Arc<Charge>>) -> Bytes {
        let now = self.outgoing.now();
        for (outstanding, progress) in [
            (&self.outstanding, &self.progress),
            (&self.outgoing.outstanding, &self.outgoing.progress),
        ] {
            // The time is set first: a reader that sees the unsent bytes must not see the time of
            // earlier bytes.
            if outstanding.load(Ordering::Acquire) == 0 {
                progress.store(now, Ordering::Release);
            }
            outstanding.fetch_add(bytes.len(), Ordering::AcqRel);
        }
        Bytes::from_owner(Chunk { bytes, transfer: self.clone(), _charge: charge })
    }

    /// Whether so few bytes are unsent that the stream needs no supervision. If so, the slot is released.
    pub(super) fn is_small(&self) -> bool {
        let is_small = self.outstanding.load(Ordering::Acquire) <= SMALL_BODY_BYTES;
        if is_small && let Some(guard) = self.guard.get() {
            guard.release_slot();
        }
        is_small
    }

    /// Whether all chunks are sent. If not, the task is woken when one is sent.
    pub(super) fn is_taken(&self, cx: &Context<'_>) -> bool {
        self.producer.register(cx.waker());
        self.outstanding.load(Ordering::Acquire) == 0
    }

    fn is_full(&self) -> bool {
        let is_patient = self.is_patient.load(Ordering::Relaxed);
        let most = if is_patient { PATIENT_CHUNK_BYTES } else { MAX_OUTSTANDING_BYTES };
        self.outstanding.load(Ordering::Acquire) >= most
    }

    /// Ready when the next chunk was not sent in time. Poll it after the code that hands over chunks. Only this
    /// function uses `timer`.
    pub(super) fn poll_stalled(
        &self,
        timer: &mut Option<Pin<Box<Sleep>>>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        loop {
            let is_patient = self.is_patient.load(Ordering::Acquire);
            let deadline = self.outgoing.deadline(&self.outstanding, &self.progress, is_patient);
            let Some(deadline) = deadline else {
                *timer = None;
                return Poll::Pending;
            };
            if deadline <= Instant::now() {
                return Poll::Ready(());
            }
            let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            // There was progress since the timer was set.
            timer.as_mut().reset(deadline);
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if self.is_patient.load(Ordering::Acquire) {
            self.outgoing.patient.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let transfer = &self.transfer;
        let now = transfer.outgoing.now();
        transfer.progress.store(now, Ordering::Release);
        transfer.outgoing.progress.store(now, Ordering::Release);
        transfer.outgoing.outstanding.fetch_sub(self.bytes.len(), Ordering::AcqRel);
        transfer.outstanding.fetch_sub(self.bytes.len(), Ordering::AcqRel);
        transfer.producer.wake();
    }
}

impl Sending {
    /// A response over HTTP/1.1. A small one needs no guard any more: its bytes are not counted.
    pub(super) fn over_http1(body: Body, guard: ResponseGuard, outgoing: &Arc<Outgoing>) -> Self {
        match body {
            // A connection without a valid key may be closed, but not while it sends a response.
            Body::Whole(bytes)
                if guard.is_authenticated()
                    && bytes.as_ref().is_none_or(|bytes| bytes.len() <= SMALL_BODY_BYTES) =>
            {
                Self::Small(bytes.filter(|bytes| !bytes.is_empty()))
            }
            body => Self::guarded(body, guard, Transfer::new(outgoing.clone())),
        }
    }

    /// A response whose chunks count for a transfer.
    pub(super) fn guarded(body: Body, guard: ResponseGuard, transfer: Arc<Transfer>) -> Self {
        if matches!(body, Body::Proxied(_)) {
            transfer.set_patient();
        }
        // It cannot be set already, because a transfer has one response.
        let _ = transfer.guard.set(guard);
        Self::unguarded(body, transfer)
    }

    /// A response without bytes. The caller keeps its guard, because the connection is upgraded to another protocol.
    pub(super) fn unguarded(body: Body, transfer: Arc<Transfer>) -> Self {
        Self::Chunked(Chunked {
            body,
            rest: None,
            own: None,
            started: None,
            transfer,
            failed: None,
        })
    }
}

impl Chunked {
    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Aborted>>> {
        let bytes = match self.rest.take() {
            Some(rest) => Poll::Ready(Some(Ok(rest))),
            None => self.body.poll_bytes(cx).map(|bytes| {
                let bytes = bytes?.map_err(Aborted::NotEncoded);
                Some(bytes.and_then(|bytes| {
                    self.own = self.charge_own(&bytes)?;
                    Ok(bytes)
                }))
            }),
        };
        bytes.map(|bytes| {
            Some(bytes?.map(|mut bytes| {
                let is_patient = self.transfer.is_patient.load(Ordering::Relaxed);
                let most = if is_patient { PATIENT_CHUNK_BYTES } else { CHUNK_BYTES };
                if bytes.len() > most {
                    self.rest = Some(bytes.split_off(most));
                }
                bytes
            }))
        })
    }

    /// Counts the bytes of a watch that no other response shares, until the last of them is sent. Shared bytes belong
    /// to the cache.
    fn charge_own(&self, bytes: &Bytes) -> Result<Option<Arc<Charge>>, Aborted> {
        let is_watch = matches!(self.body, Body::Stream(_));
        let is_own = is_watch && bytes.len() > SMALL_BODY_BYTES && bytes.is_unique();
        if is_own { self.charge(bytes.len()).map(Some) } else { Ok(None) }
    }

    /// Counts the bytes of a stream that wait behind others. Bytes of other bodies are counted from the start.
    fn charge_waiting(&self, bytes: &Bytes) -> Result<Option<Arc<Charge>>, Aborted> {
        if let Some(own) = &self.own {
            return Ok(Some(own.clone()));
        }
        if !self.body.is_stream() || self.transfer.outstanding.load(Ordering::Relaxed) == 0 {
            return Ok(None);
        }
        self.charge(bytes.len()).map(Some)
    }

    fn charge(&self, bytes: usize) -> Result<Arc<Charge>, Aborted> {
        let charge = self.transfer.guard.get().and_then(|guard| guard.charge(bytes));
        charge.map(Arc::new).ok_or(Aborted::NoRoom)
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        if self.transfer.is_full() {
            self.transfer.producer.register(cx.waker());
            if self.transfer.is_full() {
                return Poll::Pending;
            }
        }
        let is_slow = if let Some(started) = self.started {
            started.elapsed() > SLOT_TIMEOUT
        } else {
            self.started = Some(Instant::now());
            false
        };
        if is_slow && let Some(guard) = self.transfer.guard.get() {
            guard.release_slot();
        }
        if self.failed.is_none() {
            let Some(bytes) = ready!(self.poll_bytes(cx)) else {
                let trailers = self.body.take_trailers();
                return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
            };
            let framed = bytes.and_then(|bytes| {
                let charge = self.charge_waiting(&bytes)?;
                Ok(Frame::data(self.transfer.hand_over(bytes, charge)))
            });
            match framed {
                Ok(frame) => return Poll::Ready(Some(Ok(frame))),
                Err(why) => self.failed = Some(why),
            }
        }
        // hyper drops the unsent bytes when a body fails.
        if !self.transfer.is_taken(cx) {
            return Poll::Pending;
        }
        Poll::Ready(self.failed.take().map(Err))
    }
}

impl http_body::Body for Sending {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        match &mut *self {
            Self::Small(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Chunked(chunked) => chunked.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Small(bytes) => bytes.is_none(),
            Self::Chunked(Chunked { body, rest, .. }) => rest.is_none() && body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Small(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            // The hint is requested before the first chunk.
            Self::Chunked(chunked) => chunked.body.size_hint(),
        }
    }
}
