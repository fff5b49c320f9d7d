//! Empties namespaces that are being deleted, and removes them when nothing is left in them.

use std::sync::Arc;
use std::time::Duration;

use postern_kinds::namespace::{CONTENT_FINALIZER, Namespace, Status};
use postern_kinds::{AnyKind as _, Condition, Verb, all};
use postern_meta::object::Object;
use postern_meta::options::DeleteOptions;
use postern_meta::status::ApiError;
use serde::Deserialize as _;
use serde_json::Value;

use crate::cache::CachedObject;
use crate::operations;
use crate::permit::Permit;
use crate::registry::Registry;
use crate::storage_key;

/// The longest time until another try after a failure.
const RETRY: Duration = Duration::from_secs(5);

/// The condition of a namespace whose content cannot be deleted, as in Kubernetes.
const CONTENT_FAILURE: &str = "NamespaceDeletionContentFailure";

/// Corrupt objects that a condition names.
const MAX_NAMED: usize = 10;

/// Runs until it is dropped. It runs again whenever anything has changed, so it notices when a
/// finalizer is removed from an object in a namespace.
pub async fn run(registry: Arc<Registry>) {
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
        if let Err(error) = finalize(registry, &object).await {
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

/// Deletes the objects in a namespace; when there are none, removes the finalizer of its content. A corrupt
/// object is not deleted, because its finalizers are not known. The namespace waits for it, and says so.
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
        return tell_corrupt(registry, namespace, &corrupt).await;
    }
    if remaining > 0 {
        // The removals will be in the cache soon, and wake this controller again.
        return Ok(());
    }
    let permit = Permit::for_server(&Namespace, Verb::Update, None, name);
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

/// Says in the namespace's condition, once, which corrupt objects keep it.
async fn tell_corrupt(
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
        "the namespace waits for what is damaged and cannot be read: {names}; restore it from a backup, or \
         delete it with ignoreStoreReadErrorWithClusterBreakingPotential in DeleteOptions"
    );
    let known = status_of(namespace);
    let is_this = |one: &&Condition| one.r#type == CONTENT_FAILURE;
    let known = known.conditions.iter().find(is_this);
    if known.is_some_and(|known| known.message == message) {
        return Ok(());
    }
    tracing::warn!(namespace = namespace.metadata.name, "{message}");
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
    // As it was found, or not at all: a namesake in a new namespace is not meant.
    let uid = object.decode()?.metadata.uid;
    let options = DeleteOptions { precondition_uid: Some(uid), ..DeleteOptions::default() };
    match operations::delete(registry, &permit, &options).await {
        Err(error) if !matches!(error.code(), 404 | 409) => Err(error),
        _ => Ok(()),
    }
}
