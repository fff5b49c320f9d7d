//! Decoding of JSON. The grammar is the library's; the visitor enforces limits
//! and finds duplicate keys.

use serde::de::{DeserializeOwned, DeserializeSeed};
use serde_json::error::Category;

use super::visitor::{Node, State};
use super::{DecodeError, Decoded};

/// Decodes one JSON text within these limits.
pub(super) fn decode(
    bytes: &[u8],
    max_depth: usize,
    max_nodes: usize,
) -> Result<Decoded, DecodeError> {
    decode_part(bytes, max_depth, &mut { max_nodes })
}

/// Decodes a JSON text inside a body of another format, within the remaining limits of the body:
/// `max_depth` more levels, and `nodes_left` more values, from which its own are taken.
pub(super) fn decode_part(
    bytes: &[u8],
    max_depth: usize,
    nodes_left: &mut usize,
) -> Result<Decoded, DecodeError> {
    // Text is never longer than it is written.
    let mut state = State::new(max_depth, *nodes_left, bytes.len());
    let mut parser = serde_json::Deserializer::from_slice(bytes);
    let value = Node::root(&mut state)
        .deserialize(&mut parser)
        .and_then(|value| parser.end().map(|()| value))
        .map_err(|error| describe(&error, state.refusal))?;
    *nodes_left = state.nodes_left;
    Ok(Decoded { value, duplicates: state.into_duplicates() })
}

/// Decodes trusted JSON into a type.
#[expect(clippy::disallowed_methods, reason = "this is the decoder that the rule points to")]
pub(super) fn decode_typed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    serde_json::from_slice(bytes).map_err(|error| describe(&error, None))
}

/// The library's texts on syntax are fixed and hold no input. Those on data
/// (`invalid type: string "..."`) repeat it, so they are replaced.
fn describe(error: &serde_json::Error, refusal: Option<&'static str>) -> DecodeError {
    let (line, column) = (error.line(), error.column());
    match (refusal, error.classify()) {
        (Some(why), _) => DecodeError::new(format!("{why} at line {line} column {column}")),
        (None, Category::Syntax | Category::Eof) => DecodeError::new(error.to_string()),
        (None, Category::Data | Category::Io) => DecodeError::new(format!(
            "the JSON does not fit the type it is read as at line {line} column {column}"
        )),
    }
}
