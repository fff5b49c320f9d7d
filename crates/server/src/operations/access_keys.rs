//! Removes access keys that expired long ago.

use postern_kinds::Verb;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_meta::options::{DeleteOptions, GetOptions};
use postern_meta::status::ApiError;

use super::delete;
use crate::registry::{Registry, decoded};
use crate::stages::authorize::Permit;

/// Removes keys that expired long ago. After a failure it continues with the other keys.
///
/// # Errors
/// Those of the last deletion that failed.
pub(crate) async fn remove_expired_keys(registry: &Registry) -> Result<(), ApiError> {
    let limit =
        registry.source().now().unix_seconds() - registry.key_policy().expired_retention_seconds;
    let ended: Vec<String> =
        registry.cache().principals().ended_before(limit).map(str::to_owned).collect();
    let mut failed = Ok(());
    for name in ended {
        match remove_expired_key(registry, &name, limit).await {
            Ok(()) => tracing::info!(key = name, "removed an access key that expired long ago"),
            // It has been changed or removed in the meantime; perhaps it does not expire any more.
            Err(error) if error.code() == 404 || error.code() == 409 => {}
            Err(error) => failed = Err(error),
        }
    }
    failed
}

/// Removes one such key, unless it changes in the meantime.
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
