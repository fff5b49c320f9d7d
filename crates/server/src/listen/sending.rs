//! A response on its way: in chunks, a few at a time, and given up when its client does not take
//! them.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http_body::{Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::pipeline::Hold;
use crate::stages::flow::budget::Charge;
use crate::wire::body::{Body, CHUNK_BYTES};

/// A response whose client takes no chunk for this long is given up.
pub(super) const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Chunks of one response that wait to be sent: one is sent while the next is made.
const MAX_OUTSTANDING: usize = 2;

/// The chunks of one connection that wait to be sent.
pub(super) struct Outgoing {
    start: Instant,
    outstanding: AtomicUsize,
    /// When the client took a chunk last, in milliseconds from `start`.
    progress: AtomicU64,
}

/// The chunks of one response that wait to be sent.
pub(super) struct Transfer {
    outgoing: Arc<Outgoing>,
    outstanding: AtomicUsize,
    /// As in [`Outgoing`].
    progress: AtomicU64,
    producer: AtomicWaker,
    /// The request's seat and the response's charge, until the last chunk has been sent.
    hold: OnceLock<Hold>,
    /// What a stranger's request holds until its response has gone.
    stranger: OnceLock<[OwnedSemaphorePermit; 2]>,
}

/// A response that is being sent.
pub(super) struct Sending {
    body: Body,
    rest: Option<Bytes>,
    transfer: Arc<Transfer>,
}

/// A chunk, which is counted until it has been sent or thrown away.
struct Chunk {
    bytes: Bytes,
    transfer: Arc<Transfer>,
    _charge: Option<Charge>,
}

/// A stream whose events no room is left for.
#[derive(Debug)]
pub(super) struct NoRoom;

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too many bytes wait for this owner's clients")
    }
}

impl Error for NoRoom {}

impl Outgoing {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            outstanding: AtomicUsize::new(0),
            progress: AtomicU64::new(0),
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns when the client has to have taken the next chunk; `None` when none waits.
    fn deadline(&self, outstanding: &AtomicUsize, progress: &AtomicU64) -> Option<Instant> {
        (outstanding.load(Ordering::Acquire) > 0).then(|| {
            self.start + Duration::from_millis(progress.load(Ordering::Acquire)) + STALL_TIMEOUT
        })
    }

    /// Returns whether chunks wait, and the client has taken none for too long.
    pub(super) fn is_stalled(&self) -> bool {
        let deadline = self.deadline(&self.outstanding, &self.progress);
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
            hold: OnceLock::new(),
            stranger: OnceLock::new(),
        })
    }

    /// Keeps what a stranger's request holds.
    pub(super) fn set_stranger(&self, stranger: Option<[OwnedSemaphorePermit; 2]>) {
        if let Some(permits) = stranger {
            // It cannot be set already: a transfer is of one response.
            let _ = self.stranger.set(permits);
        }
    }

    fn hand_over(self: &Arc<Self>, bytes: Bytes, charge: Option<Charge>) -> Bytes {
        let now = self.outgoing.now();
        for (outstanding, progress) in [
            (&self.outstanding, &self.progress),
            (&self.outgoing.outstanding, &self.outgoing.progress),
        ] {
            if outstanding.fetch_add(1, Ordering::AcqRel) == 0 {
                progress.store(now, Ordering::Release);
            }
        }
        Bytes::from_owner(Chunk { bytes, transfer: self.clone(), _charge: charge })
    }

    fn is_full(&self) -> bool {
        self.outstanding.load(Ordering::Acquire) >= MAX_OUTSTANDING
    }

    /// Is ready when the client has not taken the next chunk in time. It has to be polled after
    /// whatever hands chunks over; `timer` is its own.
    pub(super) fn poll_stalled(
        &self,
        timer: &mut Option<Pin<Box<Sleep>>>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        loop {
            let Some(deadline) = self.outgoing.deadline(&self.outstanding, &self.progress) else {
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
            // There was progress since it was set.
            timer.as_mut().reset(deadline);
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
        transfer.outgoing.outstanding.fetch_sub(1, Ordering::AcqRel);
        transfer.outstanding.fetch_sub(1, Ordering::AcqRel);
        transfer.producer.wake();
    }
}

impl Sending {
    pub(super) fn new(body: Body, hold: Hold, transfer: Arc<Transfer>) -> Self {
        // It cannot be set already: a transfer is of one response.
        let _ = transfer.hold.set(hold);
        Self { body, rest: None, transfer }
    }

    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let bytes = match self.rest.take() {
            Some(rest) => Poll::Ready(Some(rest)),
            None => self.body.poll_bytes(cx),
        };
        bytes.map(|bytes| {
            let mut bytes = bytes?;
            if bytes.len() > CHUNK_BYTES {
                self.rest = Some(bytes.split_off(CHUNK_BYTES));
            }
            Some(bytes)
        })
    }

    /// Counts the bytes of a stream. Those of other bodies are counted from their start.
    fn charge(&self, bytes: &Bytes) -> Result<Option<Charge>, NoRoom> {
        let Some(hold) = self.transfer.hold.get() else { return Err(NoRoom) };
        if !matches!(self.body, Body::Stream(_)) {
            return Ok(None);
        }
        let mut charge = hold.charge.another();
        if charge.grow(bytes.len()) { Ok(Some(charge)) } else { Err(NoRoom) }
    }
}

impl http_body::Body for Sending {
    type Data = Bytes;
    type Error = NoRoom;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, NoRoom>>> {
        if self.transfer.is_full() {
            self.transfer.producer.register(cx.waker());
            if self.transfer.is_full() {
                return Poll::Pending;
            }
        }
        self.poll_bytes(cx).map(|bytes| {
            let bytes = bytes?;
            Some(
                self.charge(&bytes)
                    .map(|charge| Frame::data(self.transfer.hand_over(bytes, charge))),
            )
        })
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // It is asked for before the first chunk.
        self.body.size_hint()
    }
}
