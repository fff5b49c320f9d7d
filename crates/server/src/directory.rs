//! Keeps the directory of keys and users in step with the cache, for authentication.
//!
//! What a directory *decides* is in `auth`; here is only how it is filled from what is stored.

use std::sync::Arc;

use arc_swap::ArcSwap;
use postern_auth::digest::Digest;
use postern_auth::directory::{DigestRecord, Directory, Facts, KeyFacts, UserFacts};
use postern_kinds::owned_access_key::{self, OwnedAccessKey};
use postern_kinds::user::{self, User};
use postern_kinds::{AnyKind as _, Info};
use postern_meta::decode;
use postern_meta::object::ObjectMeta;
use postern_store::Event;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::cache::{CachedObject, Slot};
use crate::registry::keys;

#[derive(Deserialize)]
struct Stored<F> {
    metadata: ObjectMeta,
    #[serde(flatten)]
    fields: F,
}

/// Takes in a batch of changes, if any of them concerns who may get in.
pub(crate) fn apply(
    current: &ArcSwap<Directory>,
    events: &[Event],
    object: impl Fn(&str) -> Option<Arc<CachedObject>>,
) {
    if !events.iter().any(|event| concerns(&event.key)) {
        return;
    }
    let mut next = current.load().facts().clone();
    for event in events.iter().filter(|event| concerns(&event.key)) {
        if event.key.starts_with(keys::DIGESTS) {
            note_record(&mut next, &event.key, event.value.as_deref());
        } else {
            let slot = object(&event.key).map(Slot::Sound);
            note_slot(&mut next, &event.key, slot.as_ref());
        }
    }
    current.store(Arc::new(Directory::from(next)));
}

/// Is this one of the records that say who may get in?
pub(crate) fn concerns(key: &str) -> bool {
    key.starts_with(keys::DIGESTS)
        || [User.info(), OwnedAccessKey.info()].iter().any(|info| name_in(info, key).is_some())
}

fn name_in<'a>(info: &Info, key: &'a str) -> Option<&'a str> {
    key.strip_prefix(keys::collection(info).as_str())
}

/// Takes in a digest's record, or its end.
pub(crate) fn note_record(facts: &mut Facts, key: &str, value: Option<&[u8]>) {
    let Some(digest) = key.strip_prefix(keys::DIGESTS).and_then(Digest::from_hex) else { return };
    match value.and_then(|value| decode::decode_typed::<DigestRecord>(value).ok()) {
        Some(record) => facts.digests.insert(digest, record),
        None => facts.digests.remove(&digest),
    };
}

/// Takes in a user or a key, or its end. What is damaged lets nobody in.
pub(crate) fn note_slot(facts: &mut Facts, key: &str, slot: Option<&Slot>) {
    let object = match slot {
        Some(Slot::Sound(object)) => Some(&**object),
        _ => None,
    };
    if let Some(name) = name_in(User.info(), key) {
        let user = object.and_then(read::<user::Fields>).map(|(metadata, fields)| UserFacts {
            uid: metadata.uid,
            subject: fields.spec.subject,
            groups: fields.spec.groups,
            disabled: fields.spec.disabled,
        });
        set(&mut facts.users, name, user);
    } else if let Some(name) = name_in(OwnedAccessKey.info(), key) {
        let read = object.and_then(read::<owned_access_key::Fields>);
        let key = read.map(|(metadata, fields)| KeyFacts {
            uid: metadata.uid,
            user: fields.spec.user,
            disabled: fields.spec.disabled,
        });
        set(&mut facts.keys, name, key);
    }
}

fn set<T>(map: &mut std::collections::HashMap<String, T>, name: &str, facts: Option<T>) {
    match facts {
        Some(facts) => map.insert(name.to_owned(), facts),
        None => map.remove(name),
    };
}

fn read<F: DeserializeOwned>(object: &CachedObject) -> Option<(ObjectMeta, F)> {
    let stored: Stored<F> = decode::decode_typed(&object.json()).ok()?;
    Some((stored.metadata, stored.fields))
}
