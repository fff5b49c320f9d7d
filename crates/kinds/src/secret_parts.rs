//! Parts of a secret: its values as bytes, and objects that have its metadata. The responses with these parts are
//! `secret_entries` and `secret_entry`.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_meta::object::Object;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use crate::prelude::*;
use crate::write_only::LAST_APPLIED;

/// The length of a value.
///
/// # Errors
/// 500 for a value of more than 2^64 bytes, which cannot be.
pub(crate) fn len_of(value: &[u8]) -> Result<u64, ApiError> {
    u64::try_from(value.len()).map_err(|error| damaged(&error))
}

/// Whether a value is UTF-8 without control characters other than tabs and line breaks.
pub(crate) fn is_text(value: &[u8]) -> bool {
    let is_plain = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
    std::str::from_utf8(value).is_ok_and(|text| text.chars().all(is_plain))
}

/// The data of a secret, in base64.
///
/// # Errors
/// 500 if it cannot be decoded.
pub(crate) fn data_of(secret: &Object) -> Result<BTreeMap<String, SecretText>, ApiError> {
    let data = secret.fields.get("spec").and_then(|spec| spec.get("data"));
    // The error could repeat a value.
    data.map_or(Ok(BTreeMap::new()), BTreeMap::deserialize)
        .map_err(|_| damaged(&"spec.data is not a map of texts"))
}

/// The bytes of a value.
///
/// # Errors
/// 500 if it is not base64.
pub(crate) fn decoded(name: &str, value: &SecretText) -> Result<Zeroizing<Vec<u8>>, ApiError> {
    let bytes = STANDARD.decode(value.expose());
    bytes.map(Zeroizing::new).map_err(|_| damaged(&format_args!("spec.data[{name}] is not base64")))
}

fn damaged(why: &dyn std::fmt::Display) -> ApiError {
    ApiError::internal("the entries of the secret cannot be read", why)
}

/// An object of another kind with the metadata of a secret. It has neither the copy of the data that `kubectl apply`
/// leaves, nor managed fields, which describe the secret.
pub(crate) fn part_of(secret: &Object, info: &Info, fields: Map<String, Value>) -> Object {
    let mut metadata = secret.metadata.clone();
    metadata.annotations.remove(LAST_APPLIED);
    metadata.managed_fields.clear();
    let (api_version, kind) = (info.version.to_string(), info.kind.to_owned());
    Object { api_version, kind, metadata, fields }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_what_can_be_shown() {
        for text in ["", "hush", "p\u{e4}ss\n\tword\r\n"] {
            assert!(is_text(text.as_bytes()), "{text:?}");
        }
        for other in [&b"\xff"[..], b"\x1b[2J", b"a\0b"] {
            assert!(!is_text(other), "{other:?}");
        }
    }
}
