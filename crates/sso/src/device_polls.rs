//! How often clients ask for the key of a device code (RFC 8628 section 3.5). The codes themselves are stored nowhere.

use std::collections::HashMap;
use std::net::IpAddr;

use aws_lc_rs::digest::{SHA256, digest};
use parking_lot::Mutex;
use postern_oidc::command_line::DEVICE_SECONDS;

/// The seconds that a client waits between two requests.
pub(super) const INTERVAL_SECONDS: u32 = 5;

/// How much earlier than that a request may come: the network does not delay all of them equally.
const TOLERANCE_SECONDS: i64 = 1;

/// The most codes of which one address asks for keys at once.
const MAX_CODES_OF_ADDRESS: usize = 64;

/// The most codes of all addresses. Beyond it, the one that was asked for longest ago is forgotten, which lets its client
/// ask once more.
const MAX_CODES: usize = 4096;

/// The last requests for the keys of device codes.
#[derive(Default)]
pub(super) struct DevicePolls(Mutex<HashMap<[u8; 32], Poll>>);

#[derive(Clone, Copy)]
struct Poll {
    address: IpAddr,
    /// In seconds since 1970.
    at: i64,
}

/// Whether a request comes when it may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pace {
    InTime,
    TooFast,
}

impl DevicePolls {
    /// Notes a request with a code at a time, in seconds since 1970. One that is too fast changes nothing.
    pub(super) fn note(&self, code: &str, address: IpAddr, now: i64) -> Pace {
        let mut key = [0; 32];
        key.copy_from_slice(digest(&SHA256, code.as_bytes()).as_ref());
        let mut polls = self.0.lock();
        // A clock that was set back ends the pause.
        let age = |poll: &Poll| now.saturating_sub(poll.at);
        let pause = i64::from(INTERVAL_SECONDS) - TOLERANCE_SECONDS;
        if let Some(known) = polls.get_mut(&key) {
            if (0..pause).contains(&age(known)) {
                return Pace::TooFast;
            }
            *known = Poll { address, at: now };
            return Pace::InTime;
        }
        polls.retain(|_, poll| (0..DEVICE_SECONDS).contains(&age(poll)));
        if polls.values().filter(|poll| poll.address == address).count() >= MAX_CODES_OF_ADDRESS {
            return Pace::TooFast;
        }
        if polls.len() >= MAX_CODES {
            let oldest = polls.iter().min_by_key(|(_, poll)| poll.at).map(|(key, _)| *key);
            oldest.and_then(|oldest| polls.remove(&oldest));
        }
        polls.insert(key, Poll { address, at: now });
        Pace::InTime
    }

    /// Forgets a code that has given its key.
    pub(super) fn forget(&self, code: &str) {
        self.0.lock().remove(digest(&SHA256, code.as_bytes()).as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    #[test]
    fn a_code_is_asked_for_once_in_an_interval() {
        let polls = DevicePolls::default();
        let at = |now| polls.note("code", ADDRESS, now);
        assert_eq!(
            [at(100), at(101), at(103), at(104)].map(|pace| pace == Pace::InTime),
            [true, false, false, true]
        );
        assert_eq!(at(105), Pace::TooFast);
        assert_eq!(at(50), Pace::InTime, "the clock was set back");
        assert_eq!(polls.note("other", ADDRESS, 50), Pace::InTime);
        polls.forget("code");
        assert_eq!(at(50), Pace::InTime);
    }

    #[test]
    fn an_address_asks_for_few_codes_and_all_take_a_bounded_room() {
        let polls = DevicePolls::default();
        let in_time = |address: IpAddr, now| {
            let ask = |number: &u32| {
                polls.note(&format!("{address}{number}"), address, now) == Pace::InTime
            };
            (0..100).filter(ask).count()
        };
        assert_eq!(in_time(ADDRESS, 100), MAX_CODES_OF_ADDRESS);
        assert_eq!(in_time(ADDRESS, 100 + DEVICE_SECONDS), MAX_CODES_OF_ADDRESS);
        for last in 0..200 {
            in_time(IpAddr::from([192, 0, 2, last]), 1000);
        }
        assert!(polls.0.lock().len() <= MAX_CODES);
    }
}
