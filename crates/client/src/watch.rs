//! A watch: what the server sends of something as it changes, one event a line.

use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use http::StatusCode;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use postern_meta::decode_typed;
use postern_meta::object::Object;
use serde::Deserialize;
use serde_json::Value;

use crate::connection::Sender;
use crate::error::Error;
use crate::request::{decode_object, decode_response};

/// An event of a watch.
#[derive(Debug)]
pub enum WatchEvent {
    /// An object as it is now.
    Object(Box<Object>),
    /// Nothing has changed since the last event.
    Bookmark,
}

/// An event as it is sent.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    event_type: String,
    object: Value,
}

/// A watch that goes on, on a connection of its own. It ends when this is dropped.
#[derive(Debug)]
pub struct Watch {
    body: Incoming,
    /// The connection goes on as long as there is who could send on it.
    _sender: Sender,
    address: String,
    max_bytes: usize,
    received: BytesMut,
    /// So many of them have no end of a line.
    searched: usize,
}

impl Watch {
    pub(crate) fn new(body: Incoming, sender: Sender, address: String, max_bytes: usize) -> Self {
        let received = BytesMut::new();
        Self { body, _sender: sender, address, max_bytes, received, searched: 0 }
    }

    /// The next event; `None` when the watch has ended.
    ///
    /// # Errors
    /// The server's reason why it has ended; [`Error::Timeout`] when nothing came for so long; [`Error::NoWatch`] when
    /// the server has sent something else than events.
    pub async fn next(&mut self, within: Duration) -> Result<Option<WatchEvent>, Error> {
        loop {
            if let Some(line) = self.take_line() {
                return event_of(&line).map(Some);
            }
            let frame = tokio::time::timeout(within, self.body.frame()).await;
            let late = || Error::Timeout { address: self.address.clone(), after: within };
            let Some(frame) = frame.map_err(|_| late())? else {
                // A server without the watch sends one object, perhaps without the end of a line.
                let rest = std::mem::take(&mut self.received);
                return if rest.is_empty() { Ok(None) } else { event_of(&rest).map(Some) };
            };
            let frame = frame.map_err(|error| Error::Lost {
                address: self.address.clone(),
                reason: error.to_string(),
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if self.received.len().saturating_add(data.len()) > self.max_bytes {
                return Err(Error::TooLarge { limit_bytes: self.max_bytes });
            }
            self.received.extend_from_slice(&data);
        }
    }

    fn take_line(&mut self) -> Option<BytesMut> {
        let end = self.received[self.searched..].iter().position(|byte| *byte == b'\n');
        let Some(end) = end else {
            self.searched = self.received.len();
            return None;
        };
        let line = self.received.split_to(self.searched + end);
        self.received.advance(1);
        self.searched = 0;
        Some(line)
    }
}

fn event_of(line: &[u8]) -> Result<WatchEvent, Error> {
    let Ok(Line { event_type, object }) = decode_typed::<Line>(line) else {
        return Err(Error::NoWatch);
    };
    match event_type.as_str() {
        "BOOKMARK" => Ok(WatchEvent::Bookmark),
        "ADDED" | "MODIFIED" => Ok(WatchEvent::Object(Box::new(decode_object(object)?))),
        "ERROR" => {
            let code = object.get("code").and_then(Value::as_u64);
            let code = code.and_then(|code| u16::try_from(code).ok());
            let code = code.and_then(|code| StatusCode::from_u16(code).ok());
            let code = code.filter(|code| !code.is_success());
            let code = code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            match decode_response(code, object.to_string().as_bytes()) {
                Err(error) => Err(error),
                Ok(_) => Err(Error::NoWatch),
            }
        }
        _ => Err(Error::NoWatch),
    }
}
