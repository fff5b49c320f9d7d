//! Creates an object; with `generateName`, tries names until one is free.

use postern_meta::object::Object;
use postern_meta::status::{ApiError, Reason};

use crate::admit::{self, Writing};
use crate::permit::Permit;
use crate::registry::{EncodedObject, Registry};

/// Names that are tried for one `generateName` before the client has to try again itself.
const NAME_ATTEMPTS: usize = 8;

/// Creates an object.
///
/// # Errors
/// Those of `docs/reference/api.md#writes`; 409 when every generated name was taken.
pub async fn create(
    registry: &Registry,
    permit: &Permit,
    object: Object,
    writing: &Writing,
) -> Result<EncodedObject, ApiError> {
    let created = create_named(registry, permit, object, writing).await?;
    Ok(registry.observed(permit, created))
}

async fn create_named(
    registry: &Registry,
    permit: &Permit,
    object: Object,
    writing: &Writing,
) -> Result<EncodedObject, ApiError> {
    let counts = permit.kind().is_delegated() && !writing.dry_run;
    let _counting = if counts { Some(registry.counting().await) } else { None };
    let admit = |object| admit::create(&registry.admission(), permit, object, writing);
    // The user or team that the object names may have been created by the request before this one.
    registry.cache().wait_until_current().await?;
    if !object.metadata.name.is_empty() {
        return registry.commit(admit(object)?, writing.dry_run).await;
    }
    for _ in 1..NAME_ATTEMPTS {
        match registry.commit(admit(object.clone())?, writing.dry_run).await {
            Err(error) if error.reason() == Reason::AlreadyExists => {}
            result => return result,
        }
    }
    let last = registry.commit(admit(object)?, writing.dry_run).await;
    last.map_err(|error| {
        if error.reason() == Reason::AlreadyExists {
            let name = error.status().details.as_ref().map_or("", |details| &details.name);
            let resource = permit.kind().info().group_resource();
            return ApiError::generate_name_conflict(resource, name);
        }
        error
    })
}
