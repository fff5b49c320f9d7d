//! Durations as they are written in flags, environment variables and settings files, and as they
//! are printed. Those of the server's settings are read here, too, so that all are read alike.

use std::time::Duration;

/// The units, largest first, with their sizes in seconds.
const UNITS: [(&str, u64); 4] = [("d", 24 * 3600), ("h", 3600), ("m", 60), ("s", 1)];

/// How to write a duration, for errors.
const FORM: &str = "write a duration as 720h, 30m, 1h30m or 30d, or as plain seconds";

/// Parses `720h`, `30m`, `1h30m`, `30d`, or plain seconds. A day has 24 hours.
///
/// # Errors
/// A sentence that names the error: another form, or more than `max`. It does not repeat the text.
pub fn parse_duration(text: &str, max: Duration) -> Result<Duration, String> {
    if text.starts_with('-') {
        return Err(format!("a duration must not be negative; {FORM}"));
    }
    let seconds = parse_seconds(text).ok_or(FORM)?;
    if seconds > max.as_secs() {
        return Err(format!("it is too long: at most {}", display_duration(max)));
    }
    Ok(Duration::from_secs(seconds))
}

/// The same, for a duration that must not be zero.
///
/// # Errors
/// As [`parse_duration`], and for zero.
pub fn parse_positive_duration(text: &str, max: Duration) -> Result<Duration, String> {
    let span = parse_duration(text, max)?;
    if span.is_zero() { Err("the duration must be greater than zero".to_owned()) } else { Ok(span) }
}

/// The seconds, at most `u64::MAX`; `None` where the form is wrong.
fn parse_seconds(text: &str) -> Option<u64> {
    let mut total: u64 = 0;
    let mut rest = text;
    let mut last = u64::MAX;
    while !rest.is_empty() || text.is_empty() {
        let (digits, behind) = split_where(rest, |byte| !byte.is_ascii_digit());
        let (unit, behind) = split_where(behind, |byte| !byte.is_ascii_alphabetic());
        if digits.is_empty() {
            return None;
        }
        // A number that does not fit is too long in every unit.
        let number = digits.parse().unwrap_or(u64::MAX);
        let size = match UNITS.iter().find(|(name, _)| *name == unit) {
            Some((_, size)) => *size,
            None if digits.len() == text.len() => 1,
            None => return None,
        };
        // The same unit twice, or a larger unit after a smaller one, is a mistake.
        if size >= last {
            return None;
        }
        last = size;
        total = total.saturating_add(number.saturating_mul(size));
        rest = behind;
    }
    Some(total)
}

fn split_where(text: &str, end: impl Fn(u8) -> bool) -> (&str, &str) {
    text.split_at(text.bytes().position(end).unwrap_or(text.len()))
}

/// A duration in the largest units that fit: `30d`, `1h30m`. Fractions of a second are
/// left out.
pub(crate) fn display_duration(span: Duration) -> String {
    let mut rest = span.as_secs();
    let mut out = String::new();
    for (unit, size) in UNITS {
        if rest >= size {
            out = format!("{out}{}{unit}", rest / size);
            rest %= size;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR: Duration = Duration::from_hours(366 * 24);

    fn seconds(text: &str) -> Result<u64, String> {
        parse_duration(text, YEAR).map(|span| span.as_secs())
    }

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
            ("366d", 366 * 86_400),
        ] {
            assert_eq!(seconds(text), Ok(want), "{text}");
        }
    }

    #[test]
    fn bad_durations_say_the_form() {
        for text in ["", "h", "5x", "5 m", "1.5h", "m5", "30m1h", "1h1h", "5m3", "１h", "soon"] {
            assert!(seconds(text).expect_err(text).contains("720h"), "{text}");
        }
        assert!(seconds("-5m").unwrap_err().contains("negative"));
        for text in ["99999999999999999999", "18446744073709551615d", "367d", "366d1s"] {
            assert_eq!(seconds(text).expect_err(text), "it is too long: at most 366d");
        }
    }

    #[test]
    fn zero_is_refused_where_it_makes_no_sense() {
        for text in ["0", "0s", "0d0h"] {
            let error = parse_positive_duration(text, YEAR).expect_err(text);
            assert_eq!(error, "the duration must be greater than zero");
        }
        assert_eq!(parse_positive_duration("1", YEAR), Ok(Duration::from_secs(1)));
    }

    #[test]
    fn durations_are_printed_in_the_largest_units() {
        for (seconds, want) in [(45, "45s"), (5400, "1h30m"), (720 * 3600, "30d"), (86_401, "1d1s")]
        {
            assert_eq!(display_duration(Duration::from_secs(seconds)), want);
        }
    }
}
