//! From format 3 to 4: the owner of an object holds every verb by the policy itself, and the uid of the user
//! or team that is meant is in an annotation of the object. Before, a Role and a binding of the owner's
//! held both.
//!
//! Each transaction takes some objects with their Roles and bindings, and notes up to where that has come. It
//! goes on from there, and never looks at an object twice: what says whose it was is gone by then, and
//! whoever has the owner's name now may be somebody else. For the same reason, what a client has written
//! into the annotation does not count.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use postern_kinds::access::{MANAGED_BY_ACCESS_RULES, OWNER_UID, Ownership, owner_role};
use postern_kinds::cluster_role::ClusterRole;
use postern_kinds::cluster_role_binding::ClusterRoleBinding;
use postern_kinds::rbac::{MANAGED_BY, SUBJECT_UIDS};
use postern_kinds::role::Role;
use postern_kinds::role_binding::RoleBinding;
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_kinds::{AnyKind, Principal, all};
use postern_meta::decode::decode_typed;
use postern_meta::object::{Object, ObjectMeta};
use postern_store::{Change, Condition, Entry, Error, Page, Store, Txn, limits};

use super::format::MOVED_BYTES_PER_TXN;
use crate::cache::to_stored;
use crate::storage_key;

/// Objects in one transaction: each is changed, and can lose a Role and a binding. One change is left for the
/// note.
const OBJECTS_PER_TXN: usize = (limits::CHANGES_PER_TXN - 1) / 3;

/// Takes over the owners of all objects. `format` is the condition that the format is still the old one.
///
/// # Errors
/// The store's; [`Error::Conflict`] on the format when another server has come to the end.
pub(super) async fn take_over(
    store: &Arc<dyn Store>,
    format: &Condition,
) -> postern_store::Result<()> {
    let mut kinds: Vec<_> = all().iter().copied().filter(|kind| kind.has_ownership()).collect();
    // In the order of keys, so that the note says which kinds are done.
    kinds.sort_by_key(|kind| storage_key::collection(kind.info()));
    for kind in kinds {
        while !take_over_some(store, format, kind).await? {}
    }
    Ok(())
}

/// Adds that it is forgotten how far this has come, to the transaction that notes the new format.
///
/// # Errors
/// The store's.
pub(super) async fn forget_progress(
    store: &Arc<dyn Store>,
    txn: &mut Txn,
) -> postern_store::Result<()> {
    if let Some(entry) = store.get(storage_key::OWNERS_DONE_TO).await?.value {
        txn.conditions.push(Condition::At(entry.key.clone(), entry.position));
        txn.changes.push(Change::Delete { key: entry.key });
    }
    Ok(())
}

/// Takes over the owners of the next objects of a kind. Returns whether there are no more.
///
/// # Errors
/// As [`take_over`].
pub(super) async fn take_over_some(
    store: &Arc<dyn Store>,
    format: &Condition,
    kind: &'static dyn AnyKind,
) -> postern_store::Result<bool> {
    let note: Arc<str> = storage_key::OWNERS_DONE_TO.into();
    let done_to = store.get(&note).await?.value;
    let prefix = storage_key::collection(kind.info());
    let after = done_to.as_ref().and_then(|entry| std::str::from_utf8(&entry.value).ok());
    if after.is_some_and(|after| !after.starts_with(&prefix) && *after > *prefix) {
        return Ok(true);
    }
    let after = after.filter(|after| after.starts_with(&prefix)).map(Arc::from);
    // A list with a limit would read all objects that come after it, to count them.
    let at = store.revision().await?;
    let page = store.next_page(&prefix, at, after).await?;
    for corrupt in &page.corrupt {
        // It cannot be read, and its Role and binding stay: they end with it.
        tracing::error!(key = %corrupt.key, "a corrupt object is left as it is: {}", corrupt.reason);
    }
    let Some(mut last) = page.last_key().cloned() else { return Ok(true) };
    let rest = store.next_page(&prefix, at, Some(Arc::clone(&last))).await?;
    let mut is_last = rest.last_key().is_none();
    let as_noted = match &done_to {
        Some(entry) => Condition::At(note.clone(), entry.position),
        None => Condition::Absent(note.clone()),
    };
    let mut txn = Txn { conditions: vec![format.clone(), as_noted], changes: Vec::new() };
    let mut bytes = 0;
    let Page { entries, .. } = page;
    let mut before = None;
    for (number, entry) in entries.into_iter().enumerate() {
        let key = entry.key.clone();
        let size = entry.value.len();
        let is_long = bytes > 0 && bytes + size > MOVED_BYTES_PER_TXN;
        if is_long || number == OBJECTS_PER_TXN {
            // The rest is for the next transaction.
            (last, is_last) = (before.unwrap_or(last), false);
            break;
        }
        bytes += size;
        add_changes(store, kind, entry, &mut txn).await?;
        before = Some(key);
    }
    txn.changes.push(Change::Put { key: note.clone(), value: Bytes::from(last.to_string()) });
    match store.commit(txn).await {
        Ok(_) => Ok(is_last),
        Err(Error::Conflict { key, .. }) if is_of(format, &key) => {
            Err(Error::Conflict { key, found: None })
        }
        // Another server was faster: this one goes on from where that one is.
        Err(Error::Conflict { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Is this the key of a condition?
fn is_of(condition: &Condition, key: &str) -> bool {
    match condition {
        Condition::Absent(of) | Condition::At(of, _) => **of == *key,
    }
}

/// Adds what changes for one object.
async fn add_changes(
    store: &Arc<dyn Store>,
    kind: &'static dyn AnyKind,
    entry: Entry,
    txn: &mut Txn,
) -> postern_store::Result<()> {
    let Ok(mut object) = decode_typed::<Object>(&entry.value) else { return Ok(()) };
    let info = kind.info();
    let (namespace, name) = storage_key::name_of(&entry.key);
    let (role, binding) = match namespace {
        Some(_) => (Role.info(), RoleBinding.info()),
        None => (ClusterRole.info(), ClusterRoleBinding.info()),
    };
    let of_owner = owner_role(info, name);
    remove(store, &storage_key::object(role, namespace, &of_owner), txn).await?;
    let binding = remove(store, &storage_key::object(binding, namespace, &of_owner), txn).await?;
    let ownership = kind.ownership(&object);
    let owner = ownership.as_ref().and_then(Ownership::principal);
    let uid = match (owner, binding) {
        (None, _) | (_, Found::Unreadable) => None,
        (Some(owner), Found::Readable(binding)) if is_owned_by(&binding, &object.metadata) => {
            uid_in(&binding, owner)
        }
        (Some(owner), _) => present_uid(store, owner).await?,
    };
    let old = object.metadata.annotations.remove(OWNER_UID);
    if old != uid {
        object.metadata.annotations.extend(uid.map(|uid| (OWNER_UID.to_owned(), uid)));
        txn.conditions.push(Condition::At(entry.key.clone(), entry.position));
        txn.changes.push(Change::Put { key: entry.key, value: to_stored(object) });
    }
    Ok(())
}

/// What is stored under a key.
enum Found {
    Nothing,
    Readable(Box<Object>),
    /// It gives nothing to anybody.
    Unreadable,
}

/// Returns the Role or binding under a key, and adds its removal, if the server has made it from access
/// rules. One that is corrupt is left as it is.
async fn remove(store: &Arc<dyn Store>, key: &str, txn: &mut Txn) -> postern_store::Result<Found> {
    let entry = match store.get(key).await {
        Ok(found) => found.value,
        Err(Error::Corrupt { reason, .. }) => {
            tracing::error!(key, "a corrupt object is left as it is: {reason}");
            return Ok(Found::Unreadable);
        }
        Err(error) => return Err(error),
    };
    let Some(entry) = entry else { return Ok(Found::Nothing) };
    let Ok(object) = decode_typed::<Object>(&entry.value) else { return Ok(Found::Unreadable) };
    if object.metadata.labels.get(MANAGED_BY).is_some_and(|by| by == MANAGED_BY_ACCESS_RULES) {
        txn.conditions.push(Condition::At(entry.key.clone(), entry.position));
        txn.changes.push(Change::Delete { key: entry.key });
    }
    Ok(Found::Readable(Box::new(object)))
}

/// Is a binding that of this object, and not of an earlier one of the same name?
fn is_owned_by(binding: &Object, object: &ObjectMeta) -> bool {
    binding.metadata.owner_references.iter().any(|one| one.uid == object.uid)
}

/// Returns the uid that a binding has for the owner; `None` when it gives nothing to anybody of that name.
fn uid_in(binding: &Object, owner: Principal<'_>) -> Option<String> {
    let uids = binding.metadata.annotations.get(SUBJECT_UIDS)?;
    let mut uids: BTreeMap<String, String> = decode_typed(uids.as_bytes()).ok()?;
    uids.remove(&owner.group()).filter(|uid| !uid.is_empty())
}

/// Returns the uid of the user or team of a name as they are now: for an object without a binding, as one from
/// before access rules had any.
async fn present_uid(
    store: &Arc<dyn Store>,
    owner: Principal<'_>,
) -> postern_store::Result<Option<String>> {
    let key = match owner {
        Principal::User(name) => storage_key::object(User.info(), None, name),
        Principal::Team(name) => storage_key::object(Team.info(), None, name),
    };
    let found = match store.get(&key).await {
        Ok(found) => found.value,
        Err(Error::Corrupt { .. }) => None,
        Err(error) => return Err(error),
    };
    let object = found.and_then(|entry| decode_typed::<Object>(&entry.value).ok());
    Ok(object.map(|object| object.metadata.uid).filter(|uid| !uid.is_empty()))
}
