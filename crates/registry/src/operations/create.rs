//! Creates an object; with `generateName`, tries names until one is free.
//!
//! A create takes these steps, from the object that a client sent to the store:
//!
//! | step | function | what it does |
//! |---|---|---|
//! | 1 | [`create`] | waits for the cache, and retries with another generated name |
//! | 2 | `admit::create` | checks the object, and completes it: metadata, the kind's own fields, field managers |
//! | 3 | `AdmissionView::prepare` | calls the kind, which sees the caller and the users and teams |
//! | 4 | `check_rights` in `admit` | checks the permissions that the object's fields require |
//! | 5 | `Registry::commit` | makes the response from the stored object |
//! | 6 | `Registry::stage` | encodes the object |
//! | 7 | `Registry::side_records_of_new` | makes the side records of the object |
//! | 8 | `Registry::commit_staged` | hands the transaction to the store, and retries if a namespace has changed |
//! | 9 | `Registry::conditions` | makes the conditions that must hold at the commit |
//! | 10 | `Registry::project_limits` | adds the quotas of the project |

use postern_meta::object::Object;
use postern_meta::status::{ApiError, Reason};

use crate::admit::{self, Writing};
use crate::permit::Permit;
use crate::registry::{EncodedObject, Registry};
use crate::secret_record::credential_field;

/// Attempts with different names for one `generateName`. After these, the client has to retry.
const NAME_ATTEMPTS: usize = 8;

/// Creates an object.
///
/// # Errors
/// The errors of `docs/reference/api.md#writes`; 409 when every generated name exists already.
pub async fn create(
    registry: &Registry,
    permit: &Permit,
    mut object: Object,
    writing: &Writing,
) -> Result<EncodedObject, ApiError> {
    if credential_field(permit.kind()).is_some() {
        registry.servers().check_clock()?;
    }
    let counts = permit.kind().is_delegated() && !writing.dry_run;
    let _quota_lock = if counts { Some(registry.quota_lock().await) } else { None };
    // The previous request may have created the user or team that the object names.
    registry.cache().wait_until_current().await?;
    let is_named = !object.metadata.name.is_empty();
    let mut attempts_left = if is_named { 1 } else { NAME_ATTEMPTS };
    loop {
        attempts_left -= 1;
        // Admission consumes the object, so each attempt with another name needs a copy.
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
