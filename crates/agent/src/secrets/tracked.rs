//! One labelled Secret in the table, and the next step for it.

use postern_kinds::secret_subscription::SubscribedSecret;
use tokio::time::Instant;

use super::location::{Place, SecretId};
use super::native::{Metadata, Source};

/// The wish of a Secret, as it is posted.
pub(super) type Wish = SubscribedSecret;

/// One Secret.
pub(super) struct Tracked {
    pub(super) metadata: Metadata,
    pub(super) source: Source,
    pub(super) step: Step,
    /// The data that the Secret has, if the agent knows.
    pub(super) known: Option<KnownData>,
    /// Whether it has changed since then.
    pub(super) is_changed: bool,
    /// Whether the end of its offer was handled.
    pub(super) has_ended: bool,
    /// Before this, no writer of the Secret causes another step.
    pub(super) not_before: Instant,
    pub(super) failures: u32,
    /// The number of the last delivery to it.
    pub(super) delivery: u64,
}

/// The next step for a Secret.
#[derive(Clone, Copy)]
pub(super) enum Step {
    /// Its data comes from the central server.
    Subscribe,
    /// After this time it is subscribed again.
    Pause(Instant),
    /// It is subscribed again after its writer has changed it.
    Await,
}

/// The data that a Secret had when the agent read or wrote it.
pub(super) struct KnownData {
    pub(super) version: String,
    pub(super) checksum: u64,
    pub(super) resource_version: String,
}

/// Whether a Secret must be read again.
#[derive(PartialEq, Eq)]
pub(super) enum Verification {
    Needed,
    NotNeeded,
}

/// The parts of a Secret that another subscription depends on.
#[derive(PartialEq, Eq)]
pub(super) struct WishKey {
    source: Source,
    is_wished: bool,
    uid: String,
}

/// The age of a Secret: the oldest comes first, and the names decide about those of one second.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Age {
    created: String,
    id: SecretId,
}

impl Tracked {
    pub(super) fn new(metadata: Metadata, source: Source, now: Instant) -> Self {
        Self {
            metadata,
            source,
            step: Step::Subscribe,
            known: None,
            is_changed: false,
            has_ended: false,
            not_before: now,
            failures: 0,
            delivery: 0,
        }
    }

    pub(super) fn age(&self, id: &SecretId) -> Age {
        Age { created: self.metadata.creation_timestamp.clone(), id: id.clone() }
    }

    /// Whether the agent has filled it.
    pub(super) fn is_filled(&self) -> bool {
        self.metadata.is_filled() || self.known.is_some()
    }

    /// Notes the Secret as it is now.
    pub(super) fn update(
        &mut self,
        metadata: Metadata,
        source: Source,
        now: Instant,
    ) -> Verification {
        if metadata.resource_version == self.metadata.resource_version {
            return Verification::NotNeeded;
        }
        let is_other =
            source != self.source || metadata.is_disabled() != self.metadata.is_disabled();
        (self.metadata, self.source) = (metadata, source);
        if is_other {
            (self.known, self.is_changed, self.has_ended) = (None, false, false);
            self.step = Step::Subscribe;
            return Verification::NotNeeded;
        }
        if matches!(self.step, Step::Await) {
            self.step = Step::Pause(self.not_before.max(now));
        }
        let version = &self.metadata.resource_version;
        self.is_changed = self.known.as_ref().is_some_and(|one| one.resource_version != *version);
        if self.is_changed { Verification::Needed } else { Verification::NotNeeded }
    }

    /// Ends a pause that is over. Returns whether it was.
    pub(super) fn end_pause(&mut self, now: Instant) -> bool {
        let is_over = matches!(self.step, Step::Pause(until) if until <= now);
        if is_over {
            self.step = Step::Subscribe;
        }
        is_over
    }

    /// Whether it is subscribed.
    pub(super) fn is_wished(&self) -> bool {
        matches!(self.step, Step::Subscribe) && !self.metadata.is_disabled()
    }

    pub(super) fn wish_key(&self) -> WishKey {
        WishKey {
            source: self.source.clone(),
            is_wished: self.is_wished(),
            uid: self.metadata.uid.clone(),
        }
    }

    /// Its wish. `namespace_uid` is that of the namespace of its instance.
    pub(super) fn wish(&self, id: &SecretId, namespace_uid: &str) -> Wish {
        let virtual_cluster = match &id.place {
            Place::Cluster => None,
            Place::VirtualCluster(instance) => Some(instance.clone()),
        };
        let version = self.known.as_ref().map(|known| known.version.clone());
        SubscribedSecret {
            namespace: id.namespace.clone(),
            namespace_uid: namespace_uid.to_owned(),
            name: id.name.clone(),
            virtual_cluster,
            project: self.source.project.clone(),
            project_secret: self.source.project_secret.clone(),
            version: version.unwrap_or_default(),
        }
    }
}
