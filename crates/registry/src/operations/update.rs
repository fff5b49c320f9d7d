//! Changes an object: replaces it with the version that a client has modified, or patches it.

use postern_kinds::UpdateRule;
use postern_meta::field::{FieldError, FieldErrors};
use postern_meta::object::Object;
use postern_meta::status::ApiError;

use crate::admit::{self, Part, Writing};
use crate::cache::CachedObject;
use crate::permit::Permit;
use crate::registry::{EncodedObject, Registry};

/// Changes an object. `change` makes the wanted state from the current state; it may run more than once.
///
/// # Errors
/// The errors of `docs/reference/api.md#writes`. The object that `change` returns has the resourceVersion and uid
/// that the client expects: 409 if they do not match.
pub async fn update(
    registry: &Registry,
    permit: &Permit,
    writing: &Writing,
    change: impl Fn(&Object) -> Result<Object, ApiError>,
) -> Result<EncodedObject, ApiError> {
    registry
        .rewrite(permit, writing.dry_run, |previous, secrets| {
            permit.check(&previous.cached)?;
            let mut wanted = change(&previous.object)?;
            check_address(permit, &mut wanted)?;
            check_version(permit, &wanted, &previous.cached)?;
            admit::update(&registry.admission(), permit, wanted, previous, secrets, writing)
        })
        .await
}

/// Replaces an object with the version that a client has modified. Returns the new state, with warnings.
///
/// `removed` are the kept fields of `spec` (`AnyKind::kept_fields`) that the client has set to null.
///
/// # Errors
/// The errors of [`update`]; 422 if the resourceVersion is missing, unless clients update the kind without it.
/// Without the version, a client could undo another client's change unknowingly (`docs/reference/api.md#writes`).
pub async fn replace(
    registry: &Registry,
    permit: &Permit,
    writing: &Writing,
    object: Object,
    removed: &[&str],
) -> Result<(EncodedObject, Vec<String>), ApiError> {
    let kept = parking_lot::Mutex::new(Vec::new());
    let replaced = update(registry, permit, writing, |current| {
        let mut object = object.clone();
        // Another name is an error that no resourceVersion can correct, so this check comes first.
        check_address(permit, &mut object)?;
        if object.metadata.resource_version.is_empty() {
            check_unconditional(permit)?;
        }
        if writing.part == Part::Main {
            *kept.lock() = permit.kind().keep_unnamed(&mut object, current, removed);
        }
        Ok(object)
    })
    .await?;
    let warning = |name: &&str| {
        format!("spec.{name} is not in the request and was not changed; to remove it, send null")
    };
    Ok((replaced, kept.into_inner().iter().map(warning).collect()))
}

/// Checks that the name and namespace of the object match the URL. A namespace on a cluster-scoped object is removed,
/// as in a create.
fn check_address(permit: &Permit, wanted: &mut Object) -> Result<(), ApiError> {
    let name = permit.name();
    if wanted.metadata.name != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({name})",
            wanted.metadata.name
        )));
    }
    admit::set_namespace(&mut wanted.metadata, permit)
}

/// Checks that clients may replace objects of the kind without a resourceVersion.
fn check_unconditional(permit: &Permit) -> Result<(), ApiError> {
    let info = permit.kind().info();
    if info.update == UpdateRule::Unconditional {
        return Ok(());
    }
    let mut errors = FieldErrors::default();
    let path = "metadata.resourceVersion";
    errors.push(FieldError::invalid(path, 0_i64, "must be specified for an update"));
    Err(ApiError::invalid(info.group_kind(), permit.name(), errors))
}

/// Checks that a resourceVersion in the sent object is the current one. As upstream, 0 means no version: the object
/// is replaced unconditionally.
fn check_version(
    permit: &Permit,
    wanted: &Object,
    previous: &CachedObject,
) -> Result<(), ApiError> {
    let sent = wanted.metadata.resource_version.as_str();
    if sent.is_empty() || sent == previous.position().to_string() {
        return Ok(());
    }
    match sent.parse::<u64>() {
        Err(_) => Err(ApiError::bad_request("invalid resource version: it must be a number")),
        Ok(0) => check_unconditional(permit),
        Ok(_) => {
            let resource = permit.kind().info().group_resource();
            Err(ApiError::conflict_modified(resource, &wanted.metadata.name))
        }
    }
}
