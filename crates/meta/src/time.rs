//! Timestamps as in objects, and durations as kubectl prints them.
//!
//! Nothing here reads a clock: the current time is always passed in.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The error for a time that cannot be parsed. It does not repeat the input.
const NOT_RFC_3339: &str = "not a time in RFC 3339 form, such as 2006-01-02T15:04:05Z";

/// A point in time with the precision of a second: upstream's `metav1.Time`.
///
/// Written in RFC 3339 and UTC; read with any offset and with fractions of a
/// second, which are dropped. JSON `null` is not a time: use an `Option`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(jiff::Timestamp);

impl Timestamp {
    /// The time `seconds` after 1970-01-01T00:00:00Z, clamped to the years 1 to 9999.
    pub fn from_unix_seconds(seconds: i64) -> Self {
        Self(clamped(seconds, 0))
    }

    /// The whole seconds since 1970-01-01T00:00:00Z.
    pub fn unix_seconds(self) -> i64 {
        self.0.as_second()
    }
}

impl From<jiff::Timestamp> for Timestamp {
    /// Drops fractions of a second, towards the past.
    fn from(time: jiff::Timestamp) -> Self {
        Self::from_unix_seconds(floor_second(time))
    }
}

impl From<Timestamp> for jiff::Timestamp {
    fn from(time: Timestamp) -> Self {
        time.0
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0}", self.0)
    }
}

impl FromStr for Timestamp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_rfc3339(text).map(Self::from)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Timestamp {
    fn schema_name() -> Cow<'static, str> {
        "io.k8s.apimachinery.pkg.apis.meta.v1.Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "format": "date-time",
            "description": "A point in time in RFC 3339 form and UTC, to the second.",
        })
    }
}

/// A point in time with the precision of a microsecond: upstream's
/// `metav1.MicroTime`, which leases and events have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MicroTimestamp(jiff::Timestamp);

impl MicroTimestamp {
    /// The time `microseconds` after 1970-01-01T00:00:00Z, clamped to the years 1 to 9999.
    pub fn from_unix_microseconds(microseconds: i64) -> Self {
        let seconds = microseconds.div_euclid(1_000_000);
        let nanoseconds = microseconds.rem_euclid(1_000_000) * 1000;
        Self(clamped(seconds, i32::try_from(nanoseconds).unwrap_or_default()))
    }

    /// The whole microseconds since 1970-01-01T00:00:00Z.
    pub fn unix_microseconds(self) -> i64 {
        self.0.as_microsecond()
    }
}

impl MicroTimestamp {
    /// The time as text, digit by digit: every record of the audit log has two of them.
    pub fn text(self) -> [u8; 27] {
        let time = jiff::tz::Offset::UTC.to_datetime(self.0);
        let mut text = *b"0000-00-00T00:00:00.000000Z";
        for (end, value) in [
            (4, i32::from(time.year())),
            (7, i32::from(time.month())),
            (10, i32::from(time.day())),
            (13, i32::from(time.hour())),
            (16, i32::from(time.minute())),
            (19, i32::from(time.second())),
            (26, time.subsec_nanosecond() / 1000),
        ] {
            put_digits(&mut text[..end], value.unsigned_abs());
        }
        text
    }
}

/// The texts of two times. Most often they are in one second, and differ only in its fraction.
pub fn texts_of(times: [MicroTimestamp; 2]) -> [[u8; 27]; 2] {
    let [first, second] = times;
    let second_of = |time: MicroTimestamp| time.unix_microseconds().div_euclid(1_000_000);
    let first_text = first.text();
    if second_of(first) != second_of(second) {
        return [first_text, second.text()];
    }
    let mut second_text = first_text;
    let microseconds = second.unix_microseconds().rem_euclid(1_000_000);
    put_digits(&mut second_text[..26], u32::try_from(microseconds).unwrap_or_default());
    [first_text, second_text]
}

impl fmt::Display for MicroTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.text()).unwrap_or_default())
    }
}

/// Writes a number over the zeros at the end of a text.
fn put_digits(text: &mut [u8], mut value: u32) {
    for digit in text.iter_mut().rev().take_while(|digit| digit.is_ascii_digit()) {
        // A digit is one byte.
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

impl FromStr for MicroTimestamp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let time = parse_rfc3339(text)?;
        Ok(Self::from_unix_microseconds(time.as_microsecond()))
    }
}

impl Serialize for MicroTimestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MicroTimestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for MicroTimestamp {
    fn schema_name() -> Cow<'static, str> {
        "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "format": "date-time",
            "description": "A point in time in RFC 3339 form and UTC, to the microsecond.",
        })
    }
}

/// 0001-01-01T00:00:00Z: the first second that upstream can write.
const MIN_UNIX_SECONDS: i64 = -62_135_596_800;

/// The nearest representable time. The upper bound is the library's, a day
/// before the year 10000.
fn clamped(seconds: i64, nanoseconds: i32) -> jiff::Timestamp {
    let seconds = seconds.clamp(MIN_UNIX_SECONDS, jiff::Timestamp::MAX.as_second() - 1);
    jiff::Timestamp::new(seconds, nanoseconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}

fn floor_second(time: jiff::Timestamp) -> i64 {
    let truncated = time.as_second();
    if time.subsec_nanosecond() < 0 { truncated - 1 } else { truncated }
}

/// Strict RFC 3339. The library reads more forms than that (spaces, zones in
/// brackets, missing seconds), which no other server of this protocol takes.
fn parse_rfc3339(text: &str) -> Result<jiff::Timestamp, String> {
    if !has_rfc3339_shape(text.as_bytes()) {
        return Err(NOT_RFC_3339.to_owned());
    }
    let time: jiff::Timestamp = text.parse().map_err(|_| NOT_RFC_3339.to_owned())?;
    if floor_second(time) < MIN_UNIX_SECONDS {
        return Err(NOT_RFC_3339.to_owned());
    }
    Ok(time)
}

/// `dddd-dd-ddTdd:dd:dd`, an optional fraction, then `Z` or `±dd:dd`.
fn has_rfc3339_shape(text: &[u8]) -> bool {
    const LENGTH: usize = "2006-01-02T15:04:05".len();
    let Some((head, mut rest)) = text.split_at_checked(LENGTH) else { return false };
    if !matches_pattern(head, b"dddd-dd-ddTdd:dd:dd") {
        return false;
    }
    if let Some(fraction) = rest.strip_prefix(b".") {
        let digits = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
        if digits == 0 || digits > 9 {
            return false;
        }
        rest = &fraction[digits..];
    }
    rest == b"Z" || matches_pattern(rest, b"+dd:dd") || matches_pattern(rest, b"-dd:dd")
}

/// Byte for byte, where `d` in the pattern stands for any digit.
fn matches_pattern(text: &[u8], pattern: &[u8]) -> bool {
    text.len() == pattern.len()
        && text.iter().zip(pattern).all(|(b, p)| match p {
            b'd' => b.is_ascii_digit(),
            p => b == p,
        })
}

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// A duration as in the AGE column of kubectl: at most two units, and
/// the smaller one only where it is not negligible (`5s`, `3m20s`, `5h`, `2d3h`, `2y20d`).
///
/// A clock that is a second off gives `0s`; further in the future, `<invalid>`.
pub fn human_duration(seconds: i64) -> String {
    match seconds {
        i64::MIN..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => two_units(s, (MINUTE, "m"), (1, "s")),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => two_units(s, (HOUR, "h"), (MINUTE, "m")),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => two_units(s, (DAY, "d"), (HOUR, "h")),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => two_units(s, (YEAR, "y"), (DAY, "d")),
        s => format!("{}y", s / YEAR),
    }
}

/// `seconds` in a larger and a smaller unit, the smaller left out when it is zero.
fn two_units(seconds: i64, large: (i64, &str), small: (i64, &str)) -> String {
    let rest = seconds % large.0 / small.0;
    let head = format!("{}{}", seconds / large.0, large.1);
    if rest == 0 { head } else { format!("{head}{rest}{}", small.1) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_any_offset_and_writes_utc_seconds() {
        for (input, want) in [
            ("2006-01-02T15:04:05Z", "2006-01-02T15:04:05Z"),
            ("2006-01-02T15:04:05.999999999Z", "2006-01-02T15:04:05Z"),
            ("2006-01-02T15:04:05+02:00", "2006-01-02T13:04:05Z"),
            ("1969-12-31T23:59:59.5Z", "1969-12-31T23:59:59Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ] {
            assert_eq!(input.parse::<Timestamp>().unwrap().to_string(), want);
        }
    }

    #[test]
    fn refuses_what_is_not_rfc_3339() {
        for input in [
            "",
            "2006-01-02",
            "2006-01-02 15:04:05Z",
            "2006-01-02T15:04Z",
            "2006-01-02T15:04:05",
            "2006-01-02T15:04:05.Z",
            "2006-01-02T15:04:05+0200",
            "2006-13-02T15:04:05Z",
            "2006-01-02T15:04:05Z[UTC]",
            "+002006-01-02T15:04:05Z",
            "0000-12-31T23:59:59Z",
            "2006-01-02T15:04:05é",
        ] {
            assert!(input.parse::<Timestamp>().is_err(), "{input}");
        }
    }

    proptest! {
        #[test]
        fn the_texts_of_two_times_are_those_of_each(first in any::<i64>(), after in -2_000_000_i64..2_000_000) {
            let times = [first, first.saturating_add(after)].map(MicroTimestamp::from_unix_microseconds);
            prop_assert_eq!(texts_of(times), times.map(MicroTimestamp::text));
        }
    }

    #[test]
    fn unix_seconds_are_clamped() {
        assert_eq!(Timestamp::from_unix_seconds(1).unix_seconds(), 1);
        assert_eq!(Timestamp::from_unix_seconds(i64::MIN).to_string(), "0001-01-01T00:00:00Z");
        assert!(Timestamp::from_unix_seconds(i64::MAX).to_string().starts_with("9999-12-"));
    }

    #[test]
    fn micro_time_keeps_six_digits() {
        let time: MicroTimestamp = "2006-01-02T15:04:05.0000019Z".parse().unwrap();
        assert_eq!(time.to_string(), "2006-01-02T15:04:05.000001Z");
        let round = MicroTimestamp::from_unix_microseconds(time.unix_microseconds());
        assert_eq!(round, time);
        let whole: MicroTimestamp = "2006-01-02T15:04:05Z".parse().unwrap();
        assert_eq!(whole.to_string(), "2006-01-02T15:04:05.000000Z");
    }

    #[test]
    fn schemas_are_those_of_upstream() {
        for (name, schema, want) in [
            (Timestamp::schema_name(), schemars::schema_for!(Timestamp), "Time"),
            (MicroTimestamp::schema_name(), schemars::schema_for!(MicroTimestamp), "MicroTime"),
        ] {
            assert_eq!(name, format!("io.k8s.apimachinery.pkg.apis.meta.v1.{want}"));
            let text = |key| schema.get(key).and_then(serde_json::Value::as_str);
            assert_eq!((text("type"), text("format")), (Some("string"), Some("date-time")));
        }
    }

    proptest! {
        #[test]
        fn micro_time_is_written_as_the_library_does(seconds in any::<i64>(), micros in 0..1_000_000i64) {
            let seconds = seconds.rem_euclid(315_000_000_000) + MIN_UNIX_SECONDS;
            let time = MicroTimestamp::from_unix_microseconds(seconds * 1_000_000 + micros);
            prop_assert_eq!(time.to_string(), format!("{:.6}", time.0));
        }
    }

    #[test]
    fn durations_are_written_as_by_kubectl() {
        for (seconds, want) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (5, "5s"),
            (119, "119s"),
            (120, "2m"),
            (200, "3m20s"),
            (599, "9m59s"),
            (600, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 60, "3h1m"),
            (8 * HOUR + 120, "8h"),
            (2 * DAY - 1, "47h"),
            (2 * DAY + 3 * HOUR, "2d3h"),
            (8 * DAY, "8d"),
            (385 * DAY, "385d"),
            (2 * YEAR + 20 * DAY, "2y20d"),
            (3 * YEAR, "3y"),
            (9 * YEAR + 20 * DAY, "9y"),
            (i64::MAX, "292471208677y"),
        ] {
            assert_eq!(human_duration(seconds), want, "{seconds}");
        }
    }
}
