//! The time that a connection without a valid credential has.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

use crate::peer::Peer;

/// The time after which a connection without a request with a valid credential takes no further request.
const UNAUTHENTICATED_TIMEOUT: Duration = Duration::from_secs(30);

/// How often a connection checks whether it must end.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The limit of an unauthenticated connection. Only an idle connection is closed: a request that has begun is answered,
/// within the deadlines of its head, its body and its response. Then the connection announces its end.
#[derive(Debug)]
pub struct UnauthenticatedLimit {
    peer: Arc<Peer>,
    opened: Instant,
    /// The requests that are being answered.
    answering: AtomicUsize,
}

/// A request that is being answered, until it is dropped.
#[derive(Debug)]
pub struct Answering(Arc<UnauthenticatedLimit>);

impl UnauthenticatedLimit {
    /// The limit of a connection that has just been accepted.
    pub fn new(peer: Arc<Peer>) -> Arc<Self> {
        Arc::new(Self { peer, opened: Instant::now(), answering: AtomicUsize::new(0) })
    }

    /// A request has begun. The connection is not closed while the result exists.
    pub fn begin_answer(self: &Arc<Self>) -> Answering {
        self.answering.fetch_add(1, Ordering::AcqRel);
        Answering(self.clone())
    }

    /// Whether the connection takes no further request.
    pub fn is_overdue(&self) -> bool {
        !self.peer.is_authenticated() && self.opened.elapsed() >= UNAUTHENTICATED_TIMEOUT
    }

    /// Waits until the connection takes no further request. The connection then announces its end.
    pub async fn overdue(&self) {
        sleep_until(self.opened + UNAUTHENTICATED_TIMEOUT).await;
        if !self.is_overdue() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until the connection must be closed. `is_sending` says whether a response is being sent. `check` is another
    /// reason, which is looked for from time to time.
    pub async fn closed(
        &self,
        is_sending: impl Fn() -> bool,
        check: impl Fn() -> Option<&'static str>,
    ) -> &'static str {
        let mut checks = interval_at(self.opened + CHECK_INTERVAL, CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.peer.closed() => return "it was closed to make room for another connection",
                _ = checks.tick() => {}
            }
            // A connection that has announced its end closes itself. This is for a client that prevents it.
            let is_late = self.opened.elapsed() >= UNAUTHENTICATED_TIMEOUT + CHECK_INTERVAL;
            let is_answering = self.answering.load(Ordering::Acquire) > 0 || is_sending();
            if self.is_overdue() && is_late && !is_answering {
                return "it brought no request with a valid credential in time";
            }
            if let Some(why) = check() {
                return why;
            }
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answering.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use futures_util::FutureExt as _;

    use super::*;

    fn limit() -> Arc<UnauthenticatedLimit> {
        UnauthenticatedLimit::new(Arc::new(Peer::new(IpAddr::from([127, 0, 0, 1]))))
    }

    /// The time until the connection is closed; at most an hour.
    async fn closed_after(limit: &UnauthenticatedLimit, is_sending: impl Fn() -> bool) -> u64 {
        let start = Instant::now();
        let hour = tokio::time::sleep(Duration::from_hours(1));
        tokio::select! {
            _ = limit.closed(is_sending, || None) => {}
            () = hour => {}
        }
        start.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_without_a_credential_is_closed() {
        let limit = limit();
        let start = Instant::now();
        limit.overdue().await;
        assert_eq!(start.elapsed(), UNAUTHENTICATED_TIMEOUT);
        assert!(limit.is_overdue());
        assert_eq!(closed_after(&limit, || false).await, 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_has_begun_is_answered_whatever_the_time() {
        let limit = limit();
        let answering = limit.begin_answer();
        assert_eq!(closed_after(&limit, || false).await, 3600);
        drop(answering);
        assert_eq!(closed_after(&limit, || true).await, 3600);
        assert!(closed_after(&limit, || false).await <= 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_credential_lifts_the_limit() {
        let limit = limit();
        limit.peer.set_authenticated("ada", false);
        assert_eq!(closed_after(&limit, || false).await, 3600);
        assert!(!limit.is_overdue() && limit.overdue().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_table_and_the_check_close_it_at_once() {
        let limit = limit();
        let _answering = limit.begin_answer();
        assert_eq!(limit.closed(|| true, || Some("why")).await, "why");
        limit.peer.close();
        assert_eq!(closed_after(&limit, || true).await, 0);
    }
}
