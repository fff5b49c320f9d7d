//! Empties namespaces that are being deleted, and removes them when nothing is left in them.

use std::sync::Arc;
use std::time::Duration;

use postern_kinds::namespace::{CONTENT_FINALIZER, Namespace};
use postern_kinds::{AnyKind as _, Verb, all};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::options::DeleteOptions;
use postern_meta::status::ApiError;
use serde_json::Value;

use crate::cache::CachedObject;
use crate::operations;
use crate::registry::Registry;
use crate::stages::authorize::Permit;
use crate::storage_key;

/// The longest time until another try after a failure.
const RETRY: Duration = Duration::from_secs(5);

/// Runs until it is dropped. It runs again whenever anything has changed, so it notices when a
/// finalizer is removed from an object in a namespace.
pub(crate) async fn run(registry: Arc<Registry>) {
    let mut progress = registry.cache().subscribe();
    loop {
        progress.mark_unchanged();
        let failed = sweep(&registry).await;
        if failed {
            let _ = tokio::time::timeout(RETRY, progress.changed()).await;
        } else if progress.changed().await.is_err() {
            return;
        }
    }
}

/// Handles the namespaces that are being deleted, and reads no others: this runs after every
/// commit. Returns whether anything failed.
async fn sweep(registry: &Registry) -> bool {
    let mut failed = false;
    for namespace in registry.cache().of(Namespace.info()).deleting() {
        let Ok(object) = namespace.decode() else { continue };
        if object.metadata.deletion_timestamp.is_none() || !awaits_content(&object) {
            continue;
        }
        if let Err(error) = finalize(registry, &object.metadata).await {
            let inner = error.inner().unwrap_or_default();
            tracing::warn!(namespace = object.metadata.name, inner, "{}", error.status().message);
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

/// Deletes what is in a namespace; when nothing is, removes the finalizer of its content.
async fn finalize(registry: &Registry, found: &ObjectMeta) -> Result<(), ApiError> {
    let namespace = found.name.as_str();
    let mut remaining = 0;
    for kind in all().iter().filter(|kind| kind.info().is_namespaced()) {
        let resource = registry.cache().of(kind.info());
        let prefix = storage_key::in_namespace(resource.prefix(), Some(namespace));
        for object in resource.list(&prefix, None, 0)?.objects {
            remaining += 1;
            delete(registry, *kind, namespace, &object).await?;
        }
    }
    if remaining > 0 {
        // The removals will be in the cache soon, and wake this controller again.
        return Ok(());
    }
    let permit = Permit::for_server(&Namespace, Verb::Update, None, namespace);
    let released = operations::release(registry, &permit, |object| {
        // A namespace of that name that was made meanwhile, through another server, is not meant.
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

async fn delete(
    registry: &Registry,
    kind: &'static dyn postern_kinds::AnyKind,
    namespace: &str,
    object: &CachedObject,
) -> Result<(), ApiError> {
    let (_, name) = storage_key::split(registry.cache().of(kind.info()).prefix(), object.key());
    let permit = Permit::for_server(kind, Verb::Delete, Some(namespace), name);
    // As it was found, or not at all: a namesake in a new namespace is not meant.
    let uid = object.decode()?.metadata.uid;
    let options = DeleteOptions { precondition_uid: Some(uid), ..DeleteOptions::default() };
    match operations::delete(registry, &permit, &options).await {
        Err(error) if !matches!(error.code(), 404 | 409) => Err(error),
        _ => Ok(()),
    }
}
