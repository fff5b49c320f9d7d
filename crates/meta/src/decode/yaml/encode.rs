//! Encoding of values as YAML that every decoder reads as the same values.

use serde_json::Value;

/// Encodes `value` as a YAML document in block style, ending in a line break.
///
/// Strings that a decoder could read as another type, in YAML 1.1 or 1.2, are quoted.
pub fn encode_yaml(value: &Value) -> String {
    let options = serde_saphyr::ser_options! {
        compact_list_indent: true,
        // "\r" would be lost in a block scalar.
        prefer_block_scalars: false,
    };
    // JSON is YAML, too: nothing is lost should the library refuse a value.
    serde_saphyr::to_string_with_options(value, options).unwrap_or_else(|_| format!("{value}\n"))
}
