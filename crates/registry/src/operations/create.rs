//! Creates an object; with `generateName`, tries names until one is free.
//!
//! A create takes these steps, from the object that a client sent to the store:
//!
//! | step | function | what it does |
//! |---|---|---|
//! | 1 | [`create`] | waits for the cache, and tries again with another generated name |
//! | 2 | `admit::create` | checks the object, and makes it what is stored: metadata, the kind's own fields, field managers |
//! | 3 | `AdmissionView::prepare` | asks the kind, which sees the caller and the users and teams |
//! | 4 | `check_rights` in `admit` | checks the rights that the object's fields require |
//! | 5 | `Registry::commit` | makes the response of what was stored |
//! | 6 | `Registry::stage` | encodes the object |
//! | 7 | `Registry::side_records_of_new` | makes the records that go with it |
//! | 8 | `Registry::commit_staged` | hands the transaction to the store, and tries again if a namespace has changed |
//! | 9 | `Registry::conditions` | says what must still hold at the commit |
//! | 10 | `Registry::project_limits` | adds the quotas of the project |

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
    mut object: Object,
    writing: &Writing,
) -> Result<EncodedObject, ApiError> {
    let counts = permit.kind().is_delegated() && !writing.dry_run;
    let _counting = if counts { Some(registry.counting().await) } else { None };
    // The user or team that the object names may have been created by the request before this one.
    registry.cache().wait_until_current().await?;
    let is_named = !object.metadata.name.is_empty();
    let mut attempts_left = if is_named { 1 } else { NAME_ATTEMPTS };
    loop {
        attempts_left -= 1;
        // Admission takes the object, and gives it another name each time.
        let again = (attempts_left > 0).then(|| object.clone());
        let admitted = admit::create(&registry.admission(), permit, object, writing)?;
        let error = match registry.commit(admitted, writing.dry_run).await {
            Ok(created) => return Ok(registry.observed(permit, created)),
            Err(error) => error,
        };
        if is_named || error.reason() != Reason::AlreadyExists {
            return Err(error);
        }
        let Some(next) = again else {
            let name = error.status().details.as_ref().map_or("", |details| &details.name);
            let resource = permit.kind().info().group_resource();
            return Err(ApiError::generate_name_conflict(resource, name));
        };
        object = next;
    }
}
