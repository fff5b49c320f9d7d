//! The rate limit of logins: requests to `/auth/` need no credential, so neither the owner nor its quota can limit them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use parking_lot::Mutex;
use postern_meta::status::ApiError;

/// The most requests of one address in a minute.
const MAX_PER_ADDRESS: u32 = 30;

/// The most requests of all addresses in a minute.
const MAX_OF_ALL: u32 = 600;

const MINUTE_SECONDS: i64 = 60;

/// The requests of the current minute.
#[derive(Default)]
pub(super) struct AuthRate(Mutex<Window>);

#[derive(Default)]
struct Window {
    /// The minute, counted from 1970.
    minute: i64,
    total: u32,
    /// The counts of addresses. There are at most as many as requests in a minute.
    of_address: HashMap<IpAddr, u32>,
}

impl Window {
    /// The counts of the minute of a time.
    fn at(&mut self, now_unix_seconds: i64) -> &mut Self {
        let minute = now_unix_seconds.div_euclid(MINUTE_SECONDS);
        if self.minute != minute {
            *self = Self { minute, ..Self::default() };
        }
        self
    }

    fn check(&self, network: IpAddr, now_unix_seconds: i64) -> Result<(), ApiError> {
        let of_address = self.of_address.get(&network).copied().unwrap_or_default();
        if self.total < MAX_OF_ALL && of_address < MAX_PER_ADDRESS {
            return Ok(());
        }
        let left = MINUTE_SECONDS - now_unix_seconds.rem_euclid(MINUTE_SECONDS);
        let retry_after = u32::try_from(left).unwrap_or(1);
        let message = "too many requests for logins: try again later";
        Err(ApiError::too_many_requests(message, retry_after))
    }
}

impl AuthRate {
    /// Checks whether one more request would be served at a time, in seconds since 1970.
    ///
    /// # Errors
    /// 429 with the seconds until the next minute.
    pub(super) fn check(&self, address: IpAddr, now_unix_seconds: i64) -> Result<(), ApiError> {
        self.0.lock().at(now_unix_seconds).check(network_of(address), now_unix_seconds)
    }

    /// Counts a request at a time, in seconds since 1970.
    ///
    /// # Errors
    /// 429 with the seconds until the next minute. The request is not counted then.
    pub(super) fn count(&self, address: IpAddr, now_unix_seconds: i64) -> Result<(), ApiError> {
        let (mut window, network) = (self.0.lock(), network_of(address));
        let window = window.at(now_unix_seconds);
        window.check(network, now_unix_seconds)?;
        window.total += 1;
        *window.of_address.entry(network).or_default() += 1;
        Ok(())
    }
}

/// The address that is counted. A client with IPv6 usually has a whole /64 network.
fn network_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => address.into(),
            None => Ipv6Addr::from(u128::from(address) & !u128::from(u64::MAX)).into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn an_address_and_all_addresses_have_a_limit_for_each_minute() {
        let rate = AuthRate::default();
        for _ in 0..MAX_PER_ADDRESS {
            rate.count(address(1), 60).unwrap();
        }
        let error = rate.count(address(1), 70).unwrap_err();
        assert_eq!((error.code(), error.retry_after_seconds()), (429, Some(50)));
        rate.count(address(2), 70).unwrap();
        rate.count(address(1), 120).unwrap();
        let mut served = 0;
        for last in 0..=255 {
            served += (0..10).filter(|_| rate.count(address(last), 180).is_ok()).count();
        }
        assert_eq!(served, MAX_OF_ALL as usize);
    }

    #[test]
    fn a_check_does_not_count() {
        let rate = AuthRate::default();
        for _ in 0..2 * MAX_PER_ADDRESS {
            rate.check(address(1), 60).unwrap();
        }
        for _ in 0..MAX_PER_ADDRESS {
            rate.count(address(1), 60).unwrap();
        }
        assert_eq!(rate.check(address(1), 119).unwrap_err().retry_after_seconds(), Some(1));
        rate.check(address(1), 120).unwrap();
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let rate = AuthRate::default();
        let mut served = 0;
        for last in 0..100_u16 {
            let address = IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]);
            served += u32::from(rate.count(address, 0).is_ok());
        }
        assert_eq!(served, MAX_PER_ADDRESS);
        assert!(rate.count(IpAddr::from([0x2001, 0xdb8, 0, 2, 0, 0, 0, 1]), 0).is_ok());
        assert_eq!(network_of("::ffff:192.0.2.1".parse().unwrap()), address(1));
    }
}
