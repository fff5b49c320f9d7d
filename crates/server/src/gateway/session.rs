//! The lifetime of a request to a target: it ends when its caller may not make it any more
//! (`docs/reference/clusters.md#streams`).

use std::sync::Arc;
use std::time::Duration;

use postern_meta::status::ApiError;
use postern_proxy::Session;
use postern_registry::credential::Credential;
use postern_registry::credential::check_impersonation;
use postern_registry::registry::Registry;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::place::{Found, kinds};
use crate::stages::authorize::check_request;
use crate::stages::parse::GatewayRequest;
use crate::wire::body::Guards;

/// Decisions that depend on time alone are checked this often.
const LONGEST_CHECK_INTERVAL: Duration = Duration::from_hours(1);

/// Between two looks there is so much time at least: each change of a role or a Secret concerns every open
/// stream, and there can be many of both. A single change is seen at once by a stream that is older.
const SHORTEST_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// A request and its caller.
pub(super) struct Caller {
    pub(super) registry: Arc<Registry>,
    pub(super) credential: Credential,
    pub(super) request: Arc<GatewayRequest>,
    pub(super) found: Found,
}

/// The session of a request: it ends when its caller may not make it any more, when its target is
/// another one, and, of a watch, when the server drains. `guards` lives as long as it.
pub(super) fn of(
    caller: Arc<Caller>,
    draining: watch::Receiver<bool>,
    max_session: Duration,
    guards: Guards,
) -> Session {
    let kube = &caller.request.kube;
    let (is_watch, is_long) = (kube.is_watch(), kube.is_long());
    let session = Session::until(async move {
        let _kept = guards;
        tokio::select! {
            () = caller.refused() => {}
            () = drained(draining), if is_watch => {}
        }
    });
    if is_long && !is_watch { session.with_deadline(Instant::now() + max_session) } else { session }
}

async fn drained(mut draining: watch::Receiver<bool>) {
    let _ = draining.wait_for(|draining| *draining).await;
}

impl Caller {
    /// Waits until the caller may not make the request any more.
    async fn refused(&self) {
        let cache = self.registry.cache();
        // It has just been decided, and most requests have their answers before the next look.
        sleep(SHORTEST_CHECK_INTERVAL).await;
        // Subscribed first: what changes from here on is not missed.
        let mut access = cache.subscribe_to_access();
        let mut objects = kinds().map(|kind| cache.of(kind.info()).subscribe());
        while let Some(next) = self.still_holds().await {
            let looked = Instant::now();
            let [one, two, three, four] = &mut objects;
            tokio::select! {
                _ = access.changed() => {}
                _ = one.changed() => {}
                _ = two.changed() => {}
                _ = three.changed() => {}
                _ = four.changed() => {}
                () = sleep(next) => {}
            }
            sleep_until(looked + SHORTEST_CHECK_INTERVAL).await;
        }
    }

    /// Checks whether a new request of the caller, as they are now, would get to the target.
    ///
    /// # Errors
    /// 401, 403 and 404: what that request would get.
    pub(super) async fn check(&self) -> Result<(), ApiError> {
        let cache = self.registry.cache();
        let now = self.registry.source().now();
        let current = self.credential.current(&cache.principals(), &cache.policy(), now)?;
        let renewed = current.map(|current| self.credential.renewed(&current));
        let credential = renewed.as_ref().unwrap_or(&self.credential);
        let found = Found::find(&self.registry, &self.request.target).await?;
        self.decide(credential, &found)
    }

    /// Decides as for a new request: may the caller act as whom they act as, and does it get to the target?
    fn decide(&self, credential: &Credential, found: &Found) -> Result<(), ApiError> {
        let policy = self.registry.cache().policy();
        check_impersonation(credential, &policy)?;
        check_request(&policy, credential, found.place(), &self.request)
    }

    /// How long the request may go on before the next look; `None` when it must end.
    async fn still_holds(&self) -> Option<Duration> {
        let cache = self.registry.cache();
        let now = self.registry.source().now();
        let ends_at = {
            let policy = cache.policy();
            let current = self.credential.current(&cache.principals(), &policy, now).ok()?;
            let Some(current) = current else { return Some(LONGEST_CHECK_INTERVAL) };
            let is_same = current.identity() == self.credential.identity()
                && current.key.identity == *self.credential.shared_bearer();
            if !is_same || current.is_disabled() {
                return None;
            }
            current.key.ends_at()
        };
        let found = Found::find(&self.registry, &self.request.target).await.ok()?;
        if found != self.found {
            return None;
        }
        self.decide(&self.credential, &found).ok()?;
        let until = ends_at.map(|end| end.saturating_sub(now.unix_seconds()).max(0));
        let until = until.and_then(|seconds| u64::try_from(seconds).ok());
        let until = until.map_or(LONGEST_CHECK_INTERVAL, Duration::from_secs);
        Some(until.min(LONGEST_CHECK_INTERVAL))
    }
}
