//! The mapping of the store's errors to those of the API.

use postern_meta::status::ApiError;
use postern_store::{Error, Position};

/// Seconds after which a client may try again when storage is unavailable.
const RETRY_AFTER_SECONDS: u32 = 1;

/// The API's error for an error of the store. Callers that expect a conflict handle it
/// before.
pub fn from_store(error: Error) -> ApiError {
    match error {
        Error::Compacted { .. } => ApiError::expired(
            "The provided resource version is too old: its history is no longer kept",
        ),
        Error::Future { current } => ApiError::too_large_resource_version(
            Position::end_of(current + 1).packed(),
            Position::end_of(current).packed(),
        ),
        // Nothing was done, so trying again is safe.
        Error::Unavailable(reason) => {
            ApiError::unavailable("storage is unavailable", Some(RETRY_AFTER_SECONDS))
                .with_inner(reason)
        }
        Error::Gated(reason) => ApiError::unavailable(reason, Some(RETRY_AFTER_SECONDS)),
        // No Retry-After: a client that repeats a write whose outcome is unknown may do it twice.
        Error::Unknown(reason) => ApiError::internal(
            "storage failed while committing; the write may or may not have happened: read the \
             object before you try again",
            reason,
        ),
        Error::Corrupt { key, reason } => ApiError::internal(
            "stored data is damaged and cannot be read: restore it from a backup",
            format!("{}: {reason}", key.as_deref().unwrap_or("unknown key")),
        ),
        Error::Conflict { key, .. } => {
            ApiError::internal("storage refused a write", format!("unexpected conflict on {key}"))
        }
        Error::Invalid(reason) => ApiError::internal("storage refused a write", reason),
    }
}
