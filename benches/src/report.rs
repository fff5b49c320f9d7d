//! Prints results: as one line of JSON, or as a table.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use serde_json::{Value, json};

/// Prints a result: as JSON when it is asked for, or when the output is no terminal.
pub(crate) fn print(label: &str, mut result: Value, as_json: bool) {
    if !label.is_empty() {
        result["label"] = json!(label);
    }
    if as_json || !std::io::stdout().is_terminal() {
        println!("{result}");
    } else {
        for (name, value) in rows("", &result) {
            println!("{name:<44} {value:>16}");
        }
    }
}

/// Nested names are joined with a dot.
fn rows(prefix: &str, value: &Value) -> Vec<(String, String)> {
    match value {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, value)| {
                let name =
                    if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                rows(&name, value)
            })
            .collect(),
        Value::Null => Vec::new(),
        Value::String(text) => vec![(prefix.to_owned(), text.clone())],
        other => vec![(prefix.to_owned(), other.to_string())],
    }
}

/// Prints the error.
#[expect(clippy::print_stderr, reason = "errors go to the standard error")]
pub(crate) fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_row_for_each_number() {
        let rows = rows("", &json!({"op": "get", "latency": {"p50": 3, "p99": 9}, "none": null}));
        let expected = [("latency.p50", "3"), ("latency.p99", "9"), ("op", "get")];
        assert_eq!(rows, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
