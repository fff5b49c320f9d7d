//! The state of an agent: what it has heard last, and when; and the decision about a request.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arc_swap::ArcSwapOption;
use http::HeaderMap;
use postern_auth::endpoint_token::{TokenRefusal, VerifiedToken};
use postern_auth::gateway_path::GatewayTarget;
use postern_auth::kube_request::KubeRequest;
use postern_auth::policy::target::{ForwardedIdentity, TargetRefusal, TargetRequest};
use postern_kinds::agent_config::Spec;
use postern_meta::time::MicroTimestamp;
use tokio::sync::watch;

use crate::feed::Feed;
use crate::lifespan::Lifespan;

/// Returns the time.
pub type Clock = Arc<dyn Fn() -> MicroTimestamp + Send + Sync>;

/// What an agent knows.
pub(crate) struct State {
    clock: Clock,
    max_offline_seconds: i64,
    feed: ArcSwapOption<Feed>,
    /// When the central server was heard last, in seconds since 1970.
    heard_at: AtomicI64,
    changed: watch::Sender<u64>,
}

/// Why a request is not let through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The central server was never heard.
    NeverHeard,
    /// It was not heard for too long.
    Offline,
    /// The token: why is for the log alone.
    Token(TokenRefusal),
    /// The request.
    Target(TargetRefusal),
    /// A name of the caller cannot be sent.
    Unsendable,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverHeard => f.write_str("the agent has not heard from the central server yet"),
            Self::Offline => f.write_str(
                "the agent has heard nothing from the central server for longer than --max-offline",
            ),
            Self::Token(refusal) => refusal.fmt(f),
            Self::Target(refusal) => refusal.fmt(f),
            Self::Unsendable => f.write_str("the name of the caller cannot be sent in a header"),
        }
    }
}

/// A request that gets through.
#[derive(Debug)]
pub(crate) struct Allowed {
    /// Whose it is.
    pub(crate) token: Arc<VerifiedToken>,
    /// The headers of the impersonation.
    pub(crate) headers: HeaderMap,
}

impl State {
    /// Returns the state of an agent that has heard nothing.
    pub(crate) fn new(clock: Clock, max_offline_seconds: i64) -> Self {
        let (feed, heard_at) = (ArcSwapOption::empty(), AtomicI64::new(0));
        Self { clock, max_offline_seconds, feed, heard_at, changed: watch::Sender::new(0) }
    }

    /// Returns the time, in seconds since 1970.
    pub(crate) fn now(&self) -> i64 {
        (self.clock)().unix_microseconds().div_euclid(1_000_000)
    }

    /// Returns what the time is read from.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Takes what the central server said at a time. Returns whether it is something new.
    pub(crate) fn hear(&self, spec: Spec, at: i64) -> bool {
        let last = self.feed.load_full();
        let is_new = last.as_ref().is_none_or(|last| last.spec != spec);
        if is_new {
            self.feed.store(Some(Arc::new(Feed::new(spec, last.as_deref()))));
        }
        self.heard_at.store(at, Ordering::Release);
        if is_new {
            self.changed.send_modify(|version| *version += 1);
        }
        is_new
    }

    /// Takes that the central server says the same as last time. Returns `false`: it is nothing new.
    pub(crate) fn hear_the_same(&self, at: i64) -> bool {
        self.heard_at.store(at, Ordering::Release);
        false
    }

    /// Returns what was heard last.
    pub(crate) fn heard(&self) -> Option<Spec> {
        self.feed.load().as_ref().map(|feed| feed.spec.clone())
    }

    /// Returns how long the central server was not heard; `None` when it never was.
    pub(crate) fn silent_seconds(&self) -> Option<u64> {
        self.feed.load().as_ref()?;
        let seconds = self.now().saturating_sub(self.heard_at.load(Ordering::Acquire));
        Some(seconds.max(0).unsigned_abs())
    }

    /// Returns a subscription to what changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Returns what is decided from now.
    ///
    /// # Errors
    /// [`Refused::NeverHeard`] and [`Refused::Offline`].
    pub(crate) fn feed(&self) -> Result<Arc<Feed>, Refused> {
        let feed = self.feed.load_full().ok_or(Refused::NeverHeard)?;
        let limit = self.max_offline_seconds.min(match feed.spec.max_offline_seconds {
            // A central server that says nothing about it leaves it to the agent.
            0 => i64::MAX,
            seconds => seconds,
        });
        let silent_seconds = self.now().saturating_sub(self.heard_at.load(Ordering::Acquire));
        if silent_seconds > limit { Err(Refused::Offline) } else { Ok(feed) }
    }

    /// Decides about a request.
    ///
    /// # Errors
    /// Why it does not get through.
    pub(crate) fn decide(
        &self,
        token: &str,
        target: &GatewayTarget,
        kube: &KubeRequest,
    ) -> Result<Allowed, Refused> {
        self.decide_at(token, target, kube, self.now())
    }

    /// Does what was allowed still hold? What outlives its token does, as far as nothing else has changed.
    pub(crate) fn still_allows(
        &self,
        token: &str,
        allowed: &VerifiedToken,
        target: &GatewayTarget,
        kube: &KubeRequest,
        lifespan: Lifespan,
    ) -> bool {
        let of_key = lifespan == Lifespan::Key;
        if of_key && allowed.keys_end().is_some_and(|end| end <= self.now()) {
            return false;
        }
        let now = match lifespan {
            Lifespan::Token => self.now(),
            Lifespan::Answer | Lifespan::Key | Lifespan::Gateway => self.now().min(allowed.expires),
        };
        self.decide_at(token, target, kube, now).is_ok()
    }

    fn decide_at(
        &self,
        token: &str,
        target: &GatewayTarget,
        kube: &KubeRequest,
        now: i64,
    ) -> Result<Allowed, Refused> {
        let feed = self.feed()?;
        let token = feed.verifier.verify(token, now).map_err(Refused::Token)?;
        let request = TargetRequest::new(feed.place(target), kube);
        let decided = feed.policy.decide_at_target(&token.identity, &request);
        decided.map_err(Refused::Target)?;
        let groups = &feed.spec.forward_groups;
        let forwarded =
            ForwardedIdentity::of(&token.identity, None, groups).map_err(Refused::Target)?;
        let headers = forwarded.headers().ok_or(Refused::Unsendable)?;
        Ok(Allowed { token, headers })
    }
}
