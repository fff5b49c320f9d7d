//! The limits of failed logins. Requests to `/auth/` need no credential, so neither an owner nor a
//! quota can limit them.
//!
//! Failures count for the networks of the client. Successes do not count. Different networks share no
//! limit, so no client can use up the logins of a client in another network.

use std::collections::HashMap;
use std::net::IpAddr;

use parking_lot::Mutex;
use postern_meta::status::ApiError;

const MINUTE_SECONDS: i64 = 60;

/// The limit of a `/48` network of IPv6, as a multiple of the limit of one address. A site has one
/// such network, and one client may control all of it.
const SITE_FACTOR: u32 = 4;

/// The most networks that are remembered for one kind of login. Beyond it, the half with the fewest
/// failures is forgotten. So a client can remove its own count only with failures from half as many
/// other networks. Each of these needs more failures than the client has.
const MAX_NETWORKS: usize = 16_384;

/// The kind of a login. The failures of each kind are counted separately. So a pipeline with an old
/// token does not use up the logins of the people at its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LoginKind {
    /// A person with a browser.
    Person,
    /// A program that brings a token, or waits for the consent of a person.
    Token,
    /// An identity provider that ends sessions.
    Logout,
    /// Another server that hands a request over.
    Server,
}

/// The failures of the current minute.
pub(super) struct LoginFailures {
    max_per_address: u32,
    kinds: [Mutex<Window>; 4],
}

#[derive(Default)]
struct Window {
    /// The minute, counted from 1970.
    minute: i64,
    of_network: HashMap<Network, u32>,
}

/// A network. The failures from all its addresses are counted together.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Network {
    bits: u128,
    prefix: u8,
}

impl Network {
    /// The networks of an address, each with its part of the limit. An IPv4 address is its own
    /// network. An IPv6 address has two: the network of 64 bits that a client usually has, and the
    /// one of 48 bits.
    fn of(address: IpAddr, max: u32) -> Vec<(Self, u32)> {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                vec![(Self { bits: address.to_ipv6_mapped().to_bits(), prefix: 128 }, max)]
            }
            IpAddr::V6(address) => {
                let of = |prefix: u8| {
                    let mask = u128::MAX << (128 - u32::from(prefix));
                    Self { bits: address.to_bits() & mask, prefix }
                };
                vec![(of(64), max), (of(48), max.saturating_mul(SITE_FACTOR))]
            }
        }
    }
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

    fn check(&self, networks: &[(Network, u32)], now_unix_seconds: i64) -> Result<(), ApiError> {
        let is_above = |(network, max): &(Network, u32)| {
            self.of_network.get(network).is_some_and(|count| count >= max)
        };
        if !networks.iter().any(is_above) {
            return Ok(());
        }
        let left = MINUTE_SECONDS - now_unix_seconds.rem_euclid(MINUTE_SECONDS);
        let retry_after = u32::try_from(left).unwrap_or(1);
        let message = "too many failed logins from this address: try again later";
        Err(ApiError::too_many_requests(message, retry_after))
    }

    fn forget_the_fewest(&mut self) {
        let mut counts: Vec<u32> = self.of_network.values().copied().collect();
        let half = counts.len() / 2;
        if let Some((_, median, _)) =
            (half < counts.len()).then(|| counts.select_nth_unstable(half))
        {
            let median = *median;
            self.of_network.retain(|_, count| *count > median);
        }
    }
}

impl LoginFailures {
    /// Limits with so many failures of one address in a minute.
    pub(super) fn new(max_per_address: u32) -> Self {
        Self { max_per_address, kinds: Default::default() }
    }

    /// Checks that an address has not failed too often at a time, in seconds since 1970.
    ///
    /// # Errors
    /// 429 with the seconds until the next minute.
    pub(super) fn check(
        &self,
        kind: LoginKind,
        address: IpAddr,
        now_unix_seconds: i64,
    ) -> Result<(), ApiError> {
        let networks = Network::of(address, self.max_per_address);
        self.kinds[kind as usize].lock().at(now_unix_seconds).check(&networks, now_unix_seconds)
    }

    /// Counts a failure at a time, in seconds since 1970.
    ///
    /// # Errors
    /// 429 with the seconds until the next minute, if there were as many as there may be. This one is not counted then.
    pub(super) fn count(
        &self,
        kind: LoginKind,
        address: IpAddr,
        now_unix_seconds: i64,
    ) -> Result<(), ApiError> {
        let networks = Network::of(address, self.max_per_address);
        let mut window = self.kinds[kind as usize].lock();
        let window = window.at(now_unix_seconds);
        window.check(&networks, now_unix_seconds)?;
        for (network, _) in networks {
            if window.of_network.len() >= MAX_NETWORKS {
                window.forget_the_fewest();
            }
            *window.of_network.entry(network).or_default() += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u32 = 30;
    const PERSON: LoginKind = LoginKind::Person;

    fn address(number: u32) -> IpAddr {
        IpAddr::from((0xc000_0000 + number).to_be_bytes())
    }

    fn count(failures: &LoginFailures, address: IpAddr, times: u32) -> usize {
        (0..times).filter(|_| failures.count(PERSON, address, 60).is_ok()).count()
    }

    #[test]
    fn no_address_uses_up_the_logins_of_another_one() {
        let failures = LoginFailures::new(MAX);
        for number in 0..1000 {
            assert_eq!(count(&failures, address(number), 2 * MAX), MAX as usize);
        }
        let error = failures.check(PERSON, address(1), 70).unwrap_err();
        assert_eq!((error.code(), error.retry_after_seconds()), (429, Some(50)));
        failures.check(PERSON, address(1000), 70).unwrap();
        failures.check(LoginKind::Token, address(1), 70).unwrap();
        failures.check(PERSON, address(1), 120).unwrap();
    }

    #[test]
    fn a_check_does_not_count() {
        let failures = LoginFailures::new(MAX);
        for _ in 0..2 * MAX {
            failures.check(PERSON, address(1), 60).unwrap();
        }
        assert_eq!(count(&failures, address(1), 2 * MAX), MAX as usize);
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address_and_a_site_as_four() {
        let failures = LoginFailures::new(MAX);
        let at = |network: u16, host: u16| IpAddr::from([0x2001, 0xdb8, 0, network, 0, 0, 0, host]);
        let counted = (0..100).filter(|host| count(&failures, at(0, *host), 1) == 1).count();
        assert_eq!(counted, MAX as usize);
        let counted = (1..1000).filter(|network| count(&failures, at(*network, 1), 1) == 1).count();
        assert_eq!(counted, 3 * MAX as usize, "the rest of the site");
        let mapped = "::ffff:192.0.2.1".parse().unwrap();
        assert_eq!(count(&failures, mapped, 2 * MAX), MAX as usize);
        failures.check(PERSON, "192.0.2.1".parse().unwrap(), 60).unwrap_err();
    }

    #[test]
    fn many_addresses_take_a_bounded_room_and_do_not_reset_a_count() {
        let failures = LoginFailures::new(MAX);
        count(&failures, address(0), MAX);
        for number in 1..200_000 {
            count(&failures, address(number), 1);
        }
        assert!(failures.kinds[0].lock().of_network.len() <= MAX_NETWORKS);
        failures.check(PERSON, address(0), 60).unwrap_err();
    }
}
