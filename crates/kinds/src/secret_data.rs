//! The data of secrets: keys, values in base64, and their limit. The same for every kind that has it.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_meta::names::config_map_key;

use crate::prelude::*;
use crate::write_only::LAST_APPLIED;

/// Maximum size of all decoded values of one secret, in bytes.
pub const MAX_DATA_BYTES: usize = 1024 * 1024;

/// Adds what is invalid in the keys and sizes to `errors`. `kind` and `path` are for the texts.
///
/// # Errors
/// 400 for a value that is not base64.
pub(crate) fn validate(
    kind: &str,
    path: &str,
    data: &BTreeMap<String, SecretText>,
    errors: &mut FieldErrors,
) -> Result<(), ApiError> {
    let mut total_bytes = 0usize;
    for (key, value) in data {
        validate_key(path, key, errors);
        total_bytes = total_bytes.saturating_add(decoded_len(kind, path, key, value)?);
    }
    if total_bytes > MAX_DATA_BYTES {
        errors.push(FieldError::too_long(path, MAX_DATA_BYTES));
    }
    Ok(())
}

/// Adds an error if a key is not valid.
pub(crate) fn validate_key(path: &str, key: &str, errors: &mut FieldErrors) {
    errors.check(config_map_key(key), |detail| {
        FieldError::invalid(format!("{path}[{key}]"), key, detail)
    });
}

/// The length of a decoded value, in bytes. A bad value is a decoding error, as in
/// kube-apiserver: 400, with the key and never the value.
fn decoded_len(kind: &str, path: &str, key: &str, value: &SecretText) -> Result<usize, ApiError> {
    use base64::DecodeError;
    let text = value.expose();
    STANDARD.decode(text).map(|bytes| zeroize::Zeroizing::new(bytes).len()).map_err(|error| {
        let at = match error {
            DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol { offset: at, .. } => {
                at
            }
            _ => text.len(),
        };
        ApiError::bad_request(format!(
            "{kind} in version \"v1\" cannot be handled as a {kind}: {path}[{key}]: illegal base64 \
             data at input byte {at}: values are standard base64 (RFC 4648 section 4) with padding"
        ))
    })
}

/// A warning about the copy of the data that `kubectl apply` leaves; `field` is where the data is.
pub(crate) fn warnings(metadata: &ObjectMeta, field: &str) -> Vec<String> {
    if !metadata.annotations.contains_key(LAST_APPLIED) {
        return Vec::new();
    }
    vec![format!(
        "the annotation {LAST_APPLIED} contains a copy of {field}, visible to every reader of the \
         metadata: use kubectl create or kubectl replace"
    )]
}
