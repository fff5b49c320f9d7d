//! Deliveries to Secrets: each is checked against the Secret as it is, recorded, and written. The precondition of a write
//! is the resourceVersion that was read.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use postern_kinds::secret_delivery::{NOT_OFFERED, Spec as Delivery};
use postern_kinds::secret_subscription::InstanceRef;
use postern_meta::time::Timestamp;
use tokio::time::{Instant, sleep, timeout};

use super::SecretsSettings;
use super::cluster_api::{ApiFailure, ClusterApi, Server};
use super::events::{self, Admission, Notice, RecentEvents};
use super::fill::{self, Change, Plan, Refusal};
use super::location::{InstanceKey, Place, SecretId};
use super::native::{Metadata, Source};
use super::table::{LeftOut, Outcome, Table};
use crate::active_config::{ActiveConfig, PlacedVirtualCluster};
use crate::audit::OwnWrite;
use crate::rare_line::RareLines;
use crate::secret_counts::{SecretCounts, SyncFailure};
use crate::serve::Agent;

/// How often a Secret is read and written when others change it at the same time, or the API server does not respond.
const MAX_ATTEMPTS: u32 = 4;

/// The pause before the second attempt. It doubles.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(200);

/// How long a virtual cluster that did not respond is not asked again.
const DOWN_TIME: Duration = Duration::from_secs(10);

/// How often the agent looks for Secrets to verify whose time has come.
const VERIFY_INTERVAL: Duration = Duration::from_secs(1);

/// How often the agent looks whether the central server has answered since the start.
const CONTACT_INTERVAL: Duration = Duration::from_millis(200);

/// Failures of deliveries, of lists and of Events. Tenants can cause them.
pub(super) static FAILURES: RareLines = RareLines::new();

/// There are too many Secrets.
const LEFT_OUT: Notice = Notice {
    reason: "SecretLimitReached",
    message: "not filled: the agent fills at most 1,000 Secrets of a space or virtual cluster, the oldest ones, and at \
              most 10,000 in all",
};

const REMOVED: Notice = Notice {
    reason: "SecretSyncEnded",
    message: "not offered here; the data of the last sync was removed",
};

/// Where the instances of the cluster are.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Locations {
    /// The namespaces of spaces.
    pub(super) spaces: BTreeSet<String>,
    pub(super) virtual_clusters: BTreeMap<InstanceRef, PlacedVirtualCluster>,
}

impl Locations {
    pub(super) fn of(config: &ActiveConfig) -> Self {
        Self { spaces: config.space_namespaces(), virtual_clusters: config.virtual_clusters() }
    }

    /// The instances.
    pub(super) fn keys(&self) -> BTreeSet<InstanceKey> {
        let spaces = self.spaces.iter().cloned().map(InstanceKey::Space);
        let others = self.virtual_clusters.keys().cloned().map(InstanceKey::VirtualCluster);
        spaces.chain(others).collect()
    }

    /// The namespace of the cluster that an instance is in; `None` if there is no such instance.
    pub(super) fn namespace_of(&self, key: &InstanceKey) -> Option<&str> {
        match key {
            InstanceKey::Space(namespace) => self.spaces.get(namespace).map(String::as_str),
            InstanceKey::VirtualCluster(instance) => {
                self.virtual_clusters.get(instance).map(|one| &*one.at.namespace)
            }
        }
    }
}

/// The result of a delivery.
enum Delivered {
    /// The Secret has the data, at this resourceVersion.
    HasData(String),
    /// The data that the agent wrote was removed.
    Removed,
    Refused(Refusal),
    /// The Secret is no target of the delivery any more.
    Left,
}

/// Fills Secrets.
pub(super) struct SecretSync {
    pub(super) agent: Arc<Agent>,
    pub(super) settings: SecretsSettings,
    pub(super) table: Table,
    pub(super) api: ClusterApi,
    locations: Mutex<Arc<Locations>>,
    recent: RecentEvents,
    /// Until when virtual clusters that did not respond are left alone.
    down: Mutex<HashMap<Place, Instant>>,
}

impl SecretSync {
    pub(super) fn new(agent: Arc<Agent>, settings: SecretsSettings) -> Arc<Self> {
        Arc::new(Self {
            api: ClusterApi::new(agent.clone()),
            agent,
            settings,
            table: Table::new(),
            locations: Mutex::default(),
            recent: RecentEvents::default(),
            down: Mutex::default(),
        })
    }

    pub(super) fn counts(&self) -> &SecretCounts {
        &self.agent.secrets
    }

    /// Where the instances are.
    pub(super) fn locations(&self) -> Arc<Locations> {
        self.locations.lock().clone()
    }

    pub(super) fn set_locations(&self, locations: Locations) {
        *self.locations.lock() = Arc::new(locations);
    }

    /// Waits until the central server has answered since the start.
    pub(super) async fn heard_since_start(&self) {
        let state = &self.agent.state;
        let started = state.now();
        loop {
            let age = state.seconds_without_contact().and_then(|age| i64::try_from(age).ok());
            if age.is_some_and(|age| state.now() - age > started) {
                return;
            }
            sleep(CONTACT_INTERVAL).await;
        }
    }

    /// The API server of a place; `None` if it is no longer known.
    fn server(&self, place: &Place) -> Option<Server> {
        match place {
            Place::Cluster => Some(Server::Cluster),
            Place::VirtualCluster(instance) => {
                let locations = self.locations();
                let found = locations.virtual_clusters.get(instance);
                found.map(|one| Server::VirtualCluster(one.at.clone()))
            }
        }
    }

    /// Gives a Secret what the central server sent for it.
    pub(super) async fn deliver(&self, mut delivery: Delivery) {
        let id = id_of(&delivery);
        let Some(found) = self.table.begin(&id, &source_of(&delivery)) else { return };
        let is_offered = delivery.is_offered();
        if !is_offered && (found.has_ended || !found.is_filled) {
            self.table.finish(&id, found.number, &Outcome::NotOffered);
            return self.notify(&id, &found.uid, refused(Refusal::NotOffered)).await;
        }
        let size = delivery.data.values().map(|value| value.expose().len()).sum();
        let _held = self.counts().hold(size);
        let data = std::mem::take(&mut delivery.data);
        let delivered = match fill::canonical(data) {
            Ok(data) => {
                delivery.data = data;
                let is_last = || self.table.is_last(&id, found.number);
                self.write(&id, &delivery, is_last).await
            }
            Err(refusal) => Ok(Delivered::Refused(refusal)),
        };
        let outcome = match &delivered {
            Ok(Delivered::HasData(resource_version)) => Outcome::HasData {
                version: &delivery.version,
                data: &delivery.data,
                resource_version,
            },
            Ok(Delivered::Removed) => Outcome::NotOffered,
            Ok(Delivered::Refused(_)) if !is_offered => Outcome::NotOffered,
            Ok(Delivered::Refused(_)) => Outcome::Refused,
            Ok(Delivered::Left) => return,
            Err(_) => Outcome::Failed,
        };
        self.table.finish(&id, found.number, &outcome);
        self.report(&id, &found.uid, &delivered).await;
    }

    /// Ends the sync of a Secret that belongs to no instance any more.
    pub(super) async fn end(&self, server: &Server, id: &SecretId, metadata: &Metadata) {
        let Some(source) = metadata.source() else { return };
        if !metadata.is_filled() {
            return self.notify_at(server, id, &metadata.uid, refused(Refusal::NotOffered)).await;
        }
        let Source { project, project_secret } = source;
        let delivery = Delivery {
            namespace: id.namespace.clone(),
            name: id.name.clone(),
            project,
            project_secret,
            reason: NOT_OFFERED.to_owned(),
            ..Delivery::default()
        };
        let ended = self.write_at(server, id, &delivery, || true).await;
        self.report_at(server, id, &metadata.uid, &ended).await;
    }

    /// Tells the writer of a Secret that it is not tracked.
    pub(super) async fn notify_left_out(&self, left_out: &LeftOut) {
        self.notify(&left_out.id, &left_out.uid, LEFT_OUT).await;
    }

    async fn write(
        &self,
        id: &SecretId,
        delivery: &Delivery,
        is_last: impl Fn() -> bool,
    ) -> Result<Delivered, SyncFailure> {
        let Some(server) = self.server(&id.place) else { return Ok(Delivered::Left) };
        let now = Instant::now();
        if self.down.lock().get(&id.place).is_some_and(|until| *until > now) {
            return Err(SyncFailure::Unreachable);
        }
        let written = self.write_at(&server, id, delivery, is_last).await;
        if id.place.is_virtual_cluster() {
            let mut down = self.down.lock();
            if matches!(written, Err(SyncFailure::Unreachable)) {
                down.retain(|_, until| *until > now);
                down.insert(id.place.clone(), Instant::now() + DOWN_TIME);
            } else {
                down.remove(&id.place);
            }
        }
        written
    }

    async fn write_at(
        &self,
        server: &Server,
        id: &SecretId,
        delivery: &Delivery,
        is_last: impl Fn() -> bool,
    ) -> Result<Delivered, SyncFailure> {
        let mut failure = ApiFailure::Silent(String::new());
        for attempt in 0..MAX_ATTEMPTS {
            if attempt > 0 {
                sleep(ATTEMPT_PAUSE * 2_u32.pow(attempt - 1)).await;
            }
            match self.attempt(server, id, delivery, &is_last).await {
                Ok(delivered) => return Ok(delivered),
                Err(Unwritten::Unrecorded) => return Err(SyncFailure::Unrecorded),
                Err(Unwritten::Api(why)) => failure = why,
            }
            if !failure.may_pass() && !failure.is(StatusCode::CONFLICT) {
                break;
            }
        }
        let kind = failure.kind();
        FAILURES.write(kind.name(), |left_out| {
            tracing::warn!(%id, left_out, "a Secret could not be filled: {failure}");
        });
        Err(kind)
    }

    /// Reads the Secret, and writes it if it needs the delivery.
    async fn attempt(
        &self,
        server: &Server,
        id: &SecretId,
        delivery: &Delivery,
        is_last: impl Fn() -> bool,
    ) -> Result<Delivered, Unwritten> {
        let secret = match self.api.secret(server, id).await {
            Err(failure) if failure.is(StatusCode::NOT_FOUND) => return Ok(Delivered::Left),
            read => read?,
        };
        // From here on, a newer delivery has either changed the resourceVersion, or it reads what this one writes.
        if !is_last() {
            return Ok(Delivered::Left);
        }
        let now = Timestamp::from_unix_seconds(self.agent.state.now()).to_string();
        let write = match fill::plan(&secret, delivery, &now) {
            Plan::Keep => return Ok(Delivered::HasData(secret.metadata.resource_version)),
            Plan::Leave => return Ok(Delivered::Left),
            Plan::Refuse(refusal) => return Ok(Delivered::Refused(refusal)),
            Plan::Write(write) => write,
        };
        drop(secret);
        let change = write.change;
        let own = self.own_write(id, delivery, change);
        let record = self.agent.audit.begin_write(self.agent.state.clock(), own).await;
        let record = record.map_err(|_| Unwritten::Unrecorded)?;
        let patched = self.api.patch(server, id, write.patch).await;
        record.end(match &patched {
            Ok(_) => StatusCode::OK.as_u16(),
            Err(ApiFailure::Status(code)) => *code,
            Err(ApiFailure::Silent(_)) => StatusCode::GATEWAY_TIMEOUT.as_u16(),
        });
        let metadata = patched?;
        match change {
            Change::Fill => {
                tracing::debug!(%id, version = delivery.version, "a Secret is filled");
                self.counts().note_filled();
                Ok(Delivered::HasData(metadata.resource_version))
            }
            Change::Remove => {
                tracing::info!(%id, "the data of a Secret is removed: it is not offered any more");
                self.counts().note_removed();
                Ok(Delivered::Removed)
            }
        }
    }

    /// The write as the audit log has it.
    fn own_write(&self, id: &SecretId, delivery: &Delivery, change: Change) -> OwnWrite {
        let cluster = &self.agent.cluster;
        let prefix = match &id.place {
            Place::Cluster => format!("/kubernetes/cluster/{cluster}"),
            Place::VirtualCluster(instance) => {
                let locations = self.locations();
                let found = locations.virtual_clusters.get(instance);
                let project = found.map(|one| one.project.as_str()).unwrap_or_default();
                format!("/kubernetes/project/{project}/virtualcluster/{}", instance.name)
            }
        };
        OwnWrite {
            cluster: cluster.clone(),
            prefix,
            namespace: id.namespace.clone(),
            name: id.name.clone(),
            project: delivery.project.clone(),
            project_secret: delivery.project_secret.clone(),
            version: (change == Change::Fill).then(|| delivery.version.clone()),
        }
    }

    async fn report(&self, id: &SecretId, uid: &str, delivered: &Result<Delivered, SyncFailure>) {
        if let Some(server) = self.server(&id.place) {
            self.report_at(&server, id, uid, delivered).await;
        }
    }

    /// Counts the result of a delivery, and tells the writer of the Secret about a failure or an end.
    async fn report_at(
        &self,
        server: &Server,
        id: &SecretId,
        uid: &str,
        delivered: &Result<Delivered, SyncFailure>,
    ) {
        let notice = match delivered {
            Ok(Delivered::HasData(_) | Delivered::Left) => return,
            Ok(Delivered::Removed) => REMOVED,
            Ok(Delivered::Refused(refusal)) => refused(*refusal),
            Err(failure) => {
                self.counts().note_failure(*failure);
                let (reason, message) = ("SecretSyncFailed", failure.message());
                Notice { reason, message }
            }
        };
        self.notify_at(server, id, uid, notice).await;
    }

    async fn notify(&self, id: &SecretId, uid: &str, notice: Notice) {
        if let Some(server) = self.server(&id.place) {
            self.notify_at(&server, id, uid, notice).await;
        }
    }

    /// Writes an Event about a Secret, unless it was written shortly before.
    async fn notify_at(&self, server: &Server, id: &SecretId, uid: &str, notice: Notice) {
        match self.recent.admit(id, uid, notice, Instant::now()) {
            Admission::Admitted => {}
            Admission::Repeated => return,
            Admission::LeftOut => return self.counts().note_event_left_out(),
        }
        let now = Timestamp::from_unix_seconds(self.agent.state.now()).to_string();
        let event = events::object(id, uid, notice, &now);
        if let Err(why) = self.api.create_event(server, id, &event).await {
            self.counts().note_event_left_out();
            FAILURES.write("event", |left_out| {
                tracing::warn!(%id, left_out, "an Event about a Secret could not be written: {why}");
            });
        }
    }

    /// Reads a Secret again that has changed, and notes its data.
    async fn verify(&self, id: &SecretId) {
        let Some(server) = self.server(&id.place) else { return };
        // Without a response, the next change of the Secret or of its source comes here again.
        if let Ok(secret) = self.api.secret(&server, id).await {
            self.table.verified(id, &secret.metadata, &secret.data);
        }
    }
}

/// Why a Secret was not written.
enum Unwritten {
    Api(ApiFailure),
    Unrecorded,
}

impl From<ApiFailure> for Unwritten {
    fn from(failure: ApiFailure) -> Self {
        Self::Api(failure)
    }
}

fn refused(refusal: Refusal) -> Notice {
    let (reason, message) = (refusal.reason(), refusal.message());
    Notice { reason, message }
}

/// The Secret that a delivery is for.
fn id_of(delivery: &Delivery) -> SecretId {
    let place = delivery.virtual_cluster.clone().map_or(Place::Cluster, Place::VirtualCluster);
    SecretId { place, namespace: delivery.namespace.clone(), name: delivery.name.clone() }
}

fn source_of(delivery: &Delivery) -> Source {
    Source { project: delivery.project.clone(), project_secret: delivery.project_secret.clone() }
}

/// Verifies Secrets that others have changed. It never returns.
pub(super) async fn verify_changed(sync: Arc<SecretSync>) {
    loop {
        while let Some(id) = sync.table.next_to_verify(Instant::now()) {
            sync.verify(&id).await;
        }
        if sync.table.has_changed_secrets() {
            sleep(VERIFY_INTERVAL).await;
        } else {
            // The time is a safeguard alone.
            let _ = timeout(VERIFY_INTERVAL * 60, sync.table.to_verify.notified()).await;
        }
    }
}
