//! The data of secrets: keys, values in base64, and their limit. The same for every kind that has it.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use memchr::memchr2;
use postern_meta::names::config_map_key;

use crate::prelude::*;
use crate::write_only::LAST_APPLIED;

/// Maximum size of all decoded values of one secret, in bytes.
pub const MAX_DATA_BYTES: usize = 1024 * 1024;

/// The values of a secret in base64, by their keys.
pub(crate) type Data = BTreeMap<String, SecretText>;

/// The values of a secret that are sent as text, by their keys.
pub(crate) type StringData = BTreeMap<String, SecretString>;

/// A secret value that is text, and not base64.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretString(SecretText);

impl JsonSchema for SecretString {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        String::schema_name()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        String::json_schema(generator)
    }
}

/// Prepares sent values as kube-apiserver does: it encodes those that are text, over what `data` has, and removes line
/// breaks from base64. The text for an object that takes its data from another one stays, and [`validate_text`] refuses
/// it.
pub(crate) fn prepare(data: &mut Data, text: &mut StringData, is_taken: bool) {
    if !is_taken {
        for (key, value) in std::mem::take(text) {
            data.insert(key, SecretText::from(STANDARD.encode(value.0.expose())));
        }
    }
    remove_line_breaks(data);
}

/// Removes line breaks from base64: kube-apiserver skips them, so manifests have them.
pub(crate) fn remove_line_breaks(data: &mut Data) {
    let has_break = |value: &SecretText| memchr2(b'\r', b'\n', value.expose().as_bytes()).is_some();
    for value in data.values_mut().filter(|value| has_break(value)) {
        *value = SecretText::from(value.expose().replace(['\r', '\n'], ""));
    }
}

/// Adds an error for values that were sent as text and that [`prepare`] left: the server brings the
/// data. A client that sends back the object it read has no such field.
pub(crate) fn validate_text(path: &str, text: &StringData, errors: &mut FieldErrors) {
    if !text.is_empty() {
        let detail = "must be empty: the labels say that the data comes from another object";
        errors.push(FieldError::forbidden(path, detail));
    }
}

/// Adds the invalid keys and sizes to `errors`. `kind` and `path` are for the texts.
///
/// # Errors
/// 400 for a value that is not base64.
pub(crate) fn validate(
    kind: &str,
    path: &str,
    data: &Data,
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
