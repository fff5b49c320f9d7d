//! Empties terminating namespaces, and removes them when they are empty.

use std::sync::Arc;
use std::time::Duration;

use postern_kinds::namespace::{CONTENT_FINALIZER, Namespace, Status};
use postern_kinds::{AnyKind as _, Condition, Verb, all};
use postern_meta::object::Object;
use postern_meta::options::DeleteOptions;
use postern_meta::status::ApiError;
use postern_telemetry::log_limited;
use serde::Deserialize as _;
use serde_json::Value;

use crate::cache::CachedObject;
use crate::operations;
use crate::permit::Permit;
use crate::registry::Registry;
use crate::storage_key;

/// The longest time between a failure and the next attempt.
const RETRY: Duration = Duration::from_secs(5);

/// The condition of a namespace with content that cannot be deleted, as in Kubernetes.
const CONTENT_FAILURE: &str = "NamespaceDeletionContentFailure";

/// The maximum number of corrupt objects that a condition names.
const MAX_NAMED: usize = 10;

/// Runs until it is dropped. It runs again after each change, so it notices that a finalizer was removed from an
/// object in a namespace.
pub async fn run(registry: Arc<Registry>) {
    let mut progress = registry.cache().subscribe();
    loop {
        registry.servers().turn("namespaces").await;
        progress.mark_unchanged();
        let failed = sweep(&registry).await;
        if failed {
            let _ = tokio::time::timeout(RETRY, progress.changed()).await;
        } else if progress.changed().await.is_err() {
            return;
        }
    }
}

/// Processes the terminating namespaces, and reads no others, because it runs after every commit. Returns whether
/// anything failed.
async fn sweep(registry: &Registry) -> bool {
    let mut failed = false;
    for namespace in registry.cache().of(Namespace.info()).deleting() {
        let Ok(object) = namespace.decode() else { continue };
        if object.metadata.deletion_timestamp.is_none() || !awaits_content(&object) {
            continue;
        }
        if let Err(error) = finalize(registry, &object).await {
            let inner = error.inner().unwrap_or_default();
            log_limited!(
                warn,
                namespace = object.metadata.name,
                inner,
                "{}",
                error.status().message
            );
            failed = true;
        }
    }
    failed
}

fn awaits_content(object: &Object) -> bool {
    content_finalizers(object).is_some_and(|list| list.iter().any(|one| one == CONTENT_FINALIZER))
}

fn content_finalizers(object: &Object) -> Option<&Vec<Value>> {
    object.fields.get("spec")?.get("finalizers")?.as_array()
}

/// Deletes the objects in a namespace. If there are none, it removes the finalizer of the content. A corrupt object
/// is not deleted, because its finalizers are unknown. The namespace then waits for it, and has a condition.
async fn finalize(registry: &Registry, namespace: &Object) -> Result<(), ApiError> {
    let (found, name) = (&namespace.metadata, namespace.metadata.name.as_str());
    let mut remaining = 0;
    let mut corrupt = Vec::new();
    for kind in all().iter().filter(|kind| kind.info().is_namespaced()) {
        let resource = registry.cache().of(kind.info());
        let prefix = storage_key::in_namespace(resource.prefix(), Some(name));
        let list = resource.list_intact(&prefix, None, 0);
        corrupt.extend(list.left_out);
        for object in list.objects {
            remaining += 1;
            delete(registry, *kind, name, &object).await?;
        }
    }
    if !corrupt.is_empty() {
        return report_corrupt(registry, namespace, &corrupt).await;
    }
    if remaining > 0 {
        // The removals reach the cache soon, and wake this controller again.
        return Ok(());
    }
    let permit = Permit::for_server(&Namespace, Verb::Update, None, name);
    let released = operations::release(registry, &permit, |object| {
        // Another namespace of this name, created in the meantime, must stay.
        if object.metadata.uid != found.uid {
            return;
        }
        if let Some(Value::Object(spec)) = object.fields.get_mut("spec") {
            spec.remove("finalizers");
        }
    });
    match released.await {
        Err(error) if error.code() != 404 => Err(error),
        _ => Ok(()),
    }
}

/// Sets the condition of a namespace that waits for corrupt objects, once for each set of objects.
async fn report_corrupt(
    registry: &Registry,
    namespace: &Object,
    corrupt: &[Arc<str>],
) -> Result<(), ApiError> {
    let first = corrupt.iter().take(MAX_NAMED).map(|key| storage_key::display_name(key));
    let mut names = first.collect::<Vec<_>>().join(", ");
    if corrupt.len() > MAX_NAMED {
        names = format!("{names} and {} more", corrupt.len() - MAX_NAMED);
    }
    let message = format!(
        "the deletion of the namespace waits for corrupt objects: {names}; restore them from a backup, or delete \
         them with ignoreStoreReadErrorWithClusterBreakingPotential in DeleteOptions"
    );
    let known = status_of(namespace);
    let is_this = |one: &&Condition| one.r#type == CONTENT_FAILURE;
    let known = known.conditions.iter().find(is_this);
    if known.is_some_and(|known| known.message == message) {
        return Ok(());
    }
    log_limited!(warn, namespace = namespace.metadata.name, "{message}");
    let begun = known.and_then(|known| known.last_transition_time);
    let condition = Condition {
        r#type: CONTENT_FAILURE.to_owned(),
        status: "True".to_owned(),
        last_transition_time: begun.or_else(|| Some(registry.source().now())),
        reason: "ContentDeletionFailed".to_owned(),
        message,
        ..Condition::default()
    };
    let permit = Permit::for_server(&Namespace, Verb::Update, None, &namespace.metadata.name);
    let told = operations::release(registry, &permit, |object| {
        if object.metadata.uid != namespace.metadata.uid {
            return;
        }
        let mut status = status_of(object);
        status.conditions.retain(|one| one.r#type != CONTENT_FAILURE);
        status.conditions.push(condition.clone());
        let status = serde_json::to_value(status).unwrap_or_default();
        object.fields.insert("status".to_owned(), status);
    });
    match told.await {
        Err(error) if error.code() != 404 => Err(error),
        _ => Ok(()),
    }
}

fn status_of(namespace: &Object) -> Status {
    let status = namespace.fields.get("status").cloned().unwrap_or_default();
    Status::deserialize(status).unwrap_or_default()
}

async fn delete(
    registry: &Registry,
    kind: &'static dyn postern_kinds::AnyKind,
    namespace: &str,
    object: &CachedObject,
) -> Result<(), ApiError> {
    let (_, name) = storage_key::split(registry.cache().of(kind.info()).prefix(), object.key());
    let permit = Permit::for_server(kind, Verb::Delete, Some(namespace), name);
    // Only this object is meant, and not one of the same name in a new namespace.
    let uid = object.decode()?.metadata.uid;
    let options = DeleteOptions { precondition_uid: Some(uid), ..DeleteOptions::default() };
    match operations::delete(registry, &permit, &options).await {
        Err(error) if !matches!(error.code(), 404 | 409) => Err(error),
        _ => Ok(()),
    }
}
