//! Removes access keys that expired long ago, and access keys with an owner or maker that no longer
//! exists.

use postern_kinds::owned_access_key::{Fields, OwnedAccessKey};
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_kinds::{AnyKind, OwnedBy, Principal, Verb};
use postern_meta::object::Object;
use postern_meta::options::{DeleteOptions, GetOptions};
use postern_meta::status::ApiError;
use postern_telemetry::log_limited;
use serde::Deserialize as _;

use super::delete;
use crate::admit;
use crate::permit::Permit;
use crate::registry::{Registry, decoded};
use crate::secret_record::SecretRecord;
use crate::storage_key;

/// The time that an ended session of the console is kept, in seconds. Another server may have seen a later use.
const ENDED_SESSION_SECONDS: i64 = 3600;

/// The time that an ended key of a workload is kept, in seconds.
const ENDED_WORKLOAD_SECONDS: i64 = 300;

/// Removes access keys that expired longer ago than the retention, sessions that ended an hour ago, and keys of workloads
/// that ended five minutes ago. After a failure, it continues with the other keys.
///
/// # Errors
/// The error of the last deletion that failed.
pub(crate) async fn remove_expired_keys(registry: &Registry) -> Result<(), ApiError> {
    let now = registry.source().now().unix_seconds();
    let retention = registry.user_policy().expired_retention_seconds;
    remove_ended(registry, now - retention, |_| true).await?;
    let limit = now - ENDED_SESSION_SECONDS.min(retention);
    remove_ended(registry, limit, |name| registry.cache().principals().is_session(name)).await?;
    let limit = now - ENDED_WORKLOAD_SECONDS.min(retention);
    remove_ended(registry, limit, |name| registry.cache().principals().is_of_workload(name)).await
}

/// Removes the access keys that expired before a time and that `is_due` selects.
async fn remove_ended(
    registry: &Registry,
    limit: i64,
    is_due: impl Fn(&str) -> bool,
) -> Result<(), ApiError> {
    let ended: Vec<String> =
        registry.cache().principals().ended_before(limit).map(str::to_owned).collect();
    let ended = ended.into_iter().filter(|name| is_due(name));
    let mut failed = Ok(());
    for name in ended {
        match remove_expired_key(registry, &name, limit).await {
            Ok(()) => log_limited!(info, key = name, "removed an access key that expired long ago"),
            // The key was changed or removed in the meantime; its expiry may have changed too.
            Err(error) if error.code() == 404 || error.code() == 409 => {}
            Err(error) => failed = Err(error),
        }
    }
    failed
}

/// Removes one expired key, unless it changes in the meantime.
async fn remove_expired_key(registry: &Registry, name: &str, limit: i64) -> Result<(), ApiError> {
    let reading = Permit::for_server(&OwnedAccessKey, Verb::Get, None, name);
    let metadata = decoded(&registry.get(&reading, &GetOptions::default()).await?)?.metadata;
    if !registry.cache().principals().has_ended_before(name, limit) {
        return Ok(());
    }
    let permit = Permit::for_server(&OwnedAccessKey, Verb::Delete, None, name);
    let options = DeleteOptions {
        precondition_uid: Some(metadata.uid),
        precondition_resource_version: Some(metadata.resource_version),
        ..DeleteOptions::default()
    };
    delete(registry, &permit, &options).await.map(drop)
}

/// Removes access keys with a user or team that no longer exists.
///
/// The garbage collector removes keys with their owners. This function finds the keys that it misses: keys that an earlier
/// version orphaned. Such keys give no access. A later user of the same name has other keys.
///
/// # Errors
/// The error of the last removal that failed.
pub(crate) async fn remove_keys_without_owner(registry: &Registry) -> Result<(), ApiError> {
    let names: Vec<String> =
        registry.cache().principals().keys_without_owner().map(str::to_owned).collect();
    let mut failed = Ok(());
    for name in names {
        match remove_key_without_owner(registry, &name).await {
            Ok(()) => log_limited!(info, key = name, "removed an access key whose owner is gone"),
            // The key is gone, or its owner exists after all.
            Err(error) if error.code() == 404 || error.code() == 409 => {}
            Err(error) => failed = Err(error),
        }
    }
    failed
}

/// Removes access keys with a maker or parent that no longer exists: they give no access.
///
/// The garbage collector removes keys with their makers. This function finds the keys that it misses, because the maker
/// was removed in another way. It also removes keys with their parents.
///
/// # Errors
/// The error of the last removal that failed.
pub(crate) async fn remove_keys_without_maker(registry: &Registry) -> Result<(), ApiError> {
    let names: Vec<String> =
        registry.cache().principals().keys_without_maker().map(str::to_owned).collect();
    let mut failed = Ok(());
    for name in names {
        let permit = Permit::for_server(&OwnedAccessKey, Verb::Delete, None, &name);
        let removed = registry.rewrite(&permit, false, |previous, _| {
            if !has_lost_key(registry, &previous.object) {
                let resource = OwnedAccessKey.info().group_resource();
                return Err(ApiError::conflict(resource, &name, "its maker and its parent exist"));
            }
            admit::delete(&registry.admission(), &permit, previous, 0, None)
        });
        match removed.await {
            Ok(_) => log_limited!(
                info,
                key = name,
                "removed an access key whose maker or parent is gone"
            ),
            // The key is gone, or its maker exists after all.
            Err(error) if error.code() == 404 || error.code() == 409 => {}
            Err(error) => failed = Err(error),
        }
    }
    failed
}

/// Removes the codes of login links whose user was disabled after an administrator made them. They give no access, also if the
/// user is enabled again. An older server does not know that, so they must not stay.
///
/// # Errors
/// The error of the last removal that failed.
pub(crate) async fn remove_ended_codes(registry: &Registry) -> Result<(), ApiError> {
    let names: Vec<String> =
        registry.cache().principals().ended_codes().map(str::to_owned).collect();
    let mut failed = Ok(());
    for name in names {
        let permit = Permit::for_server(&OwnedAccessKey, Verb::Delete, None, &name);
        let removed = registry.rewrite(&permit, false, |previous, _| {
            admit::delete(&registry.admission(), &permit, previous, 0, None)
        });
        match removed.await {
            Ok(_) => log_limited!(info, key = name, "removed a login link of a disabled user"),
            Err(error) if error.code() == 404 || error.code() == 409 => {}
            Err(error) => failed = Err(error),
        }
    }
    failed
}

/// Whether the maker or the parent of a key certainly no longer exists. A corrupt one may be restored, so it counts as
/// existing.
fn has_lost_key(registry: &Registry, key: &Object) -> bool {
    let Ok(Fields { spec, status }) = Fields::deserialize(&key.fields) else { return false };
    let info = OwnedAccessKey.info();
    let is_gone = |name: &str, uid: &str| match registry
        .cache()
        .of(info)
        .get(&storage_key::object(info, None, name))
    {
        Ok(None) => true,
        Ok(Some(found)) => found.decode().is_ok_and(|found| found.metadata.uid != uid),
        Err(_) => false,
    };
    status.maker.is_some_and(|maker| is_gone(&maker.name, &maker.uid))
        || !status.parent_uid.is_empty() && is_gone(&spec.parent, &status.parent_uid)
}

async fn remove_key_without_owner(registry: &Registry, name: &str) -> Result<(), ApiError> {
    let permit = Permit::for_server(&OwnedAccessKey, Verb::Delete, None, name);
    let removed = registry.rewrite(&permit, false, |previous, secrets| {
        if !has_lost_owner(registry, &previous.object, &secrets) {
            let resource = OwnedAccessKey.info().group_resource();
            return Err(ApiError::conflict(resource, name, "its owner exists"));
        }
        admit::delete(&registry.admission(), &permit, previous, 0, None)
    });
    removed.await.map(drop)
}

/// Whether the owner of a key certainly no longer exists. A corrupt owner may be restored, so it counts as existing.
fn has_lost_owner(registry: &Registry, key: &Object, secrets: &SecretRecord) -> bool {
    let Some(OwnedBy { owner, uid }) = OwnedAccessKey.owned_by(&key.to_json_bytes()) else {
        return false;
    };
    let (kind, name): (&dyn AnyKind, _) = match owner.principal() {
        Some(Principal::User(name)) => (&User, name),
        Some(Principal::Team(name)) => (&Team, name),
        None => return false,
    };
    // A key of an earlier version may have lost its owner. The secret record still has the uid.
    let recorded = Some(&secrets.owner_uid).filter(|_| secrets.uid == key.metadata.uid);
    let uid = if uid.is_empty() { recorded.cloned().unwrap_or_default() } else { uid };
    let found = registry.cache().of(kind.info()).get(&storage_key::object(kind.info(), None, name));
    match found {
        _ if uid.is_empty() => false,
        Ok(None) => true,
        Ok(Some(found)) => found.decode().is_ok_and(|found| found.metadata.uid != uid),
        Err(_) => false,
    }
}
