//! The session of a request to a target. It ends when the caller loses access (`docs/reference/clusters.md#streams`).

use std::sync::Arc;
use std::time::Duration;

use postern_meta::status::ApiError;
use postern_proxy::Session;
use postern_registry::credential::Credential;
use postern_registry::credential::check_impersonation;
use postern_registry::registry::Registry;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::target_state::{TargetState, kinds};
use postern_http::stages::authorize::check_request;
use postern_http::stages::parse::GatewayRequest;
use postern_http::wire::body::Guards;

/// The longest time between two checks. They find changes that depend on time alone.
const LONGEST_CHECK_INTERVAL: Duration = Duration::from_hours(1);

/// The shortest time between two checks. Each change of a role or a Secret makes every open stream check, and there can
/// be many of both. A stream that is older than this checks a single change at once.
const SHORTEST_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// A request and its caller.
pub(super) struct Caller {
    pub(super) registry: Arc<Registry>,
    pub(super) credential: Credential,
    pub(super) request: Arc<GatewayRequest>,
    pub(super) target: TargetState,
}

/// The session of a request. It ends when the caller loses access, or when the target's state changes. A watch also
/// ends when the server drains. `guards` lives as long as the session.
pub(super) fn of(
    caller: Arc<Caller>,
    draining: watch::Receiver<bool>,
    max_session: Duration,
    guards: Guards,
) -> Session {
    let kube = &caller.request.kube;
    let (is_watch, is_long) = (kube.is_watch(), kube.is_long());
    let session = Session::until(async move {
        let _guards = guards;
        tokio::select! {
            () = caller.until_refused() => {}
            () = drained(draining), if is_watch => {}
        }
    });
    if is_long && !is_watch { session.with_deadline(Instant::now() + max_session) } else { session }
}

async fn drained(mut draining: watch::Receiver<bool>) {
    let _ = draining.wait_for(|draining| *draining).await;
}

impl Caller {
    /// Waits until the caller loses access.
    async fn until_refused(&self) {
        let cache = self.registry.cache();
        // The request was just authorized, and most requests end before the next check.
        sleep(SHORTEST_CHECK_INTERVAL).await;
        // The subscriptions come before the check, so that no change is missed.
        let mut access = cache.subscribe_to_access();
        let mut objects = kinds().map(|kind| cache.of(kind.info()).subscribe());
        while let Some(next) = self.recheck().await {
            let checked_at = Instant::now();
            let [one, two, three, four] = &mut objects;
            tokio::select! {
                _ = access.changed() => {}
                _ = one.changed() => {}
                _ = two.changed() => {}
                _ = three.changed() => {}
                _ = four.changed() => {}
                () = sleep(next) => {}
            }
            sleep_until(checked_at + SHORTEST_CHECK_INTERVAL).await;
        }
    }

    /// Checks whether a new request with the caller's current permissions would get to the target.
    ///
    /// # Errors
    /// The 401, 403 or 404 of that request.
    pub(super) async fn check(&self) -> Result<(), ApiError> {
        let cache = self.registry.cache();
        let now = self.registry.source().now();
        let current = self.credential.current(cache, &cache.policy(), now)?;
        let renewed = current.map(|current| self.credential.renewed(&current));
        let credential = renewed.as_ref().unwrap_or(&self.credential);
        let target = TargetState::find(&self.registry, &self.request.target).await?;
        self.decide(credential, &target)
    }

    /// Decides as for a new request: checks impersonation, and access to the target.
    fn decide(&self, credential: &Credential, target: &TargetState) -> Result<(), ApiError> {
        let policy = self.registry.cache().policy();
        check_impersonation(credential, &policy)?;
        check_request(&policy, credential, target.resolved(), &self.request)
    }

    /// The time until the next check; `None` when the request must end.
    async fn recheck(&self) -> Option<Duration> {
        let cache = self.registry.cache();
        let now = self.registry.source().now();
        let ends_at = {
            let policy = cache.policy();
            let current = self.credential.current(cache, &policy, now).ok()?;
            let Some(current) = current else { return Some(LONGEST_CHECK_INTERVAL) };
            let is_same = current.identity() == self.credential.identity()
                && current.key.identity == *self.credential.shared_bearer();
            if !is_same || current.is_disabled() {
                return None;
            }
            current.key.ends_at()
        };
        let target = TargetState::find(&self.registry, &self.request.target).await.ok()?;
        if target != self.target {
            return None;
        }
        self.decide(&self.credential, &target).ok()?;
        let until = ends_at.map(|end| end.saturating_sub(now.unix_seconds()).max(0));
        let until = until.and_then(|seconds| u64::try_from(seconds).ok());
        let until = until.map_or(LONGEST_CHECK_INTERVAL, Duration::from_secs);
        Some(until.min(LONGEST_CHECK_INTERVAL))
    }
}
