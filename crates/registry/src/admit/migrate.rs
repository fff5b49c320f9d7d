//! Admits the migration of an instance to another project (`docs/reference/projects.md#migration`). In one
//! transaction, the instance is removed from one namespace and created in another, with its Secret and its roles.
//!
//! The action checks the requirements of a migration (`actions`). The transaction checks quotas and allowed clusters.

use postern_kinds::project_migrate_virtual_cluster_instance::MIGRATED_FROM;
use postern_kinds::secret::Secret;
use postern_kinds::secret_sync::SYNCED_FOR;
use postern_kinds::write_only::WriteOnlyValues;
use postern_kinds::{Verb, grants_of_stored};
use postern_meta::object::{Object, OwnerReference};
use postern_meta::options::Propagation;
use postern_meta::status::ApiError;
use serde_json::Value;

use super::dependents::{apply_dependent, reference_to};
use super::view::{AdmissionView, Before, NewSecrets, Previous};
use super::write::{Admitted, ObjectNames, Write};
use super::{Part, Writing, check_errors, create, delete, track};
use crate::clock::new_uid;
use crate::permit::Permit;

/// The objects to move, as they were read, and their new namespace.
pub(crate) struct Migration {
    /// The instance.
    pub(crate) source: Previous,
    /// The Secret with its kubeconfig, if it has one.
    pub(crate) secret: Option<MigratedSecret>,
    /// The namespace of the target project.
    pub(crate) namespace: String,
}

/// The Secret with the kubeconfig of an instance.
pub(crate) struct MigratedSecret {
    /// As it was read.
    pub(crate) previous: Previous,
    /// Whether other objects refer to it. Then it stays, and the instance gets a copy.
    pub(crate) is_shared: bool,
}

/// Admits a migration. The permit is the caller's permit to delete the instance.
///
/// # Errors
/// 409 if something blocks the removal of the instance or of its Secret.
pub(crate) fn migrate(
    view: &AdmissionView<'_>,
    permit: &Permit,
    migration: Migration,
    manager: &str,
) -> Result<Admitted, ApiError> {
    let kind = permit.kind();
    let Migration { source, secret, namespace } = migration;
    let old = source.object.clone();
    let name = old.metadata.name.as_str();
    // The uid of the user or team that owns the instance.
    let owner_uid = source.cached.owner_uid().map(str::to_owned);
    let target = Permit::for_server(kind, Verb::Create, Some(&namespace), name);
    let new = moved_instance(view, &target, source.before(), &namespace, manager)?;
    let roles = roles_of(view, permit, &old, &new)?;
    let removal = delete(view, permit, source, 0, Some(Propagation::Background))?;
    check_removes(&removal, permit)?;
    let created =
        Write::Create { object: new.clone(), owner_uid, write_only: WriteOnlyValues::default() };
    let mut all = removal.with(Admitted::one(&target, name, created));
    // The bound names keep the users and teams that were meant when the rules were added.
    let recorded = view.bound_grants(kind, &old, &[]);
    let by_roles = || grants_of_stored(&roles, &new.metadata);
    let bound = if recorded.is_empty() { by_roles() } else { recorded };
    let dependents = view.dependents(&target, &new, &roles, &bound)?;
    all.bound.push(ObjectNames::of(kind, &new, &dependents));
    for wanted in dependents {
        all = all.with(apply_dependent(view, &wanted, Some(reference_to(kind, &new)))?);
    }
    match secret {
        Some(secret) => with_secret(view, all, secret, &old, &new),
        None => Ok(all),
    }
}

/// The instance in its new namespace: another object with the same name, labels, annotations, spec and status.
fn moved_instance(
    view: &AdmissionView<'_>,
    permit: &Permit,
    before: Before<'_>,
    namespace: &str,
    manager: &str,
) -> Result<Object, ApiError> {
    let (kind, old) = (permit.kind(), before.object);
    let mut new = old.clone();
    let metadata = &mut new.metadata;
    namespace.clone_into(&mut metadata.namespace);
    metadata.uid = new_uid(view.source);
    metadata.resource_version.clear();
    metadata.creation_timestamp = Some(view.now);
    // The Secret moves too. If the reference has a namespace, it gets the new one.
    if let Some(Value::String(of_secret)) = new.fields.get_mut("spec").and_then(|spec| {
        spec.get_mut("config").and_then(|config| config.get_mut("secretNamespace"))
    }) {
        namespace.clone_into(of_secret);
    }
    // Prepared as a change of the old instance, so that unchanged fields are not checked again.
    let prepared = view.prepare(permit, &mut new, Some(before), &NewSecrets::default())?;
    let from = format!("{}/{}", old.metadata.namespace, old.metadata.name);
    new.metadata.annotations.insert(MIGRATED_FROM.to_owned(), from);
    track(kind, &mut new, Some(old), manager, Part::Main, view.now);
    check_errors(kind, &new.metadata, prepared.verdict?)?;
    Ok(new)
}

/// The roles and bindings of the instance, with the new instance as their owner. The subjects in them keep their
/// uids.
fn roles_of(
    view: &AdmissionView<'_>,
    permit: &Permit,
    old: &Object,
    new: &Object,
) -> Result<Vec<Object>, ApiError> {
    let mut roles = Vec::new();
    for role in view.dependents(permit, old, &[], &[])? {
        let found = view.read(role.kind, role.namespace.as_deref(), &role.name)?;
        roles.extend(found.map(|found| {
            let mut role = found.object;
            replace_owner(&mut role.metadata.owner_references, old, new);
            role
        }));
    }
    Ok(roles)
}

/// Replaces the old instance by the new one in owner references.
fn replace_owner(references: &mut [OwnerReference], old: &Object, new: &Object) {
    for reference in references.iter_mut().filter(|one| one.uid == old.metadata.uid) {
        reference.uid.clone_from(&new.metadata.uid);
    }
}

/// Admits the move of the Secret with the kubeconfig, or a copy of it.
fn with_secret(
    view: &AdmissionView<'_>,
    all: Admitted,
    secret: MigratedSecret,
    old: &Object,
    new: &Object,
) -> Result<Admitted, ApiError> {
    let MigratedSecret { previous, is_shared } = secret;
    let mut object = previous.object.clone();
    let name = object.metadata.name.clone();
    object.metadata.resource_version.clear();
    object.metadata.namespace.clone_from(&new.metadata.namespace);
    // In the new namespace, its source would be another object, which no writer has requested.
    object.metadata.annotations.remove(SYNCED_FOR);
    replace_owner(&mut object.metadata.owner_references, old, new);
    let permit = Permit::for_server(&Secret, Verb::Create, Some(&new.metadata.namespace), &name);
    let all = all.with(create(view, &permit, object, &Writing::by_server())?);
    if is_shared {
        return Ok(all);
    }
    let permit = Permit::for_server(&Secret, Verb::Delete, Some(&old.metadata.namespace), &name);
    let removal = delete(view, &permit, previous, 0, Some(Propagation::Background))?;
    check_removes(&removal, &permit)?;
    Ok(all.with(removal))
}

fn check_removes(removal: &Admitted, permit: &Permit) -> Result<(), ApiError> {
    if removal.removes() {
        return Ok(());
    }
    let resource = permit.kind().info().group_resource();
    Err(ApiError::conflict(resource, permit.name(), "finalizers block the removal of the object"))
}
