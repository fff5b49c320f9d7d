//! Creates an object; with `generateName`, tries names until one is free.
//!
//! A create takes these steps, from the object that a client sent to the store:
//!
//! | step | function | task |
//! |---|---|---|
//! | 1 | [`create`] | waits for the cache, and retries with another generated name |
//! | 2 | `admit::create` | chooses the name, completes and checks the object: the kind's own fields, permissions, field managers |
//! | 3 | `Registry::commit` | stages the changes, joins all effects in a transaction, retries it, and makes the response |
//! | 4 | `Registry::effects` | runs the rules: name, owner, namespace, quotas, limits of owners, revocation of tokens |
//! | 5 | `Store::commit` | stores the transaction |

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
            Ok(created) => return Ok(registry.observed(permit, created).await),
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
