//! The watch of a subscription: the answer for each Secret first, and each changed answer later. Bookmarks in between tell
//! the agent that nothing else has changed.
//!
//! A change of a project secret, of an instance or of a space concerns only the Secrets that depend on it. The permission of
//! the agent is checked before each answer. The watch ends as watches of objects do: with 401 when the key is no longer
//! valid, with 410 when the permission is lost, and with 503 while the store does not answer.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use postern_flow::budget::{ByteBudget, Charge};
use postern_flow::{Requester, too_many_requests};
use postern_kinds::AnyKind;
use postern_kinds::project_secret::ProjectSecret;
use postern_kinds::project_secret_usage::SecretUse;
use postern_kinds::secret_delivery::{
    ENDED, KEEP, NOT_OFFERED, NOT_OFFERED_MESSAGE, SecretDelivery, Spec,
};
use postern_kinds::secret_subscription::SubscribedSecret;
use postern_kinds::space_instance::SpaceInstance;
use postern_kinds::virtual_cluster_instance::VirtualClusterInstance;
use postern_meta::event::WatchEventType;
use postern_meta::options::ListOptions;
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;
use postern_store::Position;
use postern_telemetry::log_limited;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::delivery;
use super::offers::{self, Answer, Offered, Report, View};
use super::spaces::Spaces;
use crate::cache::Next;
use crate::permit::Permit;
use crate::registry::Registry;
use crate::registry::agent_configs::access::{AgentAccess, AgentPurpose};
use crate::registry::secret_uses::SubscriptionUses;
use crate::registry::watch::{Deliveries, Delivery, random_below};
use crate::storage_key;

/// The interval of the bookmarks. The agent treats a connection as dead after some intervals without data.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The time in which changes are collected and then answered together.
const PAUSE: Duration = Duration::from_millis(20);

/// The time until an answer that failed, or that had no room in memory, is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// The most Secrets that one step answers, and the bytes of data after which it ends.
const SECRETS_PER_STEP: usize = 64;
const BYTES_PER_STEP: usize = 256 * 1024;

/// The memory of one Secret of a subscription in addition to its text, in bytes.
const SECRET_BYTES: usize = 512;

/// The kinds whose changes can change an answer.
const KINDS: [&dyn AnyKind; 3] = [&ProjectSecret, &SpaceInstance, &VirtualClusterInstance];

/// The memory that subscriptions and their deliveries are counted in.
pub struct Room {
    /// The budget of the server.
    pub budget: Arc<ByteBudget>,
    /// The owner of the agent's key.
    pub requester: Requester,
}

/// A Secret of the subscription.
struct Target {
    wanted: SubscribedSecret,
    /// The storage key of the project secret; `None` if it cannot exist.
    key: Option<Arc<str>>,
    answered: Answered,
}

/// What the agent knows about a Secret.
enum Answered {
    /// Nothing from this subscription.
    Nothing,
    /// That it has the data of this version, and what to do at the end of the offer.
    Offered { version: String, on_end: String },
    /// That it gets no data.
    Refused,
}

/// The Secrets by the objects that their answers depend on.
#[derive(Default)]
struct Index {
    secrets: HashMap<Arc<str>, Vec<usize>>,
    space_namespaces: HashMap<String, Vec<usize>>,
    virtual_clusters: HashMap<Arc<str>, Vec<usize>>,
}

impl Index {
    fn of(targets: &[Target]) -> Self {
        let mut index = Self::default();
        for (number, Target { wanted, key, .. }) in targets.iter().enumerate() {
            // Without a possible source, no change of an instance matters.
            let Some(key) = key else { continue };
            index.secrets.entry(key.clone()).or_default().push(number);
            if let Some(instance) = &wanted.virtual_cluster {
                let info = VirtualClusterInstance.info();
                let key = storage_key::object(info, Some(&instance.namespace), &instance.name);
                index.virtual_clusters.entry(key).or_default().push(number);
            } else {
                let namespace = wanted.namespace.clone();
                index.space_namespaces.entry(namespace).or_default().push(number);
            }
        }
        index
    }
}

/// A running subscription.
pub struct SecretWatcher {
    registry: Arc<Registry>,
    access: AgentAccess,
    targets: Vec<Target>,
    index: Index,
    spaces: Spaces,
    /// The cursor in the events of each of [`KINDS`]; `None` before the first read.
    cursors: Option<[Position; KINDS.len()]>,
    /// The Secrets to answer.
    pending: BTreeSet<usize>,
    /// The Secrets whose answers failed, and when they are tried again.
    failed: BTreeSet<usize>,
    retry_at: Instant,
    uses: SubscriptionUses,
    room: Room,
    /// The charge for the subscription itself.
    _held: Charge,
    /// The charge for the deliveries that the client takes now.
    sent: Option<Charge>,
    next_bookmark: Instant,
    ends: Instant,
    has_ended: bool,
    /// Permissions and Clusters, and [`KINDS`].
    changes: Vec<watch::Receiver<u64>>,
    /// The time within which watches end, once the server shuts down.
    ending: watch::Receiver<Option<Duration>>,
    /// The part of that time after which this watch ends, in thousandths; `None` once it is applied.
    end_share: Option<u32>,
}

impl SecretWatcher {
    /// Begins a subscription to these Secrets.
    ///
    /// # Errors
    /// Those of [`AgentAccess::begin`]; 429 if the owner has no room for it.
    pub async fn begin(
        registry: &Arc<Registry>,
        permit: &Permit,
        secrets: Vec<SubscribedSecret>,
        room: Room,
        ending: watch::Receiver<Option<Duration>>,
    ) -> Result<Self, ApiError> {
        let access = AgentAccess::begin(registry, permit, AgentPurpose::Secrets).await?;
        let bytes = secrets.iter().map(bytes_of).sum();
        let held = room.budget.charge(&room.requester, bytes).ok_or_else(too_many_requests)?;
        let cache = registry.cache();
        let mut changes = vec![
            cache.subscribe_to_access(),
            cache.of(postern_kinds::cluster::Cluster.info()).subscribe(),
        ];
        changes.extend(KINDS.map(|kind| cache.of(kind.info()).subscribe()));
        let target = |wanted: SubscribedSecret| {
            let key = offers::key_of(&wanted);
            Target { wanted, key, answered: Answered::Nothing }
        };
        let targets: Vec<Target> = secrets.into_iter().map(target).collect();
        let now = Instant::now();
        Ok(Self {
            index: Index::of(&targets),
            spaces: Spaces::new(access.cluster()),
            registry: registry.clone(),
            access,
            targets,
            cursors: None,
            pending: BTreeSet::new(),
            failed: BTreeSet::new(),
            retry_at: now,
            uses: registry.secret_uses().begin(),
            room,
            _held: held,
            sent: None,
            next_bookmark: now,
            ends: now + registry.timeout_of(&ListOptions::default()),
            has_ended: false,
            changes,
            ending,
            end_share: u32::try_from(random_below(registry.source(), 1000)).ok(),
        })
    }

    /// Notes the Secrets that changes up to now concern.
    async fn note_changes(&mut self) {
        let registry = self.registry.clone();
        let cache = registry.cache();
        let Some(mut cursors) = self.cursors else { return self.note_all().await };
        for (kind, cursor) in KINDS.into_iter().zip(&mut cursors) {
            loop {
                match cache.of(kind.info()).events_after(*cursor) {
                    Next::Events(events) => {
                        for event in &events {
                            *cursor = event.position();
                            self.note(kind, event.object.key());
                        }
                    }
                    Next::Idle(revision) => {
                        *cursor = (*cursor).max(Position::end_of(revision));
                        break;
                    }
                    Next::Expired(_) => return self.note_all().await,
                }
            }
        }
        self.cursors = Some(cursors);
        if Instant::now() >= self.retry_at {
            self.pending.append(&mut self.failed);
        }
    }

    /// Notes all Secrets.
    async fn note_all(&mut self) {
        let registry = self.registry.clone();
        let cache = registry.cache();
        // The cursors are read before the objects: a change in between is noted twice.
        self.cursors = Some(KINDS.map(|kind| Position::end_of(cache.of(kind.info()).revision())));
        self.spaces.read_all(cache).await;
        self.failed.clear();
        self.pending = (0..self.targets.len()).collect();
    }

    /// Notes the Secrets that a change of an object concerns.
    fn note(&mut self, kind: &dyn AnyKind, key: &Arc<str>) {
        let concerned: Vec<usize> = match kind.info().kind {
            of if of == ProjectSecret.info().kind => {
                self.index.secrets.get(key).cloned().unwrap_or_default()
            }
            of if of == VirtualClusterInstance.info().kind => {
                self.index.virtual_clusters.get(key).cloned().unwrap_or_default()
            }
            _ => {
                let namespaces = self.spaces.read(self.registry.cache(), key);
                let of = |namespace: &String| self.index.space_namespaces.get(namespace);
                namespaces.iter().filter_map(of).flatten().copied().collect()
            }
        };
        self.pending.extend(concerned);
    }

    /// The answer for a Secret.
    fn answer(&self, number: usize) -> Result<Answer, ApiError> {
        let (cache, target) = (self.registry.cache(), &self.targets[number]);
        let Some(key) = &target.key else { return Ok(Answer::NotOffered(None)) };
        let policy = cache.policy();
        let view = View {
            cache,
            policy: &policy,
            cluster: self.access.cluster(),
            cluster_uid: self.access.cluster_uid(),
            spaces: &self.spaces,
        };
        offers::answer(&view, &target.wanted, key)
    }

    /// Records the uids of namespaces on which the answers for these Secrets depend.
    async fn record_namespaces(&mut self, numbers: &[usize]) -> Result<(), ApiError> {
        let reports = numbers.iter().filter_map(|number| match self.answer(*number) {
            Ok(Answer::Unrecorded(report)) => Some(report),
            _ => None,
        });
        let reports: HashSet<Report> = reports.collect();
        if reports.is_empty() {
            return Ok(());
        }
        let records = reports.iter().map(|report| offers::record(&self.registry, report));
        for result in futures_util::future::join_all(records).await {
            if let Err(error) = result {
                let inner = error.inner().unwrap_or_default();
                log_limited!(warn, inner, "the namespace of an offer was not recorded: {error}");
            }
        }
        self.registry.cache().wait_until_current().await?;
        self.note_changes().await;
        Ok(())
    }

    /// The deliveries of one step. Some pending Secrets may remain.
    async fn step(&mut self) -> Result<Vec<Delivery>, ApiError> {
        // A permission or an offer that another server has taken away is known before any answer.
        self.registry.cache().wait_until_current().await?;
        self.note_changes().await;
        let numbers: Vec<usize> = self.pending.iter().copied().take(SECRETS_PER_STEP).collect();
        self.record_namespaces(&numbers).await?;
        self.access.check()?;
        let mut charge = self.room.budget.open(&self.room.requester);
        let mut deliveries = Vec::new();
        for number in numbers {
            let answer = match self.answer(number) {
                Ok(answer) => answer,
                Err(error) => {
                    let inner = error.inner().unwrap_or_default();
                    log_limited!(warn, inner, "a subscribed secret has no answer: {error}");
                    self.retry(number);
                    continue;
                }
            };
            let delivery = match answer {
                Answer::Unrecorded(_) => {
                    self.retry(number);
                    continue;
                }
                Answer::NotOffered(on_end) => self.refused(number, on_end)?,
                Answer::Offered(offered) => {
                    if charge.bytes() > BYTES_PER_STEP
                        || !charge.grow(self.bytes_to_send(number, &offered))
                    {
                        break;
                    }
                    match self.offered(number, offered) {
                        Ok(delivery) => delivery,
                        Err(error) => {
                            let inner = error.inner().unwrap_or_default();
                            log_limited!(warn, inner, "a subscribed secret has no answer: {error}");
                            self.retry(number);
                            continue;
                        }
                    }
                }
            };
            self.pending.remove(&number);
            deliveries.extend(delivery);
        }
        self.sent = Some(charge);
        Ok(deliveries)
    }

    fn retry(&mut self, number: usize) {
        self.pending.remove(&number);
        self.failed.insert(number);
        self.retry_at = Instant::now() + RETRY;
    }

    /// Whether the Secret has this version of the data, as far as the agent and this subscription know.
    fn has(&self, number: usize, version: &str) -> bool {
        let target = &self.targets[number];
        match &target.answered {
            Answered::Nothing => target.wanted.version == version,
            Answered::Offered { version: known, .. } => known == version,
            Answered::Refused => false,
        }
    }

    /// The memory of a delivery of data, in bytes: the object, and its encoding in the response.
    fn bytes_to_send(&self, number: usize, offered: &Offered) -> usize {
        if self.has(number, &offered.version) { 0 } else { 2 * offered.secret.json().len() }
    }

    /// The delivery of data, if the Secret does not have it.
    fn offered(&mut self, number: usize, offered: Offered) -> Result<Option<Delivery>, ApiError> {
        let has_it = self.has(number, &offered.version);
        let Offered { secret, version, on_end } = offered;
        let target = &mut self.targets[number];
        let is_known = matches!(target.answered, Answered::Offered { .. }) && has_it;
        if is_known {
            return Ok(None);
        }
        let delivery = if has_it {
            None
        } else {
            let spec = Spec {
                version: version.clone(),
                data: delivery::data_of(&secret)?,
                on_end: on_end.clone(),
                ..Spec::of(&target.wanted)
            };
            Some(delivery::encoded(secret.key(), secret.position(), &spec)?)
        };
        let wanted = &target.wanted;
        let found = SecretUse {
            cluster: self.access.cluster().to_owned(),
            virtual_cluster: wanted.virtual_cluster.clone(),
            namespace: wanted.namespace.clone(),
            name: wanted.name.clone(),
            version: version.clone(),
            since: Some(self.registry.source().now()),
        };
        target.answered = Answered::Offered { version, on_end };
        self.uses.set(number, secret.key(), found);
        if delivery.is_some() {
            self.uses.count_delivered();
            let credential = self.access.permit().credential();
            delivery::note_reader(&self.registry, credential, &secret);
        }
        Ok(delivery.map(modified))
    }

    /// The delivery that says that a Secret gets no data, if the agent does not know it.
    fn refused(
        &mut self,
        number: usize,
        on_end: Option<String>,
    ) -> Result<Option<Delivery>, ApiError> {
        let target = &mut self.targets[number];
        let (reason, on_end) = match &target.answered {
            Answered::Refused => return Ok(None),
            Answered::Nothing => (NOT_OFFERED, String::new()),
            Answered::Offered { on_end: last, .. } => {
                let on_end = on_end.unwrap_or_else(|| last.clone());
                (ENDED, if on_end.is_empty() { KEEP.to_owned() } else { on_end })
            }
        };
        let spec = Spec {
            on_end,
            reason: reason.to_owned(),
            message: NOT_OFFERED_MESSAGE.to_owned(),
            ..Spec::of(&target.wanted)
        };
        let name = &target.wanted.name;
        let key = storage_key::object(SecretDelivery.info(), Some(&target.wanted.namespace), name);
        let position = Position::end_of(self.registry.cache().applied());
        let object = delivery::encoded(&key, position, &spec)?;
        target.answered = Answered::Refused;
        self.uses.remove(number);
        self.uses.count_refused();
        Ok(Some(modified(object)))
    }

    async fn next_deliveries(&mut self) -> Result<Option<Vec<Delivery>>, ApiError> {
        // The client has taken the last ones.
        self.sent = None;
        loop {
            // Marked as seen before the check: a later change wakes this task.
            self.changes.iter_mut().for_each(watch::Receiver::mark_unchanged);
            self.access.check()?;
            self.note_shutdown();
            if Instant::now() >= self.ends {
                return Ok(None);
            }
            self.note_changes().await;
            if !self.pending.is_empty() {
                let before = self.pending.len();
                let deliveries = self.step().await?;
                if !deliveries.is_empty() {
                    return Ok(Some(deliveries));
                }
                if self.pending.len() >= before {
                    // There is no room in memory.
                    tokio::time::sleep(PAUSE).await;
                }
                continue;
            }
            if Instant::now() >= self.next_bookmark {
                self.registry.cache().wait_until_current().await?;
                self.access.check()?;
                self.note_changes().await;
                if self.pending.is_empty() {
                    let position = Position::end_of(self.registry.cache().applied());
                    return Ok(Some(vec![Delivery::Bookmark { position, initial_end: false }]));
                }
                continue;
            }
            self.wait().await;
        }
    }

    /// Sets the end of the watch once the server shuts down.
    fn note_shutdown(&mut self) {
        let Some(within) = *self.ending.borrow() else { return };
        let Some(share) = self.end_share.take() else { return };
        self.ends = self.ends.min(Instant::now() + within / 1000 * share);
    }

    /// Waits until there may be something to send.
    async fn wait(&mut self) {
        let now = self.registry.source().now().unix_seconds();
        let key_ends = self.access.key_ends_at().map(|end| {
            let left = u64::try_from(end.saturating_sub(now)).unwrap_or_default();
            Instant::now() + Duration::from_secs(left).min(HEARTBEAT)
        });
        let retry = Some(self.retry_at).filter(|_| !self.failed.is_empty());
        let times = [Some(self.next_bookmark), key_ends, retry];
        let wake_at = times.into_iter().flatten().fold(self.ends, Instant::min);
        let changed = self.changes.iter_mut().map(|one| Box::pin(one.changed()));
        let changed = futures_util::future::select_all(changed);
        tokio::select! {
            _ = changed => {}
            () = sleep_until(wake_at) => return,
            _ = self.ending.wait_for(Option::is_some), if self.end_share.is_some() => return,
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn modified(object: crate::cache::CachedObject) -> Delivery {
    let event_type = WatchEventType::Modified;
    Delivery::Event { event_type, object: Arc::new(object), shared: None }
}

/// The memory of a Secret of a subscription, in bytes.
fn bytes_of(wanted: &SubscribedSecret) -> usize {
    let SubscribedSecret {
        namespace, namespace_uid, name, project, project_secret, version, ..
    } = wanted;
    let texts = [namespace, namespace_uid, name, project, project_secret, version];
    let instance = wanted.virtual_cluster.iter().map(|one| one.namespace.len() + one.name.len());
    // The texts of names are in the index and among the uses, too.
    SECRET_BYTES + 2 * texts.map(String::len).iter().sum::<usize>() + 2 * instance.sum::<usize>()
}

impl Deliveries for SecretWatcher {
    fn kind(&self) -> &'static dyn AnyKind {
        &SecretDelivery
    }

    fn now(&self) -> Timestamp {
        self.registry.source().now()
    }

    async fn next(&mut self) -> Option<Vec<Delivery>> {
        if self.has_ended {
            return None;
        }
        let next = self.next_deliveries().await;
        self.next_bookmark = Instant::now() + HEARTBEAT;
        match next {
            Ok(Some(deliveries)) => {
                if !self.pending.is_empty() || deliveries.iter().any(is_event) {
                    // The bookmark after the last answer comes at once.
                    self.next_bookmark = Instant::now();
                }
                Some(deliveries)
            }
            Ok(None) => {
                self.has_ended = true;
                None
            }
            Err(error) => {
                self.has_ended = true;
                Some(vec![Delivery::Failed(error)])
            }
        }
    }
}

fn is_event(delivery: &Delivery) -> bool {
    matches!(delivery, Delivery::Event { .. })
}
