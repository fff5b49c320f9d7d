//! Server-side apply: changes the object, or creates it if it does not exist.

use postern_meta::apply::FieldSet;
use postern_meta::object::Object;
use postern_meta::status::{ApiError, Reason};

use super::{create, update};
use crate::admit::{self, Part, Writing};
use crate::permit::Permit;
use crate::registry::{EncodedObject, Registry};

/// Attempts at one apply, for an object that other clients create and delete at the same time.
const ATTEMPTS: usize = 4;

/// The reason of the 403 for a caller that may not get the object and does not force the apply. Without the check,
/// the response would tell whether a value equals the stored value.
const NEEDS_READING: &str =
    "an apply that is not forced compares values, which needs the permission to get the object";

/// The apply of one field manager.
pub struct Applied<'a> {
    /// The configuration that the manager sent.
    pub configuration: &'a Object,
    /// The fields that are null in the configuration.
    pub nulls: &'a FieldSet,
    /// The options of the write.
    pub writing: &'a Writing,
    /// Whether the manager takes over fields of other managers.
    pub force: bool,
}

/// Applies a configuration. Returns the object, and whether it was created.
///
/// An object that the caller may not see is treated as absent. If the caller may create it, the caller gets the
/// response to a create.
///
/// # Errors
/// The errors of `docs/reference/api.md#server-side-apply`; 403 when the object does not exist and the caller may not
/// create it.
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
        // A caller that may change only some objects must not learn which names exist.
        Err(refused) => return Err(if permit.covers_all() { refused } else { absent }),
    };
    let created = create(registry, &creating, make(None)?, writing).await?;
    Ok((created, true))
}

/// Whether an error says that the object itself does not exist, and not an object that it refers to.
fn is_absent(permit: &Permit, error: &ApiError) -> bool {
    let info = permit.kind().info();
    let is_object = |details: &postern_meta::status::StatusDetails| {
        details.kind == info.plural
            && details.group == info.version.group
            && details.name == permit.name()
    };
    error.reason() == Reason::NotFound && error.status().details.as_ref().is_some_and(is_object)
}
