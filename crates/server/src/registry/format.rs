//! The version of the layout of what is stored, and the steps that bring an older one up to date.
//!
//! A step goes on where it was interrupted: it moves what is still where the old version had it, a
//! bounded number of values in each transaction, and the new version is recorded last. Several
//! servers that start at once do no harm to each other: each move has the old value as its
//! condition, and whoever comes second finds nothing left to move.

use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use postern_kinds::{AnyKind, UniqueKey, all};
use postern_meta::decode::decode_typed;
use postern_meta::object::Object;
use postern_store::{Change, Condition, Entry, Error, ListRequest, Store, Txn, limits};

use super::{makers, owner_uids};
use crate::storage_key;

/// The version that this server reads and writes.
///
/// - 2: side records have the group and the namespace of their object in their keys.
/// - 3: access rules have their roles. A controller makes those of objects from before, and notes when it
///   is done.
/// - 4: the uid of an owner is in an annotation of the object, and owners have no roles.
/// - 5: the maker of an access key is in its status.
pub(crate) const CURRENT: u32 = 5;

/// The first version in which owners have no roles.
const OWNERS_WITHOUT_ROLES: u32 = 4;

/// The version of a store from before there were versions.
const UNVERSIONED: u32 = 1;

/// Values that one transaction moves: each takes two changes.
const MOVES_PER_TXN: usize = limits::CHANGES_PER_TXN / 2;

/// Bytes of the values that one transaction moves, unless one value alone has more.
pub(super) const MOVED_BYTES_PER_TXN: usize = limits::TXN_BYTES / 4;

/// Returns the record of the current version, for a store that is new.
pub(super) fn record() -> Change {
    Change::Put { key: storage_key::FORMAT.into(), value: Bytes::from(CURRENT.to_string()) }
}

/// Brings what is stored up to the current version. Before anything else is read.
///
/// # Errors
/// The store's; and when what is stored is newer than this server, which would damage it.
pub(crate) async fn migrate(store: &Arc<dyn Store>) -> anyhow::Result<()> {
    loop {
        let (version, as_read) = version_of(store).await?;
        anyhow::ensure!(
            version <= CURRENT,
            "the database has the format {version}, and this server knows formats up to {CURRENT}: \
             start the version of Postern that it was last used with, or a newer one"
        );
        if version == CURRENT {
            return Ok(());
        }
        tracing::info!(from = version, to = CURRENT, "the database gets a new format");
        match migrate_from(store, version, &as_read).await {
            Ok(moved) => {
                tracing::info!(moved, "the database has the format {CURRENT}");
                return Ok(());
            }
            // Another server has come to the end first.
            Err(error) if matches!(error.downcast_ref(), Some(Error::Conflict { .. })) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Brings what is stored from any older version to the current one. Returns how many records were moved.
async fn migrate_from(
    store: &Arc<dyn Store>,
    version: u32,
    as_read: &Condition,
) -> anyhow::Result<usize> {
    let mut moved = 0;
    loop {
        // Until nothing is left: another server that moves records shifts the pages of this one.
        let now = side_records_get_group_and_namespace(store).await?;
        if now == 0 {
            break;
        }
        moved += now;
    }
    for kind in all() {
        record_unique_keys(store, *kind).await?;
    }
    if version < OWNERS_WITHOUT_ROLES {
        owner_uids::take_over(store, as_read).await?;
    }
    makers::take_over(store).await?;
    let mut end = Txn { conditions: vec![as_read.clone()], changes: vec![record()] };
    owner_uids::forget_progress(store, &mut end).await?;
    store.commit(end).await?;
    Ok(moved)
}

/// Have all objects the roles of their access rules? Those of a server before version 3 have none.
///
/// # Errors
/// The store's.
pub(crate) async fn has_roles_of_all(store: &Arc<dyn Store>) -> postern_store::Result<bool> {
    let note = store.get(storage_key::ROLES_OF_ALL).await?.value;
    Ok(note.is_some_and(|note| note.value == subresources_of_all()))
}

/// Notes that all objects have the roles of their access rules.
///
/// # Errors
/// The store's.
pub(crate) async fn note_roles_of_all(store: &Arc<dyn Store>) -> postern_store::Result<()> {
    let value = subresources_of_all();
    let note = Change::Put { key: storage_key::ROLES_OF_ALL.into(), value };
    let txn = Txn { conditions: Vec::new(), changes: vec![note] };
    store.commit(txn).await.map(|_| ())
}

/// Returns what roles with all subresources list: the subresources of each kind. When a kind gets another
/// one, they are made again.
fn subresources_of_all() -> Bytes {
    let kinds = all().iter().filter(|kind| kind.has_dependents()).map(|kind| kind.info());
    let lines = kinds.map(|info| {
        let subresources: Vec<&str> = info.subresources().collect();
        format!("{}: {}\n", info.plural, subresources.join(" "))
    });
    // They are made again for the records of whom objects name, too.
    Bytes::from(lines.collect::<String>() + "bound-names\n")
}

/// Returns the version, with the condition that it is still as it was read.
async fn version_of(store: &Arc<dyn Store>) -> anyhow::Result<(u32, Condition)> {
    let key: Arc<str> = storage_key::FORMAT.into();
    let Some(entry) = store.get(&key).await?.value else {
        return Ok((UNVERSIONED, Condition::Absent(key)));
    };
    let text = std::str::from_utf8(&entry.value).unwrap_or_default();
    let version = text.parse();
    let version = version.with_context(|| format!("the stored format is no number: {text:?}"))?;
    Ok((version, Condition::At(key, entry.position)))
}

/// From 1 to 2: the keys of side records carried only the plural name of the kind.
async fn side_records_get_group_and_namespace(store: &Arc<dyn Store>) -> anyhow::Result<usize> {
    let mut moved = 0;
    for (old_prefix, new_key) in [
        ("/withheld/", secret_key as fn(&str) -> Option<Arc<str>>),
        ("/claims/", unique_key),
        ("/activity/", activity_key),
    ] {
        moved += move_all(store, old_prefix, new_key).await?;
    }
    Ok(moved)
}

fn secret_key(rest: &str) -> Option<Arc<str>> {
    let (plural, name) = rest.split_once('/')?;
    Some(storage_key::secret_record(kind_of(plural)?.info(), None, name))
}

fn unique_key(rest: &str) -> Option<Arc<str>> {
    let (plural, unique) = rest.split_once('/')?;
    Some(storage_key::unique_key(kind_of(plural)?.info(), unique))
}

/// Keys of the new version have more steps, and stay.
fn activity_key(rest: &str) -> Option<Arc<str>> {
    let info = postern_kinds::owned_access_key::OwnedAccessKey.info();
    (!rest.contains('/')).then(|| storage_key::activity(info, rest))
}

/// From 1 to 2: of a user with a subject, only the subject was a unique key, and not the name. What
/// two objects share by now stays with the one that has it.
async fn record_unique_keys(
    store: &Arc<dyn Store>,
    kind: &'static dyn AnyKind,
) -> anyhow::Result<()> {
    let prefix = storage_key::collection(kind.info());
    let mut after = None;
    loop {
        let request = ListRequest {
            prefix: prefix.clone(),
            after: after.take(),
            limit: MOVES_PER_TXN,
            ..ListRequest::default()
        };
        let page = store.list(request).await?;
        after = page.last_key().cloned();
        let is_last = page.remaining == 0 || after.is_none();
        for entry in page.entries {
            let Ok(object) = decode_typed::<Object>(&entry.value) else { continue };
            let Ok(unique_keys) = kind.unique_keys(&object) else { continue };
            for UniqueKey { field, value, .. } in unique_keys {
                record_unique_key(store, kind, &object.metadata.name, field, &value).await?;
            }
        }
        if is_last {
            return Ok(());
        }
    }
}

async fn record_unique_key(
    store: &Arc<dyn Store>,
    kind: &'static dyn AnyKind,
    name: &str,
    field: &str,
    value: &str,
) -> anyhow::Result<()> {
    let key = storage_key::unique_key(kind.info(), value);
    let holder = Bytes::from(serde_json::to_vec(name)?);
    if let Some(found) = store.get(&key).await?.value {
        if found.value != holder {
            let resource = kind.info().plural;
            tracing::warn!("{resource} {name}: {field} is also another's: change one of them");
        }
        return Ok(());
    }
    let change = Change::Put { key: key.clone(), value: holder };
    match store
        .commit(Txn { conditions: vec![Condition::Absent(key)], changes: vec![change] })
        .await
    {
        Ok(_) | Err(Error::Conflict { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The kinds with side records in version 1 all had plural names of their own.
fn kind_of(plural: &str) -> Option<&'static dyn AnyKind> {
    all().iter().copied().find(|kind| kind.info().plural == plural)
}

async fn move_all(
    store: &Arc<dyn Store>,
    old_prefix: &str,
    new_key: fn(&str) -> Option<Arc<str>>,
) -> anyhow::Result<usize> {
    let (mut moved, mut after) = (0, None);
    loop {
        let request = ListRequest {
            prefix: old_prefix.to_owned(),
            after: after.clone(),
            limit: MOVES_PER_TXN,
            ..ListRequest::default()
        };
        let page = store.list(request).await?;
        for corrupt in &page.corrupt {
            // It is as unreadable under its new key: the object that it belongs to is to be mended.
            tracing::error!(key = %corrupt.key, "a corrupt record is left behind: {}", corrupt.reason);
        }
        let (last, is_last) = (page.last_key().cloned(), page.remaining == 0);
        let to_move = page.entries.into_iter().filter_map(|entry| {
            let key = new_key(entry.key.strip_prefix(old_prefix)?)?;
            Some((entry, key))
        });
        match move_page(store, to_move.collect()).await? {
            Some(count) => moved += count,
            // Another server has moved some of them: the same range is looked at again.
            None => continue,
        }
        if is_last || last.is_none() {
            return Ok(moved);
        }
        after = last;
    }
}

/// Moves records; `None` when another server was faster with one of them.
async fn move_page(
    store: &Arc<dyn Store>,
    to_move: Vec<(Entry, Arc<str>)>,
) -> anyhow::Result<Option<usize>> {
    let mut moved = 0;
    let mut txn = Txn::default();
    let mut bytes = 0;
    for (entry, key) in to_move {
        if bytes > 0 && bytes + entry.value.len() > MOVED_BYTES_PER_TXN {
            if !commit_moves(store, std::mem::take(&mut txn)).await? {
                return Ok(None);
            }
            bytes = 0;
        }
        moved += 1;
        bytes += entry.value.len();
        txn.conditions.push(Condition::At(entry.key.clone(), entry.position));
        txn.changes.push(Change::Put { key, value: entry.value });
        txn.changes.push(Change::Delete { key: entry.key });
    }
    if txn.changes.is_empty() || commit_moves(store, txn).await? {
        return Ok(Some(moved));
    }
    Ok(None)
}

/// Returns whether the moves were made: not, when another server has moved one of the records.
async fn commit_moves(store: &Arc<dyn Store>, txn: Txn) -> anyhow::Result<bool> {
    match store.commit(txn).await {
        Ok(_) => Ok(true),
        Err(Error::Conflict { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
