//! The mapping of the store's errors to those of the API.

use postern_meta::status::ApiError;
use postern_store::{Error, Position};

/// The time after which a client may try again while storage is unavailable, in seconds.
const RETRY_AFTER_SECONDS: u32 = 1;

/// The error of the API for an error of the store. Callers that expect a conflict handle it before.
pub fn from_store(error: Error) -> ApiError {
    match error {
        Error::Compacted { .. } => ApiError::expired(
            "The provided resource version is too old: its history is no longer kept",
        ),
        Error::Future { current } => ApiError::too_large_resource_version(
            Position::end_of(current + 1).packed(),
            Position::end_of(current).packed(),
        ),
        // The store did not write, so another attempt is safe.
        Error::Unavailable(reason) => {
            ApiError::unavailable("storage is unavailable", Some(RETRY_AFTER_SECONDS))
                .with_inner(reason)
        }
        error @ (Error::Full | Error::UnknownSealKey { .. }) => {
            ApiError::unavailable("storage is unavailable", Some(RETRY_AFTER_SECONDS))
                .with_inner(error.to_string())
        }
        Error::Gated(reason) => ApiError::unavailable(reason, Some(RETRY_AFTER_SECONDS)),
        // No Retry-After: if the result of a write is unknown, a client that repeats it may write twice.
        Error::Unknown(reason) => ApiError::internal(
            "storage failed during the commit; the write may or may not have happened: read the object before \
             you try again",
            reason,
        ),
        Error::Corrupt { key, reason } => ApiError::internal(
            "stored data is corrupt: restore it from a backup",
            format!("{}: {reason}", key.as_deref().unwrap_or("unknown key")),
        ),
        Error::Conflict { key, .. } => {
            ApiError::internal("storage rejected a write", format!("unexpected conflict on {key}"))
        }
        Error::Invalid(reason) => ApiError::internal("storage rejected a write", reason),
        error @ Error::TooLarge { .. } => ApiError::request_entity_too_large(error),
        Error::EpochChanged { .. } => ApiError::expired(
            "The provided resource version is too old: the storage was restored in the meantime",
        ),
    }
}
