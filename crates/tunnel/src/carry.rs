//! Carries the bytes of a tunnel over a WebSocket.
//!
//! - A binary message is the next bytes. An empty one is the end of the bytes in this direction.
//! - Each end sends an unsolicited pong when it has sent nothing for 20 s (RFC 6455 section 5.5.3).
//!   It needs no reply. So an end with bytes that the other end does not take is still heard, and
//!   two ends that are both busy cannot wait for each other.
//! - An end that is ready to receive and hears nothing for 45 s closes the tunnel. While its own user takes no bytes, it
//!   does not listen, and does not measure.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use futures_util::sink::SinkExt as _;
use futures_util::stream::{SplitSink, SplitStream, StreamExt as _};
use tokio::io::{
    AsyncRead, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf, ReadHalf, WriteHalf, duplex,
};
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_websockets::{
    ClientBuilder, CloseCode, Config, Limits, Message, ServerBuilder, WebSocketStream,
};

use crate::reading_end::ReadingEnd;
use crate::stream::TunnelStream;

/// The time after which an end that has sent nothing sends a heartbeat. Load balancers close connections on which
/// nothing is sent for 50 to 60 s.
const HEARTBEAT: Duration = Duration::from_secs(20);

/// The longest silence of the other end.
pub const SILENCE: Duration = Duration::from_secs(45);

/// The bytes that wait in each direction for the user of the stream.
const BUFFER_BYTES: usize = 16 * 1024;

/// The most bytes of a message that this end sends, and that it takes.
const CHUNK_BYTES: usize = 16 * 1024;
const MAX_MESSAGE_BYTES: usize = 64 * 1024;

/// The most pings that this end answers. The other end sends none, and a proxy in between few.
const MAX_PINGS: u32 = 1000;

/// How long the last bytes and the close may take after the stream was dropped.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a tunnel has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Both ends have said all, or the stream was dropped here.
    Done,
    /// The other end has closed the tunnel.
    Closed,
    /// Nothing was heard for [`SILENCE`].
    Silent,
    /// The connection has failed.
    Lost,
    /// The other end does not speak the protocol.
    Malformed,
}

impl End {
    /// The reason, for the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "it is no longer needed",
            Self::Closed => "the other end has closed it",
            Self::Silent => "nothing was heard for 45 s",
            Self::Lost => "the connection was lost",
            Self::Malformed => "the other end does not speak its protocol",
        }
    }
}

/// The server's end of a tunnel: its stream, and the future that carries it until its end.
pub fn server_end<S>(io: S) -> (TunnelStream, impl Future<Output = End> + Send)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    start(ServerBuilder::new().config(config()).limits(limits()).serve(ReadingEnd::new(io)))
}

/// The agent's end of a tunnel: its stream, and the future that carries it until its end.
pub fn agent_end<S>(io: S) -> (TunnelStream, impl Future<Output = End> + Send)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    start(ClientBuilder::new().config(config()).limits(limits()).take_over(ReadingEnd::new(io)))
}

fn config() -> Config {
    Config::default().frame_size(CHUNK_BYTES)
}

fn limits() -> Limits {
    Limits::default().max_payload_len(Some(MAX_MESSAGE_BYTES))
}

fn start<S>(socket: WebSocketStream<S>) -> (TunnelStream, impl Future<Output = End> + Send)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (outer, inner) = duplex(BUFFER_BYTES);
    let (has_ended, is_shut) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let dropped = CancellationToken::new();
    let guard = dropped.clone().drop_guard();
    let stream = TunnelStream::new(outer, has_ended.clone(), is_shut.clone(), guard);
    let (sink, messages) = socket.split();
    let (from_user, to_user) = tokio::io::split(inner);
    let now = Instant::now();
    let carrier = Carrier {
        sink,
        messages,
        from_user,
        to_user,
        received: Bytes::new(),
        has_ended,
        is_shut,
        is_flushing: false,
        has_said_all: false,
        sent_at: now,
        heard_at: now,
        alarm: Box::pin(sleep_until(now + HEARTBEAT)),
        pings: 0,
    };
    (stream, carrier.run(dropped))
}

struct Carrier<S> {
    sink: SplitSink<WebSocketStream<S>, Message>,
    messages: SplitStream<WebSocketStream<S>>,
    from_user: ReadHalf<DuplexStream>,
    to_user: WriteHalf<DuplexStream>,
    /// The bytes that the user of the stream has not taken yet. Nothing is received meanwhile.
    received: Bytes,
    /// Whether the other end has said all.
    has_ended: Arc<AtomicBool>,
    /// Whether the user has ended its bytes. Without that, the stream was dropped.
    is_shut: Arc<AtomicBool>,
    /// Whether a message is on its way out. No further one is taken meanwhile.
    is_flushing: bool,
    /// Whether this end has said all.
    has_said_all: bool,
    sent_at: Instant,
    heard_at: Instant,
    /// Wakes the carrier when a heartbeat or the end may be due. It is not moved with every byte.
    alarm: Pin<Box<Sleep>>,
    pings: u32,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Carrier<S> {
    /// Carries bytes both ways until the end.
    async fn run(mut self, dropped: CancellationToken) -> End {
        let end = tokio::select! {
            end = async {
                loop {
                    if let Err(end) = self.step(&dropped).await {
                        break end;
                    }
                }
            } => end,
            () = abandoned(&dropped) => End::Lost,
        };
        if end == End::Done {
            // The peer learns of the end of the connection in any case.
            let _ = timeout(CLOSE_TIMEOUT, self.finish()).await;
        }
        end
    }

    async fn step(&mut self, dropped: &CancellationToken) -> Result<(), End> {
        let peer_has_ended = self.has_ended.load(Ordering::Acquire);
        if self.has_said_all && peer_has_ended && !self.is_flushing && self.received.is_empty() {
            return Err(End::Done);
        }
        let (is_flushing, takes_more) = (self.is_flushing, !self.is_flushing && !self.has_said_all);
        let listens = self.received.is_empty();
        tokio::select! {
            biased;
            written = self.to_user.write(&self.received), if !listens => {
                match written {
                    Ok(count) => self.received.advance(count),
                    // The stream was dropped.
                    Err(_) => return Err(End::Done),
                }
                if self.received.is_empty() {
                    // The time until the user took the bytes is no silence of the peer.
                    self.heard_at = Instant::now();
                }
                Ok(())
            }
            message = self.messages.next(), if listens => self.receive(message).await,
            flushed = self.sink.flush(), if is_flushing => {
                self.is_flushing = false;
                flushed.map_err(|_| End::Lost)
            }
            chunk = read_chunk(&mut self.from_user), if takes_more => {
                let chunk = chunk.map_err(|_| End::Done)?;
                self.has_said_all = chunk.is_empty();
                if self.has_said_all && !self.is_shut.load(Ordering::Acquire) {
                    return Err(End::Done);
                }
                self.send(Message::binary(chunk)).await
            }
            () = dropped.cancelled(), if self.has_said_all => Err(End::Done),
            () = self.alarm.as_mut() => self.look_at_the_clock(is_flushing, listens).await,
        }
    }

    /// Sends a heartbeat if one is due, and ends the tunnel if the other end is silent.
    async fn look_at_the_clock(&mut self, is_flushing: bool, listens: bool) -> Result<(), End> {
        let now = Instant::now();
        if listens && self.heard_at + SILENCE <= now {
            return Err(End::Silent);
        }
        if !is_flushing && self.sent_at + HEARTBEAT <= now {
            self.send(Message::pong(Bytes::new())).await?;
        }
        // If a heartbeat or a check is due but has to wait, it is tried again in a second.
        let next = |at: Instant| if at > now { at } else { now + Duration::from_secs(1) };
        self.alarm
            .as_mut()
            .reset(next(self.sent_at + HEARTBEAT).min(next(self.heard_at + SILENCE)));
        Ok(())
    }

    /// Puts a message on its way. None other is on its way.
    async fn send(&mut self, message: Message) -> Result<(), End> {
        self.is_flushing = true;
        self.sent_at = Instant::now();
        self.sink.feed(message).await.map_err(|_| End::Lost)
    }

    async fn receive(
        &mut self,
        message: Option<Result<Message, tokio_websockets::Error>>,
    ) -> Result<(), End> {
        let message = match message {
            Some(Ok(message)) => message,
            Some(Err(tokio_websockets::Error::Io(_))) | None => return Err(End::Lost),
            Some(Err(_)) => return Err(End::Malformed),
        };
        self.heard_at = Instant::now();
        if message.is_close() {
            return Err(End::Closed);
        }
        if message.is_pong() {
            return Ok(());
        }
        if message.is_ping() {
            self.pings += 1;
            // The library has queued the reply.
            self.is_flushing = true;
            return if self.pings > MAX_PINGS { Err(End::Malformed) } else { Ok(()) };
        }
        if !message.is_binary() || self.has_ended.load(Ordering::Acquire) {
            return Err(End::Malformed);
        }
        let bytes = Bytes::from(message.into_payload());
        if !bytes.is_empty() {
            self.received = bytes;
            return Ok(());
        }
        self.has_ended.store(true, Ordering::Release);
        // It fails only if the stream was dropped.
        let _ = self.to_user.shutdown().await;
        Ok(())
    }

    /// Sends the bytes that are left, and a close. Then it reads until the other end has closed, too: a connection that is
    /// closed with unread bytes is reset, and the reset could overtake the last bytes.
    async fn finish(&mut self) {
        self.send_rest().await;
        while let Some(Ok(message)) = self.messages.next().await {
            if message.is_close() {
                return;
            }
        }
    }

    async fn send_rest(&mut self) {
        while !self.has_said_all {
            let Ok(chunk) = read_chunk(&mut self.from_user).await else { break };
            self.has_said_all = chunk.is_empty();
            if self.has_said_all && !self.is_shut.load(Ordering::Acquire) {
                break;
            }
            if self.sink.send(Message::binary(chunk)).await.is_err() {
                return;
            }
        }
        let close = Message::close(Some(CloseCode::NORMAL_CLOSURE), "");
        if self.sink.send(close).await.is_ok() {
            let _ = self.sink.close().await;
        }
    }
}

/// Waits until the stream was dropped, and its last bytes were not taken in time.
async fn abandoned(dropped: &CancellationToken) {
    dropped.cancelled().await;
    sleep(CLOSE_TIMEOUT).await;
}

/// The next bytes of the user; empty at their end. No memory is kept while there are none.
async fn read_chunk(from: &mut ReadHalf<DuplexStream>) -> io::Result<Bytes> {
    poll_fn(|cx| poll_chunk(from, cx)).await
}

fn poll_chunk(from: &mut ReadHalf<DuplexStream>, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
    let mut space = [std::mem::MaybeUninit::uninit(); CHUNK_BYTES];
    let mut buffer = ReadBuf::uninit(&mut space);
    Pin::new(from).poll_read(cx, &mut buffer).map_ok(|()| Bytes::copy_from_slice(buffer.filled()))
}
