//! Carries the bytes of an upgraded connection between its client and its upstream.
//!
//! Each direction ends separately. When its source ends, cleanly or by an error, the bytes that
//! were read are delivered, and then its target is told. In the protocols of exec and cp, the last
//! of these bytes are the exit status.
//!
//! When one side is lost, the remaining side is still read. A socket that is closed with unread
//! bytes is reset, and a reset destroys the bytes that its peer has not taken yet.

use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::session::SessionEnd;

/// Bytes under way in each direction.
const BUFFER_BYTES: usize = 16 * 1024;

/// The time without a byte after which an upstream of a lost client is closed.
const UPSTREAM_END_TIMEOUT: Duration = Duration::from_secs(30);

/// Carries bytes both ways until both sides have ended. A side that takes no byte for `stall` ends the session. Dropped,
/// it leaves both sides as they are.
pub(crate) async fn carry<C, U>(
    client: &mut C,
    upstream: &mut U,
    stall: Duration,
) -> Option<SessionEnd>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    let (mut to_upstream, mut to_client) = (Direction::new(stall), Direction::new(stall));
    let mut last_bytes: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| {
        let sent = to_upstream.poll(cx, Pin::new(&mut *client), Pin::new(&mut *upstream));
        let received = to_client.poll(cx, Pin::new(&mut *upstream), Pin::new(&mut *client));
        match (sent, received) {
            (Poll::Ready(Err(Stalled)), _) | (_, Poll::Ready(Err(Stalled))) => {
                return Poll::Ready(Some(SessionEnd::Stalled));
            }
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(None),
            _ => {}
        }
        let Some(patience) = patience(&to_upstream, &to_client, stall) else {
            return Poll::Pending;
        };
        let has_moved = to_upstream.take_moved() | to_client.take_moved();
        if has_moved || to_upstream.is_delivering() || to_client.is_delivering() {
            last_bytes = None;
        }
        if to_upstream.is_delivering() || to_client.is_delivering() {
            return Poll::Pending;
        }
        let last_bytes = last_bytes.get_or_insert_with(|| Box::pin(sleep(patience)));
        last_bytes.as_mut().poll(cx).map(|()| None)
    })
    .await
}

/// The time limit of the remaining side until its next byte or its end; `None` while neither side
/// is lost.
fn patience(to_upstream: &Direction, to_client: &Direction, stall: Duration) -> Option<Duration> {
    match (to_upstream.lost, to_client.lost) {
        (Some(Lost::Source), _) | (_, Some(Lost::Target)) => Some(UPSTREAM_END_TIMEOUT),
        // A client that pauses may have to take bytes that are in the buffers of the kernel.
        (Some(Lost::Target), _) | (_, Some(Lost::Source)) => Some(stall),
        (None, None) => None,
    }
}

/// The bytes of one direction.
struct Direction {
    buffer: Box<[u8]>,
    /// The bytes that were read, and are not written yet.
    filled: Range<usize>,
    stage: Stage,
    /// Whether written bytes may wait for a flush.
    is_unflushed: bool,
    /// Whether bytes were written since this was asked for last.
    has_moved: bool,
    lost: Option<Lost>,
    stall: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

/// The side that was lost first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lost {
    /// The source ended by an error.
    Source,
    /// The target accepts no further bytes.
    Target,
}

/// The target took no byte for too long.
struct Stalled;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Bytes are read and written.
    Carry,
    /// The source has ended. Its last bytes are written.
    Deliver,
    /// The target is told of the end.
    Tell,
    /// The target is lost. Bytes are read and dropped.
    Discard,
    /// Nothing more happens.
    Done,
}

impl Direction {
    fn new(stall: Duration) -> Self {
        Self {
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            filled: 0..0,
            stage: Stage::Carry,
            is_unflushed: false,
            has_moved: false,
            lost: None,
            stall,
            stalled: None,
        }
    }

    fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.has_moved)
    }

    /// Whether the target has to take something.
    fn is_delivering(&self) -> bool {
        !self.filled.is_empty() || matches!(self.stage, Stage::Deliver | Stage::Tell)
    }

    /// Is ready when the direction is done.
    fn poll<F: AsyncRead, T: AsyncWrite>(
        &mut self,
        cx: &mut Context<'_>,
        mut from: Pin<&mut F>,
        mut to: Pin<&mut T>,
    ) -> Poll<Result<(), Stalled>> {
        loop {
            match self.stage {
                Stage::Carry => {
                    let read = self.poll_fill(cx, from.as_mut());
                    match self.poll_write(cx, to.as_mut()) {
                        Poll::Pending => return self.poll_stalled(cx),
                        Poll::Ready(Err(_)) => self.lose_target(),
                        Poll::Ready(Ok(())) if read.is_pending() => {
                            match self.poll_flush(cx, to.as_mut()) {
                                Poll::Ready(Err(_)) => self.lose_target(),
                                Poll::Ready(Ok(())) => return Poll::Pending,
                                Poll::Pending => return self.poll_stalled(cx),
                            }
                        }
                        Poll::Ready(Ok(())) => {}
                    }
                }
                Stage::Deliver => match self.poll_write(cx, to.as_mut()) {
                    Poll::Pending => return self.poll_stalled(cx),
                    Poll::Ready(Ok(())) => self.stage = Stage::Tell,
                    Poll::Ready(Err(_)) => self.lose_target(),
                },
                Stage::Tell => match to.as_mut().poll_shutdown(cx) {
                    Poll::Pending => return self.poll_stalled(cx),
                    Poll::Ready(told) => {
                        if told.is_err() {
                            self.lost.get_or_insert(Lost::Target);
                        }
                        self.stage = Stage::Done;
                    }
                },
                Stage::Discard => {
                    self.filled = 0..0;
                    ready!(self.poll_fill(cx, from.as_mut()));
                    if self.stage == Stage::Deliver {
                        self.stage = Stage::Done;
                    }
                }
                Stage::Done => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Reads into the free part of the buffer. At the end of the source, the stage is [`Stage::Deliver`].
    fn poll_fill<F: AsyncRead>(&mut self, cx: &mut Context<'_>, from: Pin<&mut F>) -> Poll<()> {
        let mut free = ReadBuf::new(&mut self.buffer[self.filled.end..]);
        if free.capacity() == 0 {
            return Poll::Ready(());
        }
        match ready!(from.poll_read(cx, &mut free)) {
            Ok(()) if !free.filled().is_empty() => self.filled.end += free.filled().len(),
            Ok(()) => self.stage = Stage::Deliver,
            Err(_) => {
                self.lost.get_or_insert(Lost::Source);
                self.stage = Stage::Deliver;
            }
        }
        Poll::Ready(())
    }

    /// Writes the bytes that were read.
    fn poll_write<T: AsyncWrite>(
        &mut self,
        cx: &mut Context<'_>,
        mut to: Pin<&mut T>,
    ) -> Poll<io::Result<()>> {
        while !self.filled.is_empty() {
            let written = ready!(to.as_mut().poll_write(cx, &self.buffer[self.filled.clone()]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.filled.start += written;
            (self.is_unflushed, self.has_moved, self.stalled) = (true, true, None);
        }
        self.filled = 0..0;
        Poll::Ready(Ok(()))
    }

    fn poll_flush<T: AsyncWrite>(
        &mut self,
        cx: &mut Context<'_>,
        to: Pin<&mut T>,
    ) -> Poll<io::Result<()>> {
        if self.is_unflushed {
            ready!(to.poll_flush(cx))?;
            (self.is_unflushed, self.stalled) = (false, None);
        }
        Poll::Ready(Ok(()))
    }

    fn lose_target(&mut self) {
        self.lost.get_or_insert(Lost::Target);
        // After its end, the source has nothing more to say.
        let has_ended = self.stage == Stage::Deliver;
        self.stage = if has_ended { Stage::Done } else { Stage::Discard };
        self.filled = 0..0;
    }

    /// Waits for a target that takes nothing now.
    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Stalled>> {
        let timer = self.stalled.get_or_insert_with(|| Box::pin(sleep(self.stall)));
        timer.as_mut().poll(cx).map(|()| Err(Stalled))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};
    use tokio::time::Instant;

    use super::*;

    const STALL: Duration = Duration::from_hours(4);

    /// How a side ends after its last byte.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum End {
        Clean,
        Error(io::ErrorKind),
        /// The side stays open.
        Open,
    }

    const ENDS: [End; 4] = [
        End::Clean,
        // TLS without close_notify.
        End::Error(io::ErrorKind::UnexpectedEof),
        End::Error(io::ErrorKind::ConnectionReset),
        End::Error(io::ErrorKind::ConnectionAborted),
    ];

    /// A side that sends bytes and ends. Its own reader takes the bytes that it receives.
    struct Side {
        says: io::Cursor<Vec<u8>>,
        end: End,
        hears: DuplexStream,
        /// Whether writing fails.
        is_deaf: bool,
    }

    /// A side, and the reader of its received bytes. It takes 1 KiB ahead.
    fn side(says: &[u8], end: End) -> (Side, DuplexStream) {
        let (hears, reader) = duplex(1024);
        (Side { says: io::Cursor::new(says.to_vec()), end, hears, is_deaf: false }, reader)
    }

    impl AsyncRead for Side {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut self.says).poll_read(cx, buffer))?;
            if buffer.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
            match self.end {
                End::Clean => Poll::Ready(Ok(())),
                End::Error(kind) => Poll::Ready(Err(kind.into())),
                End::Open => Poll::Pending,
            }
        }
    }

    impl AsyncWrite for Side {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            if self.is_deaf {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            Pin::new(&mut self.hears).poll_write(cx, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.hears).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.hears).poll_shutdown(cx)
        }
    }

    fn bytes(length: usize) -> Vec<u8> {
        (0..length).map(|at| u8::try_from(at * 31 % 251).unwrap()).collect()
    }

    async fn read_after(pause: Duration, mut reader: DuplexStream) -> Vec<u8> {
        tokio::time::sleep(pause).await;
        let mut read = Vec::new();
        reader.read_to_end(&mut read).await.unwrap();
        read
    }

    #[derive(Clone, Copy, Debug)]
    enum From {
        Client,
        Upstream,
    }

    /// Carries until the speaker ends as given, and the listener then, too. Returns the bytes that the listener got.
    async fn delivered(from: From, end: End, said: &[u8], pause: Duration) -> Vec<u8> {
        let (mut speaker, _unheard) = side(said, end);
        let (mut listener, heard) = side(b"", End::Open);
        let carried = async {
            match from {
                From::Client => carry(&mut speaker, &mut listener, STALL).await,
                From::Upstream => carry(&mut listener, &mut speaker, STALL).await,
            }
        };
        // After the last byte, the listener neither speaks nor ends.
        let mut read = std::pin::pin!(read_after(pause, heard));
        tokio::select! {
            ended = carried => assert_eq!(ended, None),
            read = &mut read => return read,
        }
        read.await
    }

    #[tokio::test(start_paused = true)]
    async fn all_bytes_before_an_end_arrive_both_ways_whatever_the_end() {
        for from in [From::Client, From::Upstream] {
            for end in ENDS {
                for length in [1, 1024, BUFFER_BYTES, BUFFER_BYTES + 1, 200_000] {
                    for pause in [Duration::ZERO, Duration::from_secs(31), Duration::from_hours(3)]
                    {
                        let said = bytes(length);
                        let read = delivered(from, end, &said, pause).await;
                        assert!(
                            read == said,
                            "{from:?} {end:?} {length} {pause:?}: {} bytes arrived",
                            read.len()
                        );
                    }
                }
            }
        }
    }

    /// A side that can no longer be told anything has still said something.
    #[tokio::test(start_paused = true)]
    async fn what_a_lost_side_has_said_arrives() {
        for from in [From::Client, From::Upstream] {
            let (mut lost, _unheard) = side(&bytes(100_000), End::Error(io::ErrorKind::BrokenPipe));
            lost.is_deaf = true;
            let (mut listener, heard) = side(&bytes(100_000), End::Clean);
            let carried = async {
                match from {
                    From::Client => carry(&mut lost, &mut listener, STALL).await,
                    From::Upstream => carry(&mut listener, &mut lost, STALL).await,
                }
            };
            let (end, read) = tokio::join!(carried, read_after(Duration::from_mins(10), heard));
            assert_eq!(end, None, "{from:?}");
            assert!(read == bytes(100_000), "{from:?}: {} bytes", read.len());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_upstream_without_a_client_is_closed_soon_and_a_silent_client_without_an_upstream_later()
     {
        let broken = End::Error(io::ErrorKind::ConnectionReset);
        for (lost, expected) in [(From::Client, UPSTREAM_END_TIMEOUT), (From::Upstream, STALL)] {
            let (mut lost_side, _unheard) = side(b"x", broken);
            let (mut other, _heard) = side(b"y", End::Open);
            let start = Instant::now();
            let end = match lost {
                From::Client => carry(&mut lost_side, &mut other, STALL).await,
                From::Upstream => carry(&mut other, &mut lost_side, STALL).await,
            };
            assert_eq!(end, None);
            assert_eq!(start.elapsed().as_secs(), expected.as_secs(), "{lost:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_takes_nothing_ends_the_session_after_the_limit_and_not_before() {
        for (from, end) in [(From::Client, End::Open), (From::Upstream, ENDS[1])] {
            let (mut speaker, _unheard) = side(&bytes(100_000), end);
            let (mut listener, _never_read) = side(b"", End::Open);
            let start = Instant::now();
            let ended = match from {
                From::Client => carry(&mut speaker, &mut listener, STALL).await,
                From::Upstream => carry(&mut listener, &mut speaker, STALL).await,
            };
            assert_eq!(ended, Some(SessionEnd::Stalled), "{from:?}");
            assert_eq!(start.elapsed().as_secs(), STALL.as_secs());
        }
    }
}
