//! Keeps the principal index (users, teams, access keys) in step with the cache, for
//! authentication.
//!
//! What the index *decides* is in `auth`, and each kind says which of its fields count. Here is
//! only how the index is filled from what is stored, and the subscription to its changes.

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::{RwLock, RwLockReadGuard};
use postern_auth::digest::Digest;
use postern_auth::policy::Policy;
use postern_auth::principal_index::{DigestRecord, PrincipalIndex};
use postern_kinds::{AnyKind, all};
use postern_meta::decode;
use postern_meta::time::Timestamp;
use postern_store::Event;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::object::CachedObject;
use crate::storage_key;

/// What decides who has access, and to what; and the subscriptions to its changes.
pub(crate) struct AccessState {
    /// The kinds that have a part in authentication, with the prefixes of their storage keys.
    kinds: Vec<(String, &'static dyn AnyKind)>,
    principals: RwLock<PrincipalIndex>,
    policy: ArcSwap<Policy>,
    changes: watch::Sender<u64>,
}

/// When an access key was used last, as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ActivityRecord {
    /// The uid of the key: a later key of the same name is another one.
    pub(crate) uid: String,
    /// The time of its last use.
    pub(crate) last_activity: Timestamp,
}

/// A stored value that may say who has access.
pub(super) struct AccessValue {
    /// Its storage key.
    pub(super) key: Arc<str>,
    /// Its bytes; `None` for a value that was removed.
    pub(super) value: Option<bytes::Bytes>,
    /// The object, if it is an object and intact.
    pub(super) object: Option<Arc<CachedObject>>,
}

impl AccessState {
    /// Returns a state without principals.
    pub(super) fn new() -> Self {
        let kinds = all().iter().filter(|kind| kind.has_access_role());
        Self {
            kinds: kinds.map(|kind| (storage_key::collection(kind.info()), *kind)).collect(),
            principals: RwLock::default(),
            policy: ArcSwap::new(Policy::built_in()),
            changes: watch::Sender::new(0),
        }
    }

    /// Returns users, teams and keys as they are now. The lock must not be held across an await.
    pub(super) fn principals(&self) -> RwLockReadGuard<'_, PrincipalIndex> {
        self.principals.read()
    }

    /// Returns the present snapshot of the policy.
    pub(super) fn policy(&self) -> Arc<Policy> {
        self.policy.load_full()
    }

    /// Returns a subscription to changes of who has access, and to what.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Applies a batch of changes, if any of them concerns access. `object` returns what is cached
    /// under a key.
    pub(super) fn apply(
        &self,
        events: &[Event],
        object: impl Fn(&str) -> Option<Arc<CachedObject>>,
    ) {
        if !events.iter().any(|event| self.is_indexed(&event.key)) {
            return;
        }
        let mut principals = self.principals.write();
        for event in events {
            let (key, value) = (event.key.clone(), event.value.clone());
            self.apply_one(&mut principals, &AccessValue { object: object(&key), key, value });
        }
        let mut has_more = principals.resolve_next();
        drop(principals);
        // Whoever authenticates in between gets what was so before: the revision of this batch has
        // not been applied yet.
        while has_more {
            has_more = self.principals.write().resolve_next();
        }
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Replaces the index with everything that is stored. Uses of keys that are not stored yet are
    /// kept.
    pub(super) fn load(&self, values: &[AccessValue]) {
        let mut loaded = PrincipalIndex::default();
        for value in values {
            self.apply_one(&mut loaded, value);
        }
        while loaded.resolve_next() {}
        let mut principals = self.principals.write();
        for (key, uid, at) in principals.activities() {
            loaded.note_activity(key, uid, at);
        }
        *principals = loaded;
        drop(principals);
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Returns whether the value of a key decides who has access, which is unknown when it is
    /// corrupt.
    pub(super) fn decides_access(&self, key: &str) -> bool {
        key.starts_with(storage_key::DIGESTS) || self.kind_of(key).is_some()
    }

    /// Returns whether the value of a key is part of the index.
    pub(super) fn is_indexed(&self, key: &str) -> bool {
        self.decides_access(key) || key.starts_with(storage_key::ACTIVITY)
    }

    /// Returns the kind and name of the object with a key, if the kind has a part in
    /// authentication.
    fn kind_of<'a>(&self, key: &'a str) -> Option<(&'static dyn AnyKind, &'a str)> {
        self.kinds
            .iter()
            .find_map(|(prefix, kind)| Some((*kind, key.strip_prefix(prefix.as_str())?)))
    }

    /// Applies one value, or its removal. A corrupt value gives nobody access.
    fn apply_one(&self, principals: &mut PrincipalIndex, value: &AccessValue) {
        let bytes = value.value.as_deref();
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
            let json = value.object.as_ref().map(|object| object.json());
            if let Some(change) = kind.access_change(json.as_deref()) {
                principals.apply(name, change);
            }
        }
    }
}

fn decoded<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    decode::decode_typed(bytes).ok()
}
