//! The state of an agent: what it has heard last, and when; and the decision about a request.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arc_swap::ArcSwapOption;
use http::HeaderMap;
use parking_lot::Mutex;
use postern_auth::endpoint_token::{TokenRefusal, VerifiedToken};
use postern_auth::gateway_path::GatewayTarget;
use postern_auth::kube_request::KubeRequest;
use postern_auth::policy::target::{ForwardedIdentity, TargetRefusal, TargetRequest};
use postern_kinds::agent_config::{Part, Spec};
use postern_meta::time::MicroTimestamp;
use tokio::sync::watch;

use crate::feed::Feed;
use crate::lifespan::Lifespan;

/// The time.
pub type Clock = Arc<dyn Fn() -> MicroTimestamp + Send + Sync>;

/// The agent's state.
pub(crate) struct State {
    clock: Clock,
    max_offline_seconds: i64,
    feed: ArcSwapOption<Feed>,
    /// The parts of which the feed is made.
    parts: Mutex<Parts>,
    /// When the central server was heard last about each part, in seconds since 1970, in the order of [`Part::ALL`].
    heard_at: [AtomicI64; 2],
    changed: watch::Sender<u64>,
}

/// The last configuration, part by part. The fields of the other part are empty.
#[derive(Default)]
struct Parts {
    tokens: Option<Spec>,
    places: Option<Spec>,
}

impl Parts {
    /// Takes a part. If the other part is of another cluster (one that was deleted and created again), it is
    /// forgotten.
    fn take(&mut self, part: Part, spec: Spec) {
        let (own, other) = match part {
            Part::Tokens => (&mut self.tokens, &mut self.places),
            Part::Places => (&mut self.places, &mut self.tokens),
        };
        if other.as_ref().is_some_and(|other| other.cluster != spec.cluster) {
            *other = None;
        }
        *own = Some(spec);
    }

    /// The whole; `None` without all parts.
    fn whole(&self) -> Option<Spec> {
        let (tokens, places) = (self.tokens.as_ref()?, self.places.as_ref()?);
        let (instances, uses) = (places.instances.clone(), places.uses.clone());
        Some(Spec { instances, uses, part: String::new(), ..tokens.clone() })
    }
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
    /// The state of an agent that has heard nothing.
    pub(crate) fn new(clock: Clock, max_offline_seconds: i64) -> Self {
        Self {
            clock,
            max_offline_seconds,
            feed: ArcSwapOption::empty(),
            parts: Mutex::default(),
            heard_at: [const { AtomicI64::new(0) }; 2],
            changed: watch::Sender::new(0),
        }
    }

    /// The time, in seconds since 1970.
    pub(crate) fn now(&self) -> i64 {
        (self.clock)().unix_microseconds().div_euclid(1_000_000)
    }

    /// The clock.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Takes what the central server said at a time. Returns whether it is something new.
    pub(crate) fn hear(&self, spec: Spec, at: i64) -> bool {
        let mut parts = self.parts.lock();
        let places = Spec {
            cluster: spec.cluster.clone(),
            instances: spec.instances.clone(),
            uses: spec.uses.clone(),
            ..Spec::default()
        };
        let tokens = Spec { instances: Vec::new(), uses: Vec::new(), ..spec };
        *parts = Parts { tokens: Some(tokens), places: Some(places) };
        self.hear_the_same(None, at);
        self.decide_from(&parts)
    }

    /// Takes what the central server said about one part at a time. Returns whether it is something new.
    pub(crate) fn hear_part(&self, part: Part, spec: Spec, at: i64) -> bool {
        let mut parts = self.parts.lock();
        parts.take(part, spec);
        self.hear_the_same(Some(part), at);
        self.decide_from(&parts)
    }

    /// Takes that the central server says the same as last time, about a part or the whole.
    pub(crate) fn hear_the_same(&self, part: Option<Part>, at: i64) {
        for (one, heard_at) in Part::ALL.into_iter().zip(&self.heard_at) {
            if part.is_none_or(|part| part == one) {
                heard_at.store(at, Ordering::Release);
            }
        }
    }

    /// Decides from these parts from now on; from nothing, if they are not all there.
    fn decide_from(&self, parts: &Parts) -> bool {
        let (last, spec) = (self.feed.load_full(), parts.whole());
        if last.as_ref().map(|last| &last.spec) == spec.as_ref() {
            return false;
        }
        let feed = spec.map(|spec| Arc::new(Feed::new(spec, last.as_deref())));
        self.feed.store(feed);
        self.changed.send_modify(|version| *version += 1);
        true
    }

    /// The time at which the central server was last heard about all parts.
    fn heard_at(&self) -> i64 {
        let [tokens, places] = self.heard_at.each_ref().map(|at| at.load(Ordering::Acquire));
        tokens.min(places)
    }

    /// The last configuration, and the time at which it was heard.
    pub(crate) fn heard(&self) -> Option<(Spec, i64)> {
        let at = self.heard_at();
        self.feed.load().as_ref().map(|feed| (feed.spec.clone(), at))
    }

    /// How long the central server was not heard; `None` when it never was.
    pub(crate) fn silent_seconds(&self) -> Option<u64> {
        self.feed.load().as_ref()?;
        let seconds = self.now().saturating_sub(self.heard_at());
        Some(seconds.max(0).unsigned_abs())
    }

    /// A subscription to what changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The input of decisions at this time.
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
        let silent_seconds = self.now().saturating_sub(self.heard_at());
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
