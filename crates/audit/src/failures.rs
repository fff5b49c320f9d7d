//! A rate limit on the records of failed authentications.
//!
//! Any client can fail any number of times. If each failure were recorded, one client could rotate
//! away all older records. So the first 1000 failures are recorded one by one. Of these, one
//! address has at most 200 in an hour, and an IPv6 network of 48 bits has at most 300. Each hour
//! adds 360. So no client keeps the failures of others out of the log. Beyond that, one failure in
//! ten seconds is recorded, with the number of omitted ones. With at most 1 KiB each, the records
//! need 18 MB a day.

use std::collections::HashMap;
use std::net::IpAddr;

use parking_lot::Mutex;
use postern_listen::network;

/// The number of failures that are recorded one by one.
const BURST: u64 = 1000;

/// The number of those that one address may have in an hour: fewer than are added.
const BURST_OF_ADDRESS: u64 = 200;

/// The number of those that a network of 48 bits of IPv6 may have in an hour: fewer than are added.
const BURST_OF_SITE: u64 = 300;
const HOUR_SECONDS: i64 = 3600;

/// The seconds between two recorded failures after the burst.
const SECONDS_FOR_ONE: u64 = 10;

/// The annotation of a record with the number of failures that were omitted before it.
pub(super) const FAILURES_LEFT_OUT: &str = "platform.sh/failures-left-out";

/// A token bucket for the records of failed authentications.
pub(super) struct AuthenticationFailures {
    state: Mutex<State>,
}

struct State {
    tokens: u64,
    /// When tokens were added last, in seconds since 1970.
    refilled_at: i64,
    omitted: u64,
    /// The start of the hour for the counts below, in seconds since 1970.
    since: i64,
    /// The recorded failures of each address in this hour. The map has at most one address for each record.
    of_address: HashMap<IpAddr, u64>,
    /// The recorded failures of each IPv6 network of 48 bits in this hour.
    of_site: HashMap<u128, u64>,
    /// When a failure of an address beyond its burst was recorded last.
    beyond_at: i64,
}

impl State {
    fn refill(&mut self, now: i64) {
        let passed = u64::try_from(now.saturating_sub(self.refilled_at)).unwrap_or(0);
        let more = passed / SECONDS_FOR_ONE;
        if more > 0 {
            self.tokens = self.tokens.saturating_add(more).min(BURST);
            self.refilled_at = now;
        }
        if now.saturating_sub(self.since) >= HOUR_SECONDS {
            self.since = now;
            self.of_address.clear();
            self.of_site.clear();
        }
    }

    /// Whether a failure of this address is recorded. The address and its network have failures
    /// left, or a failure beyond the limit is due. The latter takes no token: the tokens are for
    /// other addresses.
    fn admits(&mut self, address: IpAddr, now: i64) -> bool {
        let network = network(address);
        let site = match address {
            IpAddr::V6(v6) => Some(v6.to_bits() >> 80),
            IpAddr::V4(_) => None,
        };
        let of_address = self.of_address.get(&network).copied().unwrap_or_default();
        let of_site = site.and_then(|site| self.of_site.get(&site)).copied().unwrap_or_default();
        if of_address >= BURST_OF_ADDRESS || of_site >= BURST_OF_SITE {
            let passed = u64::try_from(now.saturating_sub(self.beyond_at)).unwrap_or(0);
            let is_due = passed >= SECONDS_FOR_ONE;
            if is_due {
                self.beyond_at = now;
            }
            return is_due;
        }
        if self.tokens == 0 {
            return false;
        }
        self.tokens -= 1;
        self.of_address.insert(network, of_address + 1);
        if let Some(site) = site {
            self.of_site.insert(site, of_site + 1);
        }
        true
    }
}

impl AuthenticationFailures {
    /// A full bucket.
    pub(super) fn new(now_unix_seconds: i64) -> Self {
        let state = State {
            tokens: BURST,
            refilled_at: now_unix_seconds,
            omitted: 0,
            since: now_unix_seconds,
            of_address: HashMap::new(),
            of_site: HashMap::new(),
            beyond_at: now_unix_seconds,
        };
        Self { state: Mutex::new(state) }
    }

    /// Counts one more failure. If it must be recorded, returns the number of failures that were omitted before it.
    /// `has_room` is whether the log has room for a record.
    pub(super) fn note(
        &self,
        address: IpAddr,
        now_unix_seconds: i64,
        has_room: bool,
    ) -> Option<u64> {
        let mut state = self.state.lock();
        state.refill(now_unix_seconds);
        if !has_room || !state.admits(address.to_canonical(), now_unix_seconds) {
            state.omitted += 1;
            return None;
        }
        Some(std::mem::take(&mut state.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u64) -> IpAddr {
        IpAddr::from([192, 0, 2, u8::try_from(last).unwrap()])
    }

    #[test]
    fn a_flood_is_counted_and_leaves_room() {
        let failures = AuthenticationFailures::new(100);
        for number in 0..BURST {
            assert_eq!(failures.note(address(number / BURST_OF_ADDRESS), 100, true), Some(0));
        }
        let note = |now, has_room| failures.note(address(9), now, has_room);
        for _ in 0..500 {
            assert_eq!(note(100, true), None);
        }
        assert_eq!(note(109, true), None);
        assert_eq!(note(110, true), Some(501));
        assert_eq!(note(110, true), None);
        // A clock that moves back adds no tokens. A day later, the bucket is full again.
        assert_eq!(note(5, true), None);
        // A failure without room in the log is also omitted.
        assert_eq!(note(120, false), None);
        assert_eq!(note(86_400, true), Some(3));
        let of_one = (1..BURST).filter(|_| note(86_400, true).is_some()).count() as u64;
        assert_eq!(of_one, BURST_OF_ADDRESS, "those of its burst, and one beyond it");
        let of_all = (0..BURST).filter(|number| {
            failures.note(address(number / BURST_OF_ADDRESS), 86_400, true).is_some()
        });
        assert_eq!(of_all.count() as u64, BURST - BURST_OF_ADDRESS);
    }

    #[test]
    fn a_flood_of_one_address_does_not_hide_the_failures_of_others() {
        let failures = AuthenticationFailures::new(100);
        let flood = |now| {
            (0..5000).filter(|_| failures.note(address(1), now, true).is_some()).count() as u64
        };
        assert_eq!(flood(100), BURST_OF_ADDRESS);
        assert!(failures.note(address(2), 100, true).is_some());
        assert_eq!(flood(110), 1, "one in ten seconds");
        assert!(failures.note(address(2), 110, true).is_some());
    }

    /// One client has an address of IPv4, or a network of IPv6, and fails all day.
    #[test]
    fn a_client_that_fails_all_day_hides_no_failure_of_another() {
        let of_v4 = |_: i64| address(1);
        let of_v6 = |number: i64| {
            let segment = u16::try_from(number % 1000).unwrap();
            IpAddr::from([0x2001, 0xdb8, 1, segment, 0, 0, 0, 1])
        };
        for client in [&of_v4 as &dyn Fn(i64) -> IpAddr, &of_v6] {
            let failures = AuthenticationFailures::new(0);
            for now in 0..86_400 {
                for number in 0..5 {
                    let _ = failures.note(client(now * 5 + number), now, true);
                }
                if now % 600 == 0 {
                    assert!(failures.note(address(2), now, true).is_some(), "after {now} s");
                }
            }
        }
    }
}
