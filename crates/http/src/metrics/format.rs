//! The parts of the text format of Prometheus.

use std::fmt::Write as _;

/// Appends the lines above the values of a metric.
pub(super) fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Microseconds as seconds, without zeros at the end.
pub(super) fn seconds(microseconds: u64) -> String {
    let text = format!("{}.{:06}", microseconds / 1_000_000, microseconds % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
