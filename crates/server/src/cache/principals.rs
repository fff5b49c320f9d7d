//! Keeps the directory of keys, users and teams in step with the cache, for authentication.
//!
//! What a directory *decides* is in `auth`; here is only how it is filled from what is stored, and
//! how those who wait for a change of it are told.

use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard};
use postern_auth::digest::Digest;
use postern_auth::principal_index::{DigestRecord, KeyFacts, PrincipalIndex, TeamFacts, UserFacts};
use postern_auth::resolved_key::Lifetime;
use postern_kinds::owned_access_key::{self, OwnedAccessKey};
use postern_kinds::team::{self, Team};
use postern_kinds::user::{self, User};
use postern_kinds::{AnyKind as _, Info};
use postern_meta::decode;
use postern_meta::object::ObjectMeta;
use postern_meta::time::Timestamp;
use postern_store::Event;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::cache::{CachedObject, Slot};
use crate::storage_key;

/// The directory, and the news of it.
pub(crate) struct SharedPrincipals {
    principals: RwLock<PrincipalIndex>,
    changes: watch::Sender<u64>,
}

/// When an access key was used last, as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ActivityRecord {
    /// The uid of the key: a re-created namesake is another one.
    pub(crate) uid: String,
    /// When.
    pub(crate) last_activity: Timestamp,
}

#[derive(Deserialize)]
struct Stored<F> {
    metadata: ObjectMeta,
    #[serde(flatten)]
    fields: F,
}

impl SharedPrincipals {
    /// Nobody.
    pub(crate) fn new() -> Self {
        Self { principals: RwLock::default(), changes: watch::Sender::new(0) }
    }

    /// Keys, users and teams as they are now. Not to be held across a wait.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, PrincipalIndex> {
        self.principals.read()
    }

    /// Told whenever somebody's standing may have changed.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Takes in a batch of changes, if any of them concerns who may get in.
    pub(crate) fn apply(
        &self,
        events: &[Event],
        object: impl Fn(&str) -> Option<Arc<CachedObject>>,
    ) {
        let mine = |key: &str| concerns(key) || key.starts_with(storage_key::ACTIVITY);
        if !events.iter().any(|event| mine(&event.key)) {
            return;
        }
        let mut principals = self.principals.write();
        for event in events {
            if !note_record(&mut principals, &event.key, event.value.as_deref()) {
                let slot = object(&event.key).map(Slot::Intact);
                note_slot(&mut principals, &event.key, slot.as_ref());
            }
        }
        drop(principals);
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Takes in one stored value, while the cache is filled.
    pub(crate) fn load(&self, key: &str, value: &[u8], slot: Option<&Slot>) {
        let mut principals = self.principals.write();
        if !note_record(&mut principals, key, Some(value)) {
            note_slot(&mut principals, key, slot);
        }
    }
}

/// Is this one of the records that say who may get in?
pub(crate) fn concerns(key: &str) -> bool {
    key.starts_with(storage_key::DIGESTS)
        || [User.info(), Team.info(), OwnedAccessKey.info()]
            .iter()
            .any(|info| name_in(info, key).is_some())
}

fn name_in<'a>(info: &Info, key: &'a str) -> Option<&'a str> {
    key.strip_prefix(storage_key::collection(info).as_str())
}

/// Takes in a record that stands beside the objects, or its end. Answers whether it was one.
fn note_record(principals: &mut PrincipalIndex, key: &str, value: Option<&[u8]>) -> bool {
    if let Some(digest) = key.strip_prefix(storage_key::DIGESTS) {
        if let Some(digest) = Digest::from_hex(digest) {
            let record = value.and_then(|value| decode::decode_typed::<DigestRecord>(value).ok());
            principals.set_record(digest, record);
        }
        return true;
    }
    let Some(name) = key.strip_prefix(storage_key::ACTIVITY) else { return false };
    let record = value.and_then(|value| decode::decode_typed::<ActivityRecord>(value).ok());
    if let Some(record) = record {
        principals.set_last_activity(name, &record.uid, record.last_activity.unix_seconds());
    }
    true
}

/// Takes in a user, team or key, or its end. What is damaged lets nobody in.
fn note_slot(principals: &mut PrincipalIndex, key: &str, slot: Option<&Slot>) {
    let object = match slot {
        Some(Slot::Intact(object)) => Some(&**object),
        _ => None,
    };
    if let Some(name) = name_in(User.info(), key) {
        principals.set_user(name, object.and_then(living).map(user_facts));
    } else if let Some(name) = name_in(Team.info(), key) {
        principals.set_team(name, object.and_then(living).map(team_facts));
    } else if let Some(name) = name_in(OwnedAccessKey.info(), key) {
        principals.set_key(name, object.and_then(living).map(key_facts));
    }
}

fn user_facts((metadata, fields): (ObjectMeta, user::Fields)) -> UserFacts {
    UserFacts {
        uid: metadata.uid,
        subject: fields.spec.subject,
        groups: fields.spec.groups,
        disabled: fields.spec.disabled,
    }
}

fn team_facts((metadata, fields): (ObjectMeta, team::Fields)) -> TeamFacts {
    TeamFacts { uid: metadata.uid, users: fields.spec.users, groups: fields.spec.groups }
}

fn key_facts((metadata, fields): (ObjectMeta, owned_access_key::Fields)) -> KeyFacts {
    let spec = fields.spec;
    let created = metadata.creation_timestamp.map_or(0, Timestamp::unix_seconds);
    KeyFacts {
        uid: metadata.uid,
        owner: spec.owner(),
        disabled: spec.disabled,
        lifetime: Lifetime {
            created_unix_seconds: created,
            ttl_seconds: spec.ttl,
            after_last_activity: spec.ttl_after_last_activity,
        },
        scoped: spec.scope.is_some(),
        groups: spec.groups,
    }
}

/// What has been deleted stops at once, also when a finalizer or its grace period holds the object.
fn living<F: DeserializeOwned>(object: &CachedObject) -> Option<(ObjectMeta, F)> {
    let stored: Stored<F> = decode::decode_typed(&object.json()).ok()?;
    (!stored.metadata.is_terminating()).then_some((stored.metadata, stored.fields))
}
