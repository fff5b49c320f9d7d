//! The instances of each cluster and the holders of `use` on them, kept up to date with the store. Objects that a
//! change does not concern are not read again.
//!
//! A change only tells which objects to read again. The entry of an object is made from its present state and the
//! present policy. So the result equals a full computation.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use postern_auth::policy::{Policy, UseChange, WhoCan};
use postern_kinds::AnyKind;
use postern_kinds::agent_config::{ClusterLocation, Instance, Use, UseSubject};
use postern_kinds::rbac::BoundSubject;
use postern_kinds::space_instance::SpaceInstance;
use postern_kinds::virtual_cluster_instance::VirtualClusterInstance;
use postern_store::Position;
use serde::{Deserialize, Serialize};

use crate::cache::{Cache, CachedObject, Next, PolicyAt, ResourceCache};
use crate::storage_key;

/// The objects that are checked before other tasks get the thread.
const OBJECTS_PER_STEP: usize = 64;

/// The kinds of instances on a cluster, in the order of configurations.
pub(super) const INSTANCES: [&dyn AnyKind; 2] = [&VirtualClusterInstance, &SpaceInstance];

/// The part of an instance that a configuration depends on.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct InstanceSpec {
    cluster_ref: ClusterRef,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClusterRef {
    cluster: String,
    namespace: String,
    virtual_cluster: String,
}

/// An instance: the index of its kind, and its storage key.
type ObjectKey = (usize, Arc<str>);

/// The fields of an instance that a configuration depends on.
struct InstanceFacts {
    uid: String,
    at: ClusterRef,
}

/// The parts of a configuration that belong to one instance, in JSON.
#[derive(PartialEq, Eq)]
struct Entry {
    cluster: String,
    instance: String,
    holders: String,
}

/// The instances of one cluster.
#[derive(Default)]
struct ClusterInstances {
    /// A number that differs after each change.
    version: u64,
    keys: BTreeSet<ObjectKey>,
}

/// The changes that have been applied.
struct Progress {
    policy: Arc<PolicyAt>,
    cursors: [Position; INSTANCES.len()],
}

/// The instances of each cluster, and the holders of `use` on them.
#[derive(Default)]
pub(super) struct Uses {
    progress: Option<Progress>,
    read: HashMap<ObjectKey, InstanceFacts>,
    entries: BTreeMap<ObjectKey, Entry>,
    of_clusters: HashMap<String, ClusterInstances>,
    last_version: u64,
    /// The objects to check again. An object stays here until its check is complete, even if the task is dropped.
    pending: BTreeSet<ObjectKey>,
    /// How often an object was checked.
    #[cfg(test)]
    pub(super) checks: u64,
}

/// The elements of two lists of a configuration, in JSON.
pub(super) struct Lists {
    pub(super) instances: String,
    pub(super) uses: String,
}

impl Uses {
    /// Applies all changes up to now.
    pub(super) async fn apply_changes(&mut self, cache: &Cache) {
        self.note_changes(cache);
        let Some(policy) = self.progress.as_ref().map(|progress| progress.policy.clone()) else {
            return;
        };
        let mut checked = 0;
        while let Some(key) = self.pending.first().cloned() {
            self.update_entry(cache, &policy, &key);
            self.pending.remove(&key);
            #[cfg(test)]
            {
                self.checks += 1;
            }
            checked += 1;
            if checked % OBJECTS_PER_STEP == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Notes the objects that changes concern.
    fn note_changes(&mut self, cache: &Cache) {
        let Some(Progress { policy, mut cursors }) = self.progress.take() else {
            return self.note_all(cache);
        };
        let kinds = INSTANCES.map(|kind| cache.of(kind.info()));
        for (index, (kind, cursor)) in kinds.into_iter().zip(&mut cursors).enumerate() {
            loop {
                match kind.events_after(*cursor) {
                    Next::Events(events) => {
                        for event in &events {
                            *cursor = event.position();
                            let key = (index, event.object.key().clone());
                            self.read.remove(&key);
                            self.pending.insert(key);
                        }
                    }
                    Next::Expired(_) => return self.note_all(cache),
                    Next::Idle(revision) => {
                        *cursor = (*cursor).max(Position::end_of(revision));
                        break;
                    }
                }
            }
        }
        // The policy is read after the objects, so it is at least as new.
        let newest = cache.policy();
        let Some(snapshots) = cache.policies_after(&policy) else { return self.note_all(cache) };
        for snapshot in snapshots.iter().filter(|one| one.revision <= newest.revision) {
            for change in snapshot.use_changes() {
                self.note(&kinds, change);
            }
        }
        self.progress = Some(Progress { policy: newest, cursors });
    }

    /// Notes every object.
    fn note_all(&mut self, cache: &Cache) {
        self.read.clear();
        self.pending.extend(self.entries.keys().cloned());
        let kinds = INSTANCES.map(|kind| cache.of(kind.info()));
        // The cursors are read before the objects: a change in between is checked twice.
        let cursors = kinds.map(|kind| Position::end_of(kind.revision()));
        for (index, kind) in kinds.into_iter().enumerate() {
            // Corrupt objects are left out: no subject can reach them, and the other objects stay.
            let all = kind.list_intact(kind.prefix(), None, 0).objects.into_iter();
            self.pending.extend(all.map(|object| (index, object.key().clone())));
        }
        self.progress = Some(Progress { policy: cache.policy(), cursors });
    }

    /// Notes the objects that a change of the policy concerns.
    fn note(&mut self, kinds: &[&ResourceCache], change: &UseChange) {
        match change {
            UseChange::Everything => self.pending.extend(self.read.keys().cloned()),
            UseChange::Named(Some(namespace), name) => {
                for (index, kind) in kinds.iter().enumerate() {
                    self.pending.insert((index, kind.key_of(namespace, name).into()));
                }
            }
            UseChange::Named(None, name) => {
                let is_it = |key: &ObjectKey| storage_key::name_of(&key.1).1 == &**name;
                self.pending.extend(self.read.keys().filter(|key| is_it(key)).cloned());
            }
            UseChange::Namespace(namespace) => {
                let is_in = |key: &ObjectKey| storage_key::name_of(&key.1).0 == Some(&**namespace);
                self.pending.extend(self.read.keys().filter(|key| is_in(key)).cloned());
            }
        }
    }

    /// Updates the entry of an object.
    fn update_entry(&mut self, cache: &Cache, policy: &Policy, key: &ObjectKey) {
        let Some(kind) = INSTANCES.get(key.0).copied() else { return };
        if !self.read.contains_key(key) {
            let object = cache.of(kind.info()).get(&key.1).ok().flatten();
            if let Some(read) = object.and_then(|object| read(&object)) {
                self.read.insert(key.clone(), read);
            }
        }
        let entry = self.read.get(key).and_then(|read| entry(policy, kind, &key.1, read));
        let before = self.entries.get(key);
        if before == entry.as_ref() {
            return;
        }
        let clusters = [before, entry.as_ref()].map(|one| one.map(|one| one.cluster.clone()));
        self.last_version += 1;
        for (index, cluster) in clusters.into_iter().enumerate() {
            let Some(cluster) = cluster else { continue };
            let of_cluster = self.of_clusters.entry(cluster.clone()).or_default();
            of_cluster.version = self.last_version;
            if index == 0 {
                of_cluster.keys.remove(key);
            } else {
                of_cluster.keys.insert(key.clone());
            }
            if of_cluster.keys.is_empty() {
                self.of_clusters.remove(&cluster);
            }
        }
        match entry {
            Some(entry) => self.entries.insert(key.clone(), entry),
            None => self.entries.remove(key),
        };
    }

    /// The version of the instances on a cluster: if it is the same, they are the same. 0 for a cluster without
    /// instances.
    pub(super) fn version(&self, cluster: &str) -> u64 {
        self.of_clusters.get(cluster).map_or(0, |of_cluster| of_cluster.version)
    }

    /// The elements of a configuration for one cluster.
    pub(super) fn lists(&self, cluster: &str) -> Lists {
        let keys =
            self.of_clusters.get(cluster).into_iter().flat_map(|of_cluster| &of_cluster.keys);
        let entries: Vec<&Entry> = keys.filter_map(|key| self.entries.get(key)).collect();
        let joined = |text: fn(&Entry) -> &str| {
            entries.iter().map(|entry| text(entry)).collect::<Vec<_>>().join(",")
        };
        Lists { instances: joined(|one| &one.instance), uses: joined(|one| &one.holders) }
    }
}

fn read(object: &CachedObject) -> Option<InstanceFacts> {
    let object = object.decode().ok()?;
    let spec = object.fields.get("spec").cloned().unwrap_or_default();
    let at = InstanceSpec::deserialize(spec).unwrap_or_default().cluster_ref;
    Some(InstanceFacts { uid: object.metadata.uid, at })
}

/// The entry of an instance; `None` if it is on no cluster or in no project.
fn entry(policy: &Policy, kind: &dyn AnyKind, key: &str, read: &InstanceFacts) -> Option<Entry> {
    let (namespace, name) = storage_key::name_of(key);
    let namespace = namespace?;
    let project = policy.projects().of(namespace)?;
    let InstanceFacts { uid, at } = read;
    if at.cluster.is_empty() {
        return None;
    }
    let instance = Instance {
        kind: kind.info().kind.to_owned(),
        project: project.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: uid.clone(),
        cluster_ref: ClusterLocation {
            namespace: at.namespace.clone(),
            virtual_cluster: at.virtual_cluster.clone(),
        },
    };
    Some(Entry {
        cluster: at.cluster.clone(),
        instance: json(&instance),
        holders: json(&holders(policy, kind.info().plural, namespace, name)),
    })
}

/// The holders of `use` on an object.
pub(super) fn holders(policy: &Policy, resource: &str, namespace: &str, name: &str) -> Use {
    let who = policy.holders_of_use(resource, namespace, name).into_iter();
    let subjects: BTreeSet<UseSubject> = who.filter_map(subject).collect();
    Use {
        resource: resource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subjects: subjects.into_iter().collect(),
    }
}

/// The subject in a configuration. Permissions of users and teams on themselves are left out: they are not `use` on
/// an instance.
fn subject(who: WhoCan) -> Option<UseSubject> {
    match who {
        WhoCan::Subject(BoundSubject::User(user)) => {
            Some(UseSubject { user, ..UseSubject::default() })
        }
        WhoCan::Subject(BoundSubject::Group(group)) => {
            Some(UseSubject { group, ..UseSubject::default() })
        }
        WhoCan::Subject(BoundSubject::Principal { group, uid }) => {
            Some(UseSubject { group, uid, ..UseSubject::default() })
        }
        WhoCan::Owner { uid } => Some(UseSubject { uid, ..UseSubject::default() }),
        WhoCan::User(_) | WhoCan::Team(_) | WhoCan::Members(_) => None,
    }
}

/// A value's JSON.
pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
