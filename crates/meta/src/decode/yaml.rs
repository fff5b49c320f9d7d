//! Decoding of YAML. Only this module uses the YAML library.
//!
//! YAML is accepted as the reference clients write it: one document, keys that are strings or become them, values that
//! JSON has too. Anchors and merge keys work within
//! limits; tags that would make other values are refused.

use serde::de::DeserializeSeed;
use serde_saphyr::granit_parser::ErrorKind;
use serde_saphyr::localizer::ExternalMessageSource;
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Error, Options};

use super::visitor::{BAD_NUMBER, Node, State, TOO_DEEP, TOO_MANY_NODES, TOO_MUCH_TEXT};
use super::{
    DecodeError, Decoded, MAX_OWN_NODES, MAX_OWN_TEXT_BYTES, MAX_OWN_YAML_DEPTH, MAX_YAML_DEPTH,
    MAX_YAML_NODES, MAX_YAML_TEXT_BYTES,
};

mod encode;

pub use encode::encode_yaml;

/// Maximum depth of anchors that refer to anchors.
const MAX_ALIAS_DEPTH: usize = 16;

/// The limits of a request's body.
pub(super) const BODY: Limits = Limits {
    depth: MAX_YAML_DEPTH,
    nodes: MAX_YAML_NODES,
    text_bytes: MAX_YAML_TEXT_BYTES,
    references: 1000,
};

/// The limits of a file of the user that runs the program.
pub(super) const OWN_FILE: Limits = Limits {
    depth: MAX_OWN_YAML_DEPTH,
    nodes: MAX_OWN_NODES,
    text_bytes: MAX_OWN_TEXT_BYTES,
    references: 100_000,
};

/// The limits of one document.
pub(super) struct Limits {
    /// Levels of nested values.
    depth: usize,
    /// Values, counted after aliases are expanded.
    nodes: usize,
    /// Bytes of all keys and strings, counted after aliases are expanded.
    text_bytes: usize,
    /// Aliases, anchors and merge keys (`<<`), of each.
    references: usize,
}

/// Decodes one YAML document. Empty documents after it do not count.
pub(super) fn decode(bytes: &[u8], limits: &Limits) -> Result<Decoded, DecodeError> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| DecodeError::new(format!("not UTF-8 at byte {}", error.valid_up_to())))?;
    let mut state = State::new(limits.depth, limits.nodes, limits.text_bytes);
    let outcome = serde_saphyr::with_deserializer_from_str_with_options(
        without_empty_end(text),
        options(limits),
        |parser| Node::root(&mut state).deserialize(parser),
    );
    match outcome {
        Ok(value) => Ok(Decoded { value, duplicates: state.into_duplicates() }),
        Err(error) => Err(describe(&error, state.refusal)),
    }
}

/// The text without the documents at its end that have no content, or null alone: a trailing `---` begins one.
fn without_empty_end(text: &str) -> &str {
    let mut kept = text;
    let mut rest = text;
    while !rest.is_empty() {
        let start = rest.trim_end_matches('\n').rfind('\n').map_or(0, |at| at + 1);
        let line = rest[start..].trim_end();
        let begins = line.strip_prefix("---");
        let content = begins.unwrap_or(line).trim_start();
        let is_empty = content.is_empty()
            || content.starts_with('#')
            || matches!(content, "null" | "~")
            || (begins.is_none() && line == "...");
        if !is_empty {
            break;
        }
        rest = &rest[..start];
        if begins.is_some() {
            kept = rest;
        }
    }
    kept
}

fn options(limits: &Limits) -> Options {
    // A node is at most two events of the parser, and the document itself has some more.
    let max_events = 2 * limits.nodes + 16;
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            // One more, so that the error names the second document.
            max_documents: 2,
            max_nodes: limits.nodes,
            max_events: max_events,
            max_depth: limits.depth + 1,
            // One more, so that the visitor refuses first, with its own error.
            flow_nesting_limit: limits.depth + 1,
            max_aliases: limits.references,
            max_anchors: limits.references,
            max_recorded_anchor_events: max_events,
            max_merge_keys: limits.references,
            max_total_scalar_bytes: limits.text_bytes.max(64 * 1024 * 1024),
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: max_events,
            max_replay_stack_depth: MAX_ALIAS_DEPTH,
            max_alias_expansions_per_anchor: limits.references,
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
