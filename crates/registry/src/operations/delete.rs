//! Deletes an object: at once, or when nothing blocks the deletion any longer.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use postern_kinds::{AnyKind, MANAGEMENT_V1, Verb};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::options::{DeleteOptions, ListOptions, Propagation};
use postern_meta::status::ApiError;
use postern_store::Position;

use crate::admit::{self, Ending, Previous};
use crate::permit::Permit;
use crate::registry::read::ObjectPage;
use crate::registry::{EncodedObject, Registry, decoded, key_of};

/// The grace period that replaces a negative one, as upstream.
const SHORTEST_GRACE_SECONDS: i64 = 1;

/// The result of a deletion.
pub struct Deleted {
    /// The object in its last state; while it is terminating, in its present state.
    pub encoded: EncodedObject,
    /// The same object, decoded.
    pub object: Object,
    /// Whether the object still exists, because of finalizers or its grace period.
    pub is_terminating: bool,
}

/// Deletes an object, or marks it as terminating if something blocks the deletion.
///
/// # Errors
/// 404 if the object does not exist; 409 if a precondition does not hold.
pub async fn delete(
    registry: &Registry,
    permit: &Permit,
    options: &DeleteOptions,
) -> Result<Deleted, ApiError> {
    end(registry, permit, options, Ending::Deletion).await
}

/// Deletes the session of a user that logs out of the console. Groups that the provider has
/// confirmed stay until they are too old: other keys of the user may depend on them.
///
/// # Errors
/// Those of [`delete`].
pub(crate) async fn log_out(
    registry: &Registry,
    permit: &Permit,
    options: &DeleteOptions,
) -> Result<Deleted, ApiError> {
    end(registry, permit, options, Ending::OwnLogout).await
}

async fn end(
    registry: &Registry,
    permit: &Permit,
    options: &DeleteOptions,
    ending: Ending,
) -> Result<Deleted, ApiError> {
    if let Some(deleted) = delete_corrupt(registry, permit, options).await? {
        return Ok(deleted);
    }
    let grace = match options.grace_period_seconds.unwrap_or(0) {
        // As in Kubernetes: a binding that is deleted grants nothing from then on.
        _ if permit.kind().info().version.group != MANAGEMENT_V1.group => 0,
        negative if negative < 0 => SHORTEST_GRACE_SECONDS,
        seconds => seconds,
    };
    // The response states the admitted result: a second look at the clock could contradict the first.
    let removes = AtomicBool::new(false);
    let encoded = registry
        .rewrite(permit, options.dry_run, |previous, _| {
            // A caller that may not delete the object must not learn its uid or version.
            permit.check(&previous.cached)?;
            check_preconditions(permit, options, &previous)?;
            let view = registry.admission();
            let admitted = admit::end(&view, permit, previous, grace, policy_of(options), ending)?;
            removes.store(admitted.removes(), Ordering::Relaxed);
            Ok(admitted)
        })
        .await?;
    let object = decoded(&encoded)?;
    let is_terminating = !removes.into_inner();
    if !is_terminating && !options.dry_run && permit.kind().info().notes_readers() {
        registry.reader_notes().forget(&object.metadata.uid);
    }
    Ok(Deleted { encoded, object, is_terminating })
}

/// Deletes a corrupt object if the options ask for that. Returns `None` if they do not, or if the object is intact.
async fn delete_corrupt(
    registry: &Registry,
    permit: &Permit,
    options: &DeleteOptions,
) -> Result<Option<Deleted>, ApiError> {
    let resource = registry.cache().of(permit.kind().info());
    let key = key_of(permit, resource)?;
    let Some(position) = resource.corrupt_at(&key).filter(|_| options.ignore_store_read_error)
    else {
        return Ok(None);
    };
    let admitted = admit::delete_corrupt(&registry.admission(), permit, key.into(), position)?;
    let encoded = registry.commit(admitted, options.dry_run).await?;
    let metadata = ObjectMeta { name: permit.name().to_owned(), ..ObjectMeta::default() };
    let object = Object {
        api_version: String::new(),
        kind: String::new(),
        metadata,
        fields: serde_json::Map::new(),
    };
    Ok(Some(Deleted { encoded, object, is_terminating: false }))
}

/// Removes a cluster-scoped object if it is corrupt, so that the server can create it again. Returns whether it was
/// corrupt.
///
/// # Errors
/// The errors of the store.
pub async fn remove_corrupt(
    registry: &Registry,
    kind: &'static dyn AnyKind,
    name: &str,
) -> Result<bool, ApiError> {
    registry.cache().wait_until_current().await?;
    let permit = Permit::for_server(kind, Verb::Delete, None, name);
    let options = DeleteOptions { ignore_store_read_error: true, ..DeleteOptions::default() };
    match delete_corrupt(registry, &permit, &options).await {
        // Another server removed the object first.
        Err(error) if error.code() == 409 => Ok(true),
        removed => Ok(removed?.is_some()),
    }
}

/// Deletes all objects of a list, one after the other. Returns those that the caller may get.
///
/// This is not atomic. Objects that no longer exist are no error.
///
/// # Errors
/// The errors of the list, or of the first deletion that fails.
pub async fn delete_collection(
    registry: &Registry,
    permit: &Permit,
    which: &ListOptions,
    options: &DeleteOptions,
) -> Result<ObjectPage, ApiError> {
    let mut list = registry.list(permit, which).await?;
    let mut permits = Vec::with_capacity(list.objects.len());
    let mut readable = HashSet::new();
    for object in list.objects.iter() {
        let deleting = permit.one_of(object)?;
        // The check comes before the deletion, which ends the permissions on the object.
        if deleting.may(Verb::Get, Some(object)) {
            readable.insert(object.key().clone());
        }
        permits.push(deleting);
    }
    list.objects.retain(|object| readable.contains(object.key()));
    for deleting in &permits {
        match delete(registry, deleting, options).await {
            Err(error) if error.code() != 404 => return Err(error),
            _ => {}
        }
    }
    Ok(list)
}

/// Removes from an object the server's own block of its deletion. Only controllers call this:
/// `change` removes the block.
///
/// # Errors
/// 404 if the object no longer exists.
pub async fn release(
    registry: &Registry,
    permit: &Permit,
    change: impl Fn(&mut Object),
) -> Result<EncodedObject, ApiError> {
    registry
        .rewrite(permit, false, |previous, _| {
            let mut object = previous.object.clone();
            change(&mut object);
            admit::release(&registry.admission(), permit, object, previous)
        })
        .await
}

/// The propagation policy; the older option `orphanDependents` is translated.
fn policy_of(options: &DeleteOptions) -> Option<Propagation> {
    options.propagation.or(options
        .orphan_dependents
        .map(|orphan| if orphan { Propagation::Orphan } else { Propagation::Background }))
}

fn check_preconditions(
    permit: &Permit,
    options: &DeleteOptions,
    previous: &Previous,
) -> Result<(), ApiError> {
    let resource = permit.kind().info().group_resource();
    let name = permit.name();
    if let Some(wanted) = &options.precondition_uid {
        let uid = &previous.object.metadata.uid;
        if wanted != uid {
            let text = format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). \
                 The object might have been deleted and then recreated"
            );
            return Err(ApiError::conflict(resource, name, &text));
        }
    }
    if let Some(wanted) = &options.precondition_resource_version {
        let current = previous.cached.position();
        if wanted.parse().map(Position::from_packed) != Ok(current) {
            let text = format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the \
                 ResourceVersion in record ({current}). The object might have been modified"
            );
            return Err(ApiError::conflict(resource, name, &text));
        }
    }
    Ok(())
}
