//! From format 4 to 5: the key that created an access key is recorded in the status, where no client and no
//! collector changes it. Before, only an owner reference said it, which the garbage collector removed together with
//! the maker: the created key was valid without its maker's bound from then on.
//!
//! A key that still has the reference gets the record. A key that has lost its maker is disabled, and its endpoint tokens
//! are revoked. That is known of a key that names a maker which is not there any more. Only scoped keys created keys that
//! end with them, and the created key has a scope, too. So a key with a scope that was written again after its creation
//! may have lost its maker. History tells whether it had one. Where history is not kept any more, the key is disabled:
//! what created it is not known, and a role that allows to enable it decides.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use postern_auth::principal_index::DigestRecord;
use postern_kinds::AnyKind;
use postern_kinds::owned_access_key::{Fields, OwnedAccessKey};
use postern_kinds::principal::Maker;
use postern_meta::decode::decode_typed;
use postern_meta::object::{Object, ObjectMeta, OwnerReference};
use postern_store::{Change, Condition, Entry, Error, ListRequest, Position, Store, Txn};
use serde::Deserialize as _;
use serde_json::Value;

use crate::cache::{IssuedRecord, RevocationRecord, to_stored};
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

/// What is known of the keys of a store.
struct Known {
    /// The revisions at which keys got the values that they have, by the uids of the keys.
    created: HashMap<String, u64>,
    /// The uids of all keys.
    uids: HashSet<String>,
}

/// Records the makers of all access keys, and disables the keys that have lost theirs. It can be done again.
///
/// # Errors
/// The store's.
pub(super) async fn take_over(store: &Arc<dyn Store>) -> postern_store::Result<()> {
    let created = creations(store).await?;
    let keys = all(store, &storage_key::collection(OwnedAccessKey.info())).await?;
    let decoded = keys.iter().filter_map(|entry| decode_typed::<Object>(&entry.value).ok());
    let uids = decoded.map(|key| key.metadata.uid).collect();
    let known = Known { created, uids };
    let mut lost = Vec::new();
    for entry in keys {
        if let Some(name) = take_over_key(store, entry, &known).await? {
            tracing::warn!(
                key = name,
                "an access key has lost the key that created it, or may have, and is disabled: enable it \
                 only if it is known who created it and why"
            );
            lost.push(name);
        }
    }
    note_lost(store, lost).await
}

/// Records the maker of one key. Returns its name if it was disabled.
async fn take_over_key(
    store: &Arc<dyn Store>,
    mut entry: Entry,
    known: &Known,
) -> postern_store::Result<Option<String>> {
    loop {
        let Ok(mut key) = decode_typed::<Object>(&entry.value) else { return Ok(None) };
        let name = key.metadata.name.clone();
        let mut txn = Txn::default();
        let is_lost = match origin_in_history(store, &key, &entry, known).await? {
            Origin::Free => return Ok(None),
            Origin::Maker(maker) => {
                set(&mut key, "status", "maker", serde_json::to_value(maker).unwrap_or_default());
                false
            }
            Origin::Lost if is_disabled_for_good(&key) => return Ok(None),
            Origin::Lost => {
                disable(&mut key);
                revoke_tokens(store, &key.metadata, &mut txn).await?;
                true
            }
        };
        txn.conditions.push(Condition::At(entry.key.clone(), entry.position));
        txn.changes.push(Change::Put { key: entry.key.clone(), value: to_stored(key) });
        match store.commit(txn).await {
            Ok(_) => return Ok(is_lost.then_some(name)),
            // Another server has written it, or issued a token.
            Err(Error::Conflict { .. }) => match store.get(&entry.key).await?.value {
                Some(now) => entry = now,
                None => return Ok(None),
            },
            Err(error) => return Err(error),
        }
    }
}

/// Disables a key so that its owner alone cannot enable it.
fn disable(key: &mut Object) {
    set(key, "spec", "disabled", Value::Bool(true));
    if let Some(Value::Object(status)) = key.fields.get_mut("status") {
        status.remove("disabledByUid");
    }
}

fn is_disabled_for_good(key: &Object) -> bool {
    Fields::deserialize(&key.fields)
        .is_ok_and(|Fields { spec, status }| spec.disabled && status.disabled_by_uid.is_empty())
}

/// Adds what revokes the endpoint tokens of a key, if there may be any.
async fn revoke_tokens(
    store: &Arc<dyn Store>,
    metadata: &ObjectMeta,
    txn: &mut Txn,
) -> postern_store::Result<()> {
    let uid = &metadata.uid;
    let note = storage_key::issued_tokens(uid);
    let unknown = storage_key::UNKNOWN_ISSUED_TOKENS.into();
    let mut until = None;
    for key in [&note, &unknown] {
        let found = store.get(key).await?.value;
        let Some(entry) = found else {
            txn.conditions.push(Condition::Absent(key.clone()));
            continue;
        };
        let record = decode_typed::<IssuedRecord>(&entry.value).ok();
        until = until.max(record.map(|record| record.until));
        txn.conditions.push(Condition::At(key.clone(), entry.position));
        if *key == note {
            // The next token is noted anew.
            txn.changes.push(Change::Delete { key: key.clone() });
        }
    }
    if let Some(drop_after) = until {
        let record = RevocationRecord { uids: vec![uid.clone()], drop_after, owner_uid: None };
        let value = Bytes::from(serde_json::to_vec(&record).unwrap_or_default());
        txn.changes.push(Change::Put { key: storage_key::revocation(uid), value });
    }
    Ok(())
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

/// Returns what a key was created by, as far as the key tells; `None` if only history can.
fn origin(key: &Object, written: Position, known: &Known) -> Option<Origin> {
    let Ok(Fields { spec, status }) = Fields::deserialize(&key.fields) else {
        return Some(Origin::Free);
    };
    if status.maker.is_some() {
        return Some(Origin::Free);
    }
    if let Some(reference) = maker_reference(&key.metadata) {
        return Some(origin_of(reference, known));
    }
    let created = known.created.get(&key.metadata.uid);
    let was_written_again = created.is_some_and(|revision| written.revision() > *revision);
    let is_as_created = !was_written_again && !is_changed_by_client(&key.metadata);
    // A scoped key could create none that live longer with each use.
    let is_free = spec.scope.is_none() || spec.ttl_after_last_activity || is_as_created;
    is_free.then_some(Origin::Free)
}

fn maker_reference(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().find(|one| is_to_key(one))
}

fn origin_of(reference: &OwnerReference, known: &Known) -> Origin {
    let OwnerReference { name, uid, .. } = reference.clone();
    if known.uids.contains(&uid) {
        Origin::Maker(Maker { name, uid, impersonated: None })
    } else {
        Origin::Lost
    }
}

/// Returns what a key was created by. Where the key does not tell, the first state of it that history has does: if that is
/// not the one at its creation, the key may have lost its maker before.
async fn origin_in_history(
    store: &Arc<dyn Store>,
    key: &Object,
    entry: &Entry,
    known: &Known,
) -> postern_store::Result<Origin> {
    if let Some(origin) = origin(key, entry.position, known) {
        return Ok(origin);
    }
    let Some(created) = known.created.get(&key.metadata.uid) else { return Ok(Origin::Lost) };
    let (prefix, limit) = (entry.key.to_string(), 1);
    let request = ListRequest { prefix, after: None, limit, at: Some(*created) };
    let page = match store.list(request).await {
        Ok(page) => page,
        Err(Error::Compacted { .. }) => return Ok(Origin::Lost),
        Err(error) => return Err(error),
    };
    let then = page.entries.into_iter().find(|one| one.key == entry.key);
    let Some(Ok(then)) = then.map(|entry| decode_typed::<Object>(&entry.value)) else {
        return Ok(Origin::Lost);
    };
    Ok(match maker_reference(&then.metadata) {
        Some(reference) => origin_of(reference, known),
        // It was its first state, and not one with a new value.
        None if !is_changed_by_client(&then.metadata) => Origin::Free,
        None => Origin::Lost,
    })
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
        let renewed = || json!({ "user": "ada", "scope": { "rules": [{}] }, "ttl": 600, "ttlAfterLastActivity": true });
        let reference = |uid: &str| {
            json!({ "ownerReferences": [{ "apiVersion": "management.platform.sh/v1",
                "kind": "OwnedAccessKey", "name": "parent", "uid": uid }] })
        };
        let later = || {
            json!({ "managedFields": [{ "manager": "curl", "operation": "Update",
                "apiVersion": "management.platform.sh/v1", "time": "2026-01-02T00:00:00Z",
                "fieldsType": "FieldsV1", "fieldsV1": {} }] })
        };
        let created = HashMap::from([("u-child".to_owned(), 5)]);
        let known = Known { created, uids: HashSet::from(["u-parent".to_owned()]) };
        for (metadata, spec, written, expected) in [
            (reference("u-parent"), scoped(), 5, "maker"),
            (reference("u-gone"), scoped(), 5, "lost"),
            (json!({}), scoped(), 9, "history"),
            (json!({}), scoped(), 5, "free"),
            // A client has changed it, and the collector may have, too; or the client gave it a new value.
            (json!({ "generation": 2 }), scoped(), 9, "history"),
            (later(), scoped(), 9, "history"),
            (later(), scoped(), 5, "history"),
            // A key without a scope was created by one without a scope.
            (json!({}), json!({ "user": "ada" }), 9, "free"),
            (later(), renewed(), 9, "free"),
        ] {
            let key = key(&metadata, &spec);
            let found = match origin(&key, Position::new(written, 0), &known) {
                Some(Origin::Maker(maker)) => {
                    assert_eq!(maker.uid, "u-parent");
                    "maker"
                }
                Some(Origin::Lost) => "lost",
                Some(Origin::Free) => "free",
                None => "history",
            };
            assert_eq!(found, expected, "{metadata} {written}");
        }
    }
}
