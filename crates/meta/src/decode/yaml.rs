//! Decoding of YAML. Only this module uses the YAML library.
//!
//! YAML is accepted as the reference clients write it: one document, keys that
//! are strings, values that JSON has too. Anchors and merge keys work within
//! limits; tags that would make other values are refused.

use serde::de::DeserializeSeed;
use serde_saphyr::granit_parser::ErrorKind;
use serde_saphyr::localizer::ExternalMessageSource;
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Error, Options};

use super::visitor::{BAD_NUMBER, Node, State, TOO_DEEP, TOO_MANY_NODES, TOO_MUCH_TEXT};
use super::{DecodeError, Decoded, MAX_YAML_DEPTH, MAX_YAML_NODES, MAX_YAML_TEXT_BYTES};

mod encode;

pub use encode::encode_yaml;

/// Maximum number of aliases in one document.
const MAX_ALIASES: usize = 1000;
/// Maximum number of anchors in one document.
const MAX_ANCHORS: usize = 1000;
/// Maximum depth of anchors that refer to anchors.
const MAX_ALIAS_DEPTH: usize = 16;
/// Maximum number of merge keys (`<<`) in one document.
const MAX_MERGE_KEYS: usize = 1000;
/// Maximum number of parser events in one document: a node is at most two, and
/// the document has some of its own.
const MAX_EVENTS: usize = 2 * MAX_YAML_NODES + 16;

/// Decodes one YAML document.
pub(super) fn decode(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| DecodeError::new(format!("not UTF-8 at byte {}", error.valid_up_to())))?;
    let mut state = State::new(MAX_YAML_DEPTH, MAX_YAML_NODES, MAX_YAML_TEXT_BYTES);
    let outcome =
        serde_saphyr::with_deserializer_from_str_with_options(text, options(), |parser| {
            Node::root(&mut state).deserialize(parser)
        });
    match outcome {
        Ok(value) => Ok(Decoded { value, duplicates: state.into_duplicates() }),
        Err(error) => Err(describe(&error, state.refusal)),
    }
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            // One more, so that the error names the second document.
            max_documents: 2,
            max_nodes: MAX_YAML_NODES,
            max_events: MAX_EVENTS,
            max_depth: MAX_YAML_DEPTH + 1,
            // One more, so that the visitor refuses first, with its own error.
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
        // The visitor sees every pair and reports duplicates.
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

/// The library's messages may repeat the input, so only the kind of error and
/// its position are taken from them.
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
    // An error about size has no position.
    let position = match what {
        TOO_DEEP | TOO_MANY_NODES | TOO_MUCH_TEXT => None,
        _ => error.location(),
    };
    let Some(at) = position else { return DecodeError::new(what) };
    let cause = refusal.is_none().then(|| cause_of(error)).flatten();
    let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
    DecodeError::new(format!("{what} at line {} column {}{cause}", at.line(), at.column()))
}

/// The likely cause of a syntax error. Rare causes have none: the position is clear enough there.
fn cause_of(error: &Error) -> Option<&'static str> {
    let Error::ExternalMessage { source, .. } = error else { return None };
    let ExternalMessageSource::Parser(error) = &**source else { return None };
    Some(match error.kind() {
        ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabInPlainScalar
        | ErrorKind::TabAtBlockScalarStart
        | ErrorKind::TabNotAllowed => "a tab is where only spaces are allowed",
        ErrorKind::ExpectedBlockMappingKey
        | ErrorKind::ExpectedBlockSequenceEntry
        | ErrorKind::ExpectedDocumentStart
        | ErrorKind::InvalidIndentation
        | ErrorKind::InvalidBlockScalarIndent => {
            "the indentation does not match that of the lines before"
        }
        ErrorKind::MappingValueNotAllowed => {
            "no key is allowed here; text with a colon and a space needs quotation marks"
        }
        ErrorKind::SimpleKeyExpected | ErrorKind::InvalidSimpleKey => "a key has no colon after it",
        ErrorKind::UnclosedFlowCollection { .. }
        | ErrorKind::UnexpectedEofFlowSequence
        | ErrorKind::UnexpectedEofFlowMapping
        | ErrorKind::BlockEntryInFlowCollection
        | ErrorKind::InvalidColonPlacement => "a [ or { is not closed",
        ErrorKind::ExpectedFlowSequenceSeparator | ErrorKind::ExpectedFlowMappingSeparator => {
            "a comma is missing, or a [ or { is not closed"
        }
        ErrorKind::MisplacedFlowCollectionEnd | ErrorKind::MismatchedFlowCollectionEnd { .. } => {
            "a ] or } does not match what is open"
        }
        ErrorKind::UnclosedQuotedScalar
        | ErrorKind::InvalidQuotedScalarIndent
        | ErrorKind::DocumentIndicatorInQuotedScalar => "a quotation mark is not closed",
        ErrorKind::InvalidTrailingDoubleQuotedScalar
        | ErrorKind::InvalidTrailingSingleQuotedScalar => "text follows the closing quotation mark",
        ErrorKind::UnknownQuotedScalarEscape => "an escape in double quotation marks is unknown",
        ErrorKind::UnexpectedCharacter { .. } | ErrorKind::MissingAnchorOrAliasName => {
            "text that begins with this character needs quotation marks"
        }
        ErrorKind::BlockSequenceEntryNotAllowed => "a list begins on a line of its own",
        ErrorKind::CommentNotSeparated => "a comment needs a space before its #",
        ErrorKind::InvalidBlockScalarHeader => "text after a | or > begins on the next line",
        _ => return None,
    })
}
