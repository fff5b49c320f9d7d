//! `ResponseGuard`: the slot, the bytes and the stream of a request, until its response is sent.

use std::sync::Arc;

use parking_lot::Mutex;
use postern_flow::budget::Charge;
use postern_flow::{Requester, Slot, too_many_requests};
use postern_meta::status::ApiError;

use super::client::Client;
use postern_http::wire::body::Body;
use postern_http::wire::encode::SMALL_BODY_BYTES;

/// The memory of one request on a connection with many streams, until its response is sent, in bytes.
const STREAM_BYTES: usize = 12 * 1024;

/// The slot, the bytes and the stream of a request, until its response is sent. All are released on drop.
pub(crate) struct ResponseGuard {
    client: Arc<Client>,
    /// The sender, once the request is authenticated.
    requester: Option<Requester>,
    /// The charge for the stream and its task, if the connection has many streams.
    stream: Option<Charge>,
    /// The charge for the bytes of the response.
    body: Option<Charge>,
    slot: Mutex<Option<Slot>>,
    /// Whether the path is known to contain no access key.
    pub(super) has_clean_path: bool,
    /// Whether there is no room even for an error response. The stream is then reset.
    pub(crate) is_refused: bool,
}

impl ResponseGuard {
    /// The guard of a request that has just arrived. `stream` is the charge for its stream, if it is counted already.
    pub(super) fn new(client: &Arc<Client>, stream: Option<Charge>) -> Self {
        Self {
            client: client.clone(),
            requester: None,
            stream,
            body: None,
            slot: Mutex::default(),
            has_clean_path: false,
            is_refused: false,
        }
    }

    /// A charge for response bytes; `None` when there is no room.
    pub(crate) fn charge(&self, bytes: usize) -> Option<Charge> {
        self.client.flow.responses.charge(&self.requester(), bytes)
    }

    /// Counts the memory of a stream for the owner of the connection's first valid key, if there is one. Returns
    /// whether there is room.
    pub(crate) fn opens_stream(&mut self) -> bool {
        if self.stream.is_some() {
            return true;
        }
        let charge = charge_stream(&self.client);
        let has_room = charge.is_ok();
        self.stream = charge.ok().flatten();
        has_room
    }

    /// Sets the sender of the request, and counts its stream for them. Returns whether there is room.
    pub(super) fn set_requester(&mut self, requester: Requester) -> bool {
        let is_counted = self.stream.as_ref().is_some_and(|charge| charge.is_of(&requester));
        self.requester = Some(requester);
        if self.client.has_streams() && !is_counted {
            self.stream = self.charge(STREAM_BYTES);
            return self.stream.is_some();
        }
        true
    }

    /// Whether the request has a valid key.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.requester.is_some()
    }

    /// The sender, for flow control.
    pub(super) fn requester(&self) -> Requester {
        self.requester.clone().unwrap_or_else(|| self.client.flow.unauthenticated())
    }

    /// Keeps a slot until the response is sent, or until [`release_slot`](Self::release_slot).
    pub(super) fn keep_slot(&mut self, slot: Slot) {
        self.slot = Mutex::new(Some(slot));
    }

    /// Releases the slot before the response is sent.
    pub(crate) fn release_slot(&self) {
        *self.slot.lock() = None;
    }

    /// Counts the response to a change before the change is made, because it cannot be rejected
    /// afterwards. So a client that does not read its responses cannot make further changes.
    ///
    /// # Errors
    /// 429 when there is no room for it.
    pub(super) fn reserve(&mut self, bytes: usize) -> Result<(), ApiError> {
        if bytes > SMALL_BODY_BYTES {
            self.body = Some(self.charge(bytes).ok_or_else(too_many_requests)?);
        }
        Ok(())
    }

    /// Counts a response. Returns whether there is room for it. The response to a change is counted even without room. A
    /// small response is not counted: its connection or stream is.
    pub(super) fn takes(&mut self, body: &Body, changes: bool) -> bool {
        if body.is_stream() {
            // Watches and responses from clusters are counted as watches.
            self.release_slot();
            self.stream = None;
        }
        let bytes = body.held_bytes();
        let reserved = self.body.take().filter(|_| bytes > SMALL_BODY_BYTES);
        if bytes <= SMALL_BODY_BYTES {
            return true;
        }
        let open = || self.client.flow.responses.open(&self.requester());
        let mut charge = reserved.unwrap_or_else(open);
        // The requested format may be longer than the stored one.
        let more = bytes.saturating_sub(charge.bytes());
        let has_room = charge.grow(more);
        if !has_room && changes {
            charge.grow_beyond_limits(more);
        }
        self.body = Some(charge);
        has_room
    }
}

/// An owner has no room for another stream.
pub(crate) struct NoRoom;

/// Counts the memory of a stream for the owner of the connection's first valid key; `None` before the first valid key.
/// Requests that are rejected, or that need no key, count too: their responses wait until the client reads them.
/// Streams of unauthenticated clients are counted separately.
///
/// # Errors
/// When there is no room.
pub(crate) fn charge_stream(client: &Client) -> Result<Option<Charge>, NoRoom> {
    let Some(requester) = client.requester().filter(|_| client.has_streams()) else {
        return Ok(None);
    };
    client.flow.responses.charge(requester, STREAM_BYTES).map(Some).ok_or(NoRoom)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use bytes::Bytes;
    use postern_flow::{Flow, Limits};

    use super::*;

    #[tokio::test]
    async fn the_answer_to_a_change_is_counted_although_there_is_no_room_for_it() {
        const BYTES: usize = 60 << 20;
        let flow = Arc::new(Flow::new(Limits::default()));
        let client = Arc::new(Client::new(Ipv4Addr::LOCALHOST.into(), flow.clone()));
        let by = |owner| Requester { account: flow.account(owner), is_system: false };
        let ada = by("ada");
        let answer = Body::Whole(Some(Bytes::from(vec![0; BYTES])));
        let guard =
            || ResponseGuard { requester: Some(ada.clone()), ..ResponseGuard::new(&client, None) };
        assert!(!guard().takes(&answer, false));
        assert_eq!(flow.counts().response_bytes, 0, "a read is rejected instead");
        let mut changed = guard();
        assert!(!changed.takes(&answer, true));
        assert_eq!(flow.counts().response_bytes, BYTES);
        let refused = guard().reserve(1 << 20).unwrap_err();
        assert_eq!(refused.code(), 429, "the owner makes no more large changes meanwhile");
        assert!(guard().reserve(SMALL_BODY_BYTES).is_ok());
        assert!(flow.responses.charge(&by("bob"), 1 << 20).is_some());
        drop(changed);
        let mut changed = guard();
        changed.reserve(1 << 20).unwrap();
        assert_eq!(flow.counts().response_bytes, 1 << 20);
        let answer = |bytes| Body::Whole(Some(Bytes::from(vec![0; bytes])));
        assert!(changed.takes(&answer(3 << 20), true));
        assert_eq!(flow.counts().response_bytes, 3 << 20, "the response was longer than expected");
        assert!(changed.takes(&answer(100), true));
        assert_eq!(flow.counts().response_bytes, 0, "the response was small");
    }
}
