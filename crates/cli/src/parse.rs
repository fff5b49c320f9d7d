//! Parsing of arguments: names, `NAME.KEY`, keys, and how long a duration may be in each. Flags are
//! in `flags.rs`, the form of durations in `duration.rs`.

use std::time::Duration;

use postern_kinds::{SecretText, access_key, identity_name};
use postern_meta::names::{config_map_key, dns1123_label, dns1123_subdomain, path_segment};

use crate::duration::{parse_duration, parse_positive_duration};

/// The largest `ttl` of an access key: with a larger one the date cannot be represented.
const TTL_MAX: Duration = Duration::from_hours(1000 * 366 * 24);

/// The longest timeout of a request.
const TIMEOUT_MAX: Duration = Duration::from_hours(1);

/// Parses the name of an object.
pub(crate) fn name(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("the name must not be empty".to_owned());
    }
    dns1123_subdomain(text).map(|()| text.to_owned())
}

/// Parses the name of an object of the kind in the argument before it. Names of roles and bindings are segments of a path,
/// and no domain names.
pub(crate) fn name_behind_kind(text: &str) -> Result<String, String> {
    if text.contains('/') {
        return Err(
            "KIND NAME and KIND/NAME cannot be mixed: with KIND/NAME, omit the kind before \
                    the names"
                .to_owned(),
        );
    }
    // An access key in the place of a name goes to no server.
    if text.is_empty() || text.contains(access_key::PREFIX) {
        return name(text);
    }
    path_segment(text).map(|()| text.to_owned())
}

/// Parses the name of a namespace.
pub(crate) fn namespace(text: &str) -> Result<String, String> {
    dns1123_label(text).map(|()| text.to_owned())
}

/// Parses the name of a subject or a group, which need not be an object.
pub(crate) fn identity(text: &str) -> Result<String, String> {
    identity_name(text).map(|()| text.to_owned())
}

/// Parses a verb: one of the API's, one of a kind's own, or `*` for all.
pub(crate) fn verb(text: &str) -> Result<String, String> {
    let is_word = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase());
    if is_word || text == "*" {
        return Ok(text.to_owned());
    }
    Err("a verb is a word in lower case, such as get, or * for all verbs".to_owned())
}

/// A shared secret, or one key of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecretPath {
    /// The secret's name.
    pub(crate) name: String,
    /// The key in its data.
    pub(crate) key: Option<String>,
}

impl SecretPath {
    /// The path as it was written.
    pub(crate) fn written(&self) -> String {
        match &self.key {
            None => self.name.clone(),
            Some(key) => format!("{}.{key}", self.name),
        }
    }

    /// The secret or key that the path names, in words.
    pub(crate) fn describe(&self) -> String {
        match &self.key {
            None => format!("the argument names the secret {}", self.name),
            Some(key) => format!("the argument names the key {key} of the secret {}", self.name),
        }
    }

    /// The paths with a longer name that are written in the same way, the longest name first. Of
    /// `a` and its key `b.c`, these are `a.b.c`, and `a.b` with its key `c`.
    pub(crate) fn with_longer_names(&self) -> Vec<Self> {
        let Some(key) = &self.key else { return Vec::new() };
        let whole = Self { name: self.written(), key: None };
        let splits = key.rmatch_indices('.').map(|(at, _)| Self {
            name: format!("{}.{}", self.name, &key[..at]),
            key: Some(key[at + 1..].to_owned()),
        });
        let is_valid = |path: &Self| {
            name(&path.name).is_ok() && path.key.as_deref().is_none_or(|k| data_key(k).is_ok())
        };
        std::iter::once(whole).chain(splits).filter(is_valid).collect()
    }
}

/// Parses `NAME` or `NAME.KEY`, split at the first dot.
pub(crate) fn secret_path(text: &str) -> Result<SecretPath, String> {
    let (secret, key) = match text.split_once('.') {
        None => (text, None),
        Some((secret, key)) => (secret, Some(key)),
    };
    if let Some(key) = key {
        config_map_key(key).map_err(|rule| format!("the part after the first dot: {rule}"))?;
    }
    Ok(SecretPath { name: name(secret)?, key: key.map(str::to_owned) })
}

/// Parses a key of a secret's data.
pub(crate) fn data_key(text: &str) -> Result<String, String> {
    config_map_key(text).map(|()| text.to_owned())
}

/// A secret text in a type that cannot be printed.
#[expect(clippy::unnecessary_wraps, reason = "the signature of a parser of arguments")]
pub(crate) fn hidden(text: &str) -> Result<SecretText, String> {
    Ok(SecretText::from(text.to_owned()))
}

/// Parses the `ttl` of an access key, in seconds; 0 is without end.
pub(crate) fn ttl(text: &str) -> Result<i64, String> {
    let seconds = parse_duration(text, TTL_MAX)?.as_secs();
    i64::try_from(seconds).map_err(|error| error.to_string())
}

/// Parses the `ttl` of a token, in seconds.
pub(crate) fn token_ttl(text: &str) -> Result<i64, String> {
    let seconds = parse_positive_duration(text, TTL_MAX)?.as_secs();
    i64::try_from(seconds).map_err(|error| error.to_string())
}

/// Parses for how long a key works next to its successor.
pub(crate) fn overlap(text: &str) -> Result<Duration, String> {
    parse_positive_duration(text, TTL_MAX)
}

/// Parses the timeout of a request.
pub(crate) fn timeout(text: &str) -> Result<Duration, String> {
    parse_positive_duration(text, TIMEOUT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_may_be_zero_and_has_a_limit() {
        assert_eq!(ttl("30d"), Ok(30 * 86_400));
        assert_eq!(ttl("0"), Ok(0));
        assert_eq!(ttl("366000d"), Ok(366_000 * 86_400));
        for text in ["99999999999999999999", "9223372036854775807d", "9223372036854775807"] {
            assert!(ttl(text).is_err(), "{text}");
        }
        assert_eq!(ttl("366001d").unwrap_err(), "it is too long: at most 366000d");
    }

    #[test]
    fn a_timeout_is_above_zero() {
        assert_eq!(timeout("5"), Ok(Duration::from_secs(5)));
        assert!(timeout("0").is_err());
        assert!(timeout("2h").is_err());
    }

    #[test]
    fn verbs_are_words_in_lower_case() {
        for text in ["get", "deletecollection", "createkey", "*"] {
            assert_eq!(verb(text).as_deref(), Ok(text));
        }
        for text in ["", "Get", "get list", "get,list", "**", "get-"] {
            assert!(verb(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_path_splits_at_the_first_dot() {
        let path = |name: &str, key: Option<&str>| SecretPath {
            name: name.to_owned(),
            key: key.map(str::to_owned),
        };
        assert_eq!(secret_path("db"), Ok(path("db", None)));
        assert_eq!(secret_path("db.password"), Ok(path("db", Some("password"))));
        assert_eq!(secret_path("tls.server.crt"), Ok(path("tls", Some("server.crt"))));
        assert_eq!(secret_path("tls.server.crt").unwrap().written(), "tls.server.crt");
        for wrong in ["", ".", ".key", "db.", "Db.key", "d_b", "db.a/b", "db...", "a/b", "db.ü"] {
            assert!(secret_path(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_path_is_also_read_with_longer_names() {
        let longer = |text: &str| {
            let paths = secret_path(text).unwrap().with_longer_names().into_iter();
            paths.map(|path| (path.name, path.key.unwrap_or_default())).collect::<Vec<_>>()
        };
        let pair = |name: &str, key: &str| (name.to_owned(), key.to_owned());
        assert_eq!(longer("db"), []);
        assert_eq!(longer("db.password"), [pair("db.password", "")]);
        assert_eq!(
            longer("a.b.c.d"),
            [pair("a.b.c.d", ""), pair("a.b.c", "d"), pair("a.b", "c.d")]
        );
        assert_eq!(longer("db.MAIN.url"), [], "none of them is a name");
        assert_eq!(longer("db.main.URL"), [pair("db.main", "URL")]);
    }
}
