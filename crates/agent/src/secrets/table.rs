//! The labelled Secrets that the agent knows, by their instances: names, versions and the next step of each, and no value.
//! Its size is bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use parking_lot::Mutex;
use postern_kinds::secret_subscription::{MAX_OF_INSTANCE, MAX_SECRETS};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::location::{InstanceKey, Place, SecretId};
use super::native::{Data, Metadata, Source, checksum};
use super::tracked::{KnownData, Step, Tracked, Verification, Wish};

/// The pause after the first failure, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// The most bytes of the wishes in one request. The central server accepts bodies of 3 MiB.
const MAX_WISHES_BYTES: usize = 2_500_000;

/// The bytes of a wish in JSON without its texts.
const WISH_BYTES: usize = 192;

/// The shortest time between two steps for one Secret that its writer causes.
const PACE: Duration = Duration::from_secs(10);

/// The Secrets.
pub(super) struct Table {
    inner: Mutex<Inner>,
    /// Wakes the subscription.
    pub(super) wishes_changed: Notify,
    /// Wakes the task that verifies Secrets.
    pub(super) to_verify: Notify,
    /// Its changes make watches list again.
    relist: watch::Sender<u64>,
    key: RandomState,
}

#[derive(Default)]
struct Inner {
    instances: BTreeMap<InstanceKey, Instance>,
    secrets: usize,
    /// It counts the changes of the wishes.
    revision: u64,
    deliveries: u64,
}

/// The Secrets of one instance.
#[derive(Default)]
struct Instance {
    /// The uid of its namespace in the cluster, if it was read.
    namespace_uid: Option<String>,
    secrets: BTreeMap<SecretId, Tracked>,
    /// Whether there are more Secrets than are tracked.
    is_over: bool,
}

/// A Secret for which a delivery has arrived.
pub(super) struct Found {
    /// The number of the delivery.
    pub(super) number: u64,
    pub(super) uid: String,
    /// Whether the agent has filled it.
    pub(super) is_filled: bool,
    /// Whether the end of its offer was handled already.
    pub(super) has_ended: bool,
}

/// The result of a step for one Secret.
pub(super) enum Outcome<'a> {
    /// It has this data, at a resourceVersion.
    HasData { version: &'a str, data: &'a Data, resource_version: &'a str },
    /// It is not offered.
    NotOffered,
    /// It cannot be written before its writer changes it.
    Refused,
    /// It could not be written.
    Failed,
}

/// The wishes at one time.
pub(super) struct Wishes {
    pub(super) secrets: Vec<Wish>,
    pub(super) revision: u64,
}

/// A Secret that is not tracked, because there are too many.
pub(super) struct LeftOut {
    pub(super) id: SecretId,
    pub(super) uid: String,
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            inner: Mutex::default(),
            wishes_changed: Notify::new(),
            to_verify: Notify::new(),
            relist: watch::Sender::new(0),
            key: RandomState::new(),
        }
    }

    /// A number that others cannot foresee, for the jitter of pauses.
    pub(super) fn random(&self) -> u64 {
        self.key.hash_one(Instant::now())
    }

    /// A subscription to the requests to list again.
    pub(super) fn relists(&self) -> watch::Receiver<u64> {
        self.relist.subscribe()
    }

    /// Makes the watches list again.
    pub(super) fn relist(&self) {
        self.relist.send_modify(|count| *count += 1);
    }

    /// Notes a Secret as it was listed or watched. Returns the Secret that is left out by that.
    pub(super) fn note(&self, id: SecretId, metadata: Metadata, source: Source) -> Option<LeftOut> {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let now = Instant::now();
        let instance = inner.instances.entry(id.instance()).or_default();
        let Some(tracked) = instance.secrets.get_mut(&id) else {
            let tracked = Tracked::new(metadata, source, now);
            let (is_added, left_out) = inner.add(id, tracked);
            if is_added {
                drop(guard);
                self.wishes_changed.notify_one();
            }
            return left_out;
        };
        let before = tracked.wish_key();
        if tracked.metadata.uid != metadata.uid {
            // Its namespace may be another one, too.
            instance.namespace_uid = None;
            *tracked = Tracked::new(metadata, source, now);
        } else if tracked.update(metadata, source, now) == Verification::Needed {
            self.to_verify.notify_one();
        }
        if tracked.wish_key() != before {
            inner.revision += 1;
            drop(guard);
            self.wishes_changed.notify_one();
        }
        None
    }

    /// Forgets a Secret.
    pub(super) fn remove(&self, id: &SecretId) {
        self.remove_where(&id.instance(), |one| one == id);
    }

    /// Forgets the Secrets of an API server, or of one namespace of it, that a list did not have.
    pub(super) fn retain(
        &self,
        place: &Place,
        namespace: Option<&str>,
        listed: &BTreeSet<SecretId>,
    ) {
        let is_here = |id: &SecretId| {
            id.place == *place && namespace.is_none_or(|namespace| namespace == id.namespace)
        };
        let keys: Vec<InstanceKey> = self.inner.lock().instances.keys().cloned().collect();
        for key in keys {
            self.remove_where(&key, |id| is_here(id) && !listed.contains(id));
        }
    }

    /// Forgets an instance. Returns its Secrets that the agent has filled.
    pub(super) fn remove_instance(&self, key: &InstanceKey) -> BTreeMap<SecretId, Metadata> {
        let mut inner = self.inner.lock();
        let Some(instance) = inner.instances.remove(key) else { return BTreeMap::new() };
        inner.secrets -= instance.secrets.len();
        inner.revision += 1;
        drop(inner);
        self.wishes_changed.notify_one();
        let filled = instance.secrets.into_iter().filter(|(_, one)| one.is_filled());
        filled.map(|(id, one)| (id, one.metadata)).collect()
    }

    fn remove_where(&self, key: &InstanceKey, is_gone: impl Fn(&SecretId) -> bool) {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let Some(instance) = inner.instances.get_mut(key) else { return };
        let before = instance.secrets.len();
        instance.secrets.retain(|id, _| !is_gone(id));
        let removed = before - instance.secrets.len();
        if removed == 0 {
            return;
        }
        let is_over = std::mem::take(&mut instance.is_over);
        if instance.secrets.is_empty() {
            // A new namespace of this name has another uid.
            inner.instances.remove(key);
        }
        inner.secrets -= removed;
        inner.revision += 1;
        drop(guard);
        if is_over {
            // There is room for another one.
            self.relist();
        }
        self.wishes_changed.notify_one();
    }

    /// The instances whose namespaces have no known uid.
    pub(super) fn without_namespace_uid(&self) -> Vec<InstanceKey> {
        let inner = self.inner.lock();
        let unknown = inner.instances.iter().filter(|(_, one)| one.namespace_uid.is_none());
        unknown.map(|(key, _)| key.clone()).collect()
    }

    /// Sets the uid of the namespace of an instance; `None` if it may be another one by now.
    pub(super) fn set_namespace_uid(&self, key: &InstanceKey, uid: Option<String>) {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let Some(instance) = inner.instances.get_mut(key) else { return };
        if instance.namespace_uid != uid {
            instance.namespace_uid = uid;
            inner.revision += 1;
            drop(guard);
            self.wishes_changed.notify_one();
        }
    }

    /// The number of the last change of the wishes. Pauses that are over by now count as a change.
    pub(super) fn revision(&self, now: Instant) -> u64 {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let all = inner.instances.values_mut().flat_map(|one| one.secrets.values_mut());
        for tracked in all {
            if tracked.end_pause(now) {
                inner.revision += 1;
            }
        }
        inner.revision
    }

    /// The wishes. Secrets in namespaces without a known uid are left out. If one request has no room for all of them, each
    /// instance has those of its oldest Secrets: no instance takes the room of others.
    pub(super) fn wishes(&self) -> Wishes {
        let inner = self.inner.lock();
        let mut ranked = Vec::new();
        for instance in inner.instances.values() {
            let Some(uid) = &instance.namespace_uid else { continue };
            let mut wished: Vec<_> =
                instance.secrets.iter().filter(|(_, tracked)| tracked.is_wished()).collect();
            wished.sort_by_cached_key(|(id, tracked)| tracked.age(id));
            let by_age = wished.into_iter().map(|(id, tracked)| tracked.wish(id, uid));
            ranked.extend(by_age.enumerate());
        }
        ranked.sort_by_key(|(rank, _)| *rank);
        let mut room = MAX_WISHES_BYTES;
        let fitting = ranked.into_iter().map_while(|(_, wish)| {
            room = room.checked_sub(bytes_of(&wish))?;
            Some(wish)
        });
        Wishes { secrets: fitting.collect(), revision: inner.revision }
    }

    /// Begins a delivery to a Secret, if its labels still name this source. Earlier deliveries to it no longer count.
    pub(super) fn begin(&self, id: &SecretId, source: &Source) -> Option<Found> {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let tracked = inner.instances.get_mut(&id.instance())?.secrets.get_mut(id)?;
        if tracked.source != *source || tracked.metadata.is_disabled() {
            return None;
        }
        inner.deliveries += 1;
        tracked.delivery = inner.deliveries;
        Some(Found {
            number: tracked.delivery,
            uid: tracked.metadata.uid.clone(),
            is_filled: tracked.is_filled(),
            has_ended: tracked.has_ended,
        })
    }

    /// Whether a delivery is the last one to its Secret.
    pub(super) fn is_last(&self, id: &SecretId, number: u64) -> bool {
        let inner = self.inner.lock();
        let instance = inner.instances.get(&id.instance());
        instance.and_then(|one| one.secrets.get(id)).is_some_and(|one| one.delivery == number)
    }

    /// Notes the result of a delivery, if it is the last one.
    pub(super) fn finish(&self, id: &SecretId, number: u64, outcome: &Outcome<'_>) {
        let mut inner = self.inner.lock();
        let now = Instant::now();
        let instance = inner.instances.get_mut(&id.instance());
        let tracked = instance.and_then(|one| one.secrets.get_mut(id));
        let Some(tracked) = tracked.filter(|one| one.delivery == number) else { return };
        tracked.has_ended = matches!(outcome, Outcome::NotOffered);
        if let Outcome::HasData { version, data, resource_version } = *outcome {
            tracked.known = Some(KnownData {
                version: version.to_owned(),
                checksum: checksum(&self.key, data),
                resource_version: resource_version.to_owned(),
            });
            // The watch may still have an older one, or one of another writer.
            tracked.is_changed = tracked.metadata.resource_version != resource_version;
            (tracked.not_before, tracked.failures) = (now + PACE, 0);
            tracked.step = Step::Subscribe;
            if tracked.is_changed {
                self.to_verify.notify_one();
            }
            return;
        }
        tracked.known = None;
        match outcome {
            Outcome::Failed => {
                tracked.failures = tracked.failures.saturating_add(1);
                let pause = FIRST_PAUSE * 2_u32.saturating_pow(tracked.failures.min(12) - 1);
                tracked.step = Step::Pause(now + pause.min(LONGEST_PAUSE));
            }
            Outcome::Refused => {
                (tracked.step, tracked.failures) = (Step::Await, 0);
                tracked.not_before = now + PACE;
            }
            Outcome::NotOffered | Outcome::HasData { .. } => {
                (tracked.step, tracked.failures) = (Step::Subscribe, 0);
            }
        }
    }

    /// The Secrets whose last delivery has failed.
    pub(super) fn failing(&self) -> usize {
        let inner = self.inner.lock();
        let all = inner.instances.values().flat_map(|one| one.secrets.values());
        all.filter(|one| one.failures > 0).count()
    }

    /// Takes the next Secret to verify, if there is one now.
    pub(super) fn next_to_verify(&self, now: Instant) -> Option<SecretId> {
        let mut inner = self.inner.lock();
        let mut all = inner.instances.values_mut().flat_map(|one| one.secrets.iter_mut());
        let (id, tracked) = all.find(|(_, one)| one.is_changed && one.not_before <= now)?;
        tracked.is_changed = false;
        tracked.not_before = now + PACE;
        Some(id.clone())
    }

    /// Whether a Secret is to be verified, now or later.
    pub(super) fn has_changed_secrets(&self) -> bool {
        let inner = self.inner.lock();
        let mut all = inner.instances.values().flat_map(|one| one.secrets.values());
        all.any(|one| one.is_changed)
    }

    /// Notes the data of a Secret that was read again. If it is not that of the agent, the central server sends it again.
    pub(super) fn verified(&self, id: &SecretId, metadata: &Metadata, data: &Data) {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let instance = inner.instances.get_mut(&id.instance());
        let Some(tracked) = instance.and_then(|one| one.secrets.get_mut(id)) else { return };
        let Some(known) = &mut tracked.known else { return };
        let has_version = metadata.synced_version() == Some(&*known.version);
        if has_version && known.checksum == checksum(&self.key, data) {
            metadata.resource_version.clone_into(&mut known.resource_version);
            return;
        }
        tracked.known = None;
        inner.revision += 1;
        drop(guard);
        self.wishes_changed.notify_one();
    }
}

impl Inner {
    /// Adds a Secret. Returns whether it is tracked, and the Secret that is left out.
    fn add(&mut self, id: SecretId, tracked: Tracked) -> (bool, Option<LeftOut>) {
        let is_full = self.secrets >= MAX_SECRETS;
        let instance = self.instances.entry(id.instance()).or_default();
        if instance.secrets.len() < MAX_OF_INSTANCE && !is_full {
            instance.secrets.insert(id, tracked);
            self.secrets += 1;
            self.revision += 1;
            return (true, None);
        }
        let own = instance.secrets.len();
        // One instance must not take the room of others.
        let largest = self.instances.values_mut().max_by_key(|one| one.secrets.len());
        if let Some(largest) = largest.filter(|one| one.secrets.len() > own + 1) {
            largest.is_over = true;
            let left_out = largest.remove_youngest();
            self.instances.entry(id.instance()).or_default().secrets.insert(id, tracked);
            self.revision += 1;
            return (true, left_out);
        }
        let instance = self.instances.entry(id.instance()).or_default();
        instance.is_over = true;
        let youngest = instance.youngest();
        if youngest.is_none_or(|(other, one)| tracked.age(&id) >= one.age(other)) {
            return (false, Some(LeftOut { id, uid: tracked.metadata.uid }));
        }
        let left_out = instance.remove_youngest();
        instance.secrets.insert(id, tracked);
        self.revision += 1;
        (true, left_out)
    }
}

impl Instance {
    fn youngest(&self) -> Option<(&SecretId, &Tracked)> {
        self.secrets.iter().max_by_key(|(id, one)| one.age(id))
    }

    fn remove_youngest(&mut self) -> Option<LeftOut> {
        let id = self.youngest()?.0.clone();
        let uid = self.secrets.remove(&id)?.metadata.uid;
        Some(LeftOut { id, uid })
    }
}

/// The most bytes of a wish in JSON. Names and labels have no character that JSON escapes.
fn bytes_of(wish: &Wish) -> usize {
    let Wish { namespace, namespace_uid, name, virtual_cluster, project, project_secret, version } =
        wish;
    let texts = [namespace, namespace_uid, name, project, project_secret, version];
    let instance = virtual_cluster.iter().map(|one| one.namespace.len() + one.name.len());
    WISH_BYTES + texts.map(String::len).iter().sum::<usize>() + instance.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NS: &str = "ns";

    fn id(name: &str) -> SecretId {
        SecretId { place: Place::Cluster, namespace: NS.to_owned(), name: name.to_owned() }
    }

    fn metadata(name: &str, version: u64, created: &str) -> Metadata {
        let value = serde_json::json!({
            "name": name, "namespace": NS, "uid": format!("u-{name}"), "resourceVersion": version.to_string(),
            "creationTimestamp": created,
        });
        serde_json::from_value(value).unwrap()
    }

    fn source() -> Source {
        Source { project: "p".to_owned(), project_secret: "s".to_owned() }
    }

    fn names(table: &Table) -> Vec<String> {
        let key = InstanceKey::Space(NS.to_owned());
        table.set_namespace_uid(&key, Some("u".to_owned()));
        table.wishes().secrets.into_iter().map(|wish| wish.name).collect()
    }

    /// The oldest Secrets of an instance are tracked. When one of them goes, the watches list again.
    #[tokio::test]
    async fn the_oldest_of_an_instance_are_tracked() {
        let table = Table::new();
        for index in 0..MAX_OF_INSTANCE {
            let name = format!("s{index:04}");
            assert!(table.note(id(&name), metadata(&name, 1, "2026-01-02"), source()).is_none());
        }
        let younger = table.note(id("x"), metadata("x", 1, "2026-01-03"), source());
        assert_eq!(younger.map(|one| one.id), Some(id("x")));
        let older = table.note(id("y"), metadata("y", 1, "2026-01-01"), source());
        assert_eq!(older.map(|one| one.id), Some(id("s0999")), "by name among those of one time");
        let found = names(&table);
        assert_eq!(found.len(), MAX_OF_INSTANCE);
        assert!(found.contains(&"y".to_owned()) && !found.contains(&"s0999".to_owned()));
        let relists = table.relists();
        table.remove(&id("s0001"));
        assert!(relists.has_changed().unwrap());
    }

    /// Neither the request nor the table has room for all Secrets.
    #[tokio::test]
    async fn no_instance_takes_the_room_of_others() {
        let table = Table::new();
        let note = |namespace: &str, index: usize, created: &str| {
            let name = format!("{index:0>253}");
            let id = SecretId { namespace: namespace.to_owned(), ..id(&name) };
            let label = "l".repeat(63);
            let source = Source { project: label.clone(), project_secret: label };
            let left_out = table.note(id, metadata(&name, 1, created), source);
            table
                .set_namespace_uid(&InstanceKey::Space(namespace.to_owned()), Some("u".repeat(36)));
            left_out.map(|one| one.id.namespace)
        };
        for instance in 0..MAX_SECRETS / MAX_OF_INSTANCE {
            for index in 0..MAX_OF_INSTANCE {
                assert_eq!(note(&format!("n{instance}"), index, "2026-01-01"), None);
            }
        }
        assert!(note("late", 0, "2026-01-02").is_some_and(|of| of.starts_with('n')));
        let wishes = table.wishes().secrets;
        assert!(wishes.iter().any(|wish| wish.namespace == "late"));
        assert!(wishes.len() < MAX_SECRETS);
        let of_first = wishes.iter().filter(|wish| wish.namespace == "n0").count();
        let of_last = wishes.iter().filter(|wish| wish.namespace == "n9").count();
        assert!(of_first.abs_diff(of_last) <= 1, "{of_first} {of_last}");
        let body = serde_json::to_vec(&wishes).unwrap();
        assert!((2_000_000..=MAX_WISHES_BYTES).contains(&body.len()), "{}", body.len());
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_change_that_needs_another_subscription_changes_the_wishes() {
        let table = Table::new();
        table.note(id("a"), metadata("a", 1, ""), source());
        let revision = || table.revision(Instant::now());
        names(&table);
        let first = revision();
        let data = Data::from([("k".to_owned(), "dg==".to_owned().into())]);
        let found = table.begin(&id("a"), &source()).unwrap();
        let filled = Outcome::HasData { version: "v1", data: &data, resource_version: "2" };
        table.finish(&id("a"), found.number, &filled);
        assert_eq!(revision(), first, "the server has just sent it");
        assert_eq!(table.next_to_verify(Instant::now()), None);
        // The watch brings the agent's own write.
        table.note(id("a"), metadata("a", 2, ""), source());
        tokio::time::advance(PACE).await;
        assert_eq!(table.next_to_verify(Instant::now()), None);
        // Another writer changes it.
        table.note(id("a"), metadata("a", 3, ""), source());
        assert_eq!(table.next_to_verify(Instant::now()), Some(id("a")));
        assert_eq!(table.next_to_verify(Instant::now()), None);
        assert_eq!(revision(), first);
        table.verified(&id("a"), &metadata("a", 3, ""), &data);
        assert_eq!(revision(), first + 1, "its annotation has gone");
        // After a failure, it is subscribed again later.
        let found = table.begin(&id("a"), &source()).unwrap();
        table.finish(&id("a"), found.number, &Outcome::Failed);
        assert_eq!((revision(), names(&table).len(), table.failing()), (first + 1, 0, 1));
        tokio::time::advance(FIRST_PAUSE).await;
        assert_eq!((revision(), names(&table).len()), (first + 2, 1));
        // A refused one waits for its writer.
        let found = table.begin(&id("a"), &source()).unwrap();
        table.finish(&id("a"), found.number, &Outcome::Refused);
        tokio::time::advance(LONGEST_PAUSE).await;
        assert_eq!((names(&table).len(), table.failing()), (0, 0));
        table.note(id("a"), metadata("a", 4, ""), source());
        revision();
        assert_eq!(names(&table), ["a"]);
    }

    #[tokio::test]
    async fn an_older_delivery_no_longer_counts() {
        let table = Table::new();
        table.note(id("a"), metadata("a", 1, ""), source());
        let older = table.begin(&id("a"), &source()).unwrap().number;
        let newer = table.begin(&id("a"), &source()).unwrap().number;
        assert!(!table.is_last(&id("a"), older) && table.is_last(&id("a"), newer));
        table.finish(&id("a"), older, &Outcome::Failed);
        assert_eq!(table.failing(), 0);
        let other = Source { project: "q".to_owned(), ..source() };
        assert!(table.begin(&id("a"), &other).is_none(), "its labels name another source");
    }
}
