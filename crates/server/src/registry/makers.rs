//! From format 4 to 5: the key that created an access key is recorded in the status, where no client and no
//! collector changes it. Before, only an owner reference said it, which the garbage collector removed together with
//! the maker: the created key was valid without its maker's bound from then on.
//!
//! A key that still has the reference gets the record. A key that has lost its maker is disabled. That is known of a key
//! that names a maker which is not there any more; and of a key with a scope that was written again after its creation
//! although no client has changed it, which only the collector did. What created it is not known any more: whoever may
//! enable it decides.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use postern_auth::principal_index::DigestRecord;
use postern_kinds::AnyKind;
use postern_kinds::owned_access_key::{Fields, OwnedAccessKey};
use postern_kinds::principal::Maker;
use postern_meta::decode::decode_typed;
use postern_meta::object::{Object, ObjectMeta, OwnerReference};
use postern_store::{Change, Condition, Entry, Error, Position, Store, Txn};
use serde::Deserialize as _;
use serde_json::Value;

use crate::cache::to_stored;
use crate::storage_key;

/// What becomes of a key.
enum Origin {
    /// It was created by this key.
    Maker(Maker),
    /// Its maker is gone.
    Lost,
    /// It depends on no other key.
    Free,
}

/// Records the makers of all access keys, and disables the keys that have lost theirs. It can be done again.
///
/// # Errors
/// The store's.
pub(super) async fn take_over(store: &Arc<dyn Store>) -> postern_store::Result<()> {
    let created = creations(store).await?;
    let keys = all(store, &storage_key::collection(OwnedAccessKey.info())).await?;
    let decoded: Vec<(Entry, Object)> = keys
        .into_iter()
        .filter_map(|entry| decode_typed::<Object>(&entry.value).ok().map(|key| (entry, key)))
        .collect();
    let uids: HashSet<String> = decoded.iter().map(|(_, key)| key.metadata.uid.clone()).collect();
    let mut lost = Vec::new();
    for (entry, mut key) in decoded {
        let is_there = |uid: &str| uids.contains(uid);
        let is_lost = match origin(&key, entry.position, &created, is_there) {
            Origin::Free => continue,
            Origin::Maker(maker) => {
                set(&mut key, "status", "maker", serde_json::to_value(maker).unwrap_or_default());
                false
            }
            Origin::Lost => {
                set(&mut key, "spec", "disabled", Value::Bool(true));
                true
            }
        };
        let name = key.metadata.name.clone();
        let conditions = vec![Condition::At(entry.key.clone(), entry.position)];
        let changes = vec![Change::Put { key: entry.key, value: to_stored(key) }];
        match store.commit(Txn { conditions, changes }).await {
            Ok(_) if is_lost => {
                tracing::warn!(
                    key = name,
                    "an access key has lost the key that created it, and is disabled: enable it only \
                     if it is known who created it and why"
                );
                lost.push(name);
            }
            // Another server does the same.
            Ok(_) | Err(Error::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    note_lost(store, lost).await
}

/// Notes for whom an event is to be recorded, once there are events.
async fn note_lost(store: &Arc<dyn Store>, mut lost: Vec<String>) -> postern_store::Result<()> {
    if lost.is_empty() {
        return Ok(());
    }
    let before = store.get(storage_key::LOST_MAKERS).await?.value;
    lost.extend(before.map(|entry| names_of(&entry.value)).unwrap_or_default());
    let value = Bytes::from(serde_json::to_vec(&lost).unwrap_or_default());
    let changes = vec![Change::Put { key: storage_key::LOST_MAKERS.into(), value }];
    store.commit(Txn { conditions: Vec::new(), changes }).await.map(drop)
}

/// Returns the keys that were disabled because they had lost their makers, and forgets them.
///
/// # Errors
/// The store's.
pub(crate) async fn take_lost(store: &Arc<dyn Store>) -> postern_store::Result<Vec<String>> {
    let Some(entry) = store.get(storage_key::LOST_MAKERS).await?.value else {
        return Ok(Vec::new());
    };
    let conditions = vec![Condition::At(entry.key.clone(), entry.position)];
    let changes = vec![Change::Delete { key: entry.key }];
    match store.commit(Txn { conditions, changes }).await {
        Ok(_) => Ok(names_of(&entry.value)),
        // Another server records them.
        Err(Error::Conflict { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn names_of(value: &[u8]) -> Vec<String> {
    decode_typed(value).unwrap_or_default()
}

/// Returns what a key was created by. `created` has the revisions at which keys got the value that they have.
fn origin(
    key: &Object,
    written: Position,
    created: &HashMap<String, u64>,
    is_there: impl Fn(&str) -> bool,
) -> Origin {
    let Ok(Fields { spec, status }) = Fields::deserialize(&key.fields) else { return Origin::Free };
    let mut references = key.metadata.owner_references.iter();
    if status.maker.is_some() {
        return Origin::Free;
    }
    if let Some(OwnerReference { name, uid, .. }) = references.find(|one| is_to_key(one)) {
        let (name, uid) = (name.clone(), uid.clone());
        return if is_there(&uid) {
            Origin::Maker(Maker { name, uid, impersonated: None })
        } else {
            Origin::Lost
        };
    }
    let was_written_again =
        created.get(&key.metadata.uid).is_some_and(|revision| written.revision() > *revision);
    if spec.scope.is_some() && was_written_again && !is_changed_by_client(&key.metadata) {
        return Origin::Lost;
    }
    Origin::Free
}

fn is_to_key(reference: &OwnerReference) -> bool {
    let info = OwnedAccessKey.info();
    reference.kind == info.kind && reference.api_version == info.version.to_string()
}

/// Has a client changed an object since it was created? A client's write changes its generation, or the time of a
/// field manager.
fn is_changed_by_client(metadata: &ObjectMeta) -> bool {
    let is_later = |time| time > metadata.creation_timestamp;
    metadata.generation > 1 || metadata.managed_fields.iter().any(|entry| is_later(entry.time))
}

/// Returns the revisions at which keys got their values, by the uids of the keys.
async fn creations(store: &Arc<dyn Store>) -> postern_store::Result<HashMap<String, u64>> {
    let records = all(store, storage_key::DIGESTS).await?;
    let revision = |entry: Entry| {
        let record = decode_typed::<DigestRecord>(&entry.value).ok()?;
        Some((record.uid, entry.position.revision()))
    };
    Ok(records.into_iter().filter_map(revision).collect())
}

/// Returns all that is stored under a prefix and can be read.
async fn all(store: &Arc<dyn Store>, prefix: &str) -> postern_store::Result<Vec<Entry>> {
    let (at, mut after, mut all) = (store.revision().await?, None, Vec::new());
    loop {
        let page = store.next_page(prefix, at, after).await?;
        after = page.last_key().cloned();
        all.extend(page.entries);
        if after.is_none() {
            return Ok(all);
        }
    }
}

fn set(object: &mut Object, part: &str, field: &str, value: Value) {
    let part = object.fields.entry(part).or_insert_with(|| Value::Object(serde_json::Map::new()));
    if let Value::Object(part) = part {
        part.insert(field.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(metadata: &Value, spec: &Value) -> Object {
        let mut whole = json!({
            "apiVersion": "management.platform.sh/v1", "kind": "OwnedAccessKey",
            "metadata": {
                "name": "child", "uid": "u-child", "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "managedFields": [{ "manager": "curl", "operation": "Update",
                    "apiVersion": "management.platform.sh/v1", "time": "2026-01-01T00:00:00Z",
                    "fieldsType": "FieldsV1", "fieldsV1": {} }],
            },
            "spec": spec,
        });
        for (name, value) in metadata.as_object().unwrap() {
            whole["metadata"][name] = value.clone();
        }
        Object::from_value(whole).unwrap()
    }

    #[test]
    fn a_key_that_has_lost_its_maker_before_the_upgrade_is_found() {
        let scoped = || json!({ "user": "ada", "scope": { "rules": [{}] } });
        let reference = |uid: &str| {
            json!({ "ownerReferences": [{ "apiVersion": "management.platform.sh/v1",
                "kind": "OwnedAccessKey", "name": "parent", "uid": uid }] })
        };
        let later = json!({ "managedFields": [{ "manager": "curl", "operation": "Update",
            "apiVersion": "management.platform.sh/v1", "time": "2026-01-02T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {} }] });
        let created = HashMap::from([("u-child".to_owned(), 5)]);
        for (metadata, spec, written, expected) in [
            (reference("u-parent"), scoped(), 5, "maker"),
            (reference("u-gone"), scoped(), 5, "lost"),
            (json!({}), scoped(), 9, "lost"),
            (json!({}), scoped(), 5, "free"),
            // A client has changed it.
            (json!({ "generation": 2 }), scoped(), 9, "free"),
            (later, scoped(), 9, "free"),
            // A key without a scope was created by one without a scope.
            (json!({}), json!({ "user": "ada" }), 9, "free"),
        ] {
            let key = key(&metadata, &spec);
            let origin = origin(&key, Position::new(written, 0), &created, |uid| uid == "u-parent");
            let found = match origin {
                Origin::Maker(maker) => {
                    assert_eq!(maker.uid, "u-parent");
                    "maker"
                }
                Origin::Lost => "lost",
                Origin::Free => "free",
            };
            assert_eq!(found, expected, "{metadata} {written}");
        }
    }
}
