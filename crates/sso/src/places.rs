//! The places for logins and exchanges that are served at once. A request takes one after its body has arrived, and only
//! for the work of a provider or of the store. A provider that does not answer, or one client, cannot take all of them.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most requests that wait for a place, of all clients and of one address, and how long they wait.
const MAX_WAITING: usize = 1024;
const MAX_WAITING_OF_ADDRESS: usize = 32;
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// The places for requests, with the limits for each provider and address.
pub(super) struct Places {
    all: Arc<Semaphore>,
    of_provider: Semaphores<String>,
    of_address: Semaphores<IpAddr>,
    waiting: Arc<Semaphore>,
    waiting_of_address: Semaphores<IpAddr>,
}

/// The number of places.
#[derive(Clone, Copy)]
pub(super) struct PlaceLimits {
    /// Of all.
    pub(super) all: usize,
    /// Of one provider.
    pub(super) of_provider: usize,
    /// Of one address.
    pub(super) of_address: usize,
}

/// A place, until it is dropped.
pub(super) struct Place {
    _permits: [OwnedSemaphorePermit; 3],
}

/// No place has become free in time.
#[derive(Debug)]
pub(super) struct Busy;

impl Places {
    pub(super) fn new(limits: PlaceLimits) -> Self {
        Self {
            all: Arc::new(Semaphore::new(limits.all)),
            of_provider: Semaphores::new(limits.of_provider),
            of_address: Semaphores::new(limits.of_address),
            waiting: Arc::new(Semaphore::new(MAX_WAITING)),
            waiting_of_address: Semaphores::new(MAX_WAITING_OF_ADDRESS),
        }
    }

    /// Takes a place for the work of a provider, at the request of an address. The wait is short.
    ///
    /// # Errors
    /// [`Busy`] if there is none after the wait, or if too many requests wait.
    pub(super) async fn take(&self, provider: &str, address: IpAddr) -> Result<Place, Busy> {
        let (of_provider, of_address) =
            (self.of_provider.of(provider.to_owned()), self.of_address.of(address));
        let free =
            [&of_provider, &of_address, &self.all].map(|one| one.clone().try_acquire_owned());
        if let [Ok(first), Ok(second), Ok(third)] = free {
            return Ok(Place { _permits: [first, second, third] });
        }
        let waiting_of_address = self.waiting_of_address.of(address);
        let _waiting = self.waiting.try_acquire().map_err(|_| Busy)?;
        let _waiting_of_address = waiting_of_address.try_acquire().map_err(|_| Busy)?;
        // In this order, a provider that does not answer keeps no place of the others from anyone.
        let taken = async {
            let first = of_provider.acquire_owned().await.ok()?;
            let second = of_address.acquire_owned().await.ok()?;
            let third = self.all.clone().acquire_owned().await.ok()?;
            Some(Place { _permits: [first, second, third] })
        };
        tokio::time::timeout(LONGEST_WAIT, taken).await.ok().flatten().ok_or(Busy)
    }
}

/// A semaphore for each key. One that no request has is forgotten.
struct Semaphores<K> {
    permits: usize,
    known: Mutex<HashMap<K, Weak<Semaphore>>>,
}

/// The number of keys above which unused ones are looked for.
const MIN_KNOWN: usize = 64;

impl<K: Eq + Hash> Semaphores<K> {
    fn new(permits: usize) -> Self {
        Self { permits, known: Mutex::default() }
    }

    fn of(&self, key: K) -> Arc<Semaphore> {
        let mut known = self.known.lock();
        if let Some(semaphore) = known.get(&key).and_then(Weak::upgrade) {
            return semaphore;
        }
        if known.len() >= MIN_KNOWN && known.len() == known.capacity() {
            // Only as often as the map would grow.
            known.retain(|_, semaphore| semaphore.strong_count() > 0);
        }
        let semaphore = Arc::new(Semaphore::new(self.permits));
        known.insert(key, Arc::downgrade(&semaphore));
        semaphore
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use futures_util::future::join_all;

    use super::*;

    fn places() -> Places {
        Places::new(PlaceLimits { all: 8, of_provider: 2, of_address: 3 })
    }

    fn address(number: u32) -> IpAddr {
        IpAddr::from((0x0a00_0000 + number).to_be_bytes())
    }

    #[tokio::test(start_paused = true)]
    async fn one_provider_leaves_places_to_the_others() {
        let places = places();
        let of_hanging = join_all((0..9).map(|number| places.take("hanging", address(number))));
        let hanging: Vec<Place> = of_hanging.await.into_iter().filter_map(Result::ok).collect();
        assert_eq!(hanging.len(), 2);
        let others = join_all((0..9).map(|number| {
            let places = &places;
            async move { places.take(&number.to_string(), address(number)).await }
        }));
        let others: Vec<Place> = others.await.into_iter().filter_map(Result::ok).collect();
        assert_eq!(others.len(), 6);
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_leaves_places_to_the_others() {
        let places = places();
        let mut taken = Vec::new();
        for number in 0..9 {
            taken.extend(places.take(&number.to_string(), address(1)).now_or_never());
        }
        assert_eq!(taken.iter().filter(|one| one.is_ok()).count(), 3);
        assert!(places.take("other", address(2)).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_a_place_and_not_for_long() {
        let places = places();
        let taken = [places.take("a", address(1)).await, places.take("a", address(2)).await];
        assert!(taken.iter().all(Result::is_ok));
        let later = async {
            tokio::time::sleep(LONGEST_WAIT / 2).await;
            drop(taken);
        };
        let (waited, ()) = tokio::join!(places.take("a", address(3)), later);
        assert!(waited.is_ok());
        let waiting = join_all((0..40).map(|_| places.take("a", address(4)))).await;
        assert_eq!(waiting.iter().filter(|one| one.is_ok()).count(), 1);
        drop((waiting, waited));
        assert_eq!(places.all.available_permits(), 8, "nothing is kept");
        for number in 0..10_000 {
            let _place = places.take("b", address(number)).await.unwrap();
        }
        assert!(places.of_address.known.lock().len() < 500);
    }
}
