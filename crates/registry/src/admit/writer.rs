//! Records the writer that requested a secret sync (`docs/reference/shared-secrets.md#secret-sync`). Each copy of the
//! data needs the writer's permission to read the source.

use postern_auth::policy::Policy;
use postern_auth::writer::Writer;
use postern_kinds::secret_sync::SYNCED_FOR;
use postern_kinds::{AnyKind, DataSource};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::ApiError;

use super::view::AdmissionView;
use crate::permit::Permit;

/// The source of an object's data, if it has one. Only objects in projects have one.
pub(crate) fn data_source(
    policy: &Policy,
    kind: &dyn AnyKind,
    metadata: &ObjectMeta,
) -> Option<DataSource> {
    let source = kind.info().data_source(metadata)?;
    policy.projects().of(&metadata.namespace).is_some().then_some(source)
}

/// Sets the annotation with the writer, which clients cannot set. A caller that sets another source becomes the
/// writer. An earlier check ensures that it may read the source.
///
/// # Errors
/// 401 if the key of the caller is no longer valid.
pub(super) fn remember_writer(
    view: &AdmissionView<'_>,
    permit: &Permit,
    object: &mut Object,
    old: Option<&Object>,
) -> Result<(), ApiError> {
    let kind = permit.kind();
    if permit.credential().is_server() {
        return Ok(());
    }
    let source = data_source(&view.policy, kind, &object.metadata);
    let before = old.and_then(|old| data_source(&view.policy, kind, &old.metadata));
    if source.is_none() && before.is_none() && kind.info().data_source(&object.metadata).is_none() {
        // The annotation of such an object is never read. If the kind has confidential fields, it is removed.
        if !kind.info().read_protected.is_empty() {
            object.metadata.annotations.remove(SYNCED_FOR);
        }
        return Ok(());
    }
    object.metadata.annotations.remove(SYNCED_FOR);
    let Some(source) = source else { return Ok(()) };
    let writer = if before.is_some_and(|before| before.is_same(&source)) {
        old.and_then(|old| old.metadata.annotations.get(SYNCED_FOR).cloned())
    } else {
        Some(encoded_writer(view, permit, &object.metadata.name)?)
    };
    object.metadata.annotations.extend(writer.map(|writer| (SYNCED_FOR.to_owned(), writer)));
    Ok(())
}

fn encoded_writer(
    view: &AdmissionView<'_>,
    permit: &Permit,
    name: &str,
) -> Result<String, ApiError> {
    let Some(key) = view.known_caller_key(permit)? else {
        let text = "secret sync needs a request with an access key";
        return Err(ApiError::forbidden(permit.kind().info().group_resource(), name, text));
    };
    serde_json::to_string(&Writer::of(permit.credential().bearer(), key))
        .map_err(|error| ApiError::internal("the writer could not be encoded", error))
}
