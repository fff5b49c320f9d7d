//! Errors about single fields of an object, and the list of them that a 422 carries.
//!
//! The wording is that of upstream's field errors, because clients display and compare it. A bad
//! value is in the message only if the rule passes it: for a possible secret, rules pass
//! [`BadValue::Omitted`].

use std::fmt;

use crate::quote::quote;

/// Maximum number of field errors in one response. Further errors are only
/// counted: a million bad labels do not make a million messages.
pub const MAX_FIELD_ERRORS: usize = 20;

/// The detail of an error about an immutable field.
pub const FIELD_IMMUTABLE: &str = "field is immutable";

/// The kind of an error in a field, in upstream's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FieldErrorKind {
    /// Something the field refers to does not exist.
    NotFound,
    /// The field is required.
    Required,
    /// The value occurs twice where it must be unique.
    Duplicate,
    /// The value breaks a rule.
    Invalid,
    /// The value is not one of the supported ones.
    NotSupported,
    /// The field may not be set, or not now.
    Forbidden,
    /// The value has too many bytes.
    TooLong,
    /// The list or map has too many entries.
    TooMany,
    /// The value has the wrong JSON type.
    TypeInvalid,
}

impl FieldErrorKind {
    /// The machine-readable `reason` of a cause in a Status.
    pub fn cause_reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    /// The first words of the message.
    fn title(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        }
    }

    /// Whether upstream's message has the value at all.
    fn has_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong)
    }
}

/// The value that broke the rule, if the message may have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadValue {
    /// Left out: it is, or may be, a secret.
    Omitted,
    /// Written in quotes.
    Text(String),
    /// Written as it is: a number, or `true` and `false`.
    Bare(String),
}

impl From<&str> for BadValue {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<&String> for BadValue {
    fn from(value: &String) -> Self {
        Self::Text(value.clone())
    }
}

impl From<String> for BadValue {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<i64> for BadValue {
    fn from(value: i64) -> Self {
        Self::Bare(value.to_string())
    }
}

impl From<u64> for BadValue {
    fn from(value: u64) -> Self {
        Self::Bare(value.to_string())
    }
}

impl From<bool> for BadValue {
    fn from(value: bool) -> Self {
        Self::Bare(value.to_string())
    }
}

/// One broken rule about one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The kind of rule.
    pub kind: FieldErrorKind,
    /// Where, such as `spec.data[a b]` or `metadata.name`.
    pub path: String,
    /// The rule in words; may be empty.
    pub detail: String,
    /// The value, if the message may have it.
    pub value: BadValue,
}

impl FieldError {
    fn new(kind: FieldErrorKind, path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind, path: path.into(), detail: detail.into(), value: BadValue::Omitted }
    }

    fn with_value(mut self, value: impl Into<BadValue>) -> Self {
        self.value = value.into();
        self
    }

    /// The value breaks a rule. Pass [`BadValue::Omitted`] for a possible secret.
    pub fn invalid(
        path: impl Into<String>,
        value: impl Into<BadValue>,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(FieldErrorKind::Invalid, path, detail).with_value(value)
    }

    /// The field is required.
    pub fn required(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, path, detail)
    }

    /// The field may not be set, or not now, or not by this caller.
    pub fn forbidden(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, path, detail)
    }

    /// Something the field refers to does not exist.
    pub fn not_found(path: impl Into<String>, value: impl Into<BadValue>) -> Self {
        Self::new(FieldErrorKind::NotFound, path, "").with_value(value)
    }

    /// The value is none of the `supported` ones, which the message lists.
    pub fn not_supported(
        path: impl Into<String>,
        value: impl Into<BadValue>,
        supported: &[&str],
    ) -> Self {
        let list: Vec<String> = supported.iter().map(|s| quote(s)).collect();
        let detail = if list.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", list.join(", "))
        };
        Self::new(FieldErrorKind::NotSupported, path, detail).with_value(value)
    }

    /// The value has more than `max_bytes`. The message leaves it out: it is long.
    pub fn too_long(path: impl Into<String>, max_bytes: usize) -> Self {
        let detail = format!("may not be more than {max_bytes} bytes");
        Self::new(FieldErrorKind::TooLong, path, detail)
    }

    /// The list or map has `actual` entries where `max` are allowed.
    pub fn too_many(path: impl Into<String>, actual: usize, max: usize) -> Self {
        let noun = if max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {max} {noun}");
        Self::new(FieldErrorKind::TooMany, path, detail)
            .with_value(BadValue::Bare(actual.to_string()))
    }

    /// The value occurs a second time at `path`.
    pub fn duplicate(path: impl Into<String>, value: impl Into<BadValue>) -> Self {
        Self::new(FieldErrorKind::Duplicate, path, "").with_value(value)
    }

    /// The field cannot change once the object exists. The message leaves the new value out.
    pub fn immutable(path: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, path, FIELD_IMMUTABLE)
    }

    /// The value has the wrong JSON type; `detail` names both types.
    pub fn type_invalid(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::TypeInvalid, path, detail)
    }

    /// The message without the field's path, as the causes of a Status have it.
    pub fn body(&self) -> String {
        let mut out = self.kind.title().to_owned();
        if self.kind.has_value() {
            match &self.value {
                BadValue::Omitted => {}
                BadValue::Text(text) => push_part(&mut out, &quote(text)),
                BadValue::Bare(text) => push_part(&mut out, text),
            }
        }
        if !self.detail.is_empty() {
            push_part(&mut out, &self.detail);
        }
        out
    }
}

fn push_part(out: &mut String, part: &str) {
    out.push_str(": ");
    out.push_str(part);
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.body())
    }
}

impl std::error::Error for FieldError {}

/// The field errors of one object, of which the first [`MAX_FIELD_ERRORS`] are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldErrors {
    kept: Vec<FieldError>,
    /// How many were found beyond the limit.
    dropped: usize,
}

impl FieldErrors {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an error; beyond the limit it is counted and dropped.
    pub fn push(&mut self, error: FieldError) {
        if self.kept.len() < MAX_FIELD_ERRORS {
            self.kept.push(error);
        } else {
            self.dropped += 1;
        }
    }

    /// Adds the error that `error` makes of the detail, if `rule` is an `Err` with one.
    pub fn check(&mut self, rule: Result<(), String>, error: impl FnOnce(String) -> FieldError) {
        if let Err(detail) = rule {
            self.push(error(detail));
        }
    }

    /// Adds an error if a value breaks a rule.
    pub fn check_value(&mut self, path: &str, value: &str, rule: Result<(), String>) {
        self.check(rule, |detail| FieldError::invalid(path, value, detail));
    }

    /// Adds an error if a value is none of the `supported` ones.
    pub fn check_supported(&mut self, path: &str, value: &str, supported: &[&str]) {
        if !supported.contains(&value) {
            self.push(FieldError::not_supported(path, value, supported));
        }
    }

    /// Whether a list or map has at most `max` entries. Adds an error otherwise.
    pub fn check_count(&mut self, path: &str, actual: usize, max: usize) -> bool {
        if actual > max {
            self.push(FieldError::too_many(path, actual, max));
        }
        actual <= max
    }

    /// Adds all of `others`.
    pub fn extend(&mut self, others: FieldErrors) {
        self.dropped += others.dropped;
        others.kept.into_iter().for_each(|error| self.push(error));
    }

    /// Whether there is no error.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// How many errors were found, kept or not.
    pub fn len(&self) -> usize {
        self.kept.len() + self.dropped
    }

    /// The errors that are kept, in the order in which they were found.
    pub fn iter(&self) -> std::slice::Iter<'_, FieldError> {
        self.kept.iter()
    }

    /// `Ok` if there is no error.
    pub fn into_result(self) -> Result<(), FieldErrors> {
        if self.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl From<FieldError> for FieldErrors {
    fn from(error: FieldError) -> Self {
        Self { kept: vec![error], dropped: 0 }
    }
}

/// The errors that are kept.
impl IntoIterator for FieldErrors {
    type Item = FieldError;
    type IntoIter = std::vec::IntoIter<FieldError>;

    fn into_iter(self) -> Self::IntoIter {
        self.kept.into_iter()
    }
}

impl<'a> IntoIterator for &'a FieldErrors {
    type Item = &'a FieldError;
    type IntoIter = std::slice::Iter<'a, FieldError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// One error alone; several in brackets.
impl fmt::Display for FieldErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let ([only], 0) = (&self.kept[..], self.dropped) {
            return only.fmt(f);
        }
        f.write_str("[")?;
        for (i, error) in self.kept.iter().enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            write!(f, "{separator}{error}")?;
        }
        if self.dropped > 0 {
            write!(f, ", and {} more", self.dropped)?;
        }
        f.write_str("]")
    }
}

impl std::error::Error for FieldErrors {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_as_upstream() {
        for (error, want) in [
            (
                FieldError::invalid("spec.data[a b]", "a b", "a valid config key must"),
                "spec.data[a b]: Invalid value: \"a b\": a valid config key must",
            ),
            (
                FieldError::required("metadata.name", "name or generateName is required"),
                "metadata.name: Required value: name or generateName is required",
            ),
            (FieldError::required("a", ""), "a: Required value"),
            (
                FieldError::invalid("metadata.resourceVersion", 0_i64, "must be specified"),
                "metadata.resourceVersion: Invalid value: 0: must be specified",
            ),
            (
                FieldError::invalid("spec.key", BadValue::Omitted, "too weak"),
                "spec.key: Invalid value: too weak",
            ),
            (FieldError::invalid("a", true, "no"), "a: Invalid value: true: no"),
            (FieldError::forbidden("a", "not now"), "a: Forbidden: not now"),
            (FieldError::not_found("a", "x"), "a: Not found: \"x\""),
            (
                FieldError::not_supported("dryRun", "x", &["All", "None"]),
                "dryRun: Unsupported value: \"x\": supported values: \"All\", \"None\"",
            ),
            (FieldError::too_long("a", 10), "a: Too long: may not be more than 10 bytes"),
            (FieldError::too_many("a", 5, 3), "a: Too many: 5: must have at most 3 items"),
            (FieldError::too_many("a", 2, 1), "a: Too many: 2: must have at most 1 item"),
            (FieldError::duplicate("a[1]", "x"), "a[1]: Duplicate value: \"x\""),
            (FieldError::immutable("a"), "a: Invalid value: field is immutable"),
            (
                FieldError::type_invalid("a", "expected string, got number"),
                "a: Invalid value: expected string, got number",
            ),
        ] {
            assert_eq!(error.to_string(), want);
        }
    }

    #[test]
    fn cause_reasons() {
        use FieldErrorKind as K;
        for (kind, want) in [
            (K::NotFound, "FieldValueNotFound"),
            (K::Required, "FieldValueRequired"),
            (K::Duplicate, "FieldValueDuplicate"),
            (K::Invalid, "FieldValueInvalid"),
            (K::NotSupported, "FieldValueNotSupported"),
            (K::Forbidden, "FieldValueForbidden"),
            (K::TooLong, "FieldValueTooLong"),
            (K::TooMany, "FieldValueTooMany"),
            (K::TypeInvalid, "FieldValueTypeInvalid"),
        ] {
            assert_eq!(kind.cause_reason(), want);
        }
    }

    #[test]
    fn one_error_is_written_bare_and_several_in_brackets() {
        let mut errors = FieldErrors::new();
        assert!(errors.is_empty());
        assert_eq!(errors.clone().into_result(), Ok(()));
        errors.push(FieldError::required("a", ""));
        assert_eq!(errors.to_string(), "a: Required value");
        errors.push(FieldError::required("b", ""));
        assert_eq!(errors.to_string(), "[a: Required value, b: Required value]");
        assert!(errors.into_result().is_err());
    }

    #[test]
    fn a_list_is_capped() {
        let mut errors = FieldErrors::new();
        (0..MAX_FIELD_ERRORS + 3).for_each(|_| errors.push(FieldError::required("a", "")));
        assert_eq!((errors.iter().count(), errors.len()), (MAX_FIELD_ERRORS, MAX_FIELD_ERRORS + 3));
        assert!(errors.to_string().ends_with(", and 3 more]"));
        let mut all = errors.clone();
        all.extend(errors);
        assert_eq!(all.len(), 2 * (MAX_FIELD_ERRORS + 3));
    }
}
