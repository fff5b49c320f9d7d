//! The state of an agent: its last configuration, the time of the last contact, and the decision about a request.

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

use crate::active_config::ActiveConfig;
use crate::lifespan::Lifespan;
use crate::metrics::reason_of;

/// The time.
pub type Clock = Arc<dyn Fn() -> MicroTimestamp + Send + Sync>;

/// The agent's state.
pub(crate) struct State {
    clock: Clock,
    max_offline_seconds: i64,
    config: ArcSwapOption<ActiveConfig>,
    /// The parts of the configuration.
    parts: Mutex<Parts>,
    /// The time of the last contact about each part, in seconds since 1970, in the order of [`Part::ALL`].
    contacted_at: [AtomicI64; 2],
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

/// Why a request is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// There is no configuration yet.
    NotConfigured,
    /// The last contact to the central server is too old.
    Offline,
    /// The token: why is for the log alone.
    Token(TokenRefusal),
    /// The request.
    Target(TargetRefusal),
    /// A name of the caller cannot be sent.
    Unsendable,
}

impl Refused {
    /// The kind of refusal, of which there are few.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::NotConfigured => "configuration",
            Self::Offline => "offline",
            Self::Token(refusal) => reason_of(*refusal),
            Self::Target(_) => "target",
            Self::Unsendable => "unsendable",
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConfigured => {
                f.write_str("the agent has no configuration from the central server yet")
            }
            Self::Offline => f.write_str(
                "the agent has had no contact to the central server for longer than --max-offline",
            ),
            Self::Token(refusal) => refusal.fmt(f),
            Self::Target(refusal) => refusal.fmt(f),
            Self::Unsendable => f.write_str("the name of the caller cannot be sent in a header"),
        }
    }
}

/// An allowed request.
#[derive(Debug)]
pub(crate) struct Allowed {
    /// The token of the caller.
    pub(crate) token: Arc<VerifiedToken>,
    /// The headers of the impersonation.
    pub(crate) headers: HeaderMap,
}

impl State {
    /// The state of an agent without a configuration.
    pub(crate) fn new(clock: Clock, max_offline_seconds: i64) -> Self {
        Self {
            clock,
            max_offline_seconds,
            config: ArcSwapOption::empty(),
            parts: Mutex::default(),
            contacted_at: [const { AtomicI64::new(0) }; 2],
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

    /// Applies a whole configuration that was received at a time. Returns whether it differs from the last one.
    pub(crate) fn apply_config(&self, spec: Spec, at: i64) -> bool {
        let mut parts = self.parts.lock();
        let places = Spec {
            cluster: spec.cluster.clone(),
            instances: spec.instances.clone(),
            uses: spec.uses.clone(),
            ..Spec::default()
        };
        let tokens = Spec { instances: Vec::new(), uses: Vec::new(), ..spec };
        *parts = Parts { tokens: Some(tokens), places: Some(places) };
        self.confirm_unchanged(None, at);
        self.activate(&parts)
    }

    /// Applies one part of the configuration. Returns whether the configuration changed.
    pub(crate) fn apply_part(&self, part: Part, spec: Spec, at: i64) -> bool {
        let mut parts = self.parts.lock();
        parts.take(part, spec);
        self.confirm_unchanged(Some(part), at);
        self.activate(&parts)
    }

    /// Notes a contact that confirmed a part, or the whole, unchanged.
    pub(crate) fn confirm_unchanged(&self, part: Option<Part>, at: i64) {
        for (one, contacted_at) in Part::ALL.into_iter().zip(&self.contacted_at) {
            if part.is_none_or(|part| part == one) {
                contacted_at.store(at, Ordering::Release);
            }
        }
    }

    /// Makes these parts the active configuration; none, if a part is missing.
    fn activate(&self, parts: &Parts) -> bool {
        let (last, spec) = (self.config.load_full(), parts.whole());
        if last.as_ref().map(|last| &last.spec) == spec.as_ref() {
            return false;
        }
        let config = spec.map(|spec| Arc::new(ActiveConfig::new(spec, last.as_deref())));
        self.config.store(config);
        self.changed.send_modify(|version| *version += 1);
        true
    }

    /// The time of the last contact about all parts: the oldest of them.
    fn contacted_at(&self) -> i64 {
        let [tokens, places] = self.contacted_at.each_ref().map(|at| at.load(Ordering::Acquire));
        tokens.min(places)
    }

    /// The names of all servers; empty if they are not known, or if there is only one.
    pub(crate) fn servers(&self) -> Vec<String> {
        self.config.load().as_ref().map(|config| config.spec.servers.clone()).unwrap_or_default()
    }

    /// Waits until there is a configuration.
    pub(crate) async fn configured(&self) {
        let mut changes = self.changed.subscribe();
        loop {
            let is_there = self.config.load().is_some();
            if is_there || changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// The uid of the Cluster, if it is known.
    pub(crate) fn cluster_uid(&self) -> Option<String> {
        self.config.load().as_ref().map(|config| config.spec.cluster.uid.clone())
    }

    /// The last configuration, and the time of the last contact.
    pub(crate) fn last_config(&self) -> Option<(Spec, i64)> {
        let at = self.contacted_at();
        self.config.load().as_ref().map(|config| (config.spec.clone(), at))
    }

    /// The seconds since the last contact; `None` without a configuration.
    pub(crate) fn seconds_without_contact(&self) -> Option<u64> {
        self.config.load().as_ref()?;
        let seconds = self.now().saturating_sub(self.contacted_at());
        Some(seconds.max(0).unsigned_abs())
    }

    /// A subscription to changes of the configuration.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The configuration from which to decide now.
    ///
    /// # Errors
    /// [`Refused::NotConfigured`] and [`Refused::Offline`].
    pub(crate) fn config(&self) -> Result<Arc<ActiveConfig>, Refused> {
        let config = self.config.load_full().ok_or(Refused::NotConfigured)?;
        let limit = self.max_offline_seconds.min(match config.spec.max_offline_seconds {
            // If the central server sets no limit, only the agent's own limit applies.
            0 => i64::MAX,
            seconds => seconds,
        });
        let seconds_without_contact = self.now().saturating_sub(self.contacted_at());
        if seconds_without_contact > limit { Err(Refused::Offline) } else { Ok(config) }
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

    /// Whether an allowed request is still allowed. The end of the token counts only for [`Lifespan::Token`].
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
        let config = self.config()?;
        let token = config.verifier.verify(token, now).map_err(Refused::Token)?;
        let request = TargetRequest::new(config.resolve(target), kube);
        let decided = config.policy.decide_at_target(&token.identity, &request);
        decided.map_err(Refused::Target)?;
        let groups = &config.spec.forward_groups;
        let forwarded =
            ForwardedIdentity::of(&token.identity, None, groups).map_err(Refused::Target)?;
        let headers = forwarded.headers().ok_or(Refused::Unsendable)?;
        Ok(Allowed { token, headers })
    }
}
