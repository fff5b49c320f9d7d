//! Durations in queries, as Go's `time.ParseDuration` reads them: what clients of the API write.
//! Only here: settings and flags have durations of their own form.

use jiff::SignedDuration;

/// The units, in nanoseconds. Go takes the micro sign (U+00B5) and the Greek letter (U+03BC).
const UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// The duration; `None` for an invalid one, and for one with more nanoseconds than an `i64`. A sign
/// may come first. Then come numbers with their units, in any order, such as `1h30m` or `.5h`. Only
/// `0` may have no unit.
pub(super) fn parse(text: &str) -> Option<SignedDuration> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let nanos = i128::from(parse_nanos(unsigned)?);
    let nanos = if text.starts_with('-') { -nanos } else { nanos };
    i64::try_from(nanos).ok().map(SignedDuration::from_nanos)
}

fn parse_nanos(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let (mut total, mut rest) = parse_term(text)?;
    while !rest.is_empty() {
        let (nanos, next) = parse_term(rest)?;
        total = total.checked_add(nanos)?;
        rest = next;
    }
    Some(total)
}

/// The nanoseconds of the first number and its unit, and the rest of the text.
fn parse_term(text: &str) -> Option<(u64, &str)> {
    let (whole, rest) = split_digits(text);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), split_digits);
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let end = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    let (_, unit) = UNITS.iter().find(|(unit, _)| *unit == name)?;
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()? };
    let nanos = whole.checked_mul(*unit)?.checked_add(fraction_of(fraction, *unit))?;
    Some((nanos, rest))
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// The part of a unit that the digits behind the point say, rounded down. Go computes it
/// with floats, which can be a nanosecond off.
fn fraction_of(digits: &str, unit: u64) -> u64 {
    let (mut sum, mut tens) = (0_u64, 1_u64);
    // No unit has more than 10^13 nanoseconds: digits behind these say next to nothing.
    for digit in digits.bytes().take(18) {
        sum = sum * 10 + u64::from(digit - b'0');
        tens *= 10;
    }
    let nanos = u128::from(sum) * u128::from(unit) / u128::from(tens);
    u64::try_from(nanos).unwrap_or(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000_000;

    #[test]
    fn what_go_takes() {
        for (text, nanos) in [
            ("0", 0),
            ("-0", 0),
            ("+0", 0),
            ("0s", 0),
            ("32s", 32_000_000_000),
            ("+5s", 5_000_000_000),
            ("-1s", -1_000_000_000),
            ("007ns", 7),
            ("1us2\u{b5}s3\u{3bc}s4ms", 4_006_000),
            ("1h30m", HOUR * 3 / 2),
            ("30m1h", HOUR * 3 / 2),
            ("1h1h", 2 * HOUR),
            ("1.5h", HOUR * 3 / 2),
            (".5h", HOUR / 2),
            ("-.5h", -HOUR / 2),
            ("1.h", HOUR),
            ("1h.5h", HOUR * 3 / 2),
            ("0.9ns", 0),
            ("0.123456789s", 123_456_789),
            ("-2562047h47m16.854775808s", i64::MIN),
            ("0.100000000000000000000000000000000000000000h", HOUR / 10),
            ("9223372036854775807ns", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
            ("9223372036854775.807us", i64::MAX),
            ("2562047h47m16.854775807s", i64::MAX),
        ] {
            assert_eq!(parse(text), Some(SignedDuration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn what_go_refuses() {
        for text in [
            "",
            "-",
            "+",
            "--1s",
            "-+1s",
            "00",
            "0.0",
            "1",
            "1.5",
            "1h30",
            ".",
            "-.",
            ".s",
            "s",
            "1..5h",
            "1.5.5h",
            "1h-30m",
            " 1s",
            "1s ",
            "1 s",
            "1S",
            "1d",
            "1sec",
            "1e3s",
            "1,5h",
            "\u{661}s",
            "PT1H",
            "1 hour",
            "1h ago",
            "9223372036854775808ns",
            "-9223372036854775809ns",
            "9223372036854775.808us",
            "18446744073709551617ns",
            "2562048h",
            "9223372036s9223372036s",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
