//! Rules for names, label keys and values, and data keys; and generated names.
//!
//! The texts are those that clients of this protocol know (wire contract,
//! 1.6). Which field follows which rule is decided in `validate` and by the
//! kinds, not here. Rules are written out by hand: a regular expression engine
//! would be a large dependency for six small languages.

use std::fmt::Display;

use crate::printable::{is_nfc, is_printable};

/// The longest DNS label, in bytes.
pub const DNS1123_LABEL_MAX_BYTES: usize = 63;
/// The longest DNS subdomain, in bytes.
pub const DNS1123_SUBDOMAIN_MAX_BYTES: usize = 253;
/// The longest name part of a qualified name, in bytes.
pub const QUALIFIED_NAME_MAX_BYTES: usize = 63;
/// The longest label value, in bytes.
pub const LABEL_VALUE_MAX_BYTES: usize = 63;
/// The longest key of a data map, in bytes.
pub const CONFIG_MAP_KEY_MAX_BYTES: usize = 253;
/// Maximum bytes that are used of a `generateName` prefix: the longest label less the suffix.
pub const GENERATE_NAME_PREFIX_MAX_BYTES: usize = DNS1123_LABEL_MAX_BYTES - GENERATED_SUFFIX_BYTES;
/// The length of the suffix that the server appends to `generateName`, in bytes.
pub const GENERATED_SUFFIX_BYTES: usize = 5;

/// The longest name of an object with [`NameRule::PathSegment`], in bytes: long enough for a name
/// that contains the name of another object.
pub const PATH_SEGMENT_NAME_MAX_BYTES: usize = 512;

/// The longest name of a user, a group or another subject, in bytes.
pub const IDENTITY_NAME_MAX_BYTES: usize = 512;

/// The rule for the names of a kind's objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameRule {
    /// A lower case DNS subdomain.
    Subdomain,
    /// Any text that is a segment of a path: the names of roles and bindings, as upstream.
    PathSegment,
}

impl NameRule {
    /// Checks a name. The error is the rule in words.
    pub fn check(self, name: &str) -> Result<(), String> {
        match self {
            Self::Subdomain => dns1123_subdomain(name),
            Self::PathSegment => {
                at_most(name, PATH_SEGMENT_NAME_MAX_BYTES)?;
                path_segment(name)?;
                ensure(!name.chars().any(char::is_control), "may not contain control characters")
            }
        }
    }

    /// Checks the prefix in `generateName`.
    pub fn check_prefix(self, prefix: &str) -> Result<(), String> {
        match self {
            Self::Subdomain => generate_name_prefix(prefix),
            Self::PathSegment => self.check(prefix),
        }
    }
}

/// Letters of generated suffixes: without vowels and without what looks like
/// one, so that no word arises by chance.
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

const LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric \
    characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or \
    '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case \
    alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character \
    (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const QUALIFIED_NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and \
    must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
    '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric \
    characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
    'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const CONFIG_MAP_KEY_RULE: &str = "a valid config key must consist of alphanumeric characters, \
    '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation \
    is '[-._a-zA-Z0-9]+')";

/// Checks a lower case DNS label of at most [`DNS1123_LABEL_MAX_BYTES`]: the rule for
/// namespaces. The error is the rule in words, as in all checks of this module.
pub fn dns1123_label(value: &str) -> Result<(), String> {
    at_most(value, DNS1123_LABEL_MAX_BYTES)?;
    ensure(is_label(value), LABEL_RULE)
}

/// Checks a lower case DNS subdomain of at most [`DNS1123_SUBDOMAIN_MAX_BYTES`]:
/// the rule for object names. It is never `.` or `..`, and has no `/` or `%`,
/// which would change the meaning of a URL.
pub fn dns1123_subdomain(value: &str) -> Result<(), String> {
    path_segment(value)?;
    subdomain(value)
}

/// Checks the prefix in `generateName`: a subdomain that may end in `-`,
/// because a suffix follows.
pub fn generate_name_prefix(value: &str) -> Result<(), String> {
    match value.strip_suffix('-') {
        Some(stem) if !stem.is_empty() => dns1123_subdomain(&format!("{stem}a")),
        _ => dns1123_subdomain(value),
    }
}

/// Checks a name with an optional DNS prefix (`example.com/MyName`): the rule for
/// label keys and finalizers, and, in lower case, for annotation keys.
pub fn qualified_name(value: &str) -> Result<(), String> {
    let name = match value.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        [prefix, name] => {
            ensure(!prefix.is_empty(), "prefix part must be non-empty")?;
            subdomain(prefix).map_err(|rule| format!("prefix part {rule}"))?;
            name
        }
        _ => {
            return Err(format!(
                "a qualified name {QUALIFIED_NAME_RULE} with an optional DNS subdomain prefix and \
                 '/' (e.g. 'example.com/MyName')"
            ));
        }
    };
    ensure(!name.is_empty(), "name part must be non-empty")?;
    at_most(name, QUALIFIED_NAME_MAX_BYTES).map_err(|rule| format!("name part {rule}"))?;
    ensure(is_word(name), format_args!("name part {QUALIFIED_NAME_RULE}"))
}

/// Checks a label's value: empty, or at most [`LABEL_VALUE_MAX_BYTES`] of letters,
/// digits, `-`, `_` and `.`.
pub fn label_value(value: &str) -> Result<(), String> {
    at_most(value, LABEL_VALUE_MAX_BYTES)?;
    ensure(value.is_empty() || is_word(value), LABEL_VALUE_RULE)
}

/// Checks a key of a data map: at most [`CONFIG_MAP_KEY_MAX_BYTES`] of letters,
/// digits, `-`, `_` and `.`; not `.`, and not starting with `..`, because
/// clients write them as files.
pub fn config_map_key(value: &str) -> Result<(), String> {
    at_most(value, CONFIG_MAP_KEY_MAX_BYTES)?;
    ensure(!value.is_empty() && value.bytes().all(is_word_byte), CONFIG_MAP_KEY_RULE)?;
    ensure(value != ".", "must not be '.'")?;
    ensure(value != "..", "must not be '..'")?;
    ensure(!value.starts_with(".."), "must not start with '..'")
}

/// A name made from a `generateName` prefix: at most
/// [`GENERATE_NAME_PREFIX_MAX_BYTES`] of it, then [`GENERATED_SUFFIX_BYTES`]
/// letters chosen by `random`.
pub fn generated_name(prefix: &str, random: [u8; GENERATED_SUFFIX_BYTES]) -> String {
    let mut name = crate::quote::cut(prefix, GENERATE_NAME_PREFIX_MAX_BYTES).to_owned();
    for byte in random {
        // The alphabet does not divide 256: a few letters are chosen one part
        // in ten more often. Names need to be distinct, not secret.
        name.push(char::from(SUFFIX_ALPHABET[usize::from(byte) % SUFFIX_ALPHABET.len()]));
    }
    name
}

/// Checks a segment of a URL path: it has no special meaning between two slashes.
pub fn path_segment(value: &str) -> Result<(), String> {
    ensure(value != ".", "may not be '.'")?;
    ensure(value != "..", "may not be '..'")?;
    ensure(!value.contains('/'), "may not contain '/'")?;
    ensure(!value.contains('%'), "may not contain '%'")
}

fn subdomain(value: &str) -> Result<(), String> {
    at_most(value, DNS1123_SUBDOMAIN_MAX_BYTES)?;
    ensure(value.split('.').all(is_label), SUBDOMAIN_RULE)
}

fn is_label(value: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !value.is_empty()
        && value.bytes().all(inner)
        && !value.starts_with('-')
        && !value.ends_with('-')
}

/// Letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
fn is_word(value: &str) -> bool {
    let bytes = value.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    ends.iter().all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
        && bytes.iter().copied().all(is_word_byte)
}

fn is_word_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')
}

fn at_most(value: &str, max_bytes: usize) -> Result<(), String> {
    ensure(value.len() <= max_bytes, format_args!("must be no more than {max_bytes} bytes"))
}

/// The rule is written only if it is broken: its text costs more than the check.
fn ensure(is_valid: bool, rule: impl Display) -> Result<(), String> {
    if is_valid { Ok(()) } else { Err(rule.to_string()) }
}

/// Checks the name of a user, a group or another subject, or a user's `username`. It has 1 to
/// [`IDENTITY_NAME_MAX_BYTES`] of printable characters in NFC, without commas and without blanks at the ends. Two names
/// that look the same must not be two identities, and tools write lists of them with commas.
pub fn identity_name(value: &str) -> Result<(), String> {
    ensure(!value.is_empty(), "must not be empty")?;
    at_most(value, IDENTITY_NAME_MAX_BYTES)?;
    ensure(
        value.chars().all(is_printable),
        "must not contain control, invisible or unassigned characters, or blanks other than the space",
    )?;
    ensure(!value.starts_with(' ') && !value.ends_with(' '), "must not begin or end with a blank")?;
    ensure(!value.contains(','), "must not contain a comma")?;
    ensure(is_nfc(value), "must be in Unicode normalization form C (NFC)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels() {
        for good in ["a", "a-b", "123-abc", &"a".repeat(63)] {
            assert_eq!(dns1123_label(good), Ok(()), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", "é"] {
            assert_eq!(dns1123_label(bad), Err(LABEL_RULE.to_owned()), "{bad}");
        }
        assert_eq!(dns1123_label(&"a".repeat(64)).unwrap_err(), "must be no more than 63 bytes");
    }

    #[test]
    fn object_names() {
        for good in ["a", "a.b", "a-b.c-d", "1.2"] {
            assert_eq!(dns1123_subdomain(good), Ok(()), "{good}");
        }
        for (bad, rule) in [
            ("", SUBDOMAIN_RULE),
            ("a..b", SUBDOMAIN_RULE),
            ("A", SUBDOMAIN_RULE),
            ("a b", SUBDOMAIN_RULE),
            (".", "may not be '.'"),
            ("..", "may not be '..'"),
            ("a/b", "may not contain '/'"),
            ("a%b", "may not contain '%'"),
        ] {
            assert_eq!(dns1123_subdomain(bad).unwrap_err(), rule, "{bad}");
        }
        assert!(dns1123_subdomain(&"a".repeat(254)).is_err());
    }

    #[test]
    fn names_that_are_path_segments() {
        let rule = NameRule::PathSegment;
        for good in ["a", "A b", "system:node", "platform:access:é", &"a".repeat(512)] {
            assert_eq!(rule.check(good), Ok(()), "{good}");
        }
        for (bad, text) in [
            (".", "may not be '.'"),
            ("..", "may not be '..'"),
            ("a/b", "may not contain '/'"),
            ("a%b", "may not contain '%'"),
            ("a\nb", "may not contain control characters"),
            (&"a".repeat(513), "must be no more than 512 bytes"),
        ] {
            assert_eq!(rule.check(bad).unwrap_err(), text, "{bad}");
            assert_eq!(rule.check_prefix(bad).unwrap_err(), text, "{bad}");
        }
        assert!(rule.check_prefix("a:").is_ok());
        assert!(NameRule::Subdomain.check("a:b").is_err());
        assert!(NameRule::Subdomain.check_prefix("a-").is_ok());
    }

    #[test]
    fn rules_read_as_upstream_writes_them() {
        assert_eq!(
            LABEL_RULE,
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or \
             '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or \
             '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        );
        assert!(
            SUBDOMAIN_RULE
                .ends_with(r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')")
        );
    }

    #[test]
    fn prefixes_may_end_in_a_dash() {
        assert_eq!(generate_name_prefix("a-"), Ok(()));
        assert_eq!(generate_name_prefix("a"), Ok(()));
        for bad in ["-", "", "A-", "a.", "a/-"] {
            assert!(generate_name_prefix(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn qualified_names() {
        for good in ["MyName", "my.name", "example.com/MyName", "a_b", "1"] {
            assert_eq!(qualified_name(good), Ok(()), "{good}");
        }
        let long = "a".repeat(64);
        for (bad, start) in [
            ("", "name part must be non-empty"),
            ("/a", "prefix part must be non-empty"),
            ("a/", "name part must be non-empty"),
            ("A/a", "prefix part a lowercase RFC 1123 subdomain must"),
            ("a/b/c", "a qualified name must consist of"),
            ("-a", "name part must consist of"),
            ("a b", "name part must consist of"),
            (&long, "name part must be no more than 63 bytes"),
        ] {
            let rule = qualified_name(bad).unwrap_err();
            assert!(rule.starts_with(start), "{bad}: {rule}");
        }
    }

    #[test]
    fn label_values() {
        for good in ["", "a", "A_b.c-1"] {
            assert_eq!(label_value(good), Ok(()), "{good}");
        }
        for bad in ["-", "a-", "a b", "é"] {
            assert_eq!(label_value(bad).unwrap_err(), LABEL_VALUE_RULE, "{bad}");
        }
        assert!(label_value(&"a".repeat(64)).is_err());
    }

    #[test]
    fn data_keys() {
        for good in ["a", ".a", "a.b", "-", "_", "A-1"] {
            assert_eq!(config_map_key(good), Ok(()), "{good}");
        }
        for (bad, rule) in [
            ("", CONFIG_MAP_KEY_RULE),
            ("a b", CONFIG_MAP_KEY_RULE),
            (".", "must not be '.'"),
            ("..", "must not be '..'"),
            ("..a", "must not start with '..'"),
        ] {
            assert_eq!(config_map_key(bad).unwrap_err(), rule, "{bad}");
        }
    }

    #[test]
    fn generated_names_are_cut_and_valid() {
        assert_eq!(generated_name("a-", [0, 26, 27, 255, 1]), "a-b9bqc");
        let long = generated_name(&"a".repeat(300), [0; 5]);
        assert_eq!(long.len(), 63);
        assert_eq!(dns1123_label(&long), Ok(()));
    }

    #[test]
    fn names_of_identities() {
        for good in [
            "jane",
            "Jane Doe",
            "platform:team:devs",
            "system:serviceaccount:a:b",
            "jane@example.com",
            "Jos\u{e9}",
            "https://idp.example.com#42",
            "漢字",
            &"a".repeat(512),
        ] {
            assert_eq!(identity_name(good), Ok(()), "{good:?}");
        }
        for (bad, part) in [
            ("", "empty"),
            (" jane", "blank"),
            ("jane ", "blank"),
            (" ", "blank"),
            ("jane\u{a0}", "invisible"),
            ("jane\u{200b}", "invisible"),
            ("ja\u{ad}ne", "invisible"),
            ("\u{202e}enaj", "invisible"),
            ("jane\n", "control"),
            ("\u{e000}", "unassigned"),
            ("a,b", "comma"),
            ("Jose\u{301}", "NFC"),
            ("\u{212b}", "NFC"),
            (&"a".repeat(513), "512 bytes"),
        ] {
            let rule = identity_name(bad).unwrap_err();
            assert!(rule.contains(part), "{bad:?}: {rule}");
        }
    }
}
