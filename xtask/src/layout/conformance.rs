//! The list of clients' requirements, `docs/conformance.md`: every test that it names exists, and a
//! row without one says why.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Finding;

const LIST: &str = "docs/conformance.md";

const STATUSES: [&str; 4] = ["holds", "by contract, not run", "not yet", "otherwise"];

/// Checks each row of the list.
pub(super) fn check(root: &Path) -> Result<Vec<Finding>> {
    let text =
        fs::read_to_string(root.join(LIST)).with_context(|| format!("cannot read {LIST}"))?;
    let rows = text.lines().enumerate().filter(|(_, line)| line.starts_with('|'));
    let mut findings = Vec::new();
    for (index, line) in rows {
        let wrong = match cells(line) {
            Some(row) if is_heading(row) => continue,
            Some(row) => row_errors(row, |name| exists(root, name)),
            None => vec!["a row has a requirement, tests, and a status".to_owned()],
        };
        let finding = |message| Finding { path: PathBuf::from(LIST), line: index + 1, message };
        findings.extend(wrong.into_iter().map(finding));
    }
    Ok(findings)
}

fn cells(line: &str) -> Option<[&str; 3]> {
    let line = line.strip_prefix('|')?.strip_suffix('|')?;
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    cells.try_into().ok()
}

fn is_heading([_, tests, status]: [&str; 3]) -> bool {
    status == "status" || tests.bytes().all(|byte| byte == b'-')
}

/// The errors in a row.
fn row_errors([_, cell, status]: [&str; 3], exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut wrong = Vec::new();
    if !STATUSES.contains(&status) {
        wrong.push(format!("`{status}` is no status: say one of {}", STATUSES.join("; ")));
    }
    let tests: Vec<&str> =
        cell.split('`').skip(1).step_by(2).filter(|one| one.contains("::")).collect();
    if tests.is_empty() && (cell.is_empty() || status == "holds") {
        wrong.push("no test shows it: name one, or say why there is none".to_owned());
    }
    let missing = tests.into_iter().filter(|name| !exists(name));
    wrong.extend(
        missing.map(|name| format!("there is no test `{name}`: name the one that shows it")),
    );
    wrong
}

/// Whether there is a test of this name: in a crate, if it begins with one, and else in `tests/`.
fn exists(root: &Path, name: &str) -> bool {
    let parts: Vec<&str> = name.split("::").collect();
    let [first, modules @ .., function] = parts.as_slice() else { return false };
    let path: PathBuf = modules.iter().collect();
    let files: Vec<PathBuf> = if let Some(directory) = first.strip_prefix("postern-") {
        let sources = root.join("crates").join(directory).join("src");
        // Tests in the module itself are in a module of their own, which has no file.
        let without = if path.ends_with("tests") { path.parent() } else { None };
        let paths = [Some(path.as_path()), without];
        let of_path = |path: &Path| [path.with_extension("rs"), path.join("mod.rs")];
        paths.into_iter().flatten().flat_map(of_path).map(|file| sources.join(file)).collect()
    } else {
        let module = if modules.is_empty() { PathBuf::from("main") } else { path };
        vec![root.join("tests/tests").join(first).join(module.with_extension("rs"))]
    };
    files.into_iter().any(|file| has_test(&fs::read_to_string(file).unwrap_or_default(), function))
}

/// Whether a file has a test of this name: a function without parameters under an attribute that says so,
/// or with the parameters of a property.
fn has_test(source: &str, function: &str) -> bool {
    let is_named = |line: &str| {
        let line = line.trim_start();
        let line = line.strip_prefix("async ").unwrap_or(line);
        let rest = line.strip_prefix("fn ").and_then(|rest| rest.strip_prefix(function));
        rest.is_some_and(|rest| rest.starts_with('('))
    };
    let lines: Vec<&str> = source.lines().collect();
    lines.iter().enumerate().any(|(index, line)| {
        let before = lines[..index].iter().rev().map(|line| line.trim_start());
        let mut attributes = before.take_while(|line| line.starts_with(['#', '/', ')']));
        is_named(line)
            && attributes
                .any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_name_tests_or_say_why_not() {
        let errors = |row| row_errors(row, |name| name == "http::a::b");
        assert_eq!(errors(["x", "`http::a::b`", "holds"]), [""; 0]);
        assert_eq!(errors(["x", "being built", "not yet"]), [""; 0]);
        assert_eq!(errors(["x", "", "not yet"]).len(), 1);
        assert_eq!(errors(["x", "surely", "holds"]).len(), 1);
        assert_eq!(errors(["x", "`http::a::b`, `http::a::gone`", "holds"]).len(), 1);
        assert_eq!(errors(["x", "`http::a::b`", "done"]).len(), 1);
        assert_eq!(cells("| a | b | c |"), Some(["a", "b", "c"]));
        assert_eq!(cells("| a | b |"), None);
        assert!(is_heading(["---", "---", "---"]) && is_heading(["client", "test", "status"]));
    }

    #[test]
    fn a_test_is_a_function_with_the_attribute() {
        let source = "#[tokio::test(start_paused = true)]\nasync fn one() {\n}\n\nfn two() {\n}\n\n\
                      #[test]\n#[expect(x)]\nfn three() {}\n";
        let found = ["one", "two", "three", "on"].map(|name| has_test(source, name));
        assert_eq!(found, [true, false, true, false]);
    }
}
