//! HTTP/1.1 as bytes over TLS: the client sends a test's bytes unchanged, and reads no further than
//! the end of one response.

use std::time::Duration;

use postern_tests::http::Client;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// How long an answer, or the room to send, may take. More is a failure on any machine.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes of a chunk of a chunked body.
const CHUNK_BYTES: usize = 16 * 1024;

/// One connection.
pub(crate) struct Wire {
    stream: TlsStream<TcpStream>,
    buffer: Vec<u8>,
}

/// One answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Whether it announces that the connection ends with it.
    pub(crate) closes: bool,
    pub(crate) body: Vec<u8>,
}

/// The framing of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    ContentLength,
    Chunked,
}

/// A request's head, up to and with the empty line.
pub(crate) fn head(
    client: &Client,
    method: &str,
    path: &str,
    content_type: &str,
    framing: Framing,
    body: &[u8],
) -> Vec<u8> {
    let framing = match framing {
        Framing::ContentLength => format!("content-length: {}", body.len()),
        Framing::Chunked => "transfer-encoding: chunked".to_owned(),
    };
    let (host, token) = (client.address(), client.token());
    format!(
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n\
         content-type: {content_type}\r\n{framing}\r\n\r\n"
    )
    .into_bytes()
}

/// A body as its framing sends it.
pub(crate) fn framed(framing: Framing, body: &[u8]) -> Vec<u8> {
    if framing == Framing::ContentLength {
        return body.to_vec();
    }
    let mut framed = Vec::with_capacity(body.len() + body.len() / CHUNK_BYTES * 8 + 16);
    for chunk in body.chunks(CHUNK_BYTES) {
        framed.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        framed.extend_from_slice(chunk);
        framed.extend_from_slice(b"\r\n");
    }
    framed.extend_from_slice(b"0\r\n\r\n");
    framed
}

impl Wire {
    /// Opens a connection.
    pub(crate) async fn open(client: &Client) -> Result<Self, String> {
        let opened = tokio::time::timeout(TIMEOUT, Box::pin(client.raw())).await;
        let stream = opened.map_err(|_| "no handshake in time")?;
        let stream = stream.map_err(|error| format!("no connection: {error}"))?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    /// Sends bytes, and waits until all of them are on their way.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let sending = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        let sent = tokio::time::timeout(TIMEOUT, sending).await;
        sent.map_err(|_| "could not be sent in time")?
            .map_err(|error| format!("could not be sent: {:?}", error.kind()))
    }

    /// Reads the next answer, interim ones left out.
    pub(crate) async fn answer(&mut self) -> Result<Answer, String> {
        let reading = async {
            loop {
                let answer = self.next_answer().await?;
                if answer.status >= 200 {
                    return Ok(answer);
                }
            }
        };
        let read = tokio::time::timeout(TIMEOUT, reading).await;
        read.map_err(|_| "no answer in time".to_owned())?
    }

    async fn next_answer(&mut self) -> Result<Answer, String> {
        let head = self.until(b"\r\n\r\n").await?;
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| format!("no answer: {head}"))?;
        let header = |name: &str| {
            let values = head.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            values.map(str::trim).next()
        };
        let closes = header("connection").is_some_and(|value| value.contains("close"));
        let body = match header("content-length").map(str::parse::<usize>) {
            Some(length) => self.exactly(length.map_err(|error| error.to_string())?).await?,
            None if header("transfer-encoding") == Some("chunked") => self.chunks().await?,
            None => Vec::new(),
        };
        Ok(Answer { status, closes, body })
    }

    async fn chunks(&mut self) -> Result<Vec<u8>, String> {
        let mut body = Vec::new();
        loop {
            let line = self.until(b"\r\n").await?;
            let line = String::from_utf8_lossy(&line);
            let length = usize::from_str_radix(line.trim(), 16);
            let length = length.map_err(|_| format!("not the length of a chunk: {line}"))?;
            let chunk = self.exactly(length + 2).await?;
            if length == 0 {
                return Ok(body);
            }
            body.extend_from_slice(&chunk[..length]);
        }
    }

    /// Reads up to the end of the stream, which has to come without a reset, and returns the bytes.
    pub(crate) async fn rest(&mut self) -> Result<Vec<u8>, String> {
        let reading = async {
            while self.read().await? > 0 {}
            Ok::<_, String>(())
        };
        let read = tokio::time::timeout(TIMEOUT, reading).await;
        read.map_err(|_| "no end of the connection in time".to_owned())??;
        Ok(std::mem::take(&mut self.buffer))
    }

    async fn until(&mut self, end: &[u8]) -> Result<Vec<u8>, String> {
        loop {
            let found = self.buffer.windows(end.len()).position(|bytes| bytes == end);
            if let Some(found) = found {
                return Ok(self.buffer.drain(..found + end.len()).collect());
            }
            self.more().await?;
        }
    }

    async fn exactly(&mut self, length: usize) -> Result<Vec<u8>, String> {
        while self.buffer.len() < length {
            self.more().await?;
        }
        Ok(self.buffer.drain(..length).collect())
    }

    async fn more(&mut self) -> Result<(), String> {
        match self.read().await? {
            0 => Err(format!("the end instead of an answer, after {:?}", self.buffer.len())),
            _ => Ok(()),
        }
    }

    async fn read(&mut self) -> Result<usize, String> {
        let read = self.stream.read_buf(&mut self.buffer).await;
        read.map_err(|error| format!("could not be read: {:?}", error.kind()))
    }
}
