//! How much may go on at once: requests in flight, and watches of one key.
//!
//! What is over the limit is refused at once with 429 and `Retry-After`, so that the work that
//! was taken on is done in time. Health checks are not counted.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use postern_kinds::Verb;
use postern_meta::status::ApiError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

const RETRY_AFTER_SECONDS: u32 = 1;

/// The limits.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests that read, in flight at once. kube-apiserver's default is 400.
    pub reading: usize,
    /// Requests that write, in flight at once. kube-apiserver's default is 200.
    pub writing: usize,
    /// Open watches of one access key.
    pub watches_per_key: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { reading: 400, writing: 200, watches_per_key: 1000 }
    }
}

/// What is going on.
pub(crate) struct Flow {
    limits: Limits,
    reading: Arc<Semaphore>,
    writing: Arc<Semaphore>,
    watches: Arc<Mutex<HashMap<String, usize>>>,
}

/// A place among the open watches of a key; given back when dropped.
pub(crate) struct WatchSlot {
    watches: Arc<Mutex<HashMap<String, usize>>>,
    key: String,
}

impl Flow {
    /// With nothing going on.
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            reading: Arc::new(Semaphore::new(limits.reading)),
            writing: Arc::new(Semaphore::new(limits.writing)),
            watches: Arc::default(),
        }
    }

    /// A place among the requests in flight.
    ///
    /// # Errors
    /// 429 when there is none.
    pub(crate) fn enter(&self, verb: Option<Verb>) -> Result<OwnedSemaphorePermit, ApiError> {
        let writes = !matches!(verb, None | Some(Verb::Get | Verb::List | Verb::Watch));
        let places = if writes { &self.writing } else { &self.reading };
        places.clone().try_acquire_owned().map_err(|_| {
            ApiError::too_many_requests(
                "Too many requests, please try again later.",
                RETRY_AFTER_SECONDS,
            )
        })
    }

    /// Requests in flight: those that read, those that write.
    pub(crate) fn in_flight(&self) -> (usize, usize) {
        let taken =
            |limit: usize, places: &Semaphore| limit.saturating_sub(places.available_permits());
        (taken(self.limits.reading, &self.reading), taken(self.limits.writing, &self.writing))
    }

    /// A place among the open watches of a key.
    ///
    /// # Errors
    /// 429 when there is none.
    pub(crate) fn enter_watch(&self, key: &str) -> Result<WatchSlot, ApiError> {
        let mut watches = self.watches.lock();
        let open = watches.entry(key.to_owned()).or_default();
        if *open >= self.limits.watches_per_key {
            return Err(ApiError::too_many_requests(
                format!(
                    "this access key has {open} open watches, the most that it may have: close \
                     some"
                ),
                RETRY_AFTER_SECONDS,
            ));
        }
        *open += 1;
        Ok(WatchSlot { watches: self.watches.clone(), key: key.to_owned() })
    }
}

impl Drop for WatchSlot {
    fn drop(&mut self) {
        let mut watches = self.watches.lock();
        if let Some(open) = watches.get_mut(&self.key) {
            *open -= 1;
            if *open == 0 {
                watches.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_back() {
        let flow = Flow::new(Limits { reading: 1, writing: 1, watches_per_key: 1 });
        let place = flow.enter(Some(Verb::Get)).unwrap();
        assert_eq!(flow.enter(Some(Verb::List)).unwrap_err().code(), 429);
        assert!(flow.enter(Some(Verb::Create)).is_ok(), "writes have places of their own");
        drop(place);
        assert!(flow.enter(None).is_ok());

        let slot = flow.enter_watch("k").unwrap();
        let refused = flow.enter_watch("k").err().unwrap();
        assert_eq!((refused.code(), refused.retry_after_seconds()), (429, Some(1)));
        assert!(flow.enter_watch("other").is_ok());
        drop(slot);
        assert!(flow.enter_watch("k").is_ok());
    }
}
