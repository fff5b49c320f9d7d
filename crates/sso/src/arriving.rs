//! The bodies of requests without a credential, while they arrive. They take no place of a login.
//!
//! Each is bounded in bytes and time. If there are too many, the oldest body of the address with
//! the most bodies is given up. So a slow client blocks neither other clients nor later requests
//! from the same address.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::form::{Form, MAX_FORM_BYTES};
use super::token_error::TokenError;
use postern_http::wire::incoming::IncomingBody;

/// How long a body may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// The most bodies that arrive at once, of all clients and of one address: with [`MAX_FORM_BYTES`], 64 MiB and 4 MiB.
const MAX_ARRIVING: usize = 1024;
const MAX_ARRIVING_OF_ADDRESS: usize = 64;

/// The bodies that are arriving.
#[derive(Default)]
pub(super) struct ArrivingBodies(Mutex<State>);

#[derive(Default)]
struct State {
    next: u64,
    /// By age.
    bodies: BTreeMap<u64, (IpAddr, Arc<Notify>)>,
    of_address: HashMap<IpAddr, usize>,
}

impl State {
    fn remove(&mut self, id: u64) -> Option<Arc<Notify>> {
        let (address, given_up) = self.bodies.remove(&id)?;
        if let Some(count) = self.of_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.of_address.remove(&address);
            }
        }
        Some(given_up)
    }

    /// Gives up the oldest body of an address.
    fn give_up_oldest(&mut self, address: IpAddr) {
        let oldest = self.bodies.iter().find(|(_, (of, _))| *of == address);
        let oldest = oldest.map(|(id, _)| *id);
        if let Some(given_up) = oldest.and_then(|id| self.remove(id)) {
            given_up.notify_one();
        }
    }

    fn add(&mut self, address: IpAddr) -> (u64, Arc<Notify>) {
        if self.of_address.get(&address).is_some_and(|count| *count >= MAX_ARRIVING_OF_ADDRESS) {
            self.give_up_oldest(address);
        } else if self.bodies.len() >= MAX_ARRIVING
            && let Some((busiest, _)) = self.of_address.iter().max_by_key(|(_, count)| **count)
        {
            self.give_up_oldest(*busiest);
        }
        let (id, given_up) = (self.next, Arc::new(Notify::new()));
        self.next += 1;
        self.bodies.insert(id, (address, given_up.clone()));
        *self.of_address.entry(address).or_default() += 1;
        (id, given_up)
    }
}

/// A body that is arriving, until it is dropped.
struct Arriving<'a> {
    all: &'a ArrivingBodies,
    id: u64,
    given_up: Arc<Notify>,
}

impl Drop for Arriving<'_> {
    fn drop(&mut self) {
        self.all.0.lock().remove(self.id);
    }
}

impl ArrivingBodies {
    fn add(&self, address: IpAddr) -> Arriving<'_> {
        let (id, given_up) = self.0.lock().add(address);
        Arriving { all: self, id, given_up }
    }

    /// The form in the body of a request from an address.
    ///
    /// # Errors
    /// 400 for another body, and for one that does not arrive in time.
    pub(super) async fn form(
        &self,
        head: &Parts,
        mut body: IncomingBody,
        address: IpAddr,
    ) -> Result<Form, TokenError> {
        let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Err(TokenError::request(
                "Content-Type must be application/x-www-form-urlencoded",
            ));
        }
        let arriving = self.add(address);
        let late = || TokenError::request("the body did not arrive in time");
        let whole = tokio::select! {
            whole = tokio::time::timeout(BODY_TIMEOUT, bytes_of(&mut body)) => whole,
            () = arriving.given_up.notified() => return Err(late()),
        };
        let whole = whole.map_err(|_| late())??;
        let text = std::str::from_utf8(&whole)
            .map_err(|_| TokenError::request("the body is not UTF-8"))?;
        Form::parse(text).map_err(|invalid| TokenError::request(&format!("the body {invalid}")))
    }
}

async fn bytes_of(body: &mut IncomingBody) -> Result<BytesMut, TokenError> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| TokenError::request("the body is incomplete"))?;
        let data = frame.into_data().unwrap_or_else(|_| Bytes::new());
        if whole.len() + data.len() > MAX_FORM_BYTES {
            return Err(TokenError::request("the body is too large"));
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn is_given_up(body: &Arriving<'_>) -> bool {
        body.given_up.notified().now_or_never().is_some()
    }

    #[test]
    fn slow_bodies_of_one_address_keep_nobody_out() {
        let all = ArrivingBodies::default();
        let address = |number: u32| IpAddr::from((0x0a00_0000 + number).to_be_bytes());
        let other = all.add(address(999));
        let slow: Vec<_> = (0..100).map(|_| all.add(address(1))).collect();
        let given_up = slow.iter().filter(|body| is_given_up(body)).count();
        assert_eq!(given_up, 100 - MAX_ARRIVING_OF_ADDRESS);
        let many: Vec<_> = (2..1000).map(|number| all.add(address(number))).collect();
        assert!(!is_given_up(&other), "it is the oldest, but its address has no other");
        assert!(many.iter().all(|body| !is_given_up(body)));
        assert_eq!(all.0.lock().bodies.len(), MAX_ARRIVING);
        drop((other, slow, many));
        let state = all.0.lock();
        assert!(state.bodies.is_empty() && state.of_address.is_empty());
    }
}
