//! HTTP/2 as frames (RFC 9113), written by hand, because a client library would never send them.

use std::time::Duration;

use postern_tests::http::Client;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// A setting: bytes that a new stream may send before it is given more.
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;

/// A setting: without a table, each field of an answer's head is written out.
const HEADER_TABLE_SIZE: u16 = 1;

/// How long a handshake may take, or bytes to be sent.
const TIMEOUT: Duration = Duration::from_secs(10);

const FRAME_HEAD_BYTES: usize = 9;

/// One connection.
pub(crate) struct Frames {
    stream: TlsStream<TcpStream>,
    buffer: Vec<u8>,
}

/// A frame that has been read.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) payload: Vec<u8>,
}

/// The server's treatment of the streams of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Streams {
    /// Streams that the server reset.
    pub(crate) resets: usize,
    /// How many answers had a body that was still to come.
    pub(crate) open: usize,
    /// Status codes of all answers.
    pub(crate) answers: Vec<u16>,
    /// Whether the connection has ended.
    pub(crate) closed: bool,
}

/// A frame as bytes.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a small payload").to_be_bytes();
    let mut frame = Vec::with_capacity(FRAME_HEAD_BYTES + payload.len());
    frame.extend_from_slice(&length[1..]);
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Header fields in HPACK (RFC 7541), neither indexed nor compressed.
pub(crate) fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            length_of_text(&mut block, text.len());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// Writes a number with a prefix of seven bits.
fn length_of_text(block: &mut Vec<u8>, length: usize) {
    let Some(mut rest) = length.checked_sub(127) else {
        block.push(u8::try_from(length).expect("below 127"));
        return;
    };
    block.push(127);
    while rest >= 128 {
        block.push(u8::try_from(rest % 128 + 128).expect("a byte"));
        rest /= 128;
    }
    block.push(u8::try_from(rest).expect("below 128"));
}

/// A request without a body, as one HEADERS frame.
pub(crate) fn request(client: &Client, stream: u32, path: &str, accept: &str) -> Vec<u8> {
    let block = fields(&[
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", client.address()),
        (":path", path),
        ("authorization", &format!("Bearer {}", client.token())),
        ("accept", accept),
    ]);
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &block)
}

impl Frames {
    /// Opens a connection: TLS, the preface, and these settings.
    pub(crate) async fn open(client: &Client, settings: &[(u16, u32)]) -> Result<Self, String> {
        let opened = tokio::time::timeout(TIMEOUT, Box::pin(client.raw())).await;
        let stream = opened.map_err(|_| "no handshake in time")?;
        let stream = stream.map_err(|error| error.to_string())?;
        let mut frames = Self { stream, buffer: Vec::new() };
        let mut payload = Vec::new();
        for (name, value) in settings.iter().chain(&[(HEADER_TABLE_SIZE, 0)]) {
            payload.extend_from_slice(&name.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        let mut first = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        first.extend(frame(SETTINGS, 0, 0, &payload));
        frames.send(&first).await?;
        Ok(frames)
    }

    /// Sends bytes.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let sending = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        let sent = tokio::time::timeout(TIMEOUT, sending).await;
        sent.map_err(|_| "could not be sent in time")?.map_err(|error| error.to_string())
    }

    /// Reads the next frame; `None` at the end of the connection, clean or not.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.take() {
                return Some(frame);
            }
            if matches!(self.stream.read_buf(&mut self.buffer).await, Ok(0) | Err(_)) {
                return None;
            }
        }
    }

    fn take(&mut self) -> Option<Frame> {
        let head: [u8; FRAME_HEAD_BYTES] = self.buffer.get(..FRAME_HEAD_BYTES)?.try_into().ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let end = FRAME_HEAD_BYTES + length;
        let payload = self.buffer.get(FRAME_HEAD_BYTES..end)?.to_vec();
        self.buffer.drain(..end);
        Some(Frame { kind: head[3], flags: head[4], payload })
    }

    /// Reads until the connection ends, and sends nothing but answers to PING and SETTINGS.
    /// `streams` is up to date even if the caller stops early.
    pub(crate) async fn until_closed(&mut self, streams: &mut Streams) {
        while let Some(read) = self.next().await {
            let reply = match read.kind {
                PING if read.flags & ACK == 0 => frame(PING, ACK, 0, &read.payload),
                SETTINGS if read.flags & ACK == 0 => frame(SETTINGS, ACK, 0, &[]),
                RST_STREAM => {
                    streams.resets += 1;
                    continue;
                }
                HEADERS => {
                    streams.answers.extend(status_of(&read.payload));
                    streams.open += usize::from(read.flags & END_STREAM == 0);
                    continue;
                }
                GOAWAY => break,
                _ => continue,
            };
            if self.send(&reply).await.is_err() {
                break;
            }
        }
        streams.closed = true;
    }

    /// Like [`Frames::until_closed`], for as long as this.
    pub(crate) async fn held(&mut self, time: Duration) -> Streams {
        let mut streams = Streams::default();
        drop(tokio::time::timeout(time, self.until_closed(&mut streams)).await);
        streams
    }
}

/// The status of an answer, from the first field of its head.
fn status_of(block: &[u8]) -> Option<u16> {
    // A change of the table's size may come first.
    let start = block.iter().position(|byte| byte & 0xe0 != 0x20)?;
    let block = &block[start..];
    let indexed = [200, 204, 206, 304, 400, 404, 500];
    let first = *block.first()?;
    if (0x88..=0x8e).contains(&first) {
        return Some(indexed[usize::from(first - 0x88)]);
    }
    // A literal with the name of one of these entries.
    matches!(first & 0x0f, 8..=14).then_some(())?;
    let length = usize::from(block.get(1)? & 0x7f);
    let text = block.get(2..2 + length)?;
    if block[1] & 0x80 == 0 {
        return std::str::from_utf8(text).ok()?.parse().ok();
    }
    digits(text)
}

/// Reads three digits in the code of Huffman that HPACK has: `0` to `2` have five bits, the others six.
fn digits(text: &[u8]) -> Option<u16> {
    let bits = text.iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
    let mut left = u32::try_from(text.len()).ok()? * 8;
    let mut number = 0;
    for _ in 0..3 {
        let next =
            |count: u32| left.checked_sub(count).map(|rest| bits >> rest & ((1 << count) - 1));
        let (digit, taken) = match next(5)? {
            digit @ 0..=2 => (digit, 5),
            _ => (next(6)?.checked_sub(0x16)?, 6),
        };
        left -= taken;
        number = number * 10 + u16::try_from(digit).ok()?;
    }
    Some(number)
}

#[test]
fn the_status_of_an_answer_is_read() {
    assert_eq!(status_of(&[0x88]), Some(200));
    assert_eq!(status_of(&[0x20, 0x8d]), Some(404));
    assert_eq!(status_of(&[0x48, 0x03, b'4', b'0', b'1']), Some(401));
    // 4 is 011010, 0 is 00000, 1 is 00001.
    assert_eq!(status_of(&[0x08, 0x82, 0b0110_1000, 0b0000_0001]), Some(401));
    // 4 is 011010, 2 is 00010, 9 is 011111: 17 bits, and ones to the end.
    assert_eq!(status_of(&[0x08, 0x83, 0b0110_1000, 0b0100_1111, 0b1111_1111]), Some(429));
}
