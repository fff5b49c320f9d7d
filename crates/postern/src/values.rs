//! The types and parsers of the values of flags. Each value is checked when the command line is parsed, so an invalid
//! value is reported with its flag.

use std::any::TypeId;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use clap::{Arg, ArgAction};
use http::HeaderName;
use postern_server::{Networks, UpstreamAddresses};

/// The maximum duration of a setting.
const DURATION_MAX: Duration = Duration::from_hours(366 * 24);

/// The units of durations, largest first, with their sizes in seconds.
const UNITS: [(&str, u64); 3] = [("h", 3600), ("m", 60), ("s", 1)];

/// The value names of types.
const VALUE_NAMES: [(TypeId, &str); 5] = [
    (TypeId::of::<PositiveDuration>(), "DURATION"),
    (TypeId::of::<SocketAddr>(), "ADDRESS:PORT"),
    (TypeId::of::<Count>(), "COUNT"),
    (TypeId::of::<WriteBytes>(), "BYTES"),
    (TypeId::of::<bool>(), "BOOL"),
];

/// The headers with another form than a list of addresses.
const OTHER_FORMS: [&str; 2] = ["forwarded", "via"];

/// A duration of at least one second and at most 366 days, in the format of all flags of `postern`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PositiveDuration(Duration);

impl PositiveDuration {
    /// The duration.
    pub(crate) fn get(self) -> Duration {
        self.0
    }

    /// The duration in seconds.
    pub(crate) fn seconds(self) -> i64 {
        i64::try_from(self.0.as_secs()).unwrap_or(i64::MAX)
    }
}

impl From<Duration> for PositiveDuration {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl FromStr for PositiveDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        postern_cli::parse_positive_duration(text, DURATION_MAX).map(Self)
    }
}

impl fmt::Display for PositiveDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (unit, size) =
            UNITS.into_iter().find(|(_, size)| seconds.is_multiple_of(*size)).unwrap_or(("s", 1));
        write!(f, "{}{unit}", seconds / size)
    }
}

/// A default of whole seconds.
pub(crate) fn seconds(seconds: i64) -> PositiveDuration {
    PositiveDuration(Duration::from_secs(seconds.unsigned_abs()))
}

/// A number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounded<const MIN: usize, const MAX: usize>(usize);

/// A count. No machine has more, and sums of these values cannot overflow.
pub(crate) type Count = Bounded<1, 1_000_000>;

/// The bytes that an owner may write in a minute: at least one object of the maximum size.
pub(crate) type WriteBytes = Bounded<1_000_000, { 1 << 40 }>;

impl<const MIN: usize, const MAX: usize> Bounded<MIN, MAX> {
    /// The number.
    pub(crate) fn get(self) -> usize {
        self.0
    }
}

impl<const MIN: usize, const MAX: usize> From<usize> for Bounded<MIN, MAX> {
    fn from(number: usize) -> Self {
        Self(number)
    }
}

impl<const MIN: usize, const MAX: usize> FromStr for Bounded<MIN, MAX> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.parse().ok().filter(|number| (MIN..=MAX).contains(number));
        number.map(Self).ok_or_else(|| format!("must be from {MIN} to {MAX}"))
    }
}

impl<const MIN: usize, const MAX: usize> fmt::Display for Bounded<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The flag with the settings that follow from its name and type. The variable of `--data-dir` is
/// `PREFIX_DATA_DIR`. The value has the name of its type, unless the flag has another variable or
/// value name.
pub(crate) fn with_conventions(arg: Arg, prefix: &str) -> Arg {
    let id = arg.get_id().as_str().to_uppercase();
    let has_own_value_name = arg.get_value_names() != Some(&[id.into()]);
    let variable = arg.get_long().unwrap_or_default().to_uppercase().replace('-', "_");
    let value_type = arg.get_value_parser().type_id();
    let value_name = VALUE_NAMES.iter().find(|(id, _)| value_type == *id);
    let arg = match arg.get_env() {
        None => arg.env(format!("{prefix}_{variable}")),
        Some(_) => arg,
    };
    match value_name {
        Some((_, name)) if !has_own_value_name => arg.value_name(*name),
        _ => arg,
    }
}

/// The flag, where a switch may have a value: `--console=false` overrides a `true` of a variable or the file.
pub(crate) fn with_optional_value(arg: Arg) -> Arg {
    if !matches!(arg.get_action(), ArgAction::SetTrue) {
        return arg;
    }
    let has_default = !arg.get_default_values().is_empty();
    let arg = if has_default { arg } else { arg.default_value("false") };
    arg.action(ArgAction::Set).num_args(0..=1).require_equals(true).default_missing_value("true")
}

/// Parses a DNS name or an IP address. It is written into certificates and kubeconfigs.
pub(crate) fn host(host: &str) -> Result<String, &'static str> {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_name = host.len() <= 253 && host.split('.').all(is_label);
    if is_name || host.parse::<IpAddr>().is_ok() {
        return Ok(host.to_owned());
    }
    Err("must be a DNS name or an IP address (IPv6 without brackets)")
}

/// Parses the URL of this server. The result has no slash at its end, for comparisons.
pub(crate) fn external_url(text: &str) -> Result<String, &'static str> {
    let url = text.trim_end_matches('/');
    let rest = url.strip_prefix("https://").unwrap_or_default();
    let is_url = !rest.is_empty()
        && rest.bytes().all(|byte| byte.is_ascii_graphic())
        && !rest.contains(['?', '#', '@', '"', '\\']);
    if is_url { Ok(url.to_owned()) } else { Err("must be https://HOST[:PORT][/PATH]") }
}

/// Parses a group that may be forwarded to clusters.
pub(crate) fn forwarded_group(group: &str) -> Result<String, &'static str> {
    if group.is_empty() {
        return Err("a group must not be empty");
    }
    if group.starts_with("system:") {
        return Err("groups that begin with system: are never forwarded");
    }
    Ok(group.to_owned())
}

/// Checks a network of clusters.
pub(crate) fn upstream_network(text: &str) -> anyhow::Result<String> {
    UpstreamAddresses::default().allow(text)?;
    Ok(text.to_owned())
}

/// Checks a network of proxies.
pub(crate) fn proxy_network(text: &str) -> anyhow::Result<String> {
    Networks::default().add(text)?;
    Ok(text.to_owned())
}

/// Parses the name of a header with a list of addresses.
pub(crate) fn address_header(name: &str) -> anyhow::Result<HeaderName> {
    anyhow::ensure!(
        !OTHER_FORMS.contains(&name.to_ascii_lowercase().as_str()),
        "the value must be a list of addresses, as in X-Forwarded-For"
    );
    Ok(name.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let of = |text: &str| text.parse().map(PositiveDuration::get);
        assert_eq!(of("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(of("1h30m"), Ok(Duration::from_mins(90)));
        assert_eq!(of("30d"), Ok(Duration::from_hours(720)));
        assert_eq!(of("5"), Ok(Duration::from_secs(5)));
        for wrong in ["", "5x", "-5m", "0s", "x", "9000000h", "1.5h", "PT5M"] {
            let by_cli = postern_cli::parse_positive_duration(wrong, DURATION_MAX);
            assert_eq!(of(wrong), by_cli, "the same message as for every flag");
            assert!(by_cli.is_err(), "{wrong}");
        }
        for text in ["1s", "90s", "5m", "90m", "24h", "720h"] {
            assert_eq!(text.parse::<PositiveDuration>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn hosts() {
        for good in ["localhost", "a-b.example.com", "10.0.0.1", "::1"] {
            assert!(host(good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "x/y", "https://x", "[::1]", "x\ny", "-x", "*.x", "a..b"] {
            assert!(host(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn external_urls() {
        assert_eq!(external_url("https://a.example.com/").unwrap(), "https://a.example.com");
        assert_eq!(external_url("https://a:8443/p/").unwrap(), "https://a:8443/p");
        for bad in [
            "",
            "a.example.com",
            "http://a",
            "https://",
            "https://a b",
            "https://u@a",
            "https://a?b",
        ] {
            assert!(external_url(bad).is_err(), "{bad}");
        }
    }
}
