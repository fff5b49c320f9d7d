//! The one door through which text becomes values: request bodies in JSON and
//! YAML, and this server's own stored JSON.
//!
//! Input is hostile until it has passed here, so depth and size have limits,
//! and because it may hold secrets, no error repeats a part of it. What the
//! values mean is decided elsewhere.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;

mod json;
mod protobuf;
mod visitor;
mod yaml;

pub use protobuf::MEDIA_TYPE as PROTOBUF_MEDIA_TYPE;
pub use yaml::encode_yaml;

/// How deep values may nest in JSON. Real objects stay below 20; the parser
/// recurses, so this bounds the stack.
pub const MAX_DEPTH: usize = 100;

/// The same for YAML, whose parser takes some 20 KiB of stack for each level.
pub const MAX_YAML_DEPTH: usize = 32;

/// How many values, counting lists, objects and what is in them, a JSON body
/// may have. It bounds the memory that the largest body can turn into.
pub const MAX_JSON_NODES: usize = 200_000;

/// The same for YAML, counted after aliases are expanded. YAML is written by
/// people, and its parser is slower.
pub const MAX_YAML_NODES: usize = 20_000;

/// How many duplicate or unknown fields one answer reports.
pub const MAX_STRICT_ERRORS: usize = 100;

/// The two text forms of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
}

/// The form of a request's body: text, or what typed clients send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BodyFormat {
    /// JSON or YAML.
    Text(Format),
    /// `application/vnd.kubernetes.protobuf`, of a few kinds.
    Protobuf,
}

impl Format {
    /// The media type, as it stands in `Content-Type`.
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
    /// The value; of a field that occurs twice, the last one.
    pub value: Value,
    /// Paths of fields that occur twice, such as `spec.bar`, at most
    /// [`MAX_STRICT_ERRORS`] of them.
    pub duplicates: Vec<String>,
}

/// Shows only how much there is, for the value may hold secrets.
impl fmt::Debug for Decoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoded")
            .field("duplicates", &self.duplicates.len())
            .finish_non_exhaustive()
    }
}

/// Why input could not be decoded. It says what was expected and where, never
/// what was there.
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

/// Decodes a body whole: one value, nothing behind it.
pub fn decode(bytes: &[u8], format: Format) -> Result<Decoded, DecodeError> {
    match format {
        Format::Json => json::decode(bytes),
        Format::Yaml => yaml::decode(bytes),
    }
}

/// Decodes a request's body in whichever form it has.
pub fn decode_body(bytes: &[u8], format: BodyFormat) -> Result<Decoded, DecodeError> {
    match format {
        BodyFormat::Text(format) => decode(bytes, format),
        BodyFormat::Protobuf => {
            Ok(Decoded { value: protobuf::decode(bytes)?, duplicates: Vec::new() })
        }
    }
}

/// Decodes JSON that this program wrote itself, such as stored objects, right
/// into its type. The error names the place and not the content.
pub fn decode_typed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    json::decode_typed(bytes)
}

#[cfg(test)]
mod tests;
