//! The metadata that the server sets: on a new object, and kept on a changed one.

use postern_kinds::AnyKind;
use postern_meta::names::generated_name;
use postern_meta::object::ObjectMeta;
use postern_meta::status::ApiError;

use super::view::AdmissionView;
use crate::clock::new_uid;
use crate::permit::Permit;

pub(super) fn init_system_metadata(
    metadata: &mut ObjectMeta,
    permit: &Permit,
    view: &AdmissionView<'_>,
) -> Result<(), ApiError> {
    if !metadata.resource_version.is_empty() {
        return Err(ApiError::bad_request(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    set_namespace(metadata, permit)?;
    metadata.uid = new_uid(view.source);
    metadata.generation = 1;
    metadata.creation_timestamp = Some(view.now);
    metadata.deletion_timestamp = None;
    metadata.deletion_grace_period_seconds = None;
    metadata.self_link.clear();
    let given = Some(metadata.generate_name.as_str()).filter(|prefix| !prefix.is_empty());
    if let Some(prefix) = given.or(permit.kind().info().name_prefix)
        && metadata.name.is_empty()
    {
        let mut random = [0; 5];
        view.source.fill(&mut random);
        metadata.name = generated_name(prefix, random);
    }
    Ok(())
}

/// Sets an empty namespace to the namespace of the URL. Any other namespace is an error. An object of a
/// cluster-scoped kind gets none.
///
/// # Errors
/// 400 for another namespace.
pub(crate) fn set_namespace(metadata: &mut ObjectMeta, permit: &Permit) -> Result<(), ApiError> {
    let wanted = permit.target().namespace.as_deref().unwrap_or_default();
    let namespaced = permit.kind().info().is_namespaced();
    if namespaced && !metadata.namespace.is_empty() && metadata.namespace != wanted {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    wanted.clone_into(&mut metadata.namespace);
    Ok(())
}

pub(super) fn check_uid(
    kind: &'static dyn AnyKind,
    new: &ObjectMeta,
    old: &ObjectMeta,
) -> Result<(), ApiError> {
    if new.uid.is_empty() || new.uid == old.uid {
        return Ok(());
    }
    Err(ApiError::conflict(
        kind.info().group_resource(),
        &old.name,
        format!(
            "Precondition failed: UID in precondition: {}, UID in object meta: {}",
            new.uid, old.uid
        ),
    ))
}

/// Restores the metadata that the server sets, regardless of the client's values.
pub(super) fn keep_system_metadata(metadata: &mut ObjectMeta, old: &ObjectMeta) {
    // The client's version was already compared. With the stored version, an unchanged object equals the old one.
    metadata.resource_version.clone_from(&old.resource_version);
    metadata.uid.clone_from(&old.uid);
    metadata.generation = old.generation;
    metadata.creation_timestamp = old.creation_timestamp;
    metadata.deletion_timestamp = old.deletion_timestamp;
    metadata.deletion_grace_period_seconds = old.deletion_grace_period_seconds;
    metadata.self_link.clear();
    metadata.generate_name.clone_from(&old.generate_name);
    if metadata.namespace.is_empty() {
        metadata.namespace.clone_from(&old.namespace);
    }
}
