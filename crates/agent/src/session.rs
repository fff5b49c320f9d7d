//! The lifetime of a request: it ends when its token no longer allows it
//! (`docs/reference/endpoint-tokens.md#lifetime`).

use std::sync::Arc;
use std::time::Duration;

use postern_auth::bearer::BearerToken;
use postern_auth::endpoint_token::{TokenRefusal, VerifiedToken};
use postern_auth::gateway_path::GatewayTarget;
use postern_auth::kube_request::KubeRequest;
use postern_proxy::Session;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::audit::Record;
use crate::flow::FlowPermit;
use crate::lifespan::Lifespan;
use crate::route::Route;
use crate::state::{Refused, State};

/// How often decisions by time alone are checked: the agent may be without contact for too long.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// An allowed request.
pub(crate) struct Caller {
    pub(crate) state: Arc<State>,
    pub(crate) bearer: BearerToken,
    pub(crate) token: Arc<VerifiedToken>,
    pub(crate) target: GatewayTarget,
    pub(crate) kube: Arc<KubeRequest>,
    pub(crate) route: Route,
    pub(crate) lifespan: Lifespan,
    /// Counts it among the caller's requests.
    pub(crate) _permit: FlowPermit,
    /// Records its end.
    pub(crate) _record: Arc<Record>,
}

/// The session of a request. It ends when its token would be rejected, or when its target gets
/// another route; a watch also ends when the agent drains. A bidirectional stream may continue
/// after the token's end, until the end of the access key or `max_session`. A stream that the
/// gateway has opened may continue until the gateway ends it, or `max_session`. Every other long
/// request ends with the token.
pub(crate) fn of(
    caller: Arc<Caller>,
    draining: watch::Receiver<bool>,
    max_session: Duration,
) -> Session {
    let is_watch = caller.kube.is_watch();
    let now = caller.state.now();
    let left = |end: i64| Duration::from_secs(end.saturating_sub(now).max(0).unsigned_abs());
    let of_keys = || caller.token.keys_end().map_or(Duration::MAX, left);
    let longest = match caller.lifespan {
        Lifespan::Answer => None,
        Lifespan::Token => Some(left(caller.token.expires)),
        Lifespan::Key => Some(max_session.min(of_keys())),
        Lifespan::Gateway => Some(max_session),
    };
    let session = Session::until(async move {
        tokio::select! {
            () = caller.refused() => {}
            () = caller.route.changed() => {}
            () = drained(draining), if is_watch => {}
        }
    });
    match longest {
        Some(longest) => session.with_deadline(Instant::now() + longest),
        None => session,
    }
}

async fn drained(mut draining: watch::Receiver<bool>) {
    let _ = draining.wait_for(|draining| *draining).await;
}

impl Caller {
    /// The reason why the request would be rejected now; `None` if it would be allowed.
    pub(crate) fn refusal(&self) -> Option<Refused> {
        let decided = self.state.decide(self.bearer.expose(), &self.target, &self.kube);
        // New requests get some extra seconds, in case clocks differ. Requests under way do not.
        let is_over = self.lifespan == Lifespan::Token && self.token.expires <= self.state.now();
        decided.err().or_else(|| is_over.then_some(Refused::Token(TokenRefusal::Expired)))
    }

    /// Whether the target still has the same location.
    fn is_target_unmoved(&self) -> bool {
        self.route.virtual_cluster().is_none_or(|target| {
            let config = self.state.config();
            config.is_ok_and(|config| config.virtual_cluster(&self.target).as_ref() == Some(target))
        })
    }

    /// Waits until the request would be rejected.
    async fn refused(&self) {
        // Subscribed first, so that no change from here on is missed.
        let mut changes = self.state.subscribe();
        let allows = || {
            let bearer = self.bearer.expose();
            let (token, target, kube) = (&self.token, &self.target, &self.kube);
            self.is_target_unmoved()
                && self.state.still_allows(bearer, token, target, kube, self.lifespan)
        };
        while allows() {
            tokio::select! {
                _ = changes.changed() => {}
                () = sleep(CHECK_INTERVAL) => {}
            }
        }
    }
}
