//! The principal index (users, teams, access keys) and the policy (roles, bindings), kept up to date with the store.
//!
//! `auth` decides with them, and each kind tells which of its fields they need. This module only fills them from the
//! store, and announces their changes. They change before the objects of the same revision. So the permissions are at
//! least as new as the objects that they are checked for.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use parking_lot::{RwLock, RwLockReadGuard};
use postern_auth::digest::Digest;
use postern_auth::policy::Policy;
use postern_auth::principal_index::{DigestRecord, PrincipalIndex};
use postern_kinds::rbac::PolicyChange;
use postern_kinds::{AnyKind, all};
use postern_meta::decode;
use postern_meta::time::Timestamp;
use postern_store::{Batch, Event, Replaced};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::object::{CachedObject, split_stored, stored_head};
use super::policies::{NamedChange, Policies, PolicyAt};
use crate::storage_key;

/// The state that access decisions depend on, and the subscriptions to its changes.
pub(crate) struct AccessState {
    /// The kinds that have a part in authentication, with the prefixes of their storage keys.
    kinds: Vec<(String, &'static dyn AnyKind)>,
    /// The kinds that the policy is made from.
    policy_kinds: Vec<PolicyKind>,
    principals: RwLock<PrincipalIndex>,
    /// Groups of single sign-on that were confirmed before this time do not count, in seconds since 1970.
    oldest_groups: AtomicI64,
    policies: Policies,
    unannounced: AtomicBool,
    unannounced_policy: AtomicBool,
    /// A number that grows with each change of this state.
    version: AtomicU64,
    changes: watch::Sender<u64>,
    #[cfg(test)]
    pub(super) reads: Reads,
}

/// How often the policy and the principal index were read.
#[cfg(test)]
#[derive(Default)]
pub(super) struct Reads {
    pub(super) policy: std::sync::atomic::AtomicUsize,
    pub(super) principals: std::sync::atomic::AtomicUsize,
}

/// The last use of an access key, as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ActivityRecord {
    /// The uid of the key. A later key of the same name is another key.
    pub(crate) uid: String,
    /// The time of its last use.
    pub(crate) last_activity: Timestamp,
}

/// A kind with objects that are part of the policy.
struct PolicyKind {
    /// The prefix of their storage keys.
    prefix: String,
    /// The first bytes of their stored values.
    head: String,
    kind: &'static dyn AnyKind,
}

/// A stored value that may concern access.
pub(super) struct AccessValue {
    /// The storage key.
    pub(super) key: Arc<str>,
    content: Content,
}

/// The part of a stored value that concerns access.
enum Content {
    /// A change of the policy, which decides permissions.
    Policy(NamedChange),
    /// A value for authentication: a user, a team or an access key.
    Access {
        /// The bytes; `None` for a removed value.
        value: Option<bytes::Bytes>,
        /// The object, if the value is an intact object.
        object: Option<Arc<CachedObject>>,
    },
}

impl AccessValue {
    /// The change of the policy, if it is one.
    fn policy_change(&self) -> Option<&NamedChange> {
        match &self.content {
            Content::Policy(change) => Some(change),
            Content::Access { .. } => None,
        }
    }

    /// Whether it changes the policy only by the owner of an object that did not exist before. `new` has such objects
    /// of the transactions before it.
    fn can_join(&self, event: &Event, policy: &Policy, new: &mut HashSet<Arc<str>>) -> bool {
        let Some((namespace, name, content @ PolicyChange::Owner(kind, _))) = self.policy_change()
        else {
            return false;
        };
        let is_changed_to = |content| policy.is_changed_by(&(namespace.as_deref(), name, content));
        // An object that was corrupt is not new, and may have an owner.
        let has_owner = is_changed_to(PolicyChange::Owner(*kind, None));
        if event.replaced == Replaced::New && event.value.is_some() && !has_owner {
            return new.insert(event.key.clone());
        }
        !new.contains(&event.key) && !is_changed_to(content.clone())
    }
}

/// The access changes of one transaction, or of several transactions together.
pub(super) struct AccessChange {
    /// The number of transactions.
    pub(super) batches: usize,
    /// The revision from which the change applies: that of the first transaction.
    revision: u64,
    values: Vec<AccessValue>,
}

/// The index of all stored values at a revision.
pub(super) struct LoadedAccess {
    policy: Arc<PolicyAt>,
    principals: PrincipalIndex,
}

impl PolicyKind {
    fn of(kind: &'static dyn AnyKind) -> Self {
        let (prefix, head) = (storage_key::collection(kind.info()), stored_head(kind.info()));
        Self { prefix, head, kind }
    }
}

impl AccessState {
    /// A state without principals.
    pub(super) fn new() -> Self {
        let kinds = all().iter().copied().filter(|kind| kind.has_access_role());
        let policy_kinds = all().iter().copied().filter(|kind| kind.has_policy_part());
        Self {
            kinds: kinds.map(|kind| (storage_key::collection(kind.info()), kind)).collect(),
            policy_kinds: policy_kinds.map(PolicyKind::of).collect(),
            principals: RwLock::default(),
            oldest_groups: AtomicI64::new(0),
            policies: Policies::new(),
            unannounced: AtomicBool::new(false),
            unannounced_policy: AtomicBool::new(false),
            version: AtomicU64::new(1),
            changes: watch::Sender::new(0),
            #[cfg(test)]
            reads: Reads::default(),
        }
    }

    /// The present users, teams and keys. The lock must not be held across an await.
    pub(super) fn principals(&self) -> RwLockReadGuard<'_, PrincipalIndex> {
        #[cfg(test)]
        self.reads.principals.fetch_add(1, Ordering::Relaxed);
        self.principals.read()
    }

    /// The present snapshot of the policy.
    pub(super) fn policy(&self) -> Arc<PolicyAt> {
        #[cfg(test)]
        self.reads.policy.fetch_add(1, Ordering::Relaxed);
        self.policies.current()
    }

    /// The snapshot of the policy that decides at a revision; `None` if it is no longer kept.
    pub(super) fn policy_at(&self, revision: u64) -> Option<Arc<PolicyAt>> {
        self.policies.at(revision)
    }

    /// The snapshots of the policy after `known`, the oldest first; `None` if some are no longer kept.
    pub(super) fn policies_after(&self, known: &Arc<PolicyAt>) -> Option<Vec<Arc<PolicyAt>>> {
        self.policies.after(known)
    }

    /// The version of this state. If it is the same, every decision is the same.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// A subscription to changes of permissions.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The access changes of the next transactions together. They are the first transaction, and the following ones
    /// as long as all of them only give owners to new objects. No such object existed before, so its owner may have
    /// the permissions a few transactions early. `object` returns the object of an event.
    pub(super) fn next_change(
        &self,
        batches: &[Batch],
        object: impl Fn(&Event) -> Option<Arc<CachedObject>>,
    ) -> AccessChange {
        let policy = self.policies.current();
        let mut change = AccessChange { batches: 0, revision: 0, values: Vec::new() };
        let mut new = HashSet::new();
        for batch in batches {
            let read = |event| self.read_event(event, &object);
            let values: Vec<_> = batch.events.iter().filter_map(read).collect();
            let is_joined =
                values.iter().all(|(event, value)| value.can_join(event, &policy, &mut new));
            if change.batches > 0 && !is_joined {
                break;
            }
            if change.batches == 0 {
                change.revision = batch.revision;
            }
            change.batches += 1;
            change.values.extend(values.into_iter().map(|(_, value)| value));
            if !is_joined {
                break;
            }
        }
        change
    }

    fn read_event<'a>(
        &self,
        event: &'a Event,
        object: impl Fn(&Event) -> Option<Arc<CachedObject>>,
    ) -> Option<(&'a Event, AccessValue)> {
        let value = self.read(&event.key, event.value.as_ref(), || object(event))?;
        Some((event, value))
    }

    /// Applies a change, if it concerns access.
    pub(super) fn apply(&self, change: &AccessChange) {
        let (values, revision) = (&change.values, change.revision);
        let changes: Vec<NamedChange> =
            values.iter().filter_map(AccessValue::policy_change).cloned().collect();
        let is_policy_alone = changes.len() == values.len();
        let is_changed = self.policies.apply(&changes, revision);
        if is_policy_alone && !is_changed {
            return;
        }
        let mut principals = self.principals.write();
        principals.set_revision(revision);
        for value in values {
            self.apply_one(&mut principals, value);
        }
        let has_more = principals.resolve_next();
        drop(principals);
        // A caller that authenticates in between gets the earlier state, because this revision is not applied yet.
        self.resolve_while(has_more);
        self.version.fetch_add(1, Ordering::AcqRel);
        let unannounced =
            if is_policy_alone { &self.unannounced_policy } else { &self.unannounced };
        unannounced.store(true, Ordering::Release);
    }

    fn resolve_while(&self, mut has_more: bool) {
        while has_more {
            has_more = self.principals.write().resolve_next();
        }
    }

    /// Sets the time since which groups of single sign-on must have been confirmed to count, in seconds since 1970.
    pub(super) fn set_oldest_groups(&self, unix_seconds: i64) {
        self.oldest_groups.store(unix_seconds, Ordering::Release);
        let is_changed = self.principals.write().set_oldest_groups(unix_seconds);
        if is_changed {
            self.resolve_while(true);
            self.version.fetch_add(1, Ordering::AcqRel);
            self.unannounced.store(true, Ordering::Release);
            self.announce();
        }
    }

    /// Wakes the tasks that wait for changes of users, teams and keys, after the objects of the same revision have
    /// changed.
    pub(super) fn announce(&self) {
        self.announce_one(&self.unannounced);
    }

    /// Wakes the tasks that wait for changes of the policy. The policy changes with each owned object, so this runs
    /// at intervals. A task that gets an event checks the policy first in any case.
    pub(super) fn announce_policy(&self) {
        self.announce_one(&self.unannounced_policy);
    }

    /// Wakes the tasks that wait for changes, because nothing is decided from memory any more.
    pub(super) fn announce_silence(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn announce_one(&self, unannounced: &AtomicBool) {
        if unannounced.swap(false, Ordering::AcqRel) {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }

    /// Builds the index of all stored values. This takes a while with many objects.
    pub(super) fn build_index(&self, values: Vec<AccessValue>, revision: u64) -> LoadedAccess {
        let (mut changes, mut others) = (Vec::new(), Vec::new());
        for AccessValue { key, content } in values {
            match content {
                Content::Policy(change) => changes.push(change),
                content @ Content::Access { .. } => others.push(AccessValue { key, content }),
            }
        }
        let policy = Policies::snapshot_of(changes, revision);
        // In key order, as from a list.
        others.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        let mut principals = PrincipalIndex::default();
        principals.set_revision(revision);
        principals.set_oldest_groups(self.oldest_groups.load(Ordering::Acquire));
        for value in &others {
            self.apply_one(&mut principals, value);
        }
        while principals.resolve_next() {}
        LoadedAccess { policy, principals }
    }

    /// Replaces the index. Uses of keys that are not stored yet are kept.
    pub(super) fn load(&self, loaded: LoadedAccess) {
        let LoadedAccess { policy, principals: mut loaded } = loaded;
        self.policies.load(policy);
        let mut principals = self.principals.write();
        for (key, uid, at) in principals.activities() {
            loaded.note_activity(key, uid, at);
        }
        // It may have changed since then.
        if loaded.set_oldest_groups(self.oldest_groups.load(Ordering::Acquire)) {
            while loaded.resolve_next() {}
        }
        *principals = loaded;
        drop(principals);
        self.version.fetch_add(1, Ordering::AcqRel);
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Whether access decisions depend on the value of a key. If the value is corrupt, the decisions are unknown.
    pub(super) fn decides_access(&self, key: &str) -> bool {
        key.starts_with(storage_key::DIGESTS) || self.kind_of(key).is_some()
    }

    /// The part of a stored value that concerns access, if it has one. `value` is `None` for a removed value.
    /// `object` returns the object in the value, if it is an intact object.
    pub(super) fn read(
        &self,
        key: &Arc<str>,
        value: Option<&bytes::Bytes>,
        object: impl FnOnce() -> Option<Arc<CachedObject>>,
    ) -> Option<AccessValue> {
        let content = if let Some(change) = self.policy_change(key, value.map(AsRef::as_ref)) {
            Content::Policy(change)
        } else if self.decides_access(key) || key.starts_with(storage_key::ACTIVITY) {
            Content::Access { value: value.cloned(), object: object() }
        } else {
            return None;
        };
        Some(AccessValue { key: key.clone(), content })
    }

    /// The change of the policy by a value. A corrupt value gives no permissions.
    fn policy_change(&self, key: &str, value: Option<&[u8]>) -> Option<NamedChange> {
        let (of, rest) = self
            .policy_kinds
            .iter()
            .find_map(|of| Some((of, key.strip_prefix(of.prefix.as_str())?)))?;
        let stored = value.filter(|stored| stored.starts_with(of.head.as_bytes()));
        let (json, owner_uid) = stored.map(split_stored).unzip();
        let change = of.kind.policy_change(json, owner_uid.flatten())?;
        Some(match rest.split_once('/') {
            Some((namespace, name)) => (Some(namespace.to_owned()), name.to_owned(), change),
            None => (None, rest.to_owned(), change),
        })
    }

    /// The kind and name of the object with a key, if authentication depends on the kind.
    fn kind_of<'a>(&self, key: &'a str) -> Option<(&'static dyn AnyKind, &'a str)> {
        kind_of(&self.kinds, key)
    }

    /// Applies one value, or its removal. A corrupt value gives no access.
    fn apply_one(&self, principals: &mut PrincipalIndex, value: &AccessValue) {
        let Content::Access { value: bytes, object } = &value.content else { return };
        let bytes = bytes.as_deref();
        if let Some(digest) = value.key.strip_prefix(storage_key::DIGESTS) {
            if let Some(digest) = Digest::from_hex(digest) {
                principals.set_record(digest, bytes.and_then(decoded::<DigestRecord>));
            }
        } else if let Some(name) = storage_key::key_of_activity(&value.key) {
            if let Some(record) = bytes.and_then(decoded::<ActivityRecord>) {
                let at = record.last_activity.unix_seconds();
                principals.set_last_activity(name, &record.uid, at);
            }
        } else if let Some((kind, name)) = self.kind_of(&value.key) {
            let json = object.as_ref().map(|object| object.json());
            if let Some(change) = kind.access_change(json.as_deref()) {
                principals.apply(name, change);
            }
        }
    }
}

/// The kind of the object with a key, and the rest of the key.
fn kind_of<'a>(
    kinds: &[(String, &'static dyn AnyKind)],
    key: &'a str,
) -> Option<(&'static dyn AnyKind, &'a str)> {
    kinds.iter().find_map(|(prefix, kind)| Some((*kind, key.strip_prefix(prefix.as_str())?)))
}

fn decoded<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    decode::decode_typed(bytes).ok()
}

#[cfg(test)]
mod tests {
    use postern_kinds::shared_secret::SharedSecret;
    use postern_kinds::user::User;
    use postern_store::{Entry, Position};

    use super::*;

    /// A change of a secret: the uid of its owner, and whether it existed before.
    fn secret(name: &str, owner: Option<&str>, was_there: bool) -> Event {
        let info = SharedSecret.info();
        let key = storage_key::object(info, Some("n"), name);
        let json = |owner: &str| {
            let head = stored_head(info);
            format!("{head}\"name\":\"{name}\"}}}}\n{owner}").into()
        };
        let before = Entry { key: key.clone(), value: json("before"), position: Position::ZERO };
        let replaced = if was_there { Replaced::Old(Some(before)) } else { Replaced::New };
        Event { key, position: Position::ZERO, value: owner.map(json), replaced }
    }

    fn user() -> Event {
        let key = storage_key::object(User.info(), None, "ada");
        Event { key, position: Position::ZERO, value: None, replaced: Replaced::Old(None) }
    }

    /// Applies transactions, and returns each snapshot's revision with the owners of the secrets.
    fn snapshots(transactions: Vec<Vec<Event>>, names: &[&str]) -> Vec<(u64, String)> {
        let state = AccessState::new();
        let first = state.policy();
        let batches = (1..).zip(transactions);
        let batches: Vec<_> =
            batches.map(|(revision, events)| Batch { events, revision }).collect();
        let mut rest = batches.as_slice();
        while !rest.is_empty() {
            let change = state.next_change(rest, |_| None);
            rest = &rest[change.batches..];
            state.apply(&change);
        }
        let info = SharedSecret.info().group_resource();
        let is_of = |policy: &PolicyAt, name: &str, uid: &str| {
            let owner = PolicyChange::Owner(info, Some(uid.to_owned()));
            !policy.is_changed_by(&(Some("n"), name, owner))
        };
        let owners = |policy: &PolicyAt| {
            let owner = |name| ["ada", "bob"].into_iter().find(|uid| is_of(policy, name, uid));
            names.iter().map(|name| owner(name).unwrap_or("-")).collect::<Vec<_>>().join(" ")
        };
        let after = state.policies_after(&first).unwrap();
        after.iter().map(|policy| (policy.revision, owners(policy))).collect()
    }

    #[test]
    fn transactions_that_give_new_objects_their_owners_are_one_snapshot() {
        let new = |name: &str| vec![secret(name, Some("ada"), false)];
        let all = snapshots(vec![new("a"), Vec::new(), new("b"), new("c")], &["a", "b", "c"]);
        assert_eq!(all, [(1, "ada ada ada".to_owned())]);
        let unchanged = vec![secret("a", Some("ada"), true)];
        let all = snapshots(vec![new("a"), unchanged.clone(), unchanged, new("b")], &["a", "b"]);
        assert_eq!(all, [(1, "ada -".to_owned()), (2, "ada ada".to_owned())]);
    }

    #[test]
    fn what_takes_or_changes_a_right_is_a_snapshot_of_its_own_revision() {
        let new = |name: &str| vec![secret(name, Some("ada"), false)];
        let gone = |name: &str| vec![secret(name, None, true)];
        let given = |name: &str| vec![secret(name, Some("bob"), true)];
        // As from an engine that omits the replaced value.
        let given_without_old = |name: &str| {
            vec![Event { replaced: Replaced::Old(None), ..secret(name, Some("bob"), false) }]
        };
        for unset in [given, given_without_old] {
            let all = snapshots(vec![new("b"), unset("a")], &["a"]);
            assert_eq!(all, [(1, "-".to_owned()), (2, "bob".to_owned())]);
        }
        let nobodys =
            Event { replaced: gone("a")[0].replaced.clone(), ..secret("a", Some(""), false) };
        let all = snapshots(vec![new("a"), vec![nobodys]], &["a"]);
        assert_eq!(all, [(1, "ada".to_owned()), (2, "-".to_owned())]);
        let all = snapshots(vec![new("a"), gone("a"), new("a"), given("a")], &["a"]);
        let wanted = [(1, "ada"), (2, "-"), (3, "ada"), (4, "bob")];
        assert_eq!(all, wanted.map(|(revision, owner)| (revision, owner.to_owned())));
        let all = snapshots(vec![new("a"), vec![user()], new("b"), gone("a")], &["a", "b"]);
        let wanted = [(1, "ada -"), (3, "ada ada"), (4, "- ada")];
        assert_eq!(all, wanted.map(|(revision, owners)| (revision, owners.to_owned())));
    }
}
