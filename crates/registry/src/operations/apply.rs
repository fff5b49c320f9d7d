//! Applies a configuration: changes the object, or creates it when it is not there.

use postern_meta::apply::FieldSet;
use postern_meta::object::Object;
use postern_meta::status::{ApiError, Reason};

use super::{create, update};
use crate::admit::{self, Part, Writing};
use crate::permit::Permit;
use crate::registry::{EncodedObject, Registry};

/// How often it is tried again because the object comes and goes meanwhile.
const ATTEMPTS: usize = 4;

/// Why a caller who may not get an object has to force an apply: without, the answer would tell
/// whether a value is the stored one.
const NEEDS_READING: &str =
    "an apply that is not forced compares values, which needs the right to get the object";

/// An apply by one manager.
pub struct Applied<'a> {
    /// The configuration that the manager wants.
    pub configuration: &'a Object,
    /// The fields that it has as null.
    pub nulls: &'a FieldSet,
    /// How it is written.
    pub writing: &'a Writing,
    /// Whether it takes over what others own.
    pub force: bool,
}

/// Applies a configuration. The result is the object, and whether it was created.
///
/// An object that the caller may not see is treated as absent. A caller that may create it then gets the answer
/// to a create.
///
/// # Errors
/// Those of `docs/reference/api.md#server-side-apply`; 403 when the object does not exist, and the caller may
/// not create it.
pub async fn apply(
    registry: &Registry,
    permit: &Permit,
    applied: &Applied<'_>,
) -> Result<(EncodedObject, bool), ApiError> {
    for _ in 1..ATTEMPTS {
        match apply_once(registry, permit, applied).await {
            Err(error) if error.reason() == Reason::AlreadyExists => {}
            result => return result,
        }
    }
    apply_once(registry, permit, applied).await
}

async fn apply_once(
    registry: &Registry,
    permit: &Permit,
    applied: &Applied<'_>,
) -> Result<(EncodedObject, bool), ApiError> {
    let &Applied { configuration, nulls, writing, force } = applied;
    let make = |live: Option<&Object>| {
        admit::apply(&registry.admission(), permit, live, (configuration, nulls), writing, force)
    };
    let updated = update(registry, permit, writing, |live| {
        if !force {
            registry.check_may_read(permit, NEEDS_READING)?;
        }
        make(Some(live))
    });
    let absent = match updated.await {
        Err(error) if writing.part == Part::Main && is_absent(permit, &error) => error,
        result => return Ok((result?, false)),
    };
    let creating = match permit.decide_create() {
        Ok(creating) => creating,
        // A caller that may change only some objects does not learn which names are taken.
        Err(refused) => return Err(if permit.covers_all() { refused } else { absent }),
    };
    let created = create(registry, &creating, make(None)?, writing).await?;
    Ok((created, true))
}

/// Whether an error says that the object itself is not there, and not something it refers to.
fn is_absent(permit: &Permit, error: &ApiError) -> bool {
    let info = permit.kind().info();
    let is_object = |details: &postern_meta::status::StatusDetails| {
        details.kind == info.plural
            && details.group == info.version.group
            && details.name == permit.name()
    };
    error.reason() == Reason::NotFound && error.status().details.as_ref().is_some_and(is_object)
}
