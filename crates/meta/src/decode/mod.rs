//! The only decoders of input: of request bodies in JSON, YAML and protobuf, and
//! of this server's own stored JSON.
//!
//! Input is hostile, so depth and size have limits. It may hold secrets, so no error repeats a part of it. The decoders
//! do not interpret the values.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;

mod json;
mod protobuf;
mod visitor;
mod yaml;

pub use protobuf::{MEDIA_TYPE as PROTOBUF_MEDIA_TYPE, reads_protobuf};
pub use yaml::encode_yaml;

/// Maximum depth of nested values in JSON. Real objects stay below 20; the
/// parser recurses, so this bounds the stack.
pub const MAX_DEPTH: usize = 100;

/// The same for YAML. Its parser takes some 20 KiB of stack for each level.
pub const MAX_YAML_DEPTH: usize = 32;

/// Maximum number of values in a JSON body, counting lists, objects and their contents. It bounds
/// the memory that the largest body can take when decoded.
pub const MAX_JSON_NODES: usize = 200_000;

/// The same for YAML, counted after aliases are expanded. YAML bodies are
/// written by hand and small, and the parser is slower.
pub const MAX_YAML_NODES: usize = 20_000;

/// The same for a YAML file of the user that runs the program. The stack of a thread has room for
/// it.
pub const MAX_OWN_YAML_DEPTH: usize = 64;

/// Maximum number of values in a file of the user that runs the program, in either format.
pub const MAX_OWN_NODES: usize = 1_000_000;

/// Maximum bytes of all keys and strings of such a file, counted after aliases are expanded.
pub const MAX_OWN_TEXT_BYTES: usize = 128 * 1024 * 1024;

/// Maximum bytes of all keys and strings of a YAML body, counted after aliases are expanded: a few
/// aliases of one long string would otherwise fill the memory.
pub const MAX_YAML_TEXT_BYTES: usize = 3 * 1024 * 1024;

/// Maximum number of duplicate or unknown fields that one response reports.
pub const MAX_STRICT_ERRORS: usize = 100;

/// The two text forms of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
}

/// The format of a request's body: text, or the protobuf that typed clients send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BodyFormat {
    /// JSON or YAML.
    Text(Format),
    /// `application/vnd.kubernetes.protobuf`, of a few kinds.
    Protobuf,
}

impl Format {
    /// The media type for `Content-Type`.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
        }
    }
}

/// A decoded body.
#[derive(Clone, PartialEq)]
pub struct Decoded {
    /// The value; for a field that occurs twice, the last one.
    pub value: Value,
    /// Paths of fields that occur twice, such as `spec.bar`, at most
    /// [`MAX_STRICT_ERRORS`] of them.
    pub duplicates: Vec<String>,
}

/// Without the value, which may hold secrets.
impl fmt::Debug for Decoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoded")
            .field("duplicates", &self.duplicates.len())
            .finish_non_exhaustive()
    }
}

/// Why input could not be decoded: the expected input and the position, never a part of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    message: String,
}

impl DecodeError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for DecodeError {}

/// Decodes a body: exactly one value, and nothing after it.
pub fn decode(bytes: &[u8], format: Format) -> Result<Decoded, DecodeError> {
    match format {
        Format::Json => json::decode(bytes, MAX_DEPTH, MAX_JSON_NODES),
        Format::Yaml => yaml::decode(bytes, &yaml::BODY),
    }
}

/// Decodes a file of the user that runs this program, as [`decode`] does. Its limits are far above
/// those of a body: users do not attack their own computer.
pub fn decode_own_file(bytes: &[u8], format: Format) -> Result<Decoded, DecodeError> {
    match format {
        Format::Json => json::decode(bytes, MAX_DEPTH, MAX_OWN_NODES),
        Format::Yaml => yaml::decode(bytes, &yaml::OWN_FILE),
    }
}

/// The text of a file in UTF-8 without its byte order mark, which may also say that the file is UTF-16. `None` if the file
/// is UTF-8 without a mark already.
pub fn text_after_mark(bytes: &[u8]) -> Option<Result<Vec<u8>, DecodeError>> {
    match bytes {
        [0xef, 0xbb, 0xbf, rest @ ..] => Some(Ok(rest.to_vec())),
        [0xff, 0xfe, rest @ ..] => Some(of_utf16(rest, u16::from_le_bytes)),
        [0xfe, 0xff, rest @ ..] => Some(of_utf16(rest, u16::from_be_bytes)),
        _ => None,
    }
}

fn of_utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<Vec<u8>, DecodeError> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let units = pairs.iter().map(|pair| unit(*pair));
    let text: Result<String, _> = char::decode_utf16(units).collect();
    text.ok().filter(|_| rest.is_empty()).map(String::into_bytes).ok_or_else(|| {
        DecodeError::new("the byte order mark says UTF-16, and the text is not UTF-16")
    })
}

/// Decodes a request's body in any of its formats.
pub fn decode_body(bytes: &[u8], format: BodyFormat) -> Result<Decoded, DecodeError> {
    match format {
        BodyFormat::Text(format) => decode(bytes, format),
        BodyFormat::Protobuf => {
            Ok(Decoded { value: protobuf::decode(bytes)?, duplicates: Vec::new() })
        }
    }
}

/// Decodes JSON that this program wrote itself, such as stored objects, directly
/// into its type. The error has the position and not the content.
pub fn decode_typed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    json::decode_typed(bytes)
}

#[cfg(test)]
mod tests;
