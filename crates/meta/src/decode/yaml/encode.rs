//! Encoding of values as YAML that every decoder reads as the same values.

use serde_json::Value;
use serde_saphyr::SerializerOptions;

/// Encodes `value` as a YAML document in block style, ending in a line break.
///
/// Strings that a decoder could read as another type, in YAML 1.1 or 1.2, are quoted.
pub fn encode_yaml(value: &Value) -> String {
    let options = SerializerOptions {
        compact_list_indent: true,
        // A block scalar keeps line breaks only as they are in the text, and "\r" is lost in one.
        prefer_block_scalars: false,
        ..SerializerOptions::default()
    };
    // JSON is YAML, too: nothing is lost should the library refuse a value.
    serde_saphyr::to_string_with_options(value, options).unwrap_or_else(|_| format!("{value}\n"))
}
