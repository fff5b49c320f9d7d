//! A watch: the server sends the changes of an object or a collection, one event a line.

use std::fmt;
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

/// A change of an object in a collection.
pub struct Change {
    /// The type of the change.
    pub change_type: ChangeType,
    /// The object in the watch's representation. Of a bookmark it has the version alone.
    pub object: Value,
}

/// The type of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangeType {
    /// The object exists, or belongs to the selection now.
    Added,
    /// The object has changed.
    Modified,
    /// The object was deleted, or no longer belongs to the selection.
    Deleted,
    /// Every change up to its version was sent.
    Bookmark,
}

/// Without the object, which may hold secret values.
impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Change").field("change_type", &self.change_type).finish_non_exhaustive()
    }
}

/// An event as it is sent.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    event_type: String,
    object: Value,
}

/// An open watch, on a separate connection. It ends when this is dropped.
#[derive(Debug)]
pub struct Watch {
    body: Incoming,
    /// Keeps the connection open: it ends when its last sender is dropped.
    _sender: Sender,
    address: String,
    max_bytes: usize,
    received: BytesMut,
    /// The number of bytes in `received` that have no end of a line.
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
    /// The server's reason why it has ended; [`Error::Timeout`] when nothing came within this time;
    /// [`Error::NoWatch`] when the server has sent something other than events.
    pub async fn next(&mut self, within: Duration) -> Result<Option<WatchEvent>, Error> {
        match self.next_line(within).await? {
            Some(line) => event_of(&line).map(Some),
            None => Ok(None),
        }
    }

    /// The next change of a watch of a collection; `None` when the watch has ended.
    ///
    /// # Errors
    /// As [`Watch::next`].
    pub async fn next_change(&mut self, within: Duration) -> Result<Option<Change>, Error> {
        match self.next_line(within).await? {
            Some(line) => change_of(&line).map(Some),
            None => Ok(None),
        }
    }

    async fn next_line(&mut self, within: Duration) -> Result<Option<BytesMut>, Error> {
        loop {
            if let Some(line) = self.take_line() {
                return Ok(Some(line));
            }
            let frame = tokio::time::timeout(within, self.body.frame()).await;
            let late = || Error::Timeout { address: self.address.clone(), after: within };
            let Some(frame) = frame.map_err(|_| late())? else {
                // A server without the watch sends one object, perhaps without the end of a line.
                let rest = std::mem::take(&mut self.received);
                return Ok(Some(rest).filter(|rest| !rest.is_empty()));
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

fn line_of(line: &[u8]) -> Result<Line, Error> {
    decode_typed::<Line>(line).map_err(|_| Error::NoWatch)
}

fn event_of(line: &[u8]) -> Result<WatchEvent, Error> {
    let Line { event_type, object } = line_of(line)?;
    match event_type.as_str() {
        "BOOKMARK" => Ok(WatchEvent::Bookmark),
        "ADDED" | "MODIFIED" => Ok(WatchEvent::Object(Box::new(decode_object(object)?))),
        "ERROR" => Err(failure_of(&object)),
        _ => Err(Error::NoWatch),
    }
}

fn change_of(line: &[u8]) -> Result<Change, Error> {
    let Line { event_type, object } = line_of(line)?;
    let change_type = match event_type.as_str() {
        "ADDED" => ChangeType::Added,
        "MODIFIED" => ChangeType::Modified,
        "DELETED" => ChangeType::Deleted,
        "BOOKMARK" => ChangeType::Bookmark,
        "ERROR" => return Err(failure_of(&object)),
        _ => return Err(Error::NoWatch),
    };
    Ok(Change { change_type, object })
}

/// The error that a Status stands for.
fn failure_of(status: &Value) -> Error {
    let code = status.get("code").and_then(Value::as_u64);
    let code = code.and_then(|code| u16::try_from(code).ok());
    let code = code.and_then(|code| StatusCode::from_u16(code).ok());
    let code = code.filter(|code| !code.is_success());
    let code = code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    match decode_response(code, status.to_string().as_bytes()) {
        Err(error) => error,
        Ok(_) => Error::NoWatch,
    }
}
