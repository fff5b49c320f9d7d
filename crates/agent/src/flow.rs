//! Limits on the concurrent requests of one caller, so that no caller takes the agent or its cluster
//! from the others.
//!
//! A caller is the owner of the token's access key, also under impersonation. Short requests and long
//! ones (watches, logs, exec and the like) are counted apart. A request over the limit gets 429.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use postern_meta::status::ApiError;

/// The most concurrent short requests of one caller: the queue length of one owner at the central server.
const MAX_REQUESTS: usize = 400;

/// Watches and streams of one caller that are open, as at the central server.
const MAX_LONG_REQUESTS: usize = 1000;

/// One caller may use one eighth of all connections for either.
const MAX_CONNECTION_DIVISOR: usize = 8;

const RETRY_AFTER_SECONDS: u32 = 1;

/// The most concurrent requests of one caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowLimits {
    pub(crate) requests: usize,
    pub(crate) long_requests: usize,
}

impl FlowLimits {
    /// The limits with so many connections to the cluster. Each caller has an eighth of them at most for
    /// either.
    pub(crate) fn of_connections(connections: usize) -> Self {
        let part = (connections / MAX_CONNECTION_DIVISOR).max(1);
        Self { requests: MAX_REQUESTS.min(part), long_requests: MAX_LONG_REQUESTS.min(part) }
    }
}

/// The concurrent requests, by caller.
#[derive(Debug)]
pub(crate) struct Flow {
    limits: FlowLimits,
    callers: Mutex<HashMap<String, InFlight>>,
}

/// The concurrent requests of one caller.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InFlight {
    pub(crate) requests: usize,
    pub(crate) long_requests: usize,
}

impl InFlight {
    fn of(&mut self, is_long: bool) -> &mut usize {
        if is_long { &mut self.long_requests } else { &mut self.requests }
    }
}

/// A request that is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct FlowPermit {
    flow: Arc<Flow>,
    caller: String,
    is_long: bool,
}

impl Flow {
    /// A flow with these limits.
    pub(crate) fn new(limits: FlowLimits) -> Arc<Self> {
        Arc::new(Self { limits, callers: Mutex::default() })
    }

    /// Takes a permit for a request of a caller.
    ///
    /// # Errors
    /// 429 when the caller has too many concurrent requests.
    pub(crate) fn acquire(
        self: &Arc<Self>,
        caller: &str,
        is_long: bool,
    ) -> Result<FlowPermit, ApiError> {
        let (limit, what) = if is_long {
            (self.limits.long_requests, "watches and streams")
        } else {
            (self.limits.requests, "requests")
        };
        let mut callers = self.callers.lock();
        let in_flight = callers.entry(caller.to_owned()).or_default().of(is_long);
        if *in_flight >= limit {
            drop(callers);
            let message =
                format!("{limit} of your {what} are under way at this agent: try again later");
            return Err(ApiError::too_many_requests(message, RETRY_AFTER_SECONDS));
        }
        *in_flight += 1;
        drop(callers);
        Ok(FlowPermit { flow: self.clone(), caller: caller.to_owned(), is_long })
    }

    /// The concurrent requests of all callers.
    pub(crate) fn in_flight(&self) -> InFlight {
        self.callers.lock().values().fold(InFlight::default(), |all, one| InFlight {
            requests: all.requests + one.requests,
            long_requests: all.long_requests + one.long_requests,
        })
    }
}

impl Drop for FlowPermit {
    fn drop(&mut self) {
        let mut callers = self.flow.callers.lock();
        let Some(in_flight) = callers.get_mut(&self.caller) else { return };
        *in_flight.of(self.is_long) -= 1;
        if in_flight.requests == 0 && in_flight.long_requests == 0 {
            callers.remove(&self.caller);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_has_an_eighth_of_the_connections_at_most() {
        let of = |connections| {
            let limits = FlowLimits::of_connections(connections);
            (limits.requests, limits.long_requests)
        };
        assert_eq!(
            (of(384), of(4000), of(10_000), of(1)),
            ((48, 48), (400, 500), (400, 1000), (1, 1))
        );
    }

    #[test]
    fn requests_and_watches_are_counted_apart_and_by_caller() {
        let flow = Flow::new(FlowLimits { requests: 2, long_requests: 1 });
        let mut permits: Vec<_> = (0..2).map(|_| flow.acquire("ada", false).unwrap()).collect();
        let refused = flow.acquire("ada", false).unwrap_err();
        assert_eq!((refused.code(), refused.retry_after_seconds()), (429, Some(1)));
        let watch = flow.acquire("ada", true).unwrap();
        assert_eq!(flow.acquire("ada", true).unwrap_err().code(), 429);
        let of_eve = flow.acquire("eve", false).unwrap();
        let all = flow.in_flight();
        assert_eq!((all.requests, all.long_requests), (3, 1));
        permits.pop();
        assert!(flow.acquire("ada", false).is_ok());
        drop((permits, watch, of_eve));
        assert!(flow.callers.lock().is_empty());
    }
}
