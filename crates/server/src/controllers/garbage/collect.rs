//! What the garbage collector does with one object: nothing, delete it, or take out a reference.

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
use crate::registry::Registry;
use crate::stages::authorize::Permit;
use crate::storage_key;

/// What an owner reference leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OwnerState {
    /// An owner that is there, or a kind that is not served here.
    Solid,
    /// None: it is gone, and its uid never comes back.
    Absent,
    /// An owner that is being deleted, and waits for its dependents to go first.
    Waiting,
}

/// Returns the storage key of the owner that a reference names. An owner in a namespace can own only in its
/// own; as upstream, such a reference of an object without namespace leads nowhere.
fn key_of_owner(reference: &OwnerReference, dependent: &ObjectMeta) -> Option<Arc<str>> {
    let info = postern_kinds::of_reference(&reference.api_version, &reference.kind)?.info();
    let namespace = match (info.is_namespaced(), dependent.namespace.as_str()) {
        (false, _) => None,
        (true, "") => return None,
        (true, namespace) => Some(namespace),
    };
    Some(storage_key::object(info, namespace, &reference.name))
}

/// Returns the storage keys of an object's owners.
pub(super) fn owners_of(object: &CachedObject) -> Vec<Arc<str>> {
    // What is corrupt is left to the operator.
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

/// The kind in whose collection a key lies, in memory.
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
            // A namesake that came meanwhile is not meant.
            if object.metadata.uid == *uid {
                change(&mut object.metadata);
            }
        });
        gone_is_fine(changed.await.map(drop))
    }

    async fn remove_finalizer(&self, registry: &Registry, finalizer: &str) -> Result<(), ApiError> {
        self.rewrite(registry, |metadata| metadata.finalizers.retain(|one| one != finalizer)).await
    }

    /// Deletes it as it was looked at, or not at all.
    async fn delete(&self, registry: &Registry, how: Propagation) -> Result<(), ApiError> {
        let options = DeleteOptions {
            propagation: Some(how),
            precondition_uid: Some(self.metadata().uid.clone()),
            precondition_resource_version: Some(self.metadata().resource_version.clone()),
            ..DeleteOptions::default()
        };
        tracing::debug!(key = %self.key, ?how, "no owner is left");
        gone_is_fine(
            operations::delete(registry, &self.permit(Verb::Delete), &options).await.map(drop),
        )
    }

    fn names(&self, uid: &str) -> Option<&OwnerReference> {
        self.metadata().owner_references.iter().find(|one| one.uid == uid)
    }
}

fn gone_is_fine(done: Result<(), ApiError>) -> Result<(), ApiError> {
    match done {
        Err(error) if error.code() == 404 => Ok(()),
        done => done,
    }
}

/// May this be an owner that ends and has its dependents seen to first? What cannot be read is met
/// again when it is looked at.
pub(super) fn may_wait_on_dependents(registry: &Registry, key: &str) -> bool {
    let Some(resource) = resource_of(registry, key) else { return false };
    resource.get(key).is_ok_and(|found| found.is_some_and(|object| object.may_be_deleting()))
}

/// Does for one object what is to be done now. Returns which others are to be looked at.
pub(super) async fn look_at(
    registry: &Registry,
    index: &Index,
    key: &Arc<str>,
) -> Result<Vec<Arc<str>>, ApiError> {
    let Some(found) = LoadedObject::at(registry, key)? else { return Ok(Vec::new()) };
    if found.is_terminating() {
        if found.has_finalizer(ORPHAN_FINALIZER) {
            orphan_dependents(registry, index, &found).await?;
        }
        if found.has_finalizer(FOREGROUND_FINALIZER) {
            return delete_dependents(registry, index, &found).await;
        }
        return Ok(Vec::new());
    }
    if found.metadata().owner_references.is_empty() {
        return Ok(Vec::new());
    }
    judge(registry, index, &found).await?;
    Ok(Vec::new())
}

/// The objects that name this very object as owner: its namesakes' dependents are not its own.
fn dependents(
    registry: &Registry,
    index: &Index,
    owner: &LoadedObject,
) -> Result<Vec<LoadedObject>, ApiError> {
    let mut dependents = Vec::new();
    for key in index.dependents_of(&owner.key) {
        let found = LoadedObject::at(registry, &key)?;
        dependents.extend(found.filter(|one| one.names(&owner.metadata().uid).is_some()));
    }
    Ok(dependents)
}

/// Its dependents live on without it.
async fn orphan_dependents(
    registry: &Registry,
    index: &Index,
    owner: &LoadedObject,
) -> Result<(), ApiError> {
    let uid = &owner.metadata().uid;
    for dependent in dependents(registry, index, owner)? {
        dependent
            .rewrite(registry, |metadata| {
                metadata.owner_references.retain(|one| one.uid != *uid);
            })
            .await?;
    }
    owner.remove_finalizer(registry, ORPHAN_FINALIZER).await
}

/// Its dependents go first; it waits for those that say so.
async fn delete_dependents(
    registry: &Registry,
    index: &Index,
    owner: &LoadedObject,
) -> Result<Vec<Arc<str>>, ApiError> {
    let uid = &owner.metadata().uid;
    let dependents = dependents(registry, index, owner)?;
    let blocks = |one: &LoadedObject| {
        one.names(uid).is_some_and(|reference| reference.block_owner_deletion == Some(true))
    };
    if !dependents.iter().any(blocks) {
        owner.remove_finalizer(registry, FOREGROUND_FINALIZER).await?;
    }
    let going = dependents.into_iter().filter(|one| !one.is_terminating());
    Ok(going.map(|one| one.key).collect())
}

/// Does the object still have an owner? As upstream decides.
async fn judge(registry: &Registry, index: &Index, found: &LoadedObject) -> Result<(), ApiError> {
    let mut resolved = Vec::new();
    for reference in &found.metadata().owner_references {
        resolved
            .push((reference.uid.as_str(), owner_state(registry, reference, found.metadata())?));
    }
    let with = |wanted| {
        let matching = resolved.iter().filter(move |(_, key)| *key == wanted);
        matching.map(|(uid, _)| (*uid).to_owned()).collect::<Vec<_>>()
    };
    let (absent, waiting) = (with(OwnerState::Absent), with(OwnerState::Waiting));
    if !with(OwnerState::Solid).is_empty() {
        // It stays, for the sake of one owner; the others need not wait for it.
        let leave = [absent, waiting].concat();
        if leave.is_empty() {
            return Ok(());
        }
        let keep = |one: &OwnerReference| !leave.contains(&one.uid);
        return found.rewrite(registry, |metadata| metadata.owner_references.retain(keep)).await;
    }
    let dependents = dependents(registry, index, found)?;
    if !waiting.is_empty() && !dependents.is_empty() {
        if dependents.iter().any(LoadedObject::waits_for_dependents) {
            // A circle of owners, each waiting for the next: somebody has to stop.
            unblock_owners(registry, found).await?;
            let Some(now) = LoadedObject::at(registry, &found.key)? else { return Ok(()) };
            return now.delete(registry, Propagation::Foreground).await;
        }
        return found.delete(registry, Propagation::Foreground).await;
    }
    found.delete(registry, policy_of(found)).await
}

/// Finalizers that its writer put on it say how it wants to go.
fn policy_of(found: &LoadedObject) -> Propagation {
    if found.has_finalizer(ORPHAN_FINALIZER) {
        Propagation::Orphan
    } else if found.has_finalizer(FOREGROUND_FINALIZER) {
        Propagation::Foreground
    } else {
        Propagation::Background
    }
}

async fn unblock_owners(registry: &Registry, found: &LoadedObject) -> Result<(), ApiError> {
    found
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
