//! Queries and forms (`application/x-www-form-urlencoded`), read strictly: a name that occurs twice is an error, because
//! two programs may read different values.

use std::collections::BTreeMap;
use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The most bytes of a form.
pub(super) const MAX_FORM_BYTES: usize = 64 * 1024;

/// The most fields of a form.
const MAX_FIELDS: usize = 32;

/// The characters that a value has unescaped (RFC 3986 section 2.3).
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The fields of a form.
pub(super) struct Form(BTreeMap<String, String>);

/// The reason why a form is invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum InvalidForm {
    /// It has too many bytes or fields.
    TooLarge,
    /// A name or a value is not UTF-8.
    Encoding,
    /// A field is there twice.
    Repeated(String),
}

impl fmt::Display for InvalidForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => f.write_str("is too large, or has too many fields"),
            Self::Encoding => f.write_str("has a field that is not UTF-8"),
            // Other names may be parts of values.
            Self::Repeated(name)
                if name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') =>
            {
                write!(f, "has the field {name} twice")
            }
            Self::Repeated(_) => f.write_str("has a field twice"),
        }
    }
}

impl Form {
    /// Reads a form.
    ///
    /// # Errors
    /// [`InvalidForm`], such as a name that is there twice.
    pub(super) fn parse(text: &str) -> Result<Self, InvalidForm> {
        if text.len() > MAX_FORM_BYTES {
            return Err(InvalidForm::TooLarge);
        }
        let mut fields = BTreeMap::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = |text| decoded(text).ok_or(InvalidForm::Encoding);
            let name = decoded(name)?;
            if fields.insert(name.clone(), decoded(value)?).is_some() {
                return Err(InvalidForm::Repeated(name));
            }
            if fields.len() > MAX_FIELDS {
                return Err(InvalidForm::TooLarge);
            }
        }
        Ok(Self(fields))
    }

    /// The value of a field, unless it is empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

fn decoded(text: &str) -> Option<String> {
    let text = text.replace('+', " ");
    percent_decode_str(&text).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

/// The form of these fields.
pub(super) fn encode(fields: &[(&str, &str)]) -> String {
    let mut form = String::new();
    for (name, value) in fields {
        if !form.is_empty() {
            form.push('&');
        }
        form.push_str(name);
        form.push('=');
        form.extend(escaped(value));
    }
    form
}

/// A value as a form has it.
pub(super) fn escaped(value: &str) -> impl Iterator<Item = &str> {
    utf8_percent_encode(value, UNRESERVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_read_as_it_was_written() {
        let form = Form::parse(&encode(&[("a", "x y&=%+é"), ("b", "")])).unwrap();
        assert_eq!(form.get("a"), Some("x y&=%+é"));
        assert_eq!((form.get("b"), form.get("c")), (None, None));
        assert_eq!(Form::parse("a=x+y").unwrap().get("a"), Some("x y"));
        assert!(Form::parse("").unwrap().get("a").is_none());
    }

    #[test]
    fn a_form_that_two_programs_could_read_differently_is_none() {
        let many: Vec<String> = (0..40).map(|number| format!("f{number}=1")).collect();
        let many = many.join("&");
        let long = format!("a={}", "x".repeat(MAX_FORM_BYTES));
        for text in ["a=1&a=2", "a=1&%61=2", "a=%ff", many.as_str(), long.as_str()] {
            assert!(Form::parse(text).is_err(), "{}", &text[..text.len().min(40)]);
        }
    }
}
