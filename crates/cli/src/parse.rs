//! Parsing of arguments: names, `NAME.KEY`, durations, keys. Flags are in `flags.rs`.

use std::time::Duration;

use postern_kinds::{SecretText, identity_name};
use postern_meta::names::{config_map_key, dns1123_label, dns1123_subdomain};

/// The largest `ttl` of an access key: with a larger one the date cannot be represented.
const TTL_MAX_SECONDS: i64 = 1000 * 366 * 24 * 3600;

/// The longest timeout of a request.
const TIMEOUT_MAX_SECONDS: i64 = 3600;

/// How to write a duration, for errors.
const DURATION_FORM: &str = "write a duration as 720h, 30m, 1h30m or 30d, or as plain seconds";

/// Parses the name of an object.
pub(crate) fn name(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("a name is not empty".to_owned());
    }
    dns1123_subdomain(text).map(|()| text.to_owned())
}

/// Parses the name of a namespace.
pub(crate) fn namespace(text: &str) -> Result<String, String> {
    dns1123_label(text).map(|()| text.to_owned())
}

/// Parses the name of a subject or a group, which need not be an object.
pub(crate) fn identity(text: &str) -> Result<String, String> {
    identity_name(text).map(|()| text.to_owned())
}

/// A shared secret, or one key of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecretPath {
    /// The secret's name, which has no dot.
    pub(crate) name: String,
    /// The key in its data.
    pub(crate) key: Option<String>,
}

impl SecretPath {
    /// Returns the path as it was written.
    pub(crate) fn written(&self) -> String {
        match &self.key {
            None => self.name.clone(),
            Some(key) => format!("{}.{key}", self.name),
        }
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

/// Parses `NAME.KEY`; the key must be there.
pub(crate) fn secret_key(text: &str) -> Result<SecretPath, String> {
    let path = secret_path(text)?;
    if path.key.is_none() {
        return Err(format!("name the key, too: {text}.KEY"));
    }
    Ok(path)
}

/// Returns a secret text in a type that cannot be printed.
#[expect(clippy::unnecessary_wraps, reason = "the signature of a parser of arguments")]
pub(crate) fn hidden(text: &str) -> Result<SecretText, String> {
    Ok(SecretText::from(text.to_owned()))
}

/// Parses the `ttl` of an access key, in seconds; 0 is without end.
pub(crate) fn ttl(text: &str) -> Result<i64, String> {
    seconds(text, TTL_MAX_SECONDS)
}

/// Parses the timeout of a request.
pub(crate) fn timeout(text: &str) -> Result<Duration, String> {
    let seconds = seconds(text, TIMEOUT_MAX_SECONDS)?;
    match u64::try_from(seconds) {
        Ok(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds)),
        _ => Err("it must be above zero".to_owned()),
    }
}

/// Parses `720h`, `30m`, `1h30m`, `30d`, or plain seconds.
fn seconds(text: &str, max: i64) -> Result<i64, String> {
    let form = || DURATION_FORM.to_owned();
    if text.starts_with('-') {
        return Err(format!("a duration is not negative; {DURATION_FORM}"));
    }
    let mut total: i64 = 0;
    let mut rest = text;
    let mut last = i64::MAX;
    while !rest.is_empty() || text.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, behind) = rest.split_at(digits);
        let letters = behind.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, behind) = behind.split_at(letters);
        let number: i64 = number.parse().map_err(|_| form())?;
        let unit = match unit {
            "d" => 24 * 3600,
            "h" => 3600,
            "m" => 60,
            "s" => 1,
            "" if digits == text.len() => 1,
            _ => return Err(form()),
        };
        // The same unit twice, or a larger unit after a smaller one, is a mistake.
        if unit >= last {
            return Err(form());
        }
        last = unit;
        total =
            number.checked_mul(unit).and_then(|part| total.checked_add(part)).unwrap_or(max + 1);
        rest = behind;
    }
    if total > max {
        return Err(format!("it is too long: at most {max} seconds"));
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_users_write_them() {
        for (text, want) in [
            ("720h", 720 * 3600),
            ("30m", 1800),
            ("30d", 30 * 86_400),
            ("1h30m", 5400),
            ("1d12h", 36 * 3600),
            ("45s", 45),
            ("3600", 3600),
            ("0", 0),
        ] {
            assert_eq!(ttl(text), Ok(want), "{text}");
        }
    }

    #[test]
    fn bad_durations_say_the_form() {
        for text in ["", "h", "5x", "5 m", "1.5h", "m5", "30m1h", "1h1h", "5m3", "１h", "soon"] {
            assert!(ttl(text).expect_err(text).contains("720h"), "{text}");
        }
        assert!(ttl("-5m").unwrap_err().contains("negative"));
        for text in ["99999999999999999999", "9223372036854775807d", "9223372036854775807"] {
            assert!(ttl(text).is_err(), "{text}");
        }
        assert!(ttl("366001d").unwrap_err().contains("too long"));
    }

    #[test]
    fn a_timeout_is_above_zero() {
        assert_eq!(timeout("5"), Ok(Duration::from_secs(5)));
        assert!(timeout("0").is_err());
        assert!(timeout("2h").is_err());
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
        assert!(secret_key("db").unwrap_err().contains("db.KEY"));
    }
}
