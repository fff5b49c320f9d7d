//! Decoding of YAML: the only file that knows the YAML library.
//!
//! YAML is taken as the reference clients write it: one document, keys that
//! are strings, values that JSON has too. Anchors and merge keys work within
//! limits; tags that would make other values do not.

use serde::de::DeserializeSeed;
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Error, Options};

use super::visitor::{BAD_NUMBER, Node, State, TOO_DEEP, TOO_MANY_NODES};
use super::{DecodeError, Decoded, MAX_YAML_DEPTH, MAX_YAML_NODES};

mod encode;

pub use encode::encode_yaml;

/// How many times one document may refer to anchors.
const MAX_ALIASES: usize = 1000;
/// How many anchors one document may have.
const MAX_ANCHORS: usize = 1000;
/// How deep anchors may refer to anchors.
const MAX_ALIAS_DEPTH: usize = 16;
/// How many merge keys (`<<`) one document may have.
const MAX_MERGE_KEYS: usize = 1000;
/// How many parser events one document may have: a node is at most two, and
/// the document's own come on top.
const MAX_EVENTS: usize = 2 * MAX_YAML_NODES + 16;

/// Decodes one YAML document.
pub(super) fn decode(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| DecodeError::new(format!("not UTF-8 at byte {}", error.valid_up_to())))?;
    let mut state = State::new(MAX_YAML_DEPTH, MAX_YAML_NODES);
    let outcome =
        serde_saphyr::with_deserializer_from_str_with_options(text, options(), |parser| {
            Node(&mut state).deserialize(parser)
        });
    match outcome {
        Ok(value) => Ok(Decoded { value, duplicates: state.into_duplicates() }),
        Err(error) => Err(describe(&error, state.refusal)),
    }
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            // One more, so that a second document is named as what it is.
            max_documents: 2,
            max_nodes: MAX_YAML_NODES,
            max_events: MAX_EVENTS,
            max_depth: MAX_YAML_DEPTH + 1,
            // One more, so that the visitor is the one that refuses, and says why.
            flow_nesting_limit: MAX_YAML_DEPTH + 1,
            max_aliases: MAX_ALIASES,
            max_anchors: MAX_ANCHORS,
            max_recorded_anchor_events: MAX_EVENTS,
            max_merge_keys: MAX_MERGE_KEYS,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_EVENTS,
            max_replay_stack_depth: MAX_ALIAS_DEPTH,
            max_alias_expansions_per_anchor: MAX_ALIASES,
        },
        // The visitor sees every pair and reports what comes twice.
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        // The reference clients read YAML 1.1: `0600` is 384 there.
        legacy_octal_numbers: true,
        reject_unsupported_tags: true,
        ignore_binary_tag_for_string: true,
        non_finite_float_policy: NonFiniteFloatPolicy::Reject,
        // Snippets would repeat the input.
        with_snippet: false,
        emit_comments: false,
    }
}

/// The library's texts may repeat the input, so only the kind of trouble and
/// the place are taken from it.
fn describe(error: &Error, refusal: Option<&'static str>) -> DecodeError {
    let error = error.without_snippet();
    let what = refusal.unwrap_or(match error {
        Error::MultipleDocuments { .. } => "more than one YAML document",
        Error::NonFiniteFloat { .. } => BAD_NUMBER,
        Error::Budget { .. } => "the YAML document is too large or nested too deeply",
        Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => "the YAML document has too many aliases",
        Error::UnknownAnchor { .. } => "a YAML alias refers to no anchor",
        Error::UnsupportedTag { .. } => "a YAML tag is not supported",
        Error::Eof { .. } => "the YAML document ends too early",
        _ => "the YAML document has a syntax error",
    });
    // A refusal for size has no one place.
    let place = match what {
        TOO_DEEP | TOO_MANY_NODES => None,
        _ => error.location(),
    };
    match place {
        Some(at) => {
            DecodeError::new(format!("{what} at line {} column {}", at.line(), at.column()))
        }
        None => DecodeError::new(what),
    }
}
