//! The garbage collector's work on one object: nothing, delete it, or remove owner references from it. The
//! states and decisions are upstream's (`attemptToDeleteItem`).

use std::sync::Arc;

use postern_kinds::{AnyKind, Verb};
use postern_meta::object::{
    FOREGROUND_FINALIZER, ORPHAN_FINALIZER, Object, ObjectMeta, OwnerReference,
};
use postern_meta::options::{DeleteOptions, Propagation};
use postern_meta::status::ApiError;

use super::index::Index;
use crate::cache::{CachedObject, ResourceCache};
use crate::operations;
use crate::permit::Permit;
use crate::registry::Registry;
use crate::storage_key;

/// The state of the owner that a reference names, in upstream's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OwnerState {
    /// The owner exists, or its kind is not served here.
    Solid,
    /// The owner is gone; its uid never comes back.
    Absent,
    /// The owner is being deleted, and waits for its dependents to be removed first.
    Waiting,
}

/// The storage key of the owner that a reference names. An owner in a namespace can own
/// only objects in the same one; as upstream, such a reference in a cluster-scoped object names
/// nothing.
fn key_of_owner(reference: &OwnerReference, dependent: &ObjectMeta) -> Option<Arc<str>> {
    let info = postern_kinds::of_reference(&reference.api_version, &reference.kind)?.info();
    let namespace = match (info.is_namespaced(), dependent.namespace.as_str()) {
        (false, _) => None,
        (true, "") => return None,
        (true, namespace) => Some(namespace),
    };
    Some(storage_key::object(info, namespace, &reference.name))
}

/// The storage keys of an object's owners.
pub(super) fn owners_of(object: &CachedObject) -> Vec<Arc<str>> {
    // A corrupt object is left to the operator.
    let Ok(object) = object.decode() else { return Vec::new() };
    let metadata = &object.metadata;
    let mut keys: Vec<_> =
        metadata.owner_references.iter().filter_map(|one| key_of_owner(one, metadata)).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// An object with what is needed to act on it.
struct LoadedObject {
    kind: &'static dyn AnyKind,
    key: Arc<str>,
    object: Object,
}

/// The cache of the kind whose collection has a key.
fn resource_of<'a>(registry: &'a Registry, key: &str) -> Option<&'a ResourceCache> {
    registry.cache().resources().iter().find(|one| key.starts_with(one.prefix()))
}

impl LoadedObject {
    fn at(registry: &Registry, key: &Arc<str>) -> Result<Option<Self>, ApiError> {
        let Some(resource) = resource_of(registry, key) else { return Ok(None) };
        let Some(object) = resource.get(key)? else { return Ok(None) };
        Ok(Some(Self { kind: resource.kind(), key: key.clone(), object: object.decode()? }))
    }

    fn metadata(&self) -> &ObjectMeta {
        &self.object.metadata
    }

    fn has_finalizer(&self, finalizer: &str) -> bool {
        self.metadata().finalizers.iter().any(|one| one == finalizer)
    }

    fn is_terminating(&self) -> bool {
        self.metadata().is_terminating()
    }

    fn waits_for_dependents(&self) -> bool {
        self.is_terminating() && self.has_finalizer(FOREGROUND_FINALIZER)
    }

    fn permit(&self, verb: Verb) -> Permit {
        let namespace = Some(self.metadata().namespace.as_str()).filter(|name| !name.is_empty());
        Permit::for_server(self.kind, verb, namespace, &self.metadata().name)
    }

    async fn rewrite(
        &self,
        registry: &Registry,
        change: impl Fn(&mut ObjectMeta),
    ) -> Result<(), ApiError> {
        let uid = &self.metadata().uid;
        let permit = self.permit(Verb::Update);
        let changed = operations::release(registry, &permit, |object| {
            // Another object that has the same name by now is not meant.
            if object.metadata.uid == *uid {
                change(&mut object.metadata);
            }
        });
        ignore_not_found(changed.await.map(drop))
    }

    async fn remove_finalizer(&self, registry: &Registry, finalizer: &str) -> Result<(), ApiError> {
        self.rewrite(registry, |metadata| metadata.finalizers.retain(|one| one != finalizer)).await
    }

    /// Deletes it, unless it has changed since it was read, or its kind does not let it be deleted so.
    async fn delete(&self, registry: &Registry, how: Propagation) -> Result<(), ApiError> {
        let permit = self.permit(Verb::Delete);
        if let Err(refused) = registry.admission().check_collect(&permit, self.metadata()) {
            tracing::warn!(key = %self.key, "no owner is left, but it stays: {refused}");
            return Ok(());
        }
        let options = DeleteOptions {
            propagation: Some(how),
            precondition_uid: Some(self.metadata().uid.clone()),
            precondition_resource_version: Some(self.metadata().resource_version.clone()),
            ..DeleteOptions::default()
        };
        tracing::debug!(key = %self.key, ?how, "no owner is left");
        ignore_not_found(operations::delete(registry, &permit, &options).await.map(drop))
    }

    /// Whether a reference is to the object with which this one ends, which is the server's to say.
    fn ends_with(&self, reference: &OwnerReference) -> bool {
        self.kind.ends_with(&self.object).is_some_and(|uid| uid == reference.uid)
    }

    fn reference_to(&self, uid: &str) -> Option<&OwnerReference> {
        self.metadata().owner_references.iter().find(|one| one.uid == uid)
    }
}

fn ignore_not_found(result: Result<(), ApiError>) -> Result<(), ApiError> {
    match result {
        Err(error) if error.code() == 404 => Ok(()),
        result => result,
    }
}

/// Whether this may be an owner that is being deleted and waits for its dependents. An error is ignored here:
/// it occurs again when the object is processed.
pub(super) fn may_wait_on_dependents(registry: &Registry, key: &str) -> bool {
    let Some(resource) = resource_of(registry, key) else { return false };
    let object = resource.get(key).ok().flatten();
    object.is_some_and(|object| object.is_deleting())
}

/// Does for one object what is to be done now. Returns which other objects are to be processed.
pub(super) async fn process(
    registry: &Registry,
    index: &Index,
    key: &Arc<str>,
) -> Result<Vec<Arc<str>>, ApiError> {
    let Some(object) = LoadedObject::at(registry, key)? else { return Ok(Vec::new()) };
    if object.is_terminating() {
        if object.has_finalizer(ORPHAN_FINALIZER) {
            orphan_dependents(registry, index, &object).await?;
        }
        if object.has_finalizer(FOREGROUND_FINALIZER) {
            return delete_dependents(registry, index, &object).await;
        }
        return Ok(Vec::new());
    }
    if object.metadata().owner_references.is_empty() {
        return Ok(Vec::new());
    }
    attempt_to_delete(registry, index, &object).await?;
    Ok(Vec::new())
}

/// The objects that name this object as owner, by its uid: those of an earlier object of
/// the same name are not its own.
fn dependents(
    registry: &Registry,
    index: &Index,
    owner: &LoadedObject,
) -> Result<Vec<LoadedObject>, ApiError> {
    let mut dependents = Vec::new();
    for key in index.dependents_of(&owner.key) {
        let object = LoadedObject::at(registry, &key)?;
        dependents.extend(object.filter(|one| one.reference_to(&owner.metadata().uid).is_some()));
    }
    Ok(dependents)
}

/// Removes the owner from the references of its dependents, which stay.
async fn orphan_dependents(
    registry: &Registry,
    index: &Index,
    owner: &LoadedObject,
) -> Result<(), ApiError> {
    let uid = &owner.metadata().uid;
    for dependent in dependents(registry, index, owner)? {
        if dependent.reference_to(uid).is_some_and(|reference| dependent.ends_with(reference)) {
            // It is deleted when the owner is gone.
            continue;
        }
        dependent
            .rewrite(registry, |metadata| {
                metadata.owner_references.retain(|one| one.uid != *uid);
            })
            .await?;
    }
    owner.remove_finalizer(registry, ORPHAN_FINALIZER).await
}

/// The dependents to delete before their owner. The owner waits only for those that block
/// its deletion.
async fn delete_dependents(
    registry: &Registry,
    index: &Index,
    owner: &LoadedObject,
) -> Result<Vec<Arc<str>>, ApiError> {
    let uid = &owner.metadata().uid;
    let dependents = dependents(registry, index, owner)?;
    let blocks = |one: &LoadedObject| {
        one.reference_to(uid).is_some_and(|reference| reference.block_owner_deletion == Some(true))
    };
    if !dependents.iter().any(blocks) {
        owner.remove_finalizer(registry, FOREGROUND_FINALIZER).await?;
    }
    let to_delete = dependents.into_iter().filter(|one| !one.is_terminating());
    Ok(to_delete.map(|one| one.key).collect())
}

/// Deletes the object if it has no owner any more, as upstream decides.
async fn attempt_to_delete(
    registry: &Registry,
    index: &Index,
    object: &LoadedObject,
) -> Result<(), ApiError> {
    let mut resolved = Vec::new();
    for reference in &object.metadata().owner_references {
        let state = owner_state(registry, reference, object.metadata())?;
        if state != OwnerState::Solid && object.ends_with(reference) {
            // Other owners keep nothing that ends with this one.
            return object.delete(registry, policy_of(object)).await;
        }
        resolved.push((reference.uid.as_str(), state));
    }
    let with = |wanted| {
        let matching = resolved.iter().filter(move |(_, state)| *state == wanted);
        matching.map(|(uid, _)| (*uid).to_owned()).collect::<Vec<_>>()
    };
    let (absent, waiting) = (with(OwnerState::Absent), with(OwnerState::Waiting));
    if !with(OwnerState::Solid).is_empty() {
        // It stays, since one owner exists. The references to the others are removed, so that those
        // need not wait for it.
        let dangling = [absent, waiting].concat();
        if dangling.is_empty() {
            return Ok(());
        }
        let keep = |one: &OwnerReference| !dangling.contains(&one.uid);
        return object.rewrite(registry, |metadata| metadata.owner_references.retain(keep)).await;
    }
    let dependents = dependents(registry, index, object)?;
    if !waiting.is_empty() && !dependents.is_empty() {
        if dependents.iter().any(LoadedObject::waits_for_dependents) {
            // There may be a cycle of owners, each waiting for the next: this one stops waiting.
            unblock_owners(registry, object).await?;
            let Some(current) = LoadedObject::at(registry, &object.key)? else { return Ok(()) };
            return current.delete(registry, Propagation::Foreground).await;
        }
        return object.delete(registry, Propagation::Foreground).await;
    }
    object.delete(registry, policy_of(object)).await
}

/// The propagation policy of the object's own finalizers; the default is background.
fn policy_of(object: &LoadedObject) -> Propagation {
    if object.has_finalizer(ORPHAN_FINALIZER) {
        Propagation::Orphan
    } else if object.has_finalizer(FOREGROUND_FINALIZER) {
        Propagation::Foreground
    } else {
        Propagation::Background
    }
}

async fn unblock_owners(registry: &Registry, object: &LoadedObject) -> Result<(), ApiError> {
    object
        .rewrite(registry, |metadata| {
            for reference in &mut metadata.owner_references {
                reference.block_owner_deletion = None;
            }
        })
        .await?;
    registry.cache().wait_until_current().await
}

fn owner_state(
    registry: &Registry,
    reference: &OwnerReference,
    dependent: &ObjectMeta,
) -> Result<OwnerState, ApiError> {
    let Some(key) = key_of_owner(reference, dependent) else { return Ok(OwnerState::Solid) };
    Ok(match LoadedObject::at(registry, &key)? {
        Some(owner) if owner.metadata().uid != reference.uid => OwnerState::Absent,
        None => OwnerState::Absent,
        Some(owner) if owner.waits_for_dependents() => OwnerState::Waiting,
        Some(_) => OwnerState::Solid,
    })
}
