//! The garbage collector's work on one object: delete it, remove owner references from it, or leave it. The states
//! and decisions are those of upstream (`attemptToDeleteItem`).
//!
//! Access keys and workload identities also have ties, which upstream does not have: see [`AnyKind::ties`]. Such an object
//! is deleted with the first object that it ends with. Its owner references decide as if it had no ties.

use std::sync::Arc;

use postern_kinds::{AnyKind, Verb};
use postern_meta::object::{
    FOREGROUND_FINALIZER, ORPHAN_FINALIZER, Object, ObjectMeta, OwnerReference,
};
use postern_meta::options::{DeleteOptions, Propagation};
use postern_meta::status::ApiError;
use postern_telemetry::log_limited;

use super::index::Index;
use crate::cache::{CachedObject, ResourceCache};
use crate::operations;
use crate::permit::Permit;
use crate::registry::Registry;
use crate::storage_key;

/// The state of the owner in a reference, in the words of upstream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OwnerState {
    /// The owner exists, or this server does not serve its kind.
    Solid,
    /// The owner is gone; its uid never comes back.
    Absent,
    /// The owner is terminating, and waits until its dependents are removed.
    Waiting,
}

/// The storage key of the owner in a reference. A namespaced owner can own only objects in its namespace. As
/// upstream, such a reference in a cluster-scoped object has no effect.
fn key_of_owner(reference: &OwnerReference, dependent: &ObjectMeta) -> Option<Arc<str>> {
    let info = postern_kinds::of_reference(&reference.api_version, &reference.kind)?.info();
    let namespace = match (info.is_namespaced(), dependent.namespace.as_str()) {
        (false, _) => None,
        (true, "") => return None,
        (true, namespace) => Some(namespace),
    };
    Some(storage_key::object(info, namespace, &reference.name))
}

/// The storage keys of an object's owners, and of the objects that it ends with.
pub(super) fn owners_of(kind: &dyn AnyKind, object: &CachedObject) -> Vec<Arc<str>> {
    // A corrupt object is left to the operator.
    let Ok(object) = object.decode() else { return Vec::new() };
    let (metadata, ties) = (&object.metadata, kind.ties(&object));
    let owners = metadata.owner_references.iter().chain(&ties);
    let mut keys: Vec<_> = owners.filter_map(|one| key_of_owner(one, metadata)).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// A decoded object with its kind and storage key.
struct LoadedObject {
    kind: &'static dyn AnyKind,
    key: Arc<str>,
    object: Object,
    /// The objects that it ends with.
    ties: Vec<OwnerReference>,
}

/// The cache of the kind with this key in its collection.
fn resource_of<'a>(registry: &'a Registry, key: &str) -> Option<&'a ResourceCache> {
    registry.cache().resources().iter().find(|one| key.starts_with(one.prefix()))
}

impl LoadedObject {
    fn at(registry: &Registry, key: &Arc<str>) -> Result<Option<Self>, ApiError> {
        let Some(resource) = resource_of(registry, key) else { return Ok(None) };
        let Some(object) = resource.get(key)? else { return Ok(None) };
        let (kind, object) = (resource.kind(), object.decode()?);
        let ties = kind.ties(&object);
        Ok(Some(Self { kind, key: key.clone(), object, ties }))
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
            // Another object may have this name by now.
            if object.metadata.uid == *uid {
                change(&mut object.metadata);
            }
        });
        ignore_not_found(changed.await.map(drop))
    }

    async fn remove_finalizer(&self, registry: &Registry, finalizer: &str) -> Result<(), ApiError> {
        self.rewrite(registry, |metadata| metadata.finalizers.retain(|one| one != finalizer)).await
    }

    /// Deletes it, unless it has changed since it was read, or its kind forbids the deletion.
    async fn delete(&self, registry: &Registry, how: Propagation) -> Result<(), ApiError> {
        let permit = self.permit(Verb::Delete);
        if let Err(refused) = registry.admission().check_collect(&permit, self.metadata()) {
            log_limited!(warn, key = %self.key, "the object has no owner left, but is not deleted: {refused}");
            return Ok(());
        }
        let options = DeleteOptions {
            propagation: Some(how),
            precondition_uid: Some(self.metadata().uid.clone()),
            precondition_resource_version: Some(self.metadata().resource_version.clone()),
            ..DeleteOptions::default()
        };
        tracing::debug!(key = %self.key, ?how, "deleting an object without an owner");
        ignore_not_found(operations::delete(registry, &permit, &options).await.map(drop))
    }

    /// Whether this object ends with the object of this uid, regardless of its owner references.
    fn ends_with(&self, uid: &str) -> bool {
        self.ties.iter().any(|one| one.uid == uid)
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

/// Whether this may be a terminating owner that waits for its dependents. An error is ignored here: it occurs again
/// when the object is processed.
pub(super) fn may_wait_on_dependents(registry: &Registry, key: &str) -> bool {
    let Some(resource) = resource_of(registry, key) else { return false };
    let object = resource.get(key).ok().flatten();
    object.is_some_and(|object| object.is_deleting())
}

/// Processes one object. Returns the other objects to process.
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
    attempt_to_delete(registry, index, &object).await?;
    Ok(Vec::new())
}

/// The objects that name this object as owner by its uid, or end with it. The uid excludes dependents of an earlier object of the
/// name.
fn dependents(
    registry: &Registry,
    index: &Index,
    owner: &LoadedObject,
) -> Result<Vec<LoadedObject>, ApiError> {
    let mut dependents = Vec::new();
    for key in index.dependents_of(&owner.key) {
        let object = LoadedObject::at(registry, &key)?;
        let uid = &owner.metadata().uid;
        dependents
            .extend(object.filter(|one| one.reference_to(uid).is_some() || one.ends_with(uid)));
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
        if dependent.ends_with(uid) {
            // The dependent is deleted when the owner is gone.
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

/// The dependents to delete before their owner. The owner waits only for those that block its deletion.
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

/// Deletes the object if it has no owner any more, or an object that it ends with is gone. Apart from ties, the decision is
/// that of upstream.
async fn attempt_to_delete(
    registry: &Registry,
    index: &Index,
    object: &LoadedObject,
) -> Result<(), ApiError> {
    for tie in &object.ties {
        if owner_state(registry, tie, object.metadata())? != OwnerState::Solid {
            return object.delete(registry, policy_of(object)).await;
        }
    }
    if object.metadata().owner_references.is_empty() {
        return Ok(());
    }
    let mut resolved = Vec::new();
    for reference in &object.metadata().owner_references {
        let state = owner_state(registry, reference, object.metadata())?;
        resolved.push((reference.uid.as_str(), state));
    }
    let with = |wanted| {
        let matching = resolved.iter().filter(move |(_, state)| *state == wanted);
        matching.map(|(uid, _)| (*uid).to_owned()).collect::<Vec<_>>()
    };
    let (absent, waiting) = (with(OwnerState::Absent), with(OwnerState::Waiting));
    if !with(OwnerState::Solid).is_empty() {
        // The object stays, because one owner exists. The references to the other owners are removed, so that these
        // do not wait for it.
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
            // Owners may form a cycle in which each waits for the next. This object stops waiting.
            unblock_owners(registry, object).await?;
            let Some(current) = LoadedObject::at(registry, &object.key)? else { return Ok(()) };
            return current.delete(registry, Propagation::Foreground).await;
        }
        return object.delete(registry, Propagation::Foreground).await;
    }
    object.delete(registry, policy_of(object)).await
}

/// The propagation policy of the object's finalizers; the default is background.
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
