//! Kubernetes' impersonation headers. Whether the caller may impersonate is decided by the server.

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use postern_kinds::{Impersonation, access_key};

use crate::error::Error;

/// The most headers that are sent: servers accept about a hundred in a request.
const HEADERS_MAX: usize = 80;

/// Escapes the characters that a header's name may not contain, and the escape itself, as client-go
/// does.
const HEADER_NAME: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'*')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// The headers that ask for it.
///
/// # Errors
/// [`Error::Impersonation`] for a value that the server would receive changed, or not at all.
pub(crate) fn headers(wanted: &Impersonation) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    let mut add = |name: HeaderName, what: &str, text: &str| {
        let value = value(text).map_err(|wrong| Error::Impersonation(format!("{what} {wrong}")))?;
        if headers.len() == HEADERS_MAX {
            let message = format!("it takes more than {HEADERS_MAX} headers");
            return Err(Error::Impersonation(message));
        }
        headers.append(name, value);
        Ok(())
    };
    add(HeaderName::from_static("impersonate-user"), "the user", &wanted.user)?;
    for group in &wanted.groups {
        add(HeaderName::from_static("impersonate-group"), "a group", group)?;
    }
    if !wanted.uid.is_empty() {
        add(HeaderName::from_static("impersonate-uid"), "the uid", &wanted.uid)?;
    }
    for (key, values) in &wanted.extra {
        let name = extra_name(key)?;
        for value in values {
            add(name.clone(), &format!("a value of the extra field {key:?}"), value)?;
        }
    }
    Ok(headers)
}

fn extra_name(key: &str) -> Result<HeaderName, Error> {
    let wrong = |what: &str| Error::Impersonation(format!("the key of an extra field {what}"));
    if key.is_empty() {
        return Err(wrong("is empty"));
    }
    let name = format!("impersonate-extra-{}", utf8_percent_encode(key, HEADER_NAME));
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong("is too long"))
}

/// The text as a header's value. An error does not repeat the text, which may be a key that
/// was mistaken for a name.
fn value(text: &str) -> Result<HeaderValue, &'static str> {
    if text.is_empty() {
        return Err("is empty");
    }
    if text.trim() != text {
        return Err("must not begin or end with white space");
    }
    if access_key::is_well_formed(text) {
        return Err("must be a name, not an access key");
    }
    HeaderValue::from_bytes(text.as_bytes())
        .map_err(|_| "holds characters that are not allowed in a header")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn bob() -> Impersonation {
        Impersonation { user: "bob".to_owned(), ..Impersonation::default() }
    }

    fn extra(key: &str, values: &[&str]) -> Impersonation {
        let values = values.iter().map(|&value| value.to_owned()).collect();
        Impersonation { extra: BTreeMap::from([(key.to_owned(), values)]), ..bob() }
    }

    #[test]
    fn keys_of_extra_fields_are_escaped_as_by_client_go() {
        for (key, name) in [
            ("scopes", "scopes"),
            ("example.com/why", "example.com%2fwhy"),
            ("100%", "100%25"),
            ("a b:c\n", "a%20b%3ac%0a"),
            ("ü", "%c3%bc"),
            ("!#$&'*+-.^_`|~", "!#$&'*+-.^_`|~"),
            ("(),/:;<=>?@[\\]{}\"", "%28%29%2c%2f%3a%3b%3c%3d%3e%3f%40%5b%5c%5d%7b%7d%22"),
        ] {
            let sent = headers(&extra(key, &["x"])).unwrap();
            let name = format!("impersonate-extra-{name}");
            assert_eq!(sent.get(&name).expect(key), "x");
        }
    }

    #[test]
    fn one_header_for_each_value() {
        let groups = ["ops", "größe"].map(str::to_owned).to_vec();
        let asked = Impersonation { groups, uid: "u-7".to_owned(), ..extra("why", &["a", "b"]) };
        let sent = headers(&asked).unwrap();
        let all = |name: &str| {
            let values = sent.get_all(name).iter();
            values.map(|value| str::from_utf8(value.as_bytes()).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(sent.len(), 6);
        assert_eq!((all("impersonate-user"), all("impersonate-uid")), (vec!["bob"], vec!["u-7"]));
        assert_eq!(all("impersonate-group"), ["ops", "größe"]);
        assert_eq!(all("impersonate-extra-why"), ["a", "b"]);
        assert_eq!(headers(&bob()).unwrap().len(), 1, "nothing else is asked for");
    }

    #[test]
    fn what_would_be_received_as_something_else_is_refused() {
        let key = access_key::generate(&mut || 7);
        let named = |user: &str| Impersonation { user: user.to_owned(), ..bob() };
        for (asked, wanted) in [
            (named(""), "the user is empty"),
            (named(" bob"), "the user must not begin or end with white space"),
            (named("a\r\nx: y"), "the user holds characters"),
            (named("a\u{7f}b"), "the user holds characters"),
            (named(key.expose()), "the user must be a name, not an access key"),
            (Impersonation { groups: vec![String::new()], ..bob() }, "a group is empty"),
            (Impersonation { uid: "\n".to_owned(), ..bob() }, "the uid must not begin"),
            (extra("", &["x"]), "the key of an extra field is empty"),
            (extra(&"x".repeat(100_000), &["x"]), "the key of an extra field is too long"),
            (extra("why", &["a\0"]), "a value of the extra field \"why\" holds characters"),
            (Impersonation { groups: vec!["g".to_owned(); 100], ..bob() }, "more than 80 headers"),
        ] {
            let said = headers(&asked).unwrap_err().to_string();
            assert!(said.contains(wanted), "{wanted}: {said}");
            assert!(!said.contains(key.expose()));
        }
    }
}
