//! A watch as a WebSocket (RFC 6455): the handshake, and events as text frames. The handshake of an agent's tunnel is here,
//! too.
//!
//! Messages of the client are ignored, except for a close. An event is one message in one frame. The next event is
//! taken after the last one is sent. So a slow client keeps only one event in memory, and the watch itself is a cursor.

use std::time::Duration;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::sink::SinkExt as _;
use futures_util::stream::{BoxStream, StreamExt as _};
use http::header::{SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION};
use http::{HeaderMap, HeaderValue, Method, Version};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use postern_flow::budget::Charge;
use postern_meta::status::{ApiError, Reason};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep, timeout};
use tokio_websockets::{CloseCode, Config, Limits, Message, ServerBuilder, WebSocketStream};

use super::list::CHUNK_BYTES;
use crate::stages::parse::Parsed;
use crate::stages::websocket;

/// The suffix that RFC 6455 section 1.3 adds to a client's key.
const KEY_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The length of a decoded `Sec-WebSocket-Key`, in bytes.
const KEY_BYTES: usize = 16;

/// The supported version of the protocol, the only one that exists.
pub const PROTOCOL_VERSION: &str = "13";

/// The supported sub-protocols. Events are JSON in text frames also with this one, as in kube-apiserver: its name refers
/// to the streams of containers.
const SUB_PROTOCOLS: &[&str] = &["base64.binary.k8s.io"];

/// The time without an event after which the client gets a ping. Load balancers close silent connections.
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// The maximum length of a message from the client, in bytes. A longer one ends the connection.
const MAX_CLIENT_MESSAGE_BYTES: usize = 4096;

/// The time for each chunk of an event, after which a client that does not read is disconnected, as for other watches.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the server waits for the client's close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The length above which an event is counted while it waits for the client, in bytes.
const COUNTED_EVENT_BYTES: usize = 16 * 1024;

/// A valid request for a WebSocket.
pub struct Handshake {
    pub(super) accept: HeaderValue,
    pub(super) protocol: Option<HeaderValue>,
    pub(super) upgrade: OnUpgrade,
}

/// A WebSocket after the response.
pub struct Socket {
    content: Content,
    upgrade: OnUpgrade,
}

pub(super) enum Content {
    /// The events of a watch.
    Watch(BoxStream<'static, Bytes>),
    /// A tunnel, until its end.
    Tunnel(Tunnel),
}

/// Serves a tunnel until its end.
pub type Tunnel = Box<dyn FnOnce(Upgraded) -> BoxFuture<'static, ()> + Send>;

/// The handshake of a request for a watch; `None` when it does not request a WebSocket. The origin is checked already.
///
/// # Errors
/// 426 for another version of the protocol; 400 for a malformed handshake, and if no offered sub-protocol is supported.
pub fn handshake(parsed: &Parsed) -> Result<Option<Handshake>, ApiError> {
    handshake_of(parsed, chosen)
}

/// The handshake of a request for a tunnel. The newest version that both ends know is chosen.
///
/// # Errors
/// 400 if the request is not for a WebSocket, or if no offered version is known; those of [`handshake`].
pub fn tunnel_handshake(parsed: &Parsed) -> Result<Handshake, ApiError> {
    let handshake = handshake_of(parsed, |headers| {
        let chosen = postern_tunnel::negotiate(websocket::sub_protocols(headers));
        let known = || {
            let known = postern_tunnel::PROTOCOLS.join(", ");
            ApiError::bad_request(format!(
                "no offered version of the tunnel is supported: this server supports {known}"
            ))
        };
        chosen.map(HeaderValue::from_static).map(Some).ok_or_else(known)
    })?;
    handshake.ok_or_else(|| ApiError::bad_request("a tunnel is opened as a WebSocket"))
}

fn handshake_of(
    parsed: &Parsed,
    chosen: impl FnOnce(&HeaderMap) -> Result<Option<HeaderValue>, ApiError>,
) -> Result<Option<Handshake>, ApiError> {
    if !parsed.is_websocket() {
        return Ok(None);
    }
    let headers = parsed.headers();
    let is_possible = parsed.version() == Version::HTTP_11 && *parsed.method() == Method::GET;
    let Some(upgrade) = parsed.upgrade().filter(|_| is_possible) else {
        return Err(ApiError::bad_request("a WebSocket requires GET over HTTP/1.1"));
    };
    if single(headers, &SEC_WEBSOCKET_VERSION) != Some(PROTOCOL_VERSION) {
        let message = format!(
            "unsupported WebSocket version: send Sec-WebSocket-Version: {PROTOCOL_VERSION}"
        );
        return Err(ApiError::new(426, Reason::BadRequest, message));
    }
    let key = single(headers, &SEC_WEBSOCKET_KEY);
    let key = key.filter(|key| STANDARD.decode(key).is_ok_and(|key| key.len() == KEY_BYTES));
    let Some(key) = key else {
        return Err(ApiError::bad_request("invalid Sec-WebSocket-Key: must be 16 bytes in base64"));
    };
    Ok(Some(Handshake { accept: accept_of(key)?, protocol: chosen(headers)?, upgrade }))
}

/// The sub-protocol of the response: the first offered one that is supported; `None` when none is offered.
fn chosen(headers: &HeaderMap) -> Result<Option<HeaderValue>, ApiError> {
    let mut offered = websocket::sub_protocols(headers).peekable();
    if offered.peek().is_none() {
        return Ok(None);
    }
    let known = offered.find_map(|name| SUB_PROTOCOLS.iter().find(|known| **known == name));
    let known = known.ok_or_else(|| {
        // The offered names are not repeated, because one may be a misspelt credential.
        let known = SUB_PROTOCOLS.join(", ");
        ApiError::bad_request(format!(
            "no offered sub-protocol is supported: offer {known}, or none"
        ))
    })?;
    Ok(Some(HeaderValue::from_static(known)))
}

fn accept_of(key: &str) -> Result<HeaderValue, ApiError> {
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{KEY_SUFFIX}").as_bytes());
    HeaderValue::from_str(&STANDARD.encode(hash.as_ref()))
        .map_err(|error| ApiError::internal("cannot accept the WebSocket", error))
}

/// The value of a header that occurs once.
fn single<'a>(headers: &'a HeaderMap, name: &http::HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value.trim())
}

impl Socket {
    /// A socket of a connection that is about to be upgraded.
    pub(super) fn new(content: Content, upgrade: OnUpgrade) -> Self {
        Self { content, upgrade }
    }

    /// The same socket, which owns `value`.
    #[must_use]
    pub fn owning(self, value: impl Send + 'static) -> Self {
        let content = match self.content {
            Content::Watch(events) => {
                let own = move |_: &Bytes| {
                    let _ = &value;
                };
                Content::Watch(events.inspect(own).boxed())
            }
            Content::Tunnel(tunnel) => Content::Tunnel(Box::new(move |upgraded| {
                let served = tunnel(upgraded);
                async move {
                    let _value = value;
                    served.await;
                }
                .boxed()
            })),
        };
        Self { content, ..self }
    }

    /// Whether the other end may take no bytes for long: a stream in a tunnel may stand still.
    pub fn may_stall(&self) -> bool {
        matches!(self.content, Content::Tunnel(_))
    }

    /// Serves the WebSocket until it or the client ends. `charge` counts the bytes of events that wait for the client.
    /// It returns `None` when there is no room for them.
    pub async fn serve(self, charge: impl Fn(usize) -> Option<Charge>) {
        // The client closed the connection before the upgrade.
        let Ok(upgraded) = self.upgrade.await else { return };
        match self.content {
            // Boxed: a connection without a WebSocket would keep room for it.
            Content::Watch(events) => Box::pin(pump(TokioIo::new(upgraded), events, charge)).await,
            Content::Tunnel(tunnel) => tunnel(upgraded).await,
        }
    }
}

async fn pump<S: AsyncRead + AsyncWrite + Unpin>(
    io: S,
    mut events: BoxStream<'static, Bytes>,
    charge: impl Fn(usize) -> Option<Charge>,
) {
    let limits = Limits::default().max_payload_len(Some(MAX_CLIENT_MESSAGE_BYTES));
    // Each event is one frame.
    let config = Config::default().frame_size(usize::MAX);
    let mut socket = ServerBuilder::new().config(config).limits(limits).serve(io);
    let mut silence = Box::pin(sleep(PING_INTERVAL));
    let mut is_unanswered = false;
    loop {
        let message = tokio::select! {
            event = events.next() => match event {
                Some(event) => Message::text(event),
                None => return close(socket).await,
            },
            received = socket.next() => {
                is_unanswered = false;
                // The pong is sent before the next frame is read, so that only one pong waits. After an
                // error, the close is sent, and the connection ends.
                if !flush(&mut socket).await || !matches!(received, Some(Ok(_))) {
                    return;
                }
                continue;
            }
            () = &mut silence => {
                if is_unanswered {
                    return;
                }
                is_unanswered = true;
                Message::ping(Bytes::new())
            }
        };
        if !send(&mut socket, message, &charge).await {
            return;
        }
        silence.as_mut().reset(Instant::now() + PING_INTERVAL);
    }
}

/// Sends a message. Returns whether it was sent.
async fn send<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut WebSocketStream<S>,
    message: Message,
    charge: &impl Fn(usize) -> Option<Charge>,
) -> bool {
    let bytes = message.as_payload().len();
    let charge = (bytes > COUNTED_EVENT_BYTES).then(|| charge(bytes));
    let has_room = !matches!(charge, Some(None));
    let chunks = u32::try_from(bytes / CHUNK_BYTES).unwrap_or(u32::MAX).saturating_add(1);
    has_room && matches!(timeout(STALL_TIMEOUT * chunks, socket.send(message)).await, Ok(Ok(())))
}

async fn flush<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut WebSocketStream<S>) -> bool {
    matches!(timeout(STALL_TIMEOUT, socket.flush()).await, Ok(Ok(())))
}

/// Sends a close, as kube-apiserver does at the end of a watch, and waits for the client's close.
async fn close<S: AsyncRead + AsyncWrite + Unpin>(mut socket: WebSocketStream<S>) {
    let closing = async {
        let message = Message::close(Some(CloseCode::NORMAL_CLOSURE), "");
        if socket.send(message).await.is_ok() {
            let _ = socket.close().await;
        }
    };
    // A client that does not answer in time is disconnected.
    let _ = timeout(CLOSE_TIMEOUT, closing).await;
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    /// The client's end of a WebSocket with these events, and the task that serves it.
    fn start(
        events: impl futures_util::Stream<Item = Bytes> + Send + 'static,
    ) -> (DuplexStream, impl Future<Output = ()>) {
        let (client, server) = duplex(64 * 1024);
        (client, pump(server, events.boxed(), |_| None))
    }

    fn line(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    /// Reads a short frame of the server: the first byte, and the payload.
    async fn frame(client: &mut DuplexStream) -> (u8, Vec<u8>) {
        let mut head = [0; 2];
        client.read_exact(&mut head).await.unwrap();
        assert!(head[1] < 126, "neither masked nor long");
        let mut payload = vec![0; usize::from(head[1])];
        client.read_exact(&mut payload).await.unwrap();
        (head[0], payload)
    }

    /// Sends a short frame, masked with zeros.
    async fn say(client: &mut DuplexStream, first: u8, payload: &[u8]) {
        let mut frame = vec![first, 0x80 | u8::try_from(payload.len()).unwrap(), 0, 0, 0, 0];
        frame.extend_from_slice(payload);
        client.write_all(&frame).await.unwrap();
    }

    const TEXT: u8 = 0x81;
    const CLOSE: u8 = 0x88;
    const PING: u8 = 0x89;
    const PONG: u8 = 0x8a;

    #[tokio::test(start_paused = true)]
    async fn silence_is_broken_by_pings_until_one_is_not_answered() {
        let (mut client, served) = start(stream::pending());
        let start = Instant::now();
        let client = async {
            for count in 1..=3 {
                assert_eq!(frame(&mut client).await, (PING, Vec::new()));
                assert_eq!(start.elapsed().as_secs(), 20 * count);
                say(&mut client, PONG, b"").await;
            }
            assert_eq!(frame(&mut client).await.0, PING);
            assert_eq!(client.read(&mut [0; 8]).await.unwrap(), 0, "a dead client is disconnected");
            assert_eq!(start.elapsed().as_secs(), 100);
        };
        tokio::join!(served, client);
    }

    #[tokio::test(start_paused = true)]
    async fn events_are_messages_and_an_end_is_a_close() {
        let events = stream::iter([line("one\n"), line("two\n")]);
        let (mut client, served) = start(events);
        let client = async {
            assert_eq!(frame(&mut client).await, (TEXT, b"one\n".to_vec()));
            assert_eq!(frame(&mut client).await, (TEXT, b"two\n".to_vec()));
            assert_eq!(frame(&mut client).await, (CLOSE, 1000_u16.to_be_bytes().to_vec()));
            say(&mut client, CLOSE, &1000_u16.to_be_bytes()).await;
            assert_eq!(client.read(&mut [0; 8]).await.unwrap(), 0);
        };
        tokio::join!(served, client);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_answer_a_close_is_disconnected() {
        let (mut client, served) = start(stream::empty());
        let start = Instant::now();
        served.await;
        assert_eq!(start.elapsed(), CLOSE_TIMEOUT);
        assert_eq!(frame(&mut client).await.0, CLOSE);
    }

    #[tokio::test(start_paused = true)]
    async fn control_frames_are_answered_and_data_is_ignored() {
        let (mut client, served) = start(stream::pending());
        let client = async {
            say(&mut client, TEXT, b"hello").await;
            say(&mut client, PING, b"abc").await;
            assert_eq!(frame(&mut client).await, (PONG, b"abc".to_vec()));
            say(&mut client, CLOSE, &1001_u16.to_be_bytes()).await;
            assert_eq!(frame(&mut client).await, (CLOSE, 1001_u16.to_be_bytes().to_vec()));
            assert_eq!(client.read(&mut [0; 8]).await.unwrap(), 0);
        };
        tokio::join!(served, client);
    }

    #[tokio::test(start_paused = true)]
    async fn frames_that_are_too_long_or_not_masked_end_the_connection() {
        // 64 KiB are announced, and the bytes are never sent.
        for (frame_start, code) in [
            (&[TEXT, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], 1009),
            (&[TEXT, 1, b'x'], 1002),
        ] {
            let (mut client, served) = start(stream::pending());
            let client = async {
                client.write_all(frame_start).await.unwrap();
                let (first, payload) = frame(&mut client).await;
                assert_eq!((first, &payload[..2]), (CLOSE, &u16::to_be_bytes(code)[..]));
                assert_eq!(client.read(&mut [0; 8]).await.unwrap(), 0);
            };
            tokio::join!(served, client);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_disconnected() {
        let (taken, events) = (Bytes::from(vec![b'x'; 10_000]), 100);
        let (client, served) = start(stream::iter(vec![taken; events]).chain(stream::pending()));
        let start = Instant::now();
        served.await;
        assert_eq!(start.elapsed(), STALL_TIMEOUT);
        drop(client);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_without_room_ends_the_connection() {
        let (client, served) = start(stream::once(async { Bytes::from(vec![b'x'; 20_000]) }));
        let start = Instant::now();
        served.await;
        assert_eq!(start.elapsed(), Duration::ZERO);
        drop(client);
    }

    #[tokio::test(start_paused = true)]
    async fn pings_of_a_client_that_does_not_read_do_not_pile_up() {
        let (mut client, served) = start(stream::pending());
        let flood = async {
            let mut sent = 0_usize;
            let ping = [&[PING, 0xfd, 0, 0, 0, 0][..], &[0; 125]].concat();
            while client.write_all(&ping).await.is_ok() {
                sent += ping.len();
            }
            sent
        };
        let ((), sent) = tokio::join!(served, flood);
        assert!(sent < 512 * 1024, "{sent} bytes of pings were taken");
    }

    #[test]
    fn the_answer_to_the_key_of_the_rfc() {
        let accept = accept_of("dGhlIHNhbXBsZSBub25jZQ==").unwrap();
        assert_eq!(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
